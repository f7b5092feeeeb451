"""What is read of a child that says what it touched: nothing that is not there, and nothing of it changes."""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from gdbext.errors import FaultError
from gdbext.memory import for_each_written
from gdbext.memory.bulk import closed, for_each_written_view
from gdbext.memory.intervals import clip
from gdbext.memory.live import mappedfiles
from gdbext.memory.live import presence as module
from gdbext.memory.live.mappedfiles import MappedFiles
from gdbext.memory.live.mappings import Mapping, open_proc, read_mappings
from gdbext.memory.live.presence import (
    FILE,
    GUARD,
    PRESENT,
    SWAPPED,
    ZERO,
    Presence,
    Runs,
    read_pagemap,
    read_presence,
    scan_pages,
)
from gdbext.memory.live.procmem import ProcessMemory

PAGE = mmap.PAGESIZE
TERA = 1 << 40

CHILD = r"""
import ctypes, json, mmap, os, sys
page, folder = mmap.PAGESIZE, sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def take(size, flags, descriptor=-1, protection=3):
    at = libc.mmap(None, size, protection, flags, descriptor, 0)
    assert at not in (None, 2**64 - 1)
    return at
def file_of(name, text):
    with open(os.path.join(folder, name), "wb") as file:
        for letter in text:
            file.write(letter.encode() * page)
    return os.open(os.path.join(folder, name), os.O_RDWR)
def touch(at, pages, word=b"touched"):
    for number in pages:
        ctypes.memmove(at + number * page, word, len(word))
truth = {}
truth["huge"] = take(1 << 40, 0x4022)  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
touch(truth["huge"], [7, 1 << 20])
truth["read"] = take(4 * page, 0x22)
ctypes.string_at(truth["read"] + page, 1)
truth["shared"] = take(64 * page, 0x21)
touch(truth["shared"], [3])
for name in ("kept", "deleted", "replaced"):
    descriptor = file_of(name, "abcd")
    truth[name] = take(4 * page, 0x02, descriptor)
    touch(truth[name], [2])
    os.close(descriptor)
os.unlink(os.path.join(folder, "deleted"))
file_of("other", "xxxx")
os.rename(os.path.join(folder, "other"), os.path.join(folder, "replaced"))
truth["data"] = take(4 * page, 0x01, file_of("data", "efgh"))
touch(truth["data"], [1])
truth["beyond"] = take(4 * page, 0x02, file_of("short", "i"))
truth["none"] = take(4 * page, 0x22)
touch(truth["none"], [1])
libc.mprotect(truth["none"], 4 * page, 0)
truth["watched"] = take(4 * page, 0x22)
touch(truth["watched"], [1])
watcher = libc.syscall(323, 1)  # userfaultfd of x86-64, UFFD_USER_MODE_ONLY
words = (ctypes.c_uint64 * 3)(0xAA)  # UFFDIO_API
known = watcher >= 0 and not libc.ioctl(watcher, ctypes.c_ulong(0xC018AA3F), words)
words = (ctypes.c_uint64 * 4)(truth["watched"], 4 * page, 1)  # UFFDIO_REGISTER, of what is missing
if not known or libc.ioctl(watcher, ctypes.c_ulong(0xC020AA00), words):
    del truth["watched"]
print(json.dumps(truth), flush=True)
sys.stdin.read()
"""

FIGURES = ("RssAnon", "RssFile", "RssShmem", "VmPTE", "VmSwap")


def figures(pid):
    with open(f"/proc/{pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return {name: lines[name].strip() for name in FIGURES}


def wait_until_asleep(pid):
    """Wait until the child has nothing more to do, for what it does costs memory too."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rsplit(")", 1)[1].split()[0] == "S":
                return
        time.sleep(0.001)
    raise AssertionError("the child never comes to rest")


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    command = [sys.executable, "-c", CHILD, str(tmp_path_factory.mktemp("files"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        truth = json.loads(process.stdout.readline())
        wait_until_asleep(process.pid)
        before = figures(process.pid)
        yield process.pid, truth
        assert figures(process.pid) == before
    finally:
        process.kill()
        process.communicate()


def runs(coverage, start, end):
    starts, ends = clip(coverage, start, end)
    return [((low - start) // PAGE, (high - start) // PAGE) for low, high in zip(starts.tolist(), ends.tolist())]


@pytest.fixture(params=["PAGEMAP_SCAN", "pagemap"])
def presence(child, request, monkeypatch):
    if request.param == "pagemap":
        monkeypatch.setattr(module, "scan_pages", lambda *_: None)
        kept = {child[1]["huge"]: (child[1]["huge"] + (1 << 33))}  # to the end it would be 256 million entries
        known = [one._replace(end=min(one.end, kept.get(one.start, one.end))) for one in read_mappings(child[0])]
        return read_presence(child[0], known)
    descriptor = open_proc(child[0], "pagemap")
    known = scan_pages(descriptor, 0, PAGE)
    os.close(descriptor)
    if known is None:
        pytest.skip("this kernel has no PAGEMAP_SCAN")
    return read_presence(child[0], read_mappings(child[0]))


def test_both_routes_say_the_same(child, presence):
    truth = child[1]
    assert runs(presence.written, truth["huge"], truth["huge"] + (1 << 33)) == [(7, 8), (1 << 20, (1 << 20) + 1)]
    assert runs(presence.written, truth["shared"], truth["shared"] + 64 * PAGE) == [(3, 4)]
    assert runs(presence.written, truth["kept"], truth["kept"] + 4 * PAGE) == [(2, 3)]
    assert runs(presence.present, truth["none"], truth["none"] + 4 * PAGE) == [(1, 2)]
    assert runs(presence.resident, truth["read"], truth["read"] + 4 * PAGE) == []
    assert not presence.swapped.bytes and presence.known
    assert presence.resident.bytes == sum(one.rss for one in presence.mappings)


def test_runs_of_a_process_of_our_own_are_equal_by_both_routes():
    mappings = [one for one in read_mappings(os.getpid()) if one.end < 1 << 63 and one.end - one.start < 1 << 30]
    descriptor = open_proc(os.getpid(), "pagemap")
    first = scan_pages(descriptor, mappings[0].start, mappings[-1].end)
    if first is None:
        pytest.skip("this kernel has no PAGEMAP_SCAN")
    second = read_pagemap(descriptor, os.getpid(), [one for one in mappings if one.rss])
    os.close(descriptor)
    scanned, read = Presence(mappings, first), Presence(mappings, second)
    # between the two this very process goes on: a few pages come to be
    assert abs(scanned.resident.bytes - read.resident.bytes) <= 256 * PAGE


@pytest.mark.parametrize("count", (400, 512, 513, 700, 5000, 40_000))
def test_each_of_many_runs_is_had_once(count):
    """The kernel's own buffer takes 512 regions, and ours 32 768."""
    area = mmap.mmap(-1, 2 * count * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page = np.frombuffer(area, np.uint8)
    start = int(page.ctypes.data)
    libc = ctypes.CDLL(None)
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(len(area)), mmap.MADV_NOHUGEPAGE)
    page[:: 2 * PAGE] = 1
    descriptor = open_proc(os.getpid(), "pagemap")
    found = scan_pages(descriptor, start, start + len(area))
    os.close(descriptor)
    if found is None:
        pytest.skip("no PAGEMAP_SCAN before Linux 6.7")
    assert found.starts.tolist() == list(range(start, start + len(area), 2 * PAGE))
    assert (found.ends - found.starts == PAGE).all()


def test_what_was_never_touched_is_zeros_and_costs_nothing(child):
    memory, at = ProcessMemory(child[0]), child[1]["huge"]
    assert bytes(memory.read(at, 8)) == bytes(8)
    data = memory.read(at + 6 * PAGE, 1 << 30)
    assert bytes(data[PAGE : PAGE + 7]) == b"touched" and not np.frombuffer(data[2 * PAGE : 1 << 20], np.uint8).any()
    assert list(for_each_written(memory, at, at + TERA)) == [
        (at + 7 * PAGE, at + 8 * PAGE),
        (at + (PAGE << 20), at + (PAGE << 20) + PAGE),
    ]
    assert [place - at for place, _ in for_each_written_view(memory, at, at + TERA, PAGE)] == [7 * PAGE, PAGE << 20]
    assert bytes(memory.read(child[1]["read"], 4 * PAGE)) == bytes(4 * PAGE)


def test_a_file_gives_what_a_private_mapping_has_not_copied(child):
    memory = ProcessMemory(child[0])
    data = bytes(memory.read(child[1]["kept"], 4 * PAGE))
    assert [data[number * PAGE :][:8] for number in range(4)] == [b"a" * 8, b"b" * 8, b"touchedc", b"d" * 8]
    with pytest.raises(FaultError):
        memory.read(child[1]["beyond"] + 2 * PAGE, 8)  # the program would get a SIGBUS there
    assert bytes(memory.read(child[1]["beyond"] + PAGE - 8, 8)) == b"i" * 8


@pytest.mark.parametrize("name", ["deleted", "replaced"])
def test_a_file_that_is_gone_or_another_gives_nothing(child, name, monkeypatch):
    by_path = MappedFiles._candidates
    monkeypatch.setattr(MappedFiles, "_candidates", lambda *which: [one for one in by_path(*which) if "/root/" in one])
    memory, at = ProcessMemory(child[0]), child[1][name]
    assert bytes(memory.read(at + 2 * PAGE, 7)) == b"touched"
    for page in (0, 3):
        with pytest.raises(FaultError):
            memory.read(at + page * PAGE, 8)
    with pytest.raises(FaultError):
        memory.read(at, 4 * PAGE)


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel opens map_files to root only")
@pytest.mark.parametrize("name", ["deleted", "replaced"])
def test_a_file_that_is_gone_is_had_from_the_kernel(child, name):
    data = bytes(ProcessMemory(child[0]).read(child[1][name], 4 * PAGE))
    assert [data[number * PAGE :][:8] for number in range(4)] == [b"a" * 8, b"b" * 8, b"touchedc", b"d" * 8]


def test_files_on_the_network_and_of_other_programs_are_not_opened(child, monkeypatch):
    mounts = [("/", "ext4"), ("/mnt", "fuse.sshfs"), ("/mnt/local", "xfs"), ("/net/a", "nfs4")]
    monkeypatch.setattr(mappedfiles, "_mounts", lambda pid: mounts)
    opened = []
    monkeypatch.setattr(mappedfiles, "open_regular", lambda path: opened.append(path))
    for name in ("/mnt/x", "/net/a/b/c", "/mnt/local/x", "/usr/lib/x", "/mnt2/x"):
        mapping = Mapping(0x1000, 0x2000, name, inode=7)
        assert MappedFiles(child[0], [mapping], None).find(mapping) is None
    tried = {path.split("/root", 1)[1] for path in opened if "/root/" in path}
    assert tried == {"/mnt/local/x", "/usr/lib/x", "/mnt2/x"}


def test_brief_reads_where_the_kernel_cannot_scan(child, monkeypatch):
    monkeypatch.setattr(module, "scan_pages", lambda *_: None)
    memory, at = ProcessMemory(child[0], brief=True), child[1]["huge"]
    assert bytes(memory.read(at + 7 * PAGE, 7)) == b"touched"
    assert not memory._is_seen(at, 8) and not memory._is_seen(at + 7 * PAGE, 1 << 70)
    assert "presence" not in vars(memory)


def test_shared_memory_is_read_from_its_file(child):
    memory, at = ProcessMemory(child[0]), child[1]["data"]
    assert bytes(memory.read(at, 8)) == b"e" * 8
    assert bytes(memory.read(at + PAGE, 7)) == b"touched"
    assert bytes(memory.read(at, 4 * PAGE))[-8:] == b"h" * 8


def test_shared_memory_without_a_file_is_a_fault_or_by_the_kernels_own_link(child):
    memory, at = ProcessMemory(child[0]), child[1]["shared"]
    assert bytes(memory.read(at + 3 * PAGE, 7)) == b"touched"
    try:
        assert bytes(memory.read(at, 64 * PAGE)).count(b"touched") == 1  # map_files, which root may open
    except FaultError:
        assert os.geteuid() != 0


def test_pages_without_permission_have_contents(child):
    memory, at = ProcessMemory(child[0]), child[1]["none"]
    assert bytes(memory.read(at + PAGE, 7)) == b"touched"
    with pytest.raises(FaultError):
        memory.read(at, 8)


def test_what_somebody_else_fills_is_not_waited_for(child):
    if "watched" not in child[1]:
        pytest.skip("no userfaultfd on this machine")
    memory, at = ProcessMemory(child[0]), child[1]["watched"]
    assert bytes(memory.read(at + PAGE, 7)) == b"touched"
    for size in (8, 3 * PAGE):
        with pytest.raises(FaultError):
            memory.read(at, size)


def test_brief_reads_are_as_harmless(child):
    memory, at = ProcessMemory(child[0], brief=True), child[1]["huge"]
    assert bytes(memory.read(at + 7 * PAGE, 7)) == b"touched"
    assert "presence" not in vars(memory)
    assert bytes(memory.read(at + 8 * PAGE, 8)) == bytes(8)
    assert bytes(memory.read(child[1]["data"], 8)) == b"e" * 8


def test_stretches_that_lie_close_are_one():
    assert list(closed([(0, 1), (5, 6), (20, 30)], 10)) == [(0, 6), (20, 30)]
    assert list(closed([], 10)) == []


# -- laid out: what cannot be had on every machine ---------------------------------------------------------


def laid_out(mapping, kinds, swapped=False):
    """A mapping from 0x10000 on with a page of each kind."""
    starts = np.arange(len(kinds), dtype=np.uint64) * np.uint64(PAGE) + np.uint64(0x10000)
    there = [at for at, kind in enumerate(kinds) if kind]
    whole = mapping._replace(start=0x10000, end=0x10000 + len(kinds) * PAGE)
    found = Runs(starts[there], starts[there] + np.uint64(PAGE), np.array(kinds, np.uint8)[there])
    return Presence([whole], found, swapped)


def pages(presence, coverage, count=8):
    return runs(coverage, 0x10000, 0x10000 + count * PAGE)


KINDS = [PRESENT, 0, SWAPPED, PRESENT | ZERO, PRESENT | FILE, SWAPPED | GUARD]


def test_swapped_pages_are_read_only_when_asked_for():
    swapped = Mapping(0, 0, "", rss=PAGE, swap=PAGE)
    found = laid_out(swapped, KINDS)
    assert pages(found, found.present) == [(0, 1), (4, 5)]
    assert pages(found, found.swapped) == [(2, 3)]
    assert pages(found, found.guards) == [(5, 6)]
    assert found.lacks(0x10000 + 2 * PAGE, 0x10000 + 3 * PAGE) and not found.lacks(0x10000, 0x10000 + 2 * PAGE)
    asked = laid_out(swapped, KINDS, swapped=True)
    assert pages(asked, asked.present) == [(0, 1), (2, 3), (4, 5)] and not asked.swapped.bytes


def test_an_entry_that_the_kernel_does_not_count_as_swap_is_a_page_that_moves():
    found = laid_out(Mapping(0, 0, "", rss=PAGE), KINDS)
    assert pages(found, found.present) == [(0, 1), (2, 3), (4, 5)] and not found.swapped.bytes


def test_pages_of_devices_are_never_read():
    found = laid_out(Mapping(0, 0, "/dev/dri/card0", rss=PAGE, flags=frozenset(("pf", "io"))), KINDS)
    assert not found.present.bytes and not found.written.bytes and not found.swapped.bytes


def test_what_a_userfaultfd_has_not_filled_is_no_zeros():
    watched = Mapping(0, 0, "", rss=PAGE, flags=frozenset(("um",)))
    assert not watched.starts_as_zeros and not watched.has_file
    found = laid_out(watched, KINDS)
    assert pages(found, found.present) == [(0, 1), (3, 5)]


@pytest.mark.parametrize(
    "mapping,zeros,file",
    [
        (Mapping(0, 1, ""), True, False),
        (Mapping(0, 1, "[heap]"), True, False),
        (Mapping(0, 1, "", permissions="---"), False, False),
        (Mapping(0, 1, "/dev/zero (deleted)", shared=True, inode=5), False, True),
        (Mapping(0, 1, "/dev/zero", inode=5), True, False),
        (Mapping(0, 1, "/usr/lib/libx.so", inode=5), False, True),
        (Mapping(0, 1, "[vvar]"), False, False),
        (Mapping(0, 1, "[vdso]"), False, False),
    ],
)
def test_what_an_untouched_page_is(mapping, zeros, file):
    assert (mapping.starts_as_zeros, mapping.has_file) == (zeros, file)


class Stopped(ProcessMemory):
    """A process with pages laid out by hand."""

    def __init__(self, presence):
        super().__init__(os.getpid())
        self._mappings = list(presence.mappings)
        self._index = type(self._index)([*map(module_region, self._mappings)])
        self._lows = [one.start for one in self._mappings]
        self.__dict__["presence"] = presence


def module_region(mapping):
    from gdbext.memory.live.procmem import region_of

    return region_of(mapping)


def test_what_is_swapped_out_is_absent():
    memory = Stopped(laid_out(Mapping(0, 0, "", rss=PAGE, swap=PAGE), [0, 0, SWAPPED, 0]))
    assert [(one.size // PAGE, one.source) for one in memory.regions()] == [(2, "memory"), (1, "absent"), (1, "memory")]
    assert bytes(memory.read(0x10000, 2 * PAGE)) == bytes(2 * PAGE)
    with pytest.raises(FaultError):
        memory.read(0x10000, 3 * PAGE)


def test_many_parts_that_are_swapped_out_stay_few_regions(monkeypatch):
    from gdbext.memory.live import procmem as process

    monkeypatch.setattr(process, "_MOST_PARTS", 4)
    memory = Stopped(laid_out(Mapping(0, 0, "", rss=PAGE, swap=PAGE), [0, SWAPPED] * 9))
    regions = memory.regions()
    assert len([one for one in regions if one.source == "absent"]) <= 4
    assert sum(one.size for one in regions) == 18 * PAGE
    swapped = [0x10000 + page * PAGE for page in range(1, 18, 2)]
    assert all(one.source == "absent" for one in regions for at in swapped if at in one)


def test_nothing_of_a_device_is_read():
    memory = Stopped(laid_out(Mapping(0, 0, "/dev/mem", rss=PAGE, flags=frozenset(("io",))), [PRESENT] * 8))
    assert memory.regions()[0].source == "absent"
    for size in (8, 8 * PAGE):
        with pytest.raises(FaultError):
            memory.read(0x10000, size)


def test_what_is_known_to_be_zeros():
    memory = Stopped(laid_out(Mapping(0, 0, "", rss=PAGE, swap=PAGE), KINDS))
    places = np.arange(8, dtype=np.uint64) * np.uint64(PAGE) + np.uint64(0x10000)
    # but for what is there, swapped out, or a guard; the zero page is zeros
    assert memory.untouched(places).tolist() == [False, True, False, True, False, False, False, False]
    watched = Stopped(laid_out(Mapping(0, 0, "", rss=PAGE, flags=frozenset(("um",))), [PRESENT, 0]))
    assert not watched.untouched(places).any()
