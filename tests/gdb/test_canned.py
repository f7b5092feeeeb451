"""The canned commands: each does what its document says, and sourcing them twice asks nothing."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.gdb.bridged import DATA, gdb, need_gdb
from tests.support.cache import CHECKOUT
from tests.support.truth import address

CANNED = f"source {CHECKOUT / 'gdbext' / 'canned.gdb'}"
NAMES = ["gx-count-every", "gx-longest", "gx-print-cache", "gx-print-entry", "gx-watch-chain", "gx-watch-hash"]


@pytest.fixture(autouse=True)
def _gdb():
    need_gdb()


@pytest.mark.parametrize("confirm", ["on", "off"])
def test_sourcing_twice_asks_nothing_and_leaves_confirm_as_it_was(confirm):
    output = gdb(f"set confirm {confirm}", CANNED, CANNED, "show confirm", "help user-defined")
    assert f"is {confirm}." in output.out and "edefine" not in output.out.split("Use the")[0], output
    assert re.findall(r"^(\S+) -- ", output.out, re.MULTILINE) == NAMES
    assert output.err == ""


def test_each_has_a_document_and_shows_it_when_arguments_lack():
    commands = [command for name in NAMES for command in (f"help {name}", name)]
    output = gdb(CANNED, *commands)
    for name in NAMES:
        assert output.out.count(f"Usage: {name} ") == 2 and f"Example: {name} " in output.out, name


def test_without_the_pack_sourcing_says_what_is_missing():
    output = gdb("set confirm on", CANNED, "show confirm", load=False)
    assert 'Undefined command: "gx"' in output.err and "is on." in output.out


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    path = tmp_path_factory.mktemp("chains") / "chains"
    subprocess.run(["gcc", "-g", "-O0", "-pthread", str(DATA / "chains.c"), "-o", str(path)], check=True)
    return path


def test_watching_and_counting(program):
    at = {}
    for number, line in enumerate((DATA / "chains.c").read_text().splitlines(), 1):
        at.update(dict.fromkeys(re.findall(r"/\* (\w+) \*/", line), f"chains.c:{number}"))
    output = gdb(
        CANNED,
        f"gx-watch-chain {at['inserted']} 'bins[bin]' next 8",
        f"gx-watch-hash insert entry->hash {at['computed']} value",
        f"gx-count-every {at['linked']} 40 'bins[bin]' next",
        "run",
        options=[str(program)],
    )
    truth = {key: int(value) for key, value in re.findall(r'"(\w+)": (\d+)', output.out)}
    events = re.findall(r" breakpoint (\d): ", output.out)
    assert events.count("1") == truth["longer"] and events.count("3") == truth["stale"], output
    assert events.count("4") == truth["inserted"] // 40 and "exited normally" in output.out


@pytest.mark.boards(target=("attach", "core"), info=("debug",), glibc=("system",))
def test_looking_at_a_cache(stage, board):
    here = stage("hash_tables", "--modes", "stale,healthy", "--entries", "4000")
    group = here.truth.details["groups"]["stale"]
    worst = max(group["tables"], key=lambda table: table["max_len"])
    output = here.text(CANNED, "gx-longest stale_cache 3", "gx-print-entry $gx_bin_first", "gx-print-cache stale_cache")
    line = f"{worst['max_len']} entries in bin {worst['max_bin']} of the table at {worst['address']}"
    assert line in output.out.splitlines(), output
    assert re.search(r"^\$1 = hash 0x[0-9a-f]+, key 0x[0-9a-f]+ = \{overflow_next = ", output.out, re.MULTILINE), output
    assert "walked" in output.out and "stale" in output.out and "Traceback" not in output.err
    first = re.search(r"^ +0 +(0x[0-9a-f]+)", output.out, re.MULTILINE)
    assert first and address(first[1]), output
    wrong = here.text(CANNED, "gx-longest nosuch", "gx-longest main", "echo went on\\n")
    told = [line for line in (wrong.out + wrong.err).splitlines() if "nosuch" in line]
    assert "went on" in wrong.out and len(told) == 1 and told[0].startswith("gx-longest: "), wrong


@pytest.mark.boards(target=("attach", "core"), info=("debug",), glibc=("system",))
def test_the_longest_bin_of_what_the_selected_frame_does_not_know(stage, board):
    """A local of another thread, and a global whose name libc has a function of."""
    here = stage("hidden_table", "--entries", "2000")
    walker = here.truth.details["walker"]
    asked = ("table", "daemon->env->rrset_cache->table", "nosuch")
    steps = [step for text in asked for step in (f'output $gx_maxbin("{text}")', "echo \\n>>>")]
    output = here.text("echo >>>", *steps, CANNED, "gx-longest table 1")
    found = [text.strip() for text in output.out.split(">>>")[1:4]]
    assert found[0] == str(walker["chain"]) and int(found[1]) > 20 and found[2] == "0", (found, walker, output)
    assert f"{walker['chain']} entries in bin {walker['bin']} of the table" in output.out, output


@pytest.mark.boards(target=("attach", "core", "gdbserver"), info=("debug",), glibc=("system",))
def test_the_longest_bin(stage, board):
    """``$gx_maxbin`` on every table that the program has, against its own record."""
    here = stage("hash_tables", "--entries", "4000")
    groups = here.truth.details["groups"]
    wanted = {}
    for name, group in groups.items():
        if name == "rehash":
            wanted["keyspace"] = group["max_len"]
        elif name not in ("growing", "misplaced"):  # not as the program's count of bins has it
            wanted[f"{name}_cache"] = max(table["max_len"] for table in group["tables"])
            for table in group["tables"]:
                wanted[f"{name}_cache->array[{table['index']}]"] = table["max_len"]
    steps = [step for one in wanted for step in (f"output $gx_maxbin({one})", "echo \\n>>>")]
    output = here.text("echo >>>", *steps)
    found = [text.strip() for text in output.out.split(">>>")[1:-1]]
    assert found == [str(length) for length in wanted.values()], output
