"""Which process is recorded: by the kernel's own figures."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager

from gdbext.recording.processes import find_named, find_running, is_running
from tests.support.gdbrun import die_with_parent
from tests.support.rest import wait_until

NAME = "gx-named-)( sleeper"  # longer than the kernel keeps, and it looks like the end of one


@contextmanager
def sleeping(folder, name=NAME):
    program = folder / name
    if not program.exists():
        shutil.copy(shutil.which("sleep"), program)
    process = subprocess.Popen([str(program), "60"], preexec_fn=die_with_parent)
    wait_until(lambda: find_running(process.pid).name == name[:15], "it runs")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_process_is_known_by_its_start(tmp_path):
    with sleeping(tmp_path) as process:
        found = find_running(process.pid)
        assert found.pid == process.pid and found.name == NAME[:15]
        assert is_running(found) and not is_running(found._replace(started=found.started + 1))
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_running(found), "a zombie has ended"
    assert find_running(process.pid) is None


def test_the_first_of_a_name_is_found(tmp_path):
    assert find_named(NAME) is None
    with sleeping(tmp_path) as first, sleeping(tmp_path) as second:
        assert find_named(NAME).pid == first.pid
        assert find_named(NAME[:15]).pid == first.pid
        first.kill()
        first.wait()
        assert find_named(NAME).pid == second.pid


def test_a_stopped_process_runs(tmp_path):
    with sleeping(tmp_path) as process:
        found = find_running(process.pid)
        process.send_signal(signal.SIGSTOP)
        assert is_running(found)


def test_of_a_process_and_those_that_it_has_forked_the_first_is_found(tmp_path):
    script = tmp_path / "gx-forks"
    shutil.copy(os.path.realpath(shutil.which("sh")), script)
    line = [str(script), "-c", f"({script} -c 'sleep 60; :' & echo $!; wait)"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=die_with_parent) as parent:
        try:
            child = int(parent.stdout.readline())
            wait_until(lambda: find_running(child).name == "gx-forks", "it runs")
            assert find_named("gx-forks").pid == parent.pid
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
