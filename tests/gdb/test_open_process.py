"""A process held without gdb: gdb's figures, no trace in the process, and it goes on, whatever becomes of us."""

from __future__ import annotations

import gc
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import gdbext
from gdbext.errors import DebuggerError, NoTargetError, UsageError
from tests.gdb.answers import ask
from tests.gdb.test_library import without_names
from tests.gdb.test_no_harm import NOBODY, SOURCE, compile_c, folder, started
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.figures import growth, read_figures
from tests.support.gdbrun import die_with_parent
from tests.support.glibcs import Unavailable
from tests.support.rest import wait_for_rest, wait_until

assert folder  # a fixture

HELD = Path(__file__).parent / "data" / "held.c"
SAME = ("rss", "glibc arenas", "blocks summary", "blocks leaks --list --possible")
# What names and unwound stacks add to an answer about locks; and the share in pages that gdb maps too.
UNWOUND = (
    "name", "frame", "frame_address", "frame_line", "because", "confidence", "holder_is", "owner_waits", "sentences",
    "summary", "pss",
)  # fmt: skip
STATE = """
import hashlib, sys
for thread in sorted(gdb.selected_inferior().threads(), key=lambda one: one.num):
    thread.switch()
    frame = gdb.newest_frame()
    names = [one.name for one in frame.architecture().registers('general')]
    print(thread.num, thread.ptid[1], [int(frame.read_register(name)) for name in names])
for line in gdb.execute('info proc mappings', to_string=True).splitlines():
    fields = line.split()
    if len(fields) > 4 and 'rw-' in fields[4]:
        start, end = int(fields[0], 16), int(fields[1], 16)
        data = gdb.selected_inferior().read_memory(start, end - start)
        print(fields[:5], hashlib.md5(data).hexdigest())
"""
# Opens a process, says so, and waits to be ended.
KEEPER = "import gdbext, sys; held = gdbext.open_process(int(sys.argv[1])); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def staged(stages):
    def on(program, *arguments, target="attach", **how):
        try:
            return stages.get(Board(target, "debug", "system"), program, arguments, **how)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return on


class Counting:
    """The program of held.c."""

    def __init__(self, pid, file):
        self.pid, self.file = pid, file

    def count(self, at):
        return struct.unpack_from("2q", self.file.read_bytes())[at]

    def wait_for_ticks(self):
        before = self.count(0)
        wait_until(lambda: self.count(0) > before + 3, "it goes on")

    @property
    def states(self):
        """The states of its threads, as far as they live."""
        found = ""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            found += (task / "stat").read_text().rpartition(")")[2].split()[0]
        return found


@contextmanager
def counting(folder, tmp_path, *arguments):
    program = compile_c(folder, "held", HELD.read_text(), "-pthread")
    with started([str(program), str(tmp_path / "counts"), *arguments]) as pid:
        yield Counting(pid, tmp_path / "counts")


@pytest.fixture
def held(folder, tmp_path):
    with counting(folder, tmp_path) as process:
        yield process


@contextmanager
def keeper(pid):
    """Another process that holds one."""
    line = [sys.executable, "-c", KEEPER, str(pid)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(line, cwd=CHECKOUT, preexec_fn=die_with_parent, **pipes)
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def without_stacks(value):
    if isinstance(value, dict):
        return {key: without_stacks(item) for key, item in value.items() if key not in UNWOUND}
    return [without_stacks(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("program", ("leaks", "arena_proliferation"))
def test_figures_are_those_of_gdb(staged, program):
    here = staged(program)
    answers = ask(here, *SAME, "triage")
    with gdbext.open_process(here.process.pid) as session:
        for line, theirs in zip(SAME, answers):
            ours = session.run(line).to_dict()
            assert without_stacks(without_names(ours["data"])) == without_stacks(without_names(theirs["data"])), line
        page = session.triage()
        ours = {**page.to_dict()["target"], "time": answers[-1]["target"]["time"]}
        assert ours == answers[-1]["target"]
    assert page.to_dict()["data"]["heaps"] == answers[-1]["data"]["heaps"]
    ours = [(one.kind, one.bytes) for one in page.findings]
    assert ours == [(one["kind"], one["bytes"]) for one in answers[-1]["data"]["findings"]]


@pytest.mark.parametrize("mode,variant", (("zoo", ""), ("abba", ""), ("ring", "i386")))
def test_locks_are_those_of_gdb(staged, mode, variant):
    here = staged("locks", "--mode", mode, variant=variant)
    (theirs,) = ask(here, "lockwait")
    with gdbext.open_process(here.process.pid) as session:
        ours = session.run("lockwait").to_dict()
    assert without_stacks(without_names(ours["data"])) == without_stacks(without_names(theirs["data"]))


def test_threads_and_memory_are_as_before(staged):
    # With rseq the kernel notes in each thread's memory on which processor it is.
    here = staged("locks", "--mode", "ring", environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"})
    wait_for_rest(here.process.pid)
    before, figures = here.python(STATE), read_figures(here.process.pid)
    with gdbext.open_process(here.process.pid) as session:
        assert session.triage().data.heaps and session.run("lockwait").data.threads
    wait_for_rest(here.process.pid)
    after = read_figures(here.process.pid)
    assert not growth(figures, after) and here.python(STATE) == before
    assert here.process.poll() is None


@pytest.mark.parametrize("what", ("shared", "private", "swapped"))
def test_nothing_becomes_resident(folder, what):
    with started([str(compile_c(folder, "untouched", SOURCE.read_text())), what]) as pid:
        before = read_figures(pid)
        with gdbext.open_process(pid) as session:
            for line in ("triage", "rss", "blocks leaks", "lockwait"):
                session.run(line)
        after = read_figures(pid)
    assert not growth(before, after), (before, after)
    assert after["VmSwap"] >= before["VmSwap"] - (1 << 20)


def test_it_stands_from_open_to_close_and_goes_on(held):
    session = gdbext.open_process(held.pid)
    assert set(held.states) == {"t"}
    assert os.waitid(os.P_PID, held.pid, os.WNOHANG | os.WSTOPPED) is None  # no stop meets a wait of ours
    ticks = held.count(0)
    from_another = []
    worker = threading.Thread(target=lambda: from_another.append(session.run("blocks summary").complete))
    worker.start()
    worker.join()
    answer = session.run("blocks list")
    assert from_another == [True] and held.count(0) == ticks
    worker = threading.Thread(target=session.close)
    worker.start()
    worker.join()
    held.wait_for_ticks()
    with pytest.raises(NoTargetError, match="closed"):
        session.run("rss")
    with pytest.raises(NoTargetError, match="not held"):
        answer.target.memory.read(0x1000, 16)
    session.close()


def test_what_is_dropped_is_let_go(held):
    answer = gdbext.open_process(held.pid).run("blocks summary")
    gc.collect()
    assert set(held.states) == {"t"} and answer.complete  # its rows may be read yet
    del answer
    gc.collect()
    held.wait_for_ticks()


def test_it_goes_on_when_we_are_killed(held):
    with keeper(held.pid) as process:
        assert set(held.states) == {"t"}
        os.kill(held.pid, signal.SIGRTMIN)
        process.kill()
        process.wait()
        held.wait_for_ticks()
    wait_until(lambda: held.count(1) == 1, "the signal comes")


def test_a_signal_that_is_sent_meanwhile_comes_afterwards(held):
    with gdbext.open_process(held.pid):
        os.kill(held.pid, signal.SIGRTMIN)
        assert set(held.states) == {"t"} and held.count(1) == 0
    wait_until(lambda: held.count(1) == 1, "the signal comes")


def test_no_signal_is_lost(folder, tmp_path):
    """Queued signals come one by one; some are on their way to the process when it is stopped."""
    with counting(folder, tmp_path, "3") as held:
        sent, ended = [], threading.Event()

        def send():
            while not ended.is_set():
                os.kill(held.pid, signal.SIGRTMIN)
                sent.append(1)
                ended.wait(0.0005)

        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(40):
            gdbext.open_process(held.pid).close()
        ended.set()
        sender.join()
        wait_until(lambda: held.count(1) >= len(sent), "all signals come")
        assert held.count(1) == len(sent)
        wait_until(lambda: set(held.states) == {"S"}, "all threads go on")


def test_what_a_signal_has_stopped_stays_stopped(held):
    os.kill(held.pid, signal.SIGSTOP)
    wait_until(lambda: set(held.states) == {"T"}, "it is stopped")
    with gdbext.open_process(held.pid) as session:
        assert session.run("blocks summary").complete
    wait_until(lambda: set(held.states) == {"T"}, "it is stopped again")
    ticks = held.count(0)
    with keeper(held.pid):
        pass
    wait_until(lambda: set(held.states) == {"T"}, "it is stopped again")
    assert held.count(0) == ticks
    os.kill(held.pid, signal.SIGCONT)
    held.wait_for_ticks()


def test_two_hundred_threads_while_others_come_and_go(folder, tmp_path):
    with counting(folder, tmp_path, "200", "churn") as held:
        for _ in range(10):
            with gdbext.open_process(held.pid) as session:
                tids = {int(name) for name in os.listdir(f"/proc/{held.pid}/task")}
                assert set(held.states) <= {"t", "Z", "X"} and len(session.target.threads) >= 202
                assert {one.lwp for one in session.target.threads} <= tids
                assert all(one.registers and one.tls and one.name == "held" for one in session.target.threads)
                assert len(session.run("lockwait").data.threads) == len(session.target.threads)
            held.wait_for_ticks()


def test_fifty_times_leave_nothing_behind(folder, tmp_path):
    def ours():
        maps = Path("/proc/self/maps").read_text().splitlines()
        opened = len(os.listdir("/proc/self/fd")), threading.active_count()
        return *opened, sum(str(folder) in line for line in maps)

    with counting(folder, tmp_path, "20") as held:
        gdbext.open_process(held.pid).close()
        gc.collect()
        before = ours()
        for _ in range(50):
            with gdbext.open_process(held.pid) as session:
                session.run("blocks summary")
        assert ours() == before
        held.wait_for_ticks()


def test_one_that_ends_meanwhile_is_gone(held):
    with gdbext.open_process(held.pid) as session:
        os.kill(held.pid, signal.SIGKILL)
        wait_until(lambda: set(held.states) == {"Z"}, "it ends")
        with pytest.raises(NoTargetError, match="is gone"):
            session.run("rss")


def test_a_first_thread_that_has_ended(folder, tmp_path):
    source = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *other(void *none) { usleep(100000); puts("ready"); fflush(stdout); pause(); return none; }
int main(void) { pthread_t made; pthread_create(&made, 0, other, 0); pthread_exit(0); }
"""
    program = str(compile_c(folder, "headless", source, "-pthread"))
    with started([program]) as pid, gdbext.open_process(pid) as session:
        assert len(session.target.threads) == 1 and session.run("blocks summary").complete


def test_what_is_wrong_is_an_error(held, folder):
    for nobody in (1 << 30, -1, 0):
        with pytest.raises(NoTargetError, match=f"there is no process {nobody}"):
            gdbext.open_process(nobody)
    with pytest.raises(DebuggerError, match="itself"):
        gdbext.open_process(os.getpid())
    with pytest.raises(UsageError, match="no setting"):
        gdbext.open_process(held.pid, settings={"most": 1})
    traced = r"traced already, by process \d+ \(python"
    with keeper(held.pid), pytest.raises(DebuggerError, match=traced):
        gdbext.open_process(held.pid)
    held.wait_for_ticks()
    ended = subprocess.Popen(["true"])
    wait_until(lambda: Path(f"/proc/{ended.pid}/stat").read_text().split()[2] == "Z", "it ends")
    with pytest.raises(NoTargetError, match="is gone"):
        gdbext.open_process(ended.pid)
    ended.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root to be made")
def test_another_users_process_is_not_permitted(held):
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    line = [*user, sys.executable, "-c", KEEPER, str(held.pid)]
    ran = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True)
    if "gdbext.errors" not in ran.stderr:
        pytest.skip("this checkout cannot be read by others")
    assert "may not be traced: Operation not permitted; run as the process's user or as root" in ran.stderr
    held.wait_for_ticks()
