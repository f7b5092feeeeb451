"""What the user or the file gets wrong: one line that says what and what to do, never a traceback.

With ``--json`` the same line is the envelope's ``error``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys

import pytest

from tests.gdb.answers import ask
from tests.support import gdbrun, preloaded
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable, glibc
from tests.support.programs import build
from tests.support.truth import address

ALL = (
    "triage",
    "rss",
    "glibc arenas",
    "glibc heaps",
    "glibc chunks",
    "glibc bins",
    "glibc tcache",
    "glibc mmapped",
    "glibc check",
    "glibc trim",
    "blocks summary",
    "blocks list",
)
NO_TARGET = "there is no process and no core; attach PID, run, or core-file CORE"
ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def here(stages):
    """A small core with everything to be had."""
    try:
        return stages.get(Board("core", "debug", "system"), "mmapped_blocks", ("--healthy",))
    except Unavailable as reason:
        pytest.skip(str(reason))


def refusals(options, folder, commands):
    """Run commands that must fail in one gdb; return the line and the error of each."""
    files = [folder / f"refused-{number}.json" for number in range(len(commands))]
    lines = []
    for (name, rest), file in zip(commands, files):
        lines += ["-ex", f"gx safe {name} --json={file} {rest}"]
    output = preloaded.run_gdb([*options, *gdbrun.load_pack(), *lines], cwd=folder)
    assert "Traceback" not in output.err, output
    told = [line for line in output.err.splitlines() if line.startswith("gdbext: ")]
    assert len(told) == len(commands), output
    errors = []
    for (name, _), file, line in zip(commands, files, told):
        envelope = gdbrun.read_envelope(file, output)
        assert envelope["data"] is None and envelope["complete"] is False
        error = envelope["error"]
        hint = f"; {error['hint']}" if error["hint"] else ""
        assert line == f"gdbext: {name}: {error['message']}{hint}"
        errors.append(error)
    return errors


WRONG = [
    ("glibc chunks", "0x1234", "usage", "no arena at 0x1234", "there are 1: 0x"),
    ("glibc bins", "0x1234", "usage", "no arena at 0x1234", "there are 1: 0x"),
    ("blocks list", "--arena 0x1234", "usage", "no arena 0x1234", "the arenas are 0x"),
    ("blocks at", "0x1000", "error", "0x1000 is not mapped", "`info proc mappings` lists what is"),
    ("blocks at", "0x10000000000000000", "usage", "0x10000000000000000 is beyond any address",
     "the target's end at 0xffffffffffffffff"),
    ("blocks at", "", "usage", "an address is missing", "blocks at ADDRESS"),
    ("blocks at", "nosuch", "usage", "cannot evaluate 'nosuch': No symbol \"nosuch\"", "tried the selected frame"),
    ("blocks at", "(", "usage", "cannot evaluate '('", None),
    ("blocks at", "1.5", "usage", "cannot evaluate '1.5': it is no whole number", None),
    ("blocks at", "(void)0", "usage", "cannot evaluate '(void)0': it has no value", None),
    ("blocks at", "*(long*)0x1000", "usage", "Cannot access memory at address 0x1000", None),
    ("blocks at", "malloc(3)", "usage", "Cannot call functions in the program", None),
    ("blocks at", "$x = 3", "usage", "'$x = 3' would assign", "gdbext never writes"),
    ("blocks at", "argc++", "usage", "'argc++' would assign", "gdbext never writes"),
    ("glibc chunks", "--staet used", "usage", "unknown option --staet", "did you mean --state?"),
    ("glibc chunks", "--state usde", "usage", 'no state "usde"', "the states are cached, "),
    ("glibc chunks", "--state", "usage", "--state needs a value", "write --state STATES"),
    ("glibc chunks", "--min-size 12Q", "usage", "--min-size: '12Q' is not a size", "write bytes, or "),
    ("glibc chunks", "--max-size -5", "usage", "--max-size: '-5' is not a size", "write bytes, or "),
    ("blocks list", "--min-size 99999999999999999999", "usage",
     "--min-size: '99999999999999999999' is more than any target has", "write a smaller number"),
    ("blocks list", "--limit 99999999999999999999", "usage",
     "--limit: '99999999999999999999' is more than any target has", "write a smaller number"),
    ("blocks list", "--limit -3", "usage", "--limit: '-3' is not a number", "write 0 or more"),
    ("blocks list", "5", "usage", "'5' is not a range", "write START-END"),
    ("glibc chunks", "0x20-0x10", "usage", "'0x20-0x10' is empty", "write the lower address first"),
    ("glibc tcache", "--thread 99", "usage", "no thread 99", "`info threads` lists them"),
    ("glibc tcache", "--thread x", "usage", "--thread: 'x' is not a number", "write 0 or more"),
    ("glibc arenas", "foo", "usage", "takes no argument, got 'foo'", "-h shows how it is written"),
    ("glibc check", "--bytes=3", "usage", "--bytes takes no value", None),
]  # fmt: skip


def test_faults_of_the_user(here):
    errors = refusals(here.options(), here.directory, [row[:2] for row in WRONG])
    for (name, rest, kind, message, hint), error in zip(WRONG, errors):
        case = f"{name} {rest}: {error}"
        assert error["kind"] == kind and message in error["message"], case
        assert error["hint"] is None if hint is None else (error["hint"] or "").startswith(hint), case


def test_addresses_outside_every_heap_are_placed(here):
    (arenas,) = ask(here, "glibc arenas")
    arena = address(arenas["data"]["arenas"][0]["address"])
    libc, stack = ask(here, f"blocks at {arena:#x}", "blocks at $sp")
    assert libc["data"]["block"] is None and "libc" in libc["data"]["place"]
    assert stack["data"]["block"] is None and "stack of thread 1" in stack["data"]["place"]


def test_a_file_that_cannot_be_written(here):
    output = here.text("triage --json=/nonexistent/folder/file")
    line = "gdbext: triage: cannot write /nonexistent/folder/file: No such file or directory; name another file"
    assert line in output.err.splitlines()


def test_no_target_at_all(tmp_path):
    errors = refusals([], tmp_path, [(name, "") for name in ALL])
    for error in errors:
        assert (error["kind"], f"{error['message']}; {error['hint']}") == ("no-target", NO_TARGET)


@pytest.mark.parametrize("content", [b"", b"root:x:0:0\n", b"\x7fELF" + bytes(60)], ids=["empty", "text", "elf"])
def test_no_core(tmp_path, content):
    file = tmp_path / "file"
    file.write_bytes(content)
    output = preloaded.run_gdb(["-core", str(file), *gdbrun.load_pack(), "-ex", "triage"])
    assert output.err.splitlines()[-1] == f"gdbext: triage: {NO_TARGET}"
    error = refused("triage", "--core", file)
    assert error["kind"] == "bad-core" and str(file) in error["message"] + str(error["hint"])


def test_a_core_that_says_it_is_of_another_machine(here):
    other = here.altered("aarch64.core")
    overwrite(other.core, 18, b"\xb7\x00")  # EM_AARCH64
    output = other.text("triage", "glibc arenas", "blocks summary")
    assert "Traceback" not in output.err, output
    assert program("triage", "--core", other.core).returncode in (2, 3)


def test_a_core_that_gdb_does_not_open(here, tmp_path):
    other = tmp_path / "odd.core"
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 4, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 6, 4096, 0x10000, 0, 4096, 4096, 4096)
    note = struct.pack("<IIQQQQQQ", 4, 0, 2048, 0, 0, 64, 0, 4)
    notes = struct.pack("<III", 0xFFFFFFFF, 0xFFFFFFFF, 1)  # a name and a description beyond the segment
    other.write_bytes(((header + load + note).ljust(2048, b"\0") + notes).ljust(8192, b"\0"))
    error = refused("triage", "--core", other)
    assert (error["kind"], error["message"]) == ("bad-core", f"gdb does not open {other} as a core")
    assert error["hint"] == "a gdb for the core's machine is named with --gdb"


def overwrite(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


# Another program's files.


def figures(envelope):
    """What an answer says, without how it was found."""
    return {key: value for key, value in envelope["data"].items() if key != "threads"}


def unlike(stage, *changed):
    """The answers of the right stage, and of the same core looked at through wrong files."""
    commands = ("glibc arenas", "glibc bins", "glibc mmapped", "blocks summary", "glibc check")
    right, *wrong = (ask(one, *commands) for one in (stage, *changed))
    for answers in wrong:
        for good, answer in zip(right, answers):
            kinds = [problem["kind"] for problem in answer["problems"]]
            assert "wrong-debug-info" in kinds
            assert figures(answer) == figures(good)
            routes = [line["message"] for line in answer["evidence"] if line["subject"] == "main_arena"]
            assert all("by structure" in message for message in routes)
    return wrong


@pytest.fixture(scope="module")
def threads(stages):
    """A core with several arenas."""
    try:
        return stages.get(Board("core", "debug", "system"), "stranded_arena")
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_another_executable(threads):
    other = build("two_waves", threads.glibc)
    [answers] = unlike(threads, type(threads)(**{**vars(threads), "executable": other}))
    message = next(p["message"] for p in answers[0]["problems"] if p["kind"] == "wrong-debug-info")
    assert str(other) in message and "not believed" in message
    error = refused("triage", "--core", threads.core, "--exe", other)
    assert error["kind"] == "wrong-exe" and "leave --exe away" in error["hint"]


def test_another_libc_below_the_sysroot(threads):
    try:
        trixie = glibc("trixie")
    except Unavailable as reason:
        pytest.skip(str(reason))
    sysroot = trixie.libdir.parents[1]  # …/usr, as the library is below lib/x86_64-linux-gnu
    options = ["-iex", f"set sysroot {sysroot}", "-iex", f"set debug-file-directory {trixie.debug_dir}"]
    unlike(threads, threads.with_options(*options))
    done = program("glibc", "arenas", "--core", threads.core, "--exe", threads.executable,
                   "--sysroot", sysroot, "--json")  # fmt: skip
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["complete"]
    assert "wrong-debug-info" in [problem["kind"] for problem in answer["problems"]]
    (right,) = ask(threads, "glibc arenas")
    assert figures(answer)["arenas"][0]["in_use_bytes"] == figures(right)["arenas"][0]["in_use_bytes"]


# From the shell.


def program(*arguments, **how):
    line = [sys.executable, "-m", "gdbext.cli", *map(str, arguments), "--gdb", gdbrun.gdb_program()]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment, **how)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def refused(*arguments, **how):
    """Return the error of a command that must fail, told once on each side."""
    done = program(*arguments, "--json", **how)
    assert done.returncode == 2, done.stderr
    envelope = json.loads(done.stdout)
    assert envelope["data"] is None
    error = envelope["error"]
    assert sum(error["message"] in line for line in done.stderr.splitlines()) == 1, done.stderr
    return error


def test_a_process_that_has_gone():
    child = subprocess.Popen(["true"])
    child.wait()
    error = refused("triage", "--pid", child.pid)
    assert error["kind"] == "no-target" and error["message"] == f"there is no process {child.pid}"


@pytest.mark.skipif(not ROOT, reason="only root can be somebody else")
def test_a_process_of_somebody_else(tmp_path):
    if subprocess.run(["test", "-r", CHECKOUT / "gdbext" / "load.py"], user=65534).returncode:
        pytest.skip("nobody may not read this checkout")
    process = subprocess.Popen(["sleep", "60"])
    try:
        error = refused("triage", "--pid", process.pid, user=65534, group=65534, extra_groups=[], cwd="/")
        assert error["kind"] == "no-permission", error
        assert re.search("run as the process.s user or as root", error["hint"])
    finally:
        process.kill()
        process.wait()


def test_a_core_of_somebody_else(here):
    if not ROOT or not shutil.which("setpriv"):
        pytest.skip("only root can be somebody else")
    own = here.altered("private.core")
    own.core.chmod(0o600)
    here.directory.chmod(0o755)
    error = refused("triage", "--core", own.core, user=65534, group=65534, extra_groups=[], cwd="/")
    assert error["kind"] in ("no-permission", "bad-core")
