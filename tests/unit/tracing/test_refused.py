"""Holding a process where the kernel refuses in the midst of it: one error, and the process goes on untraced."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import gdbext
from gdbext.errors import DebuggerError, GdbextError
from gdbext.starting import process as starting
from gdbext.starting.process import wake
from gdbext.tracing import permission, ptrace, stalled
from gdbext.tracing.tracer import Tracer, find_process
from tests.support.rest import wait_until

THREADS = 6
SLEEPERS = f"""
import threading, time
for _ in range({THREADS - 1}):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("ready", flush=True)
time.sleep(1000)
"""
SEIZE, INTERRUPT, GETSIGINFO, GETREGSET = 0x4206, 0x4207, 0x4202, 0x4204


@pytest.fixture(scope="module")
def target():
    process = subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    process.kill()
    process.communicate()


def lines(pid, tid):
    text = Path(f"/proc/{pid}/task/{tid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def runs(pid):
    found = [lines(pid, tid) for tid in os.listdir(f"/proc/{pid}/task")]
    return all(one["TracerPid"].strip() == "0" and one["State"][0] in "SR" for one in found)


@pytest.fixture
def refuse(monkeypatch):
    """Have one call of ptrace fail, and those after it."""

    def on(request, nth, number):
        real, seen = ptrace._ptrace, []

        def call(asked, *rest):
            seen.append(asked)
            if asked == request and seen.count(request) >= nth:
                ctypes.set_errno(number)
                return -1
            return real(asked, *rest)

        monkeypatch.setattr(ptrace, "_ptrace", call)

    return on


@pytest.mark.parametrize("nth", (1, 2, THREADS))
@pytest.mark.parametrize("number", (errno.EPERM, errno.ESRCH, errno.EIO))
@pytest.mark.parametrize("request_", (SEIZE, INTERRUPT, GETSIGINFO, GETREGSET))
def test_a_refusal_half_way_lets_go_of_all(target, refuse, monkeypatch, request_, number, nth):
    monkeypatch.setattr("gdbext.tracing.tracer.PATIENCE", 0.3)
    refuse(request_, nth, number)
    try:
        Tracer(target).let_go()
    except GdbextError as error:
        assert isinstance(error, DebuggerError) and "\n" not in str(error) and error.hint
    else:  # a thread without registers, as where it has just ended
        assert request_ == GETREGSET and number != errno.EPERM
    wait_until(lambda: runs(target), "it goes on")


def test_its_healthy_twin_is_held(target):
    tracer = Tracer(target)
    assert len(tracer.threads) == THREADS
    tracer.let_go()
    wait_until(lambda: runs(target), "it goes on")


@pytest.mark.parametrize("scope,said", (
    ("0", None), ("1", "is 1: a process's own children"), ("2", "is 2: with CAP_SYS_PTRACE"), ("3", "is 3: never"),
))  # fmt: skip
def test_what_yama_allows_is_said(target, tmp_path, monkeypatch, scope, said):
    (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(permission, "YAMA", str(tmp_path / "scope"))
    found = permission.find_way(target)
    assert said in found if said else "yama" not in found


@pytest.mark.parametrize("owner,ours,capable,dumpable,said", (
    (1000, 0, True, True, "in another user namespace, or a security module forbids it"),
    (1000, 0, False, True, "docker run --cap-add=SYS_PTRACE"),
    (0, 1000, False, True, "run as the process's user or as root"),
    (1000, 1000, False, False, "it has other rights than its user"),
    (1000, 1000, False, True, "run as root"),
))  # fmt: skip
def test_what_helps_depends_on_who_asks(monkeypatch, owner, ours, capable, dumpable, said):
    monkeypatch.setattr(permission, "_find_owner", lambda pid: (owner, dumpable))
    monkeypatch.setattr(permission, "_has_capability", lambda: capable)
    monkeypatch.setattr(permission.os, "geteuid", lambda: ours)
    monkeypatch.setattr(permission, "YAMA", "/nonexistent")
    assert said in permission.find_way(4711)


def test_a_hidden_process_is_not_a_missing_one(monkeypatch):
    def kill(pid, number):
        raise PermissionError

    monkeypatch.setattr(permission.os, "kill", kill)
    monkeypatch.setattr("gdbext.tracing.tracer.read_status", lambda pid: {})
    with pytest.raises(DebuggerError, match="is hidden from this user .* hidepid"):
        find_process(4711)


# Threads that do not stop.


@contextmanager
def released(folder):
    """Have the child of a stuck process go on, whether it waits already or comes to it."""
    descriptor = os.open(folder / "fifo", os.O_RDWR)
    yield
    os.close(descriptor)


@pytest.fixture
def stuck(tmp_path):
    """A process in state D: its child by vfork waits in open, until somebody writes."""
    os.mkfifo(tmp_path / "fifo")
    spawn = (
        "import os, sys; print('ready', flush=True); a = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]; "
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=a); print('done', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", spawn, str(tmp_path / "fifo")], **pipes)
    assert process.stdout.readline() == b"ready\n"
    wait_until(lambda: lines(process.pid, process.pid)["State"].startswith("D"), "it is in state D")
    yield process
    with released(tmp_path):
        process.kill()
        process.communicate()


def test_a_thread_stuck_in_the_kernel_is_waited_for_and_given_up(stuck, target, monkeypatch):
    monkeypatch.setattr(stalled, "PATIENCE", 0.3)
    stalled.check_stoppable(target)
    with pytest.raises(DebuggerError, match=f"thread {stuck.pid} of process {stuck.pid} did not stop in .*state D"):
        stalled.check_stoppable(stuck.pid)


def test_what_gdb_waits_for_is_known(stuck, target):
    said = f"gdb waits for thread {stuck.pid} of process {stuck.pid}, which is stuck in the kernel (state D)"
    assert starting.find_waiting(stuck.pid) == said
    assert starting.find_waiting(target) == (
        f"gdb does not hold process {target} yet: it reads debug info, and the process runs meanwhile"
    )
    with gdbext.open_process(target):  # a debugger holds it
        assert starting.find_waiting(target) is None


def test_a_stop_that_waits_for_a_stuck_process_is_taken_back(stuck, tmp_path):
    os.kill(stuck.pid, signal.SIGSTOP)  # as a gdb that is killed while it attaches leaves it
    wake(stuck.pid)
    with released(tmp_path):
        assert stuck.stdout.readline() == b"done\n"


CGROUPS = {
    "mountinfo": "30 1 0:26 / {root}/v1 rw - cgroup cgroup rw,freezer\n31 1 0:27 / {root}/v2 rw - cgroup2 cgroup2 rw\n",
    "cgroup": "7:freezer:/a\n0::/b\n",
}


@pytest.mark.parametrize("name,text,frozen", (
    ("v1/a/freezer.state", "THAWED", False), ("v1/a/freezer.state", "FROZEN", True),
    ("v2/b/cgroup.events", "populated 1\nfrozen 0", False), ("v2/b/cgroup.events", "populated 1\nfrozen 1", True),
))  # fmt: skip
def test_a_frozen_cgroup_is_known(tmp_path, monkeypatch, name, text, frozen):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(stalled, "read_proc", lambda pid, name: CGROUPS[name].format(root=tmp_path))
    assert stalled.is_frozen(4711) is frozen
    if frozen:
        with pytest.raises(DebuggerError, match="process 4711 does not run; its cgroup is frozen"):
            stalled.check_stoppable(4711)
