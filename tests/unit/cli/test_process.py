"""A process that gdb left stopped goes on; others are left alone."""

import os
import signal
import subprocess
import time

import pytest

from gdbext.starting.process import is_stopped, wake


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
