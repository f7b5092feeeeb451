"""A gdb that the library borrows: gdb's own answers, one error when it fails, and nothing is left of it."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import gdbext
from gdbext.borrowing import borrowed
from gdbext.errors import BadCoreError, DebuggerError, FaultError, NoTargetError, StoppedError
from gdbext.starting import process
from tests.gdb.answers import ask
from tests.gdb.test_no_harm import folder
from tests.gdb.test_open_process import counting, held, keeper
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.gdbrun import die_with_parent, gdb_program
from tests.support.glibcs import Unavailable
from tests.support.rest import wait_until

assert folder and held  # fixtures

LINES = ("triage", "blocks types", "blocks leaks --list --possible", "lockwait", "rss", "blocks refs main_arena")
PROGRAMS = (("leaks",), ("hash_tables", "--entries", "1500", "--bins", "64"), ("locks", "--mode", "ring"))
KEEPER = (
    "import gdbext, sys; s = gdbext.open_process(int(sys.argv[1]), debugger='gdb'); print('held', flush=True); input()"
)


@pytest.fixture
def staged(stages):
    def on(program, *arguments, target="core"):
        try:
            gdb_program()
            return stages.get(Board(target, "debug", "system"), program, arguments)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return on


def children(pid="self"):
    """The processes that a process has started, of all its threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(one) for task in tasks for one in (task / "children").read_text().split()}


@contextmanager
def opened(open_session):
    """A session, and the process id of its gdb."""
    before = children()
    with open_session() as session:
        (gdb,) = children() - before
        yield session, gdb


def without_changing(document):
    """A document without what differs from one stop of a process to the next."""
    data = {key: value for key, value in document["data"].items() if key != "pss"}
    if "ledger" in data:
        data["ledger"] = {**data["ledger"], "pss": None}
    return {**document, "data": data, "target": {**document["target"], "time": None}}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0])
def test_a_cores_answers_are_those_of_gdb(staged, program):
    here = staged(*program)
    lines = LINES[:-1] if program[0] == "locks" else LINES
    answers = ask(here, *lines)
    with gdbext.open_core(here.core, debugger="gdb") as session:
        for line, theirs in zip(lines, answers):
            assert session.run(line).to_dict() == theirs, line


@pytest.mark.parametrize(
    "program", (PROGRAMS[0], pytest.param(PROGRAMS[2], marks=pytest.mark.full)), ids=lambda program: program[0]
)
def test_a_processs_answers_are_those_of_gdb(staged, program):
    here = staged(*program, target="attach")
    answers = ask(here, *LINES[:-1])
    with gdbext.open_process(here.process.pid, debugger="gdb") as session:
        for line, theirs in zip(LINES, answers):
            assert without_changing(session.run(line).to_dict()) == without_changing(theirs), line


def test_what_is_named_is_located(staged):
    here = staged("hash_tables", "--entries", "1500", "--bins", "64")
    (theirs,) = ask(here, "slabskew incident_cache")
    with gdbext.open_core(here.core, debugger="gdb", settings={"type-search-variables": 1}) as session:
        assert session.run("slabskew incident_cache").to_dict() == theirs
        assert session.types.find_type("struct lruhash") is session.types.find_type("struct lruhash")
        cut = [one for one in session.run("blocks types").problems if "type-search-variables 1" in one.message]
        assert cut  # the setting is gdb's too
        with pytest.raises(gdbext.errors.UsageError):
            session.evaluate("no_such_thing")


def test_it_is_used_by_any_thread_and_ends_with_the_session(staged):
    core, sessions = str(staged("leaks").core), []

    def held_here():
        return len(os.listdir("/proc/self/fd")), threading.active_count(), children()

    gc.collect()
    before = held_here()
    opener = threading.Thread(target=lambda: sessions.append(gdbext.open_core(core, debugger="gdb")))
    opener.start()
    opener.join()
    assert sessions[0].triage().complete
    sessions[0].close()
    with pytest.raises(NoTargetError, match="closed"):
        sessions.pop().triage()
    gc.collect()
    assert held_here() == before
    assert gdbext.open_core(core, debugger="gdb").run("blocks types").complete  # dropped
    gc.collect()
    wait_until(lambda: held_here() == before, "it ends")


def test_gdb_holds_a_process_and_lets_it_go(held):
    with gdbext.open_process(held.pid, debugger="gdb") as session:
        assert set(held.states) == {"t"} and session.run("blocks summary").complete
        with pytest.raises(DebuggerError, match=r"traced already, by process \d+ \(gdb\)"):
            gdbext.open_process(held.pid, debugger="gdb")
    held.wait_for_ticks()


def test_a_signal_that_stops_it_meanwhile_does_so_afterwards(held):
    with gdbext.open_process(held.pid, debugger="gdb"):
        os.kill(held.pid, signal.SIGSTOP)
    wait_until(lambda: set(held.states) == {"T"}, "it is stopped")
    os.kill(held.pid, signal.SIGCONT)
    held.wait_for_ticks()


FORKING = """
import os, sys, gdbext
with gdbext.open_core(sys.argv[1], debugger="gdb") as session:
    child = os.fork()
    if child == 0:
        sys.exit(0)  # with all that Python does at its end
    os.waitpid(child, 0)
    print(session.run("blocks summary").complete)
"""


def test_a_fork_of_ours_leaves_it_with_us(staged):
    line = [sys.executable, "-c", FORKING, str(staged("leaks").core)]
    assert subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True).stdout == "True\n"


def test_nothing_is_left_when_we_are_killed(held):
    line = [sys.executable, "-c", KEEPER, str(held.pid)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(line, cwd=CHECKOUT, preexec_fn=die_with_parent, **pipes)
    assert process.stdout.readline() == b"held\n"
    (gdb,) = children(process.pid)
    os.kill(gdb, signal.SIGSTOP)  # it does not see that the wire is closed
    process.kill()
    process.communicate()
    wait_until(lambda: not Path(f"/proc/{gdb}").exists(), "gdb ends")
    held.wait_for_ticks()


def test_a_gdb_that_reads_symbols_ends_with_us(staged, tmp_path):
    program = tmp_path / "gdb"
    program.write_text(f"#!/bin/sh\nexec '{gdb_program()}' \"$@\" -iex 'shell touch {tmp_path}/begun; sleep 60'\n")
    program.chmod(0o755)
    opening = "import gdbext, sys; gdbext.open_core(sys.argv[1], debugger=sys.argv[2])"
    line = [sys.executable, "-c", opening, str(staged("leaks").core), str(program)]
    process = subprocess.Popen(line, cwd=CHECKOUT, preexec_fn=die_with_parent)
    wait_until((tmp_path / "begun").exists, "gdb is busy")
    (gdb,) = children(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{gdb}").exists(), "gdb ends", 10)


@pytest.fixture
def dumping():
    """We and what we start dump core."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


def test_a_gdb_that_dies_is_one_error(staged, dumping):
    with opened(lambda: gdbext.open_core(staged("leaks").core, debugger="gdb")) as (session, gdb):
        assert session.heaps()
        assert resource.prlimit(gdb, resource.RLIMIT_CORE)[0] == 0  # its core could be written over the one it has
        os.kill(gdb, signal.SIGKILL)
        for line in ("blocks types", "triage"):
            with pytest.raises(DebuggerError, match=r"the borrowed gdb has ended \(status -9\)"):
                session.run(line)
        assert session.run("blocks summary").complete  # which needs none


def test_a_gdb_that_hangs_is_one_error(held, monkeypatch):
    with opened(lambda: gdbext.open_process(held.pid, debugger="gdb")) as (session, gdb):
        monkeypatch.setattr(borrowed, "PATIENCE", 1.0)
        monkeypatch.setattr(borrowed, "_GRACE", 1.0)
        os.kill(gdb, signal.SIGSTOP)
        with pytest.raises(DebuggerError, match="the borrowed gdb did not answer in 1 s"):
            session.run("triage")
        assert not Path(f"/proc/{gdb}").exists()
    held.wait_for_ticks()


@pytest.mark.parametrize("script,message", (
    ("echo broken >&2; exit 3", r"the borrowed gdb has ended \(status 3\): broken"),
    ("exec sleep 1000", "did not answer in 1 s"),
    ("", "cannot run .*: Permission denied; install gdb, or name one"),
))  # fmt: skip
def test_what_is_no_gdb_is_an_error(staged, tmp_path, monkeypatch, script, message):
    program = tmp_path / "gdb"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755 if script else 0o644)
    monkeypatch.setattr(borrowed, "PATIENCE", 1.0)
    monkeypatch.setattr(borrowed, "_GRACE", 1.0)
    before = children()
    with pytest.raises(DebuggerError, match=message):
        gdbext.open_core(staged("leaks").core, debugger=str(program))
    assert children() == before


def test_a_gdb_that_does_not_come_to_hold_a_process_says_what_it_may_be(held, tmp_path, monkeypatch, capsys):
    program = tmp_path / "gdb"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setattr(borrowed, "PATIENCE", 1.0)
    monkeypatch.setattr(borrowed, "_GRACE", 1.0)
    monkeypatch.setattr(process, "UNSAID", 0.3)
    with pytest.raises(DebuggerError, match=f"gdb did not come to hold process {held.pid} in 1 s; it may be large"):
        gdbext.open_process(held.pid, debugger=str(program))
    said = capsys.readouterr().err
    assert said.startswith(f"gdbext: gdb does not hold process {held.pid} yet: ") and said.count("\n") == 1
    held.wait_for_ticks()


def test_what_is_no_target_is_an_error(tmp_path, folder):
    with pytest.raises(BadCoreError):
        gdbext.open_core(tmp_path / "nothing", debugger="gdb")
    with pytest.raises(NoTargetError, match="there is no process"):
        gdbext.open_process(1 << 30, debugger="gdb")
    with pytest.raises(DebuggerError, match="itself"):  # it would wait for itself for ever
        gdbext.open_process(os.getpid(), debugger="gdb")
    ended = subprocess.Popen(["true"])
    wait_until(lambda: Path(f"/proc/{ended.pid}/stat").read_text().split()[2] == "Z", "it ends")
    with pytest.raises(NoTargetError, match="is gone"):
        gdbext.open_process(ended.pid, debugger="gdb")
    ended.wait()
    with counting(folder, tmp_path) as held:
        with keeper(held.pid), pytest.raises(DebuggerError, match="traced already"):
            gdbext.open_process(held.pid, debugger="gdb")
        held.wait_for_ticks()


def test_a_stop_ends_a_question_and_not_the_session(staged):
    here = staged("hash_tables", "--entries", "1500", "--bins", "64")
    (theirs,) = ask(here, "triage")
    with gdbext.open_core(here.core, debugger="gdb") as session:
        stopped = 0
        for moment in range(25):
            stopper = threading.Timer(moment / 50, session.stop)
            stopper.start()
            began = time.monotonic()
            try:
                stopped += not session.triage().complete
            except StoppedError:
                stopped += 1
            assert time.monotonic() - began < 10
            stopper.join()
            session._block_types = None
            session._reach.clear()
        assert stopped
        assert session.triage().to_dict() == theirs


def test_an_error_with_more_than_a_message_travels():
    error = pickle.loads(pickle.dumps(FaultError(0x10, 8, "arena")))
    assert (error.address, error.size, error.reading, error.hint) == (0x10, 8, "arena", None)
    error = pickle.loads(pickle.dumps(NoTargetError("gone", "attach")))
    assert str(error) == "gone; attach"
