"""A session's life: closed only at rest, never copied; what is asked too late says so."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
from contextlib import suppress

import pytest

import gdbext
from gdbext._mount import mount
from gdbext.errors import BadCoreError, GdbextError, NoTargetError, TooLargeError, UsageError
from gdbext.memory.elf.elfcore import ElfCore
from gdbext.session import Session
from tests.support.elfwriter import CoreWriter

mount(os.path.dirname(gdbext.__file__))
PAGE = 4096


@pytest.fixture
def core(tmp_path):
    path = tmp_path / "core"
    path.write_bytes(CoreWriter().prstatus(1).load(0x10000, b"x" * PAGE).build())
    return str(path)


def test_it_cannot_be_closed_while_another_thread_is_answered():
    begun, go, closed = threading.Event(), threading.Event(), []

    def read():
        begun.set()
        assert go.wait(60)
        raise BadCoreError("gone")

    def ask():
        with suppress(BadCoreError):
            session.triage()

    session = Session(read, let_go=lambda: closed.append(True))
    worker = threading.Thread(target=ask)
    worker.start()
    assert begun.wait(60)
    with pytest.raises(UsageError, match="at work"):
        session.close()
    assert not closed
    go.set()
    worker.join(60)
    session.close()
    assert closed
    with pytest.raises(NoTargetError, match="closed"):
        session.triage()


@pytest.mark.parametrize("again", (copy.copy, copy.deepcopy, pickle.dumps), ids=lambda again: again.__name__)
def test_nothing_that_holds_files_is_copied(core, again):
    with gdbext.open_core(core) as session:
        answer = session.run("rss")
        for one in (session, answer, answer.target.memory._file._file):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                again(one)
        if again is not copy.copy:
            with pytest.raises(TypeError, match="cannot be copied or pickled|cannot pickle"):
                again(answer.target)
        gc.collect()
        assert session.run("rss").to_json() == answer.to_json()


@pytest.mark.parametrize("mmap", (True, False), ids=("mapped", "read"))
def test_what_was_closed_says_so_and_views_stay(core, mmap):
    memory = ElfCore(core, mmap=mmap)
    kept, path = memory.read(0x10000, 4), os.path.realpath(core)
    memory.close()
    late = (
        lambda: memory.read(0x10000, 4),
        lambda: memory.read(0x999000, 4),
        lambda: list(memory.for_each_written(0x10000, 0x11000)),
    )
    for ask in late:
        with pytest.raises(NoTargetError, match="the session is closed"):
            ask()
    assert bytes(kept) == b"xxxx" and memory.regions()
    del kept
    assert path not in map(os.path.realpath, open_files())


def open_files():
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{number}")


def test_a_core_that_is_none_leaves_no_file_open(tmp_path):
    path = tmp_path / "none"
    path.write_bytes(b"x" * 100)
    with pytest.raises(GdbextError):
        gdbext.open_core(path)
    gc.collect()
    assert os.path.realpath(path) not in map(os.path.realpath, open_files())


def test_too_little_memory_is_an_error_of_ours(monkeypatch):
    def fail(*arguments, **named):
        raise MemoryError

    session = Session(fail)
    with pytest.raises(TooLargeError, match="there is not enough memory for an answer; the machine, a cgroup or"):
        session.triage()
    monkeypatch.setattr("gdbext.memory.elf.elfcore.ElfCore.__init__", fail)
    with pytest.raises(TooLargeError):
        gdbext.open_core("core")
