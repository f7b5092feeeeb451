"""What the kernel says of a process, whatever its name: a program chooses that itself."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from gdbext.errors import DebuggerError
from gdbext.memory.live.mappings import read_status
from gdbext.starting.process import find_tracer
from gdbext.tracing import permission, stalled
from gdbext.tracing.tracer import Tracer, find_process
from tests.support.rest import wait_until

NAMED = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]))\n"
    "print('ready', flush=True); sys.stdin.read()"
)
NAMES = {
    "plain": b"plain",
    "form-feed": b"a\x0cb",
    "separators": b"a\x1cb\x1dc\x1ed",
    "next-line": "a\x85b".encode(),
    "line-separator": "a\u2028b".encode(),
    "carriage-return": b"a\rb",
    "newline": b"a\nUid:\t7",
    "no-characters": b"a\xff\x80b",
    "forged": b"a\x0cState:\tD",
    "empty": b"",
}


@contextmanager
def named(name):
    line = [sys.executable, "-c", NAMED, name.hex()]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()


@pytest.fixture(params=NAMES.values(), ids=NAMES)
def target(request):
    with named(request.param) as pid:
        yield pid


def test_every_field_is_there_once(target):
    status = read_status(target)
    assert (status["Pid"], status["Tgid"], status["PPid"]) == (str(target), str(target), str(os.getpid()))
    assert (status["Uid"].split()[0], status["Gid"].split()[0]) == (str(os.getuid()), str(os.getgid()))
    assert set(status) == set(read_status(os.getpid()))


@pytest.mark.parametrize("name", ("plain", "a\x0cb", "a\x1cb\x1dc", "a\x85b", "a\u2028b", "a\x0cState:\tD"))
def test_a_name_is_whole(name):
    with named(name.encode()) as pid:
        assert read_status(pid)["Name"] == name


def test_a_process_that_is_gone_has_no_status():
    process = subprocess.Popen(["true"])
    process.wait()
    assert read_status(process.pid) == {}
    assert permission._find_owner(process.pid) == (None, True)


def test_who_may_trace_it_is_found(target):
    assert permission._find_owner(target) == (os.getuid(), True)
    assert permission.find_way(target)


def test_our_own_capabilities_are_found():
    with open(f"/proc/self/task/{os.getpid()}/comm", "rb+", 0) as file:
        before = file.read()
        file.write(b"a\x0cb")
        try:
            with open("/proc/self/status", "rb") as status:
                (mask,) = [line.split()[1] for line in status.read().split(b"\n") if line.startswith(b"CapEff:")]
            assert permission._has_capability() == bool(int(mask, 16) >> 19 & 1)
        finally:
            file.write(before.rstrip(b"\n"))


def test_no_name_makes_it_seem_stuck(target, monkeypatch):
    monkeypatch.setattr(stalled, "PATIENCE", 0.3)
    stalled.check_stoppable(target)


def test_it_is_held_and_who_holds_it_is_found(target):
    assert find_process(target) == target and find_tracer(target) is None
    tracer = Tracer(target)
    try:
        assert [thread.tid for thread in tracer.threads] == [target]
        assert find_tracer(target).startswith(f"process {os.getpid()} (")
        with pytest.raises(DebuggerError, match=f"is traced already, by process {os.getpid()} "):
            find_process(target)
    finally:
        tracer.let_go()
    wait_until(lambda: find_tracer(target) is None, "it goes on")


@pytest.mark.parametrize("odd", ("\x0c", "\x1c", "\x85", "\u2028"))
@pytest.mark.parametrize("text,frozen", (("THAWED", False), ("FROZEN", True)))
def test_a_path_of_a_cgroup_is_one_line(tmp_path, monkeypatch, odd, text, frozen):
    place = tmp_path / f"m{odd}m" / f"a{odd}b"
    place.mkdir(parents=True)
    (place / "freezer.state").write_text(f"{text}\n")
    files = {
        "mountinfo": f"30 1 0:26 / {tmp_path}/m{odd}m rw - cgroup cgroup rw,freezer\n",
        "cgroup": f"7:freezer:/a{odd}b\n",
    }
    monkeypatch.setattr(stalled, "read_proc", lambda pid, name: files[name])
    assert stalled.is_frozen(4711) is frozen


def test_a_process_of_no_cgroup_is_not_frozen(monkeypatch):
    monkeypatch.setattr(stalled, "read_proc", lambda pid, name: "")
    assert not stalled.is_frozen(4711)
