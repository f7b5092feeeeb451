"""The program is ended by a signal at any moment: nothing of it is left, and whoever waits for it learns of that."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from functools import partial
from pathlib import Path

import pytest

from gdbext.cli import children, ending
from gdbext.cli.workfolder import work_folder
from gdbext.starting.lockedfolder import LockedFolder, remove_left
from tests.support.rest import wait_until

from .test_program import ROOT, envelope, program, state_of

assert program  # a fixture

OUTLIVING = """
import os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from gdbext.starting import parent
begun, ended = sys.argv[2:]
if not os.fork():
    parent.end_with_parent(9)
    with parent.outliving_parent():
        open(begun, "w").close()
        while os.getppid() == int(os.environ["PARENT"]):
            time.sleep(0.01)
        open(ended, "w").close()
    time.sleep(60)
time.sleep(60)
"""


NOTING = """
import sys
sys.path.insert(0, sys.argv[1])
from gdbext.cli import ending
ending.heed()
with ending.noting() as noted:
    print("noting", flush=True)
    while True:
        noted.wait(60)
        print(noted.asked, noted.stopped, flush=True)
        noted.asked = False
"""


def gone(pid):
    return state_of(pid) == "Z"


@pytest.mark.parametrize("name", ["HUP", "QUIT", "USR1", "PIPE"])
def test_gdb_and_its_children_end_with_us(program, name):
    number = getattr(signal, f"SIG{name}")
    child = program.folder / "child"
    process = program.start("triage", "--core", program.core, sleep=60, child=str(child), stubborn=True)
    wait_until(lambda: list(program.temporary.rglob("answer")), "gdb works on the question")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (-number, "") and "Traceback" not in err
    assert not list(program.temporary.iterdir())
    wait_until(lambda: gone(child.read_text()), "the child ends", 10)


@pytest.mark.parametrize("name", ["HUP", "INT", "TERM"])
def test_a_signal_that_is_noted_wakes_and_the_second_ends(name):
    number = getattr(signal, f"SIG{name}")
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", NOTING, str(ROOT)], **how) as process:
        assert process.stdout.readline() == "noting\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "True False\n"
        process.send_signal(number)
        assert process.stdout.readline() == "False True\n"
        process.send_signal(number)
        process.stdout.read()
        assert process.wait() == -number and process.stderr.read() == ""


def test_what_gdb_has_left_behind_ends_with_it(program):
    child = program.folder / "child"
    assert program.run("triage", "--core", program.core, child=str(child))[:2] == (0, "text\n")
    wait_until(lambda: gone(child.read_text()), "the child ends", 10)


def test_a_signal_that_is_ignored_stays_so(program):
    ignoring = program.folder / "nohup"
    ignoring.write_text(f"#!/bin/sh\nkill -HUP $PPID\nexec '{program.gdb}' \"$@\"\n")
    ignoring.chmod(0o755)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert program.run("triage", "--core", program.core, "--gdb", ignoring, gdb=False)[:2] == (0, "text\n")
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def unpacking(program, monkeypatch):
    """A program that unpacks a core for ever, and the process that does."""
    noted = program.folder / "unpacker"
    (program.folder / "zstd").write_text(f"#!/bin/sh\necho $$ > {noted}\nprintf core\nexec sleep 60\n")
    (program.folder / "zstd").chmod(0o755)
    (program.folder / "core.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(50))
    monkeypatch.setenv("PATH", f"{program.folder}:{os.environ['PATH']}")
    process = program.start("triage", program.folder / "core.zst")
    wait_until(lambda: noted.exists() and noted.read_text(), "it is unpacked")
    wait_until(lambda: list(program.temporary.rglob("core")), "it is written")
    return process, noted.read_text().strip()


def test_a_core_that_is_half_unpacked(program, unpacking):
    process, unpacker = unpacking
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=30) == ("", "") and process.returncode == -signal.SIGHUP
    assert not list(program.temporary.iterdir())
    wait_until(lambda: gone(unpacker), "the unpacker ends", 10)


def test_what_a_killed_run_has_left_is_removed_by_the_next(program, unpacking):
    process, unpacker = unpacking
    process.kill()
    process.communicate(timeout=30)
    wait_until(lambda: gone(unpacker), "the unpacker ends", 10)
    assert list(program.temporary.rglob("core"))
    assert program.run("triage", "--core", program.core)[0] == 0  # which checks that nothing is left


@pytest.fixture
def alone(program, monkeypatch):
    """A program that waits for the Python by itself, which reads a pipe in place of a file, and that Python."""
    shapes = program.folder / ".config" / "gdbext" / "shapes"
    shapes.mkdir(parents=True)
    os.mkfifo(shapes / "x.toml")
    monkeypatch.setenv("HOME", str(program.folder))
    process = program.start("shapes", "list")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: list(program.temporary.rglob("answer")), "Python answers")
    return process, children.read_text().split()[0]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_the_python_by_itself_ends_with_us(program, alone, number):
    process, answering = alone
    process.send_signal(number)
    assert process.communicate(timeout=30) == ("", "") and process.returncode == -number
    wait_until(lambda: gone(answering), "it ends", 10)
    assert len(list(program.temporary.iterdir())) == (number == signal.SIGKILL)


def test_two_at_once_leave_each_other_alone(program):
    end = {"status": 3, "complete": False, "findings": False, "error": None}
    first = program.start("triage", program.core, sleep=60, on_interrupt=["partial\n", end])
    wait_until(lambda: list(program.temporary.rglob("answer")), "the first works")
    (folder,) = program.temporary.iterdir()
    second = program.start("triage", program.core)
    assert second.communicate(timeout=60)[0] == "text\n"
    assert list(program.temporary.iterdir()) == [folder]
    first.send_signal(signal.SIGTERM)
    assert first.communicate(timeout=60)[0] == "partial\n" and not list(program.temporary.iterdir())
    assert first.returncode == 3  # an answer in part has a status of its own


def test_folders_that_are_not_ours_to_remove(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def make(name, lock="lock", mode=0o700, under=tmp_path):
        (under / name).mkdir()
        if lock:
            (under / name / lock).touch()
        (under / name).chmod(mode)
        return under / name

    away = make("away")
    left = make("gdbext-_abcd012")
    kept = [make("gdbext-unlocked", None), make("gdbext-of-others"), make("gdbext-locking_", "lock.part")]
    kept += [make("gdbext-shared__", mode=0o755), make("gdbext-abcdefg"), away]
    (tmp_path / "gdbext-linked__").symlink_to(away)
    (make("gdbext-linklock", None) / "lock").symlink_to(away / "lock")
    if os.geteuid() == 0:
        kept.append(make("gdbext-foreign_"))
        os.chown(kept[-1], 65534, 65534)
    with open(make("gdbext-locked__") / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with work_folder() as ours:
            assert os.path.isdir(ours)
        assert (tmp_path / "gdbext-locked__").exists()
    assert not left.exists() and not os.path.exists(ours)
    assert all(one.exists() for one in [*kept, tmp_path / "gdbext-linked__", tmp_path / "gdbext-linklock"])
    assert (away / "lock").exists()


def test_a_folder_is_there_while_its_owner_makes_another(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with work_folder() as first, work_folder():
        assert os.path.isdir(first)


def test_a_folder_is_its_owners_and_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = LockedFolder()
    child = os.fork()
    if child == 0:
        folder.remove()
        os._exit(0)
    os.waitpid(child, 0)
    remove_left()
    assert os.listdir(folder.path) == ["lock"]
    del folder
    assert not os.listdir(tmp_path)


def test_what_must_not_end_in_the_midst_ends_afterwards(tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    code = f"import os; os.environ['PARENT'] = str(os.getpid())\n{OUTLIVING}"
    process = subprocess.Popen([sys.executable, "-c", code, str(ROOT), str(begun), str(ended)])
    wait_until(begun.exists, "the child is in the midst of it")
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    wait_until(ended.exists, "it comes to the end of it", 10)
    wait_until(lambda: gone(child), "it ends", 10)


@pytest.fixture
def ends(monkeypatch):
    """By which signals the program would have ended."""
    ends = []
    monkeypatch.setattr(ending, "_end_by", ends.append)
    handlers = {number: signal.getsignal(number) for number in ending.SIGNALS}
    ending.heed()
    try:
        yield ends
    finally:
        ending.finish(False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending.SIGNALS)
    assert {number: signal.getsignal(number) for number in ending.SIGNALS} == handlers


def signalled(number, made):
    signal.pthread_kill(threading.get_ident(), number)  # another thread would take one that is blocked here
    return made


def test_a_signal_between_making_and_noting_waits(ends):
    undone = []
    with ending.owned(partial(signalled, signal.SIGUSR1, "made"), undone.append):
        pass
    assert (undone, ends) == (["made"], [signal.SIGUSR1])


def test_what_was_made_last_is_undone_first_when_it_is_interrupted(ends):
    undone = []
    outer = ending.owned(lambda: "outer", undone.append)
    inner = ending.owned(partial(signalled, signal.SIGINT, "inner"), undone.append)
    with pytest.raises(KeyboardInterrupt), ending.interruptible(), outer, inner:
        raise AssertionError("the interrupt is lost")
    assert (undone, ends) == (["inner", "outer"], [])


def interrupt(monkeypatch):
    """Have an interrupt come when signals are to be blocked next: Python raises it when they are."""
    real = signal.pthread_sigmask

    def change(how, numbers):
        before = real(how, numbers)
        if how == signal.SIG_BLOCK and numbers:
            monkeypatch.setattr(signal, "pthread_sigmask", real)
            raise KeyboardInterrupt
        return before

    monkeypatch.setattr(signal, "pthread_sigmask", change)


def test_an_interrupt_while_signals_are_being_blocked(ends, monkeypatch):
    undone = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    interrupt(monkeypatch)
    with pytest.raises(KeyboardInterrupt), ending.owned(lambda: "made", undone.append):
        pass
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before and undone == []
    outer, inner = (ending.owned(partial(str, name), undone.append) for name in ("outer", "inner"))
    with pytest.raises(KeyboardInterrupt), outer, inner:
        interrupt(monkeypatch)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before and undone == ["inner", "outer"]


INIT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from gdbext.cli import ending
ending.heed()
with ending.owned(os.getpid, print):
    os.kill(os.getpid(), signal.SIGHUP)
    print("it runs on")
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="no program unshare")
def test_the_first_process_of_a_container_ends_too():
    container = ["unshare", "-rfp"]
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process namespace of our own can be had here")
    line = [*container, sys.executable, "-u", "-c", INIT, str(ROOT)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 128 + signal.SIGHUP)


def test_an_answer_that_stands_in_a_file_stays_there(program):
    process = program.start(program.core, program.core, "--json=out", sleep=0.5)
    out = program.folder / "out"
    wait_until(out.exists, "the first is answered")
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGHUP
    assert [json.loads(line)["status"] for line in out.read_text().splitlines()] == [0]
    assert {one.name for one in program.folder.iterdir() if "part" in one.name} == set()


@pytest.mark.parametrize("heeds", ["", "trap '' TERM\n"], ids=["heeds", "heeds nothing"])
def test_a_gdb_for_a_person_ends_with_us(program, heeds):
    noted = program.folder / "gdb"
    program.gdb.write_text(f"#!/bin/sh\n{heeds}echo $$ > {noted}\nexec sleep 60\n")
    (program.folder / "core.gz").write_bytes(gzip.compress(program.core.read_bytes()))
    process = program.start("open", program.folder / "core.gz")
    wait_until(lambda: noted.exists() and noted.read_text(), "gdb runs")
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGHUP and not list(program.temporary.iterdir())
    wait_until(lambda: gone(noted.read_text().strip()), "gdb ends", 10)


def test_the_group_of_one_that_was_waited_for_is_left_alone(monkeypatch):
    groups = []
    monkeypatch.setattr(os, "killpg", lambda *group: groups.append(group))
    with children.started(["true"], children.end_group, start_new_session=True) as process:
        assert children.await_end(process, 10)
    assert groups == [(process.pid, signal.SIGKILL)] and process.wait() == 0
    children.end_group(process)
    assert len(groups) == 1


def test_waiting_for_an_end_that_does_not_come():
    with children.started(["sleep", "60"], children.end_group, start_new_session=True) as process:
        assert not children.await_end(process, 0)
        assert not children.await_end(process, 0.05)
    assert process.wait() == -signal.SIGKILL


SOON = "--timeout=0.1"


@pytest.mark.parametrize("words", [("core", SOON), ("core", "core", SOON), ("core", "--lmit")])
def test_a_fifo_that_nobody_reads(program, words):
    os.mkfifo(program.folder / "fifo")
    status, out, err = program.run("triage", *words, "--json=fifo")
    assert (status, out) == (2, "") and not program.log.exists()
    assert "cannot write fifo: it is a FIFO that nobody reads" in err


def test_a_reader_of_a_fifo_that_comes_late(program, tmp_path):
    os.mkfifo(program.folder / "fifo")
    with open(tmp_path / "said", "w+") as said:
        process = program.start("triage", "core", "core", "--json=fifo", errors=said)
        line = "gdbext: nobody reads fifo, which is a FIFO: waiting for whoever is to\n"
        wait_until(lambda: (tmp_path / "said").read_text() == line, "it says that it waits")
        assert not program.log.exists()
        documents = (program.folder / "fifo").read_text()  # to the end of both
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert [json.loads(one) for one in documents.splitlines()] == 2 * [json.loads(envelope())]
    assert (tmp_path / "said").read_text().count("nobody reads") == 1


@pytest.mark.parametrize("name", ["d", "x" * 256, "socket", "dangling", "missing/x"])
def test_what_cannot_be_written_is_said_before_gdb_is_started(program, name, monkeypatch):
    monkeypatch.chdir(program.folder)  # the name of a socket has 108 bytes
    (program.folder / "d").mkdir()
    (program.folder / "dangling").symlink_to("missing/x")
    with socket.socket(socket.AF_UNIX) as own:
        own.bind("socket")
    status, out, err = program.run("triage", "core", f"--json={name}")
    assert (status, out) == (2, "") and err.startswith(f"gdbext: triage: cannot write {name}: ")
    assert len(err.splitlines()) == 1 and not program.log.exists()


@pytest.mark.parametrize("to", ["there", "not yet there"])
def test_what_a_link_leads_to_is_written(program, to):
    (program.folder / "there").write_text("old")
    (program.folder / "link").symlink_to(to)
    assert program.run("triage", "core", "--json=link")[0] == 0
    assert (program.folder / to).read_text() == envelope() and (program.folder / "link").is_symlink()


def test_a_fifo_that_somebody_reads(program):
    os.mkfifo(program.folder / "fifo")
    process = program.start("triage", "core", "--json=fifo", document="x" * 200_000)
    assert (program.folder / "fifo").read_text() == "x" * 200_000
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_reader_that_takes_nothing_keeps_no_signal_away(program, name):
    os.mkfifo(program.folder / "fifo")
    reader = os.open(program.folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    process = program.start("triage", "core", "--json=fifo", document="x" * 200_001)
    try:
        wait_until(lambda: waiting_bytes(reader) >= 1 << 16, "the pipe is full")
        process.send_signal(getattr(signal, f"SIG{name}"))
        err = process.communicate(timeout=30)[1]
    finally:
        os.close(reader)
    assert process.returncode == -getattr(signal, f"SIG{name}") and "Traceback" not in err
    assert not list(program.temporary.iterdir())


def waiting_bytes(descriptor):
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
