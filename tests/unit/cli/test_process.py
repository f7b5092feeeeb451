"""A process that gdb left stopped goes on; others are left alone."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gdbext.cli import gdbrun
from gdbext.cli.answer import explain
from gdbext.cli.gdbrun import GdbOutcome
from gdbext.cli.options import Options
from gdbext.errors import NoTargetError
from gdbext.starting import process
from gdbext.starting.process import check_process, is_stopped, wake
from tests.support.rest import wait_until


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def becomes(pid, stopped):
    until = time.monotonic() + 20
    while is_stopped(pid) is not stopped and time.monotonic() < until:
        time.sleep(0.01)
    return is_stopped(pid) is stopped


def test_a_stopped_process_goes_on(sleeper):
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert becomes(sleeper.pid, True)
    wake(sleeper.pid)
    assert becomes(sleeper.pid, False)


def test_a_running_process_gets_no_signal(sleeper):
    wake(sleeper.pid)
    assert sleeper.poll() is None and not is_stopped(sleeper.pid)


def test_a_process_that_is_gone():
    process = subprocess.Popen(["true"])
    process.wait()
    wake(process.pid)
    assert not is_stopped(process.pid)


def test_a_zombie_has_ended_and_its_healthy_twin_has_not(sleeper):
    check_process(sleeper.pid)
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(NoTargetError, match=f"process {process.pid} has ended; it is a zombie"):
        check_process(process.pid)
    process.wait()


def test_a_process_whose_first_thread_has_ended_lives():
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).syscall(60, 0)"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(lambda: state_of(process.pid) == "Z", "its first thread ends")
        check_process(process.pid)
    finally:
        process.kill()
        process.wait()


def state_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("written", ["", "answer"])
def test_a_gdb_that_takes_its_time_says_once_what_it_waits_for(sleeper, tmp_path, monkeypatch, capsys, written):
    monkeypatch.setattr(process, "UNSAID", 0.1)
    (tmp_path / "answer").write_text(written)
    gdb = subprocess.Popen(["sleep", "60"])
    deadline = time.monotonic() + 0.4
    assert gdbrun._wait(gdb, deadline, sleeper.pid, str(tmp_path / "answer")) == "timeout"
    said = f"gdbext: gdb does not hold process {sleeper.pid} yet: it reads debug info, and the process runs meanwhile\n"
    assert capsys.readouterr().err == ("" if written else said) and gdb.wait() == -signal.SIGINT
    gdb = subprocess.Popen(["sleep", "0.05"])
    assert gdbrun._wait(gdb, None, sleeper.pid, str(tmp_path / "none")) is None
    assert capsys.readouterr().err == "" and gdb.wait() == 0


def test_a_kernel_thread_has_no_memory(monkeypatch):
    stat = "2 (kthreadd) S 0 0 0 0 -1 2129984 0".rpartition(")")[2].encode().split()  # as Linux 6 has it
    monkeypatch.setattr("gdbext.starting.process._read_stat", lambda folder: stat)
    with pytest.raises(NoTargetError, match="is a kernel thread, without memory of its own"):
        check_process(os.getpid())


def test_a_gdb_that_the_alarm_has_ended_says_how_long_it_had():
    """No reason is given as certain: gdb may have read the symbols of a large program all the time."""
    options = Options(name="rss", pid=4711)
    error = explain(options, GdbOutcome(-signal.SIGALRM, [], None))
    assert str(error).startswith("gdb did not come to hold process 4711 in 600 s; it may be large, or ")
