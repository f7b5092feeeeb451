"""Live reads of a child that states what it mapped, wrote and named."""

import contextlib
import errno
import json
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.coretarget import modules_of
from gdbext.errors import FaultError, NoTargetError
from gdbext.memory import check_reads
from gdbext.memory.intervals import Coverage
from gdbext.memory.live import presence
from gdbext.memory.live import procmem as module
from gdbext.memory.live.mappings import open_proc, read_mappings
from gdbext.memory.live.presence import read_presence
from gdbext.memory.live.procmem import ProcessMemory, read_comm

PAGE = os.sysconf("SC_PAGE_SIZE")

CHILD = r"""
import ctypes, json, mmap, sys, time
page, folder = mmap.PAGESIZE, sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
keep = []
def take(pages):
    area = mmap.mmap(-1, pages * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    keep.append(area)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc.madvise(address, pages * page, 15)  # MADV_NOHUGEPAGE
    return area, address
def fill(area):
    for at in range(0, len(area), 8):
        area[at : at + 8] = at.to_bytes(8, "little")
    return area
sparse, sparse_at = take(8)
for number in (0, 3, 5):
    sparse[number * page] = 1
hole, hole_at = take(64)
fill(hole)
libc.munmap(hole_at + 33 * page, page)
locked, locked_at = take(64)
fill(locked)
libc.mprotect(locked_at + 20 * page, 2 * page, 0)
name = folder + "/odd\nname"
open(name, "wb").write(b"odd" * page)
odd = open(name, "rb")
odd = mmap.mmap(odd.fileno(), page, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
libc.prctl(15, b"odd (name)")
print(json.dumps({"sparse": sparse_at, "hole": hole_at, "locked": locked_at}), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    with running(CHILD, str(tmp_path_factory.mktemp("child"))) as (process, truth):
        yield process.pid, truth


def pattern(start, size):
    """What CHILD's fill writes from ``start`` on."""
    first, last = start // 8, -(-(start + size) // 8)
    return np.arange(first, last, dtype="<u8").__mul__(8).tobytes()[start - first * 8 :][:size]


def test_scattered_pages_at_once(child):
    """Pages of several mappings, in no order: one that was never touched, and one of no mapping, are not had so."""
    pid, truth = child
    sparse, hole = truth["sparse"], truth["hole"]
    pages = [hole + 2 * PAGE, sparse, sparse + PAGE, hole + 33 * PAGE, sparse + 5 * PAGE]
    data, known = ProcessMemory(pid).read_pages(np.array(pages, np.uint64))
    assert known.tolist() == [True, True, False, False, True]
    assert data[0].tobytes() == pattern(2 * PAGE, PAGE)
    assert all(data[row].tobytes() == b"\1" + bytes(PAGE - 1) for row in (1, 4))


def test_what_the_kernel_refuses_of_scattered_pages_is_not_known(child):
    pid, truth = child
    data, known = ProcessMemory(pid).read_pages(np.array([truth["locked"] + at * PAGE for at in (1, 20)], np.uint64))
    assert known.tolist() == [True, False]
    assert data[0].tobytes() == pattern(PAGE, PAGE)


def test_regions_are_the_maps(child):
    pid, _ = child
    regions = ProcessMemory(pid).regions()
    with open(f"/proc/{pid}/maps") as maps:
        lines = [re.match(r"(\w+)-(\w+) (...). (\w+) \S+ \d+ *(.*)", line).groups() for line in maps]
    assert [(f"{r.start:08x}", f"{r.end:08x}", r.permissions, f"{r.offset:08x}") for r in regions] == [
        line[:4] for line in lines
    ]
    assert [r.name.replace("\n", "\\012") for r in regions] == [line[4] for line in lines]
    assert any(r.name.endswith("/odd\nname") for r in regions)
    assert {r.source for r in regions if not r.name.startswith("[vvar")} == {"memory"}
    assert {r.source for r in regions if r.name.startswith("[vvar")} <= {"absent"}


@pytest.mark.parametrize("readv", [True, False])
@pytest.mark.parametrize("size", [0, 1, 8, PAGE, 3 * PAGE + 1, 32 * PAGE, 33 * PAGE - 24])
def test_reads_what_the_child_wrote(child, size, readv, monkeypatch):
    pid, truth = child
    if not readv:
        monkeypatch.setattr(module, "_readv", None)
    memory = ProcessMemory(pid)
    assert bytes(memory.read(truth["hole"] + 24, size)) == pattern(24, size)
    assert bytes(memory.view(truth["hole"] + 24, size)) == pattern(24, size)


@pytest.mark.parametrize("start,size", [(33, 1), (32, 2), (33, 31), (0, 64), (0, 34), (33, 0.001)])
def test_faults_at_a_hole(child, start, size):
    pid, truth = child
    address, size = truth["hole"] + start * PAGE, int(size * PAGE)
    with pytest.raises(FaultError) as fault:
        ProcessMemory(pid).read(address, size)
    assert (fault.value.address, fault.value.size) == (address, size)


def test_hole_that_appears_after_the_maps_were_read(child):
    pid, truth = child
    memory = ProcessMemory(pid)
    memory._covers = lambda address, size: True
    ends = np.array([truth["hole"], truth["hole"] + 64 * PAGE], np.uint64)
    memory.presence.present = Coverage(ends[:1], ends[1:])
    with pytest.raises(FaultError) as fault:
        memory.read(truth["hole"], 64 * PAGE)
    assert (fault.value.address, fault.value.size) == (truth["hole"], 64 * PAGE)


@pytest.mark.parametrize("size", [8, 64 * PAGE])
def test_pages_that_the_kernel_refuses_are_a_problem(child, size, monkeypatch):
    pid, truth = child
    memory, start = ProcessMemory(pid), truth["hole"]
    with pytest.raises(FaultError):
        memory.read(start, size + 34 * PAGE)  # over the hole: not refused, but not there
    assert check_reads(memory) == ()
    pread = os.pread
    refused = range(start, start + PAGE)

    def refusing(file, count, at):
        if at in refused:
            raise OSError(errno.EIO, "refused")
        return pread(file, count, at)

    monkeypatch.setattr(os, "pread", refusing)
    monkeypatch.setattr(module, "_read_vm", lambda *_: 0)
    with pytest.raises(FaultError):
        memory.read(start, min(size, 8 * PAGE))
    (problem,) = check_reads(memory)
    assert (problem.kind, problem.address, problem.corruption) == ("unreadable-memory", start, False)
    assert problem.message == f"1 page of the process could not be read, though in memory: the first at {start:#x}"


@pytest.mark.parametrize("address,size", [(0, 8), (-8, 8), (-8, 1 << 20), (1 << 64, 8), ((1 << 64) - 8, 8),
                                          (4096, 1 << 62), (8, -1)])  # fmt: skip
def test_faults_at_nonsense(child, address, size):
    with pytest.raises(FaultError):
        ProcessMemory(child[0]).read(address, size)


def test_size_from_damaged_memory_allocates_nothing(child):
    pid, truth = child
    with pytest.raises(FaultError):
        ProcessMemory(pid).read(truth["sparse"], 1 << 46)


@pytest.mark.parametrize("size", [64 * PAGE, PAGE // 2])
def test_pages_without_permission_are_read_by_proc_mem(child, size):
    pid, truth = child
    start = 0 if size > 21 * PAGE else 20 * PAGE
    assert bytes(ProcessMemory(pid).read(truth["locked"] + start, size)) == pattern(start, size)


def test_bulk_reads_of_several_calls(child, monkeypatch):
    pid, truth = child
    monkeypatch.setattr(module, "_AT_ONCE", 5 * PAGE)
    assert bytes(ProcessMemory(pid).read(truth["hole"] + 24, 32 * PAGE)) == pattern(24, 32 * PAGE)


def test_bulk_reads_are_fast():
    code = "import sys; x = bytearray(b'q') * (100 << 20); print(1, flush=True); sys.stdin.read()"
    with running(code) as (process, _):
        memory = ProcessMemory(process.pid)
        big = max((r for r in memory.regions() if r.writable), key=lambda r: r.size)
        times = []
        for _ in range(3):
            before = time.process_time()
            data = memory.view(big.start, big.size)
            times.append(time.process_time() - before)
        assert len(data) == big.size >= 100 << 20
        assert bytes(data).count(b"q") >= 100 << 20
        assert min(times) < 0.3  # 0.04 s on an idle machine


def test_smaps(child):
    pid, truth = child
    uses = {use.start: use for use in read_mappings(pid)}
    sparse = next(use for use in uses.values() if use.start <= truth["sparse"] < use.end)
    locked = uses[truth["locked"] + 20 * PAGE]
    assert sparse.rss >= 3 * PAGE
    assert (locked.end - locked.start, locked.rss, locked.pss) == (2 * PAGE, 2 * PAGE, 2 * PAGE)
    assert (locked.swap, locked.anon_huge, locked.name) == (0, 0, "")
    assert len(uses) == len(ProcessMemory(pid).regions())
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        figures = dict(re.findall(r"(\w+): +(\d+) kB", rollup.read()))
    assert sum(use.rss for use in uses.values()) == int(figures["Rss"]) * 1024
    assert any(use.name.endswith("/odd\nname") for use in uses.values())


def test_comm(child):
    assert read_comm(child[0], child[0]) == "odd (name)"
    name = read_comm(os.getpid(), threading.get_native_id())
    assert name and "\n" not in name
    with pytest.raises(NoTargetError):
        read_comm(child[0], 1)


def test_modules(child):
    memory = ProcessMemory(child[0])
    found = {m.path: m for m in modules_of(memory, X86_64)}
    names = {r.name for r in memory.regions() if "x" in r.permissions and r.name.startswith("/")}
    assert set(found) == names
    libc = next(m for path, m in found.items() if "/libc.so" in path)
    notes = subprocess.run(["readelf", "-n", libc.path], capture_output=True, text=True).stdout
    assert libc.build_id in notes


GONE = "is gone, or has no memory of its own; attach to a live one"


def test_gone():
    with running("import sys; print(1, flush=True); sys.stdin.read()") as (process, _):
        memory = ProcessMemory(process.pid)
        heap = next(r for r in memory.regions() if r.name == "[heap]")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie, not reaped
        readers = [
            lambda: memory.read(heap.start, 8),
            lambda: memory.read(heap.start, heap.size),
            lambda: ProcessMemory(process.pid),
        ]
        for read in readers:
            with pytest.raises(NoTargetError, match=GONE):
                read()
        process.wait()
        readers += [
            lambda: read_mappings(process.pid),
            lambda: read_comm(process.pid, process.pid),
            lambda: read_presence(process.pid, memory._mappings),
        ]
        for read in readers:
            with pytest.raises(NoTargetError, match=f"process {process.pid} {GONE}"):
                read()


def test_gone_while_the_page_map_is_read(child, monkeypatch):
    with running("import sys; print(1, flush=True); sys.stdin.read()") as (process, _):
        descriptor = open_proc(process.pid, "pagemap")
        process.kill()
        process.wait()
        with pytest.raises(NoTargetError, match=GONE):
            presence._read_entries(descriptor, process.pid, 16, 4)
        os.close(descriptor)
