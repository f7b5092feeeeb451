import ctypes
import ctypes.util
import mmap
import os

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.analysis.footprint.residency import residency_by, residency_of
from gdbext.errors import NoTargetError
from gdbext.memory.fake import FakeMemory
from gdbext.memory.live import mappings
from gdbext.memory.live.presence import read_presence
from gdbext.target import Target

PAGE = mmap.PAGESIZE


def u64(*values):
    return np.array(values, np.uint64)


def own_residency():
    return residency_by(read_presence(os.getpid(), mappings.read_mappings(os.getpid())))


def test_own_pages_that_were_touched_are_resident():
    block = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        block.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(5):
        block[page * PAGE] = 1
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    residency = own_residency()
    assert residency.resident(u64(start), u64(start + 64 * PAGE)) == 5 * PAGE
    assert residency.resident(u64(start + 10, start + 5 * PAGE - 1), u64(start + 20, start + 6 * PAGE)) == 11
    assert sum(use.rss for use in residency.mappings()) > 5 * PAGE


def test_pages_that_were_only_read_are_not():
    block = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        block.madvise(mmap.MADV_NOHUGEPAGE)
    block[:PAGE] = b"x" * PAGE
    assert sum(block[page * PAGE] for page in range(64)) == ord("x")  # maps the zero page
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    residency = own_residency()
    assert residency.resident(u64(start), u64(start + 64 * PAGE)) == PAGE


def test_zero_pages_and_pages_shared_after_a_fork_are_told_apart():
    block = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        block.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(3):
        block[page * PAGE] = 1
    block[3 * PAGE] = 0  # written, so no zero page, though it holds nothing but zeros
    assert sum(block[page * PAGE] for page in range(64)) == 3
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(done)
        os.read(ready, 1)
        os._exit(0)
    try:
        residency = own_residency()
    finally:
        os.close(done)
        os.waitpid(child, 0)
        os.close(ready)
    assert residency.resident(u64(start), u64(start + 64 * PAGE)) == 4 * PAGE


def test_of_a_core_and_of_another_machine_nothing_is_known():
    memory = FakeMemory([])
    core = residency_of(Target(memory, X86_64))
    assert core.residency is None
    assert core.unknown == "residency unknown: a core does not say which pages were in RAM"
    remote = residency_of(Target(memory, X86_64, live=True))
    assert remote.unknown == "residency unknown: the process is not one of this machine"


def test_of_a_process_that_is_gone():
    with pytest.raises(NoTargetError, match="is gone"):
        residency_of(Target(FakeMemory([]), X86_64, live=True, local_pid=2**22 + 1))


def test_an_unreadable_page_map_is_told(monkeypatch):
    from gdbext.analysis.footprint import residency
    from gdbext.errors import GdbextError

    def refuse(pid):
        raise GdbextError("cannot read /proc/1/smaps: Permission denied", "run as root")

    monkeypatch.setattr(residency, "read_mappings", refuse)
    known = residency_of(Target(FakeMemory([]), X86_64, live=True, local_pid=1))
    assert known.residency is None
    assert known.unknown == "residency unknown: cannot read /proc/1/smaps: Permission denied; run as root"
