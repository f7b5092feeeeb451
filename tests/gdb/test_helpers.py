"""``gdbext.helpers``: the script of ``docs/helpers.md`` as written, and each against the program's word."""

from __future__ import annotations

import re

import pytest

from tests.gdb.bridged import Running, build, gdb, need_gdb, python
from tests.support.cache import CHECKOUT


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    need_gdb()
    process = Running(build(tmp_path_factory.mktemp("helpers")))
    yield process
    process.close()


def script_of_the_docs():
    text = (CHECKOUT / "docs" / "helpers.md").read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


def ask(running, *commands):
    return gdb(*commands, options=["-p", str(running.pid)])


def test_the_script_of_the_docs(running, tmp_path):
    script = script_of_the_docs()
    assert len([line for line in script.splitlines() if line.strip()]) <= 10
    user = python(tmp_path / "user.py", script)
    output = ask(
        running, user, "words &probe --count 2", user, "words 8", "words touch(1)", "words", "help words"
    )
    lines = re.findall(r"^0x\w+ 0x\w{16} .*$", output.out, re.MULTILINE)
    address = running.truth["probe"]
    assert [int(line.split()[0], 16) for line in lines] == [address, address + 8], output
    assert int(lines[0].split()[1], 16) & 0xFF == ord("x") and int(lines[1].split()[1], 16) == 1
    told = [line for line in output.err.splitlines() if line.startswith("words: ")]
    assert told == [
        "words: cannot read 8 bytes of memory at 0x8",
        "words: cannot evaluate 'touch(1)': Cannot call functions in the program: may-call-functions is off",
        "words: the following arguments are required: address; -h shows how it is written",
    ], output
    assert "usage: words" in output.out and "Traceback" not in output.err


CHECKS = """
from gdbext.errors import FaultError
from gdbext.helpers import arch, memory, symbol, vmmap
probe, secret = symbol.lookup('probe'), symbol.lookup('secret')
def fails(function, *arguments):
    try:
        function(*arguments)
    except FaultError:
        return True
    return False
end = vmmap.find(probe).end
while vmmap.find(end):
    end = vmmap.find(end).end
def check(*values):
    print('CHECK', *values)
text = memory.pvoid(symbol.lookup('text'))
check(probe, secret, symbol.lookup('nosuch'), symbol.get(secret + 1), repr(symbol.get(8)))
word = probe + 8
check(memory.u8(probe), memory.u32(secret), memory.u16(word), memory.u64(word), memory.s32(word))
check(memory.pvoid(probe + 8), bytes(memory.read(probe, 2)), bytes(memory.string(text)))
check(memory.is_readable(probe), memory.is_readable(8))
check(memory.peek(8), memory.peek(probe), fails(memory.u8, 8))
check(len(memory.read(end - 3, 10, partial=True)))
check(fails(memory.read, end - 3, 10), fails(memory.read, 8, 4, True))
check(memory.s8(probe + {sign}), memory.s64(probe + 8), memory.s16(probe + 8), memory.string(probe + 1, 1))
page = vmmap.find(probe)
check(probe in page, page.rw, page.execute, page.objfile.endswith('bridge'))
check(vmmap.find(8), vmmap.find(None), page in vmmap.pages(), sum(page.is_stack for page in vmmap.get()))
check(arch.ptrsize, arch.endian, arch.name == arch.current, hex(arch.ptrmask))
try:
    arch.colour
except AttributeError as error:
    print('CHECK', error)
"""


def test_each_helper(running, tmp_path):
    checks = python(tmp_path / "checks.py", CHECKS.replace("{sign}", str(running.truth["sign"])))
    output = ask(running, checks)
    lines = [line[6:] for line in output.out.splitlines() if line.startswith("CHECK ")]
    probe, secret = running.truth["probe"], running.truth["secret"]
    assert lines == [
        f"{probe} {secret} None secret+1 ''",
        "120 42 1 1 1",
        "1 b'x\\x00' b'hello \"world\"'",
        "True False",
        "None bytearray(b'x') True",
        "3",
        "True True",
        "-1 1 1 bytearray(b'')",
        "True True False True",
        "None None True 1",
        "8 little True 0xffffffffffffffff",
        "module 'gdbext.helpers.arch' has no attribute 'colour'",
    ], output


def test_a_command_takes_no_name_of_others(tmp_path):
    need_gdb()
    script = (
        "from gdbext.helpers import Command\n"
        "@Command('Mine.', aliases=['m1'])\ndef mine():\n    print('mine ran')\n"
        "for name in ('list', 'gx'):\n"
        "    try:\n        Command('x', command_name=name)(mine)\n"
        "    except ValueError as error:\n        print(error)\n"
    )
    output = gdb(python(tmp_path / "mine.py", script), "mine", "m1", "mine 1", "mine -h", "words 1")
    assert output.out.splitlines()[:4] == [
        "the command 'list' exists already", "the command 'gx' exists already", "mine ran", "mine ran",
    ], output  # fmt: skip
    assert "mine: unrecognized arguments: 1; -h shows how it is written" in output.err


def test_helpers_without_a_target_are_one_line(tmp_path):
    need_gdb()
    script = "from gdbext.helpers import Command, memory\n@Command('Mine.')\ndef mine():\n    memory.u8(1)\n"
    output = gdb(python(tmp_path / "mine.py", script), "mine")
    assert output.err == "mine: there is no process and no core; attach PID, run, or core-file CORE\n"
