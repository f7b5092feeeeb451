import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.abi import I386, X86_64
from gdbext.analysis.footprint.ledger import ledger, region_owners, rss
from gdbext.analysis.footprint.residency import Knowledge, PageResidency
from gdbext.heap.glibc.heap import find_heaps
from gdbext.heap.model import Arena, Blocks, Charge, Heap, State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.memory.intervals import Coverage
from gdbext.memory.live.mappings import Mapping
from gdbext.process import Identity, Module, Thread
from gdbext.progress import SILENT
from gdbext.render import text
from gdbext.target import Target
from tests.support.ptmalloc import HeapBuilder


def u64(values):
    return np.array(list(values), np.uint64)


def charge(owner, *intervals):
    return Charge(owner, u64(start for start, _ in intervals), u64(end for _, end in intervals))


def target_of(*regions, **extra):
    return Target(FakeMemory([], sorted(regions, key=lambda region: region.start)), X86_64, **extra)


def heap_of(*charges):
    return Heap("test", Blocks.empty(), [Arena(0, 1, "main", 0)], charges=charges)


def sums(account):
    return {entry.owner: entry.bytes for entry in account.entries}


def test_a_tiled_heap_leaves_no_residual(maker):
    maker.span(0x10000, [(1000, State.IN_USE), (300, State.SMALL), (500, State.TOP)])
    account, problems = ledger(maker.target(Region(0x7F0000, 0x7F2000, "r-x", "/lib/x")), [maker.heap()])
    assert problems == []
    assert account.residual == 0
    assert account.total == 0x1000 + 0x2000
    assert sums(account)["/lib/x"] == 0x2000
    assert sums(account)["test in use"] == 1000
    assert "anonymous rest" not in sums(account)


CUTS = st.lists(st.integers(1, 63), unique=True, min_size=1, max_size=12).map(sorted)


@given(CUTS, st.lists(st.integers(0, 2), min_size=13, max_size=13), st.integers(0, 8))
def test_charges_that_tile_leave_no_residual(cuts, owners, uncharged):
    edges = [0, *cuts, 64]
    tiles = [(0x1000 + 64 * a, 0x1000 + 64 * b) for a, b in zip(edges, edges[1:])]
    tiles = tiles[: len(tiles) - uncharged]
    charges = [
        charge(f"owner {number}", *(tile for tile, owner in zip(tiles, owners) if owner == number))
        for number in range(3)
    ]
    account, problems = ledger(target_of(Region(0x1000, 0x2000)), [heap_of(*charges)])
    assert not problems
    assert account.residual == 0
    assert account.total == sum(entry.bytes for entry in account.entries) == 0x1000


INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    max_size=12,
)


@given(INTERVALS)
def test_total_is_entries_and_residual_whatever_is_charged(intervals):
    account, problems = ledger(
        target_of(Region(10, 20), Region(20, 30, "---"), Region(34, 40)), [heap_of(charge("x", *intervals))]
    )
    assert account.total == 26
    assert account.total == sum(entry.bytes for entry in account.entries) + account.residual
    cells = [cell for start, end in intervals for cell in range(start, end)]
    mapped = {*range(10, 30), *range(34, 40)}
    faulty = len(cells) - len(set(cells)) + len(set(cells) - mapped)
    assert account.residual == -faulty
    assert bool(problems) == bool(faulty)


def test_overlapping_charges_are_a_problem_with_both_names():
    charges = charge("first", (0x1000, 0x1800)), charge("second", (0x1700, 0x1900))
    account, problems = ledger(target_of(Region(0x1000, 0x2000)), [heap_of(*charges)])
    assert account.residual == -0x100
    (problem,) = problems
    assert (problem.kind, problem.address) == ("ledger-overlap", 0x1700)
    assert problem.message == 'claimed twice: "first" and "second"'


def test_many_overlaps_are_summed_up():
    pairs = [(0x1000 + 16 * n, 0x1000 + 16 * n + 17) for n in range(20)]
    _, problems = ledger(target_of(Region(0x1000, 0x2000)), [heap_of(charge("x", *pairs))])
    assert len(problems) == 6
    assert problems[-1].message == "claimed twice in 14 more places; 19 B in all"


def test_charges_outside_every_mapping_are_a_problem():
    account, problems = ledger(target_of(Region(0x1000, 0x2000)), [heap_of(charge("x", (0x1F00, 0x2100)))])
    assert account.residual == -0x100
    (problem,) = problems
    assert (problem.kind, problem.address) == ("ledger-outside", 0x1F00)
    assert problem.message == '"x" claims 256 B that no mapping holds'


REGIONS = [
    Region(0x400000, 0x401000, "r-x", "/bin/test"),
    Region(0x401000, 0x402000, "rw-", "/bin/test"),
    Region(0x402000, 0x406000, "rw-"),  # .bss to 0x404000, then something merged with it
    Region(0x500000, 0x600000, "rw-", "[heap]"),
    Region(0x700000, 0x701000, "---"),
    Region(0x701000, 0x709000, "rw-"),
    Region(0x800000, 0x900000, "---"),
    Region(0xA00000, 0xA01000, "rw-"),
    Region(0xB00000, 0xB02000, "rw-", "[stack]"),
    Region(0xC00000, 0xC01000, "r-x", "[vdso]"),
    Region(0xC01000, 0xC03000, "---", "/bin/test"),
]


def test_what_no_heap_owns():
    target = target_of(
        *REGIONS,
        identity=Identity(pid=50),
        modules=[Module("/bin/test", 0x400000, 0x404000, None)],
        threads=[Thread(1, 50, None, 0xB01000), Thread(2, 51, None, 0x708000), Thread(3, 52, None)],
    )
    account, problems = ledger(target, [])
    assert not problems
    assert account.residual == 0
    assert sums(account) == {
        "/bin/test": 0x2000,
        "/bin/test (bss)": 0x2000,
        "anonymous rest": 0x2000 + 0x100000 + 0x1000,
        "thread stack guards": 0x1000,
        "thread stacks": 0x8000,
        "main thread stack": 0x2000,
        "reserved, no access": 0x100000 + 0x2000,
        "[vdso]": 0x1000,
    }
    assert account.entries[-1].owner == "reserved, no access"


def test_a_reserve_that_is_said_to_be_writable():
    """Of it what is mapped, of no file, and of no block."""
    regions = [Region(0x10000, 0x30000), Region(0x30000, 0x31000, "---"), Region(0x40000, 0x41000, "rw-", "/file")]
    heap = replace(heap_of(charge("x", (0x10000, 0x12000), (0x14000, 0x14010))), reserves=[(0x12000, 0x20000)])
    other = replace(heap_of(), reserves=[(0x2F000, 0x40800)])
    account, problems = ledger(target_of(*regions), [heap, other])
    assert not problems and account.residual == 0
    assert sums(account) == {
        "x": 0x2010, "reserved, no access": 0xDFF0 + 0x1000 + 0x1000, "anonymous rest": 0xF000, "/file": 0x1000,
    }  # fmt: skip
    account, _ = ledger(target_of(*regions), [heap_of()])
    assert sums(account)["anonymous rest"] == 0x20000


@pytest.mark.parametrize("abi", [X86_64, I386])
def test_thread_heaps_in_a_core_of_gdbs_as_in_one_of_the_kernels(abi):
    """Gdb writes what may not be accessed as memory that may be written, and zeros for it."""
    builder = HeapBuilder(abi)
    for _ in range(2):
        arena = builder.add_thread(builder.add_arena()).arena
        arena.chunk(builder.sizes.minimum)
    image = builder.build()
    kernels = image.target()
    reserves = [region for region in image.regions if region.permissions == "---"]
    image.regions = [replace(region, permissions="rw-") for region in image.regions]
    accounts = [ledger(target, find_heaps(target, SILENT))[0] for target in (kernels, image.target())]
    assert sums(accounts[0]) == sums(accounts[1])
    assert sums(accounts[1])["reserved, no access"] == sum(region.size for region in reserves) > builder.heap_max


def test_the_main_stack_is_known_without_its_name():
    region = Region(0x1000, 0x2000)
    target = target_of(region, identity=Identity(pid=9), threads=[Thread(1, 9, None, 0x1800)])
    assert region_owners(target, [region]) == ["main thread stack"]


def test_the_stack_that_libc_keeps_of_an_ended_thread_is_one():
    guard, region = Region(0x10000, 0x11000, "---"), Region(0x11000, 0x21000, "rw-")
    thread, data = 0x20940, bytearray(region.size)
    plain = Target(FakeMemory([(region.start, bytes(data))], [guard, region]), X86_64)
    assert region_owners(plain, [guard, region]) == ["reserved, no access", "anonymous rest"]
    struct.pack_into("<3Q", data, thread - region.start, thread, 0x7000, thread)  # tcbhead_t: tcb, dtv, self
    kept = Target(FakeMemory([(region.start, bytes(data))], [guard, region]), X86_64)
    assert region_owners(kept, [guard, region]) == ["thread stack guards", "thread stacks"]


def test_stack_pointers_in_the_heap_or_in_files_make_no_stack():
    regions = [Region(0x1000, 0x2000, "rw-", "[heap]"), Region(0x3000, 0x4000, "rw-", "/file")]
    target = target_of(*regions, threads=[Thread(1, 9, None, 0x1800), Thread(2, 9, None, 0x3100)])
    assert region_owners(target, regions) == ["anonymous rest", "/file"]


def test_a_core_does_not_know_residency(maker):
    maker.span(0x10000, [(1000, State.IN_USE)])
    report = rss(maker.target(), [maker.heap()])
    assert {entry.resident for entry in report.data.entries} == {None}
    assert report.notes == ["residency unknown: a core does not say which pages were in RAM"]
    shown = "".join(text(report, exact=True, limit=None))
    assert "resident" not in shown.replace(report.notes[0], "")
    assert "not in core" not in shown


def test_absent_memory_is_told_by_owner():
    target = target_of(Region(0x1000, 0x3000, source="absent"), Region(0x3000, 0x4000))
    report = rss(target, [heap_of(charge("x", (0x2000, 0x3800)))])
    assert {entry.owner: entry.not_in_core for entry in report.data.entries} == {
        "x": 0x1000,
        "anonymous rest": 0x1000,
    }
    assert "not in core" in "".join(text(report, exact=False, limit=None))


def test_residency_is_exact_to_the_byte():
    pages = PageResidency(
        Coverage(u64([0x2000]), u64([0x4000])),
        [Mapping(0x1000, 0x5000, "", 0x2000, 0x1000, 0, 0x1000)],
    )
    target = replace(target_of(Region(0x1000, 0x5000)), live=True)
    report = rss(target, [heap_of(charge("x", (0x1F00, 0x2100), (0x3FFF, 0x4001)))], Knowledge(pages, ""))
    account = report.data
    resident = {entry.owner: entry.resident for entry in account.entries}
    assert resident == {"x": 0x101, "anonymous rest": 0x1EFF}
    assert (account.resident, account.rss, account.pss, account.swap) == (0x2000, 0x2000, 0x1000, 0x1000)
    assert account.rss_difference == 0
    assert {entry.not_in_core for entry in account.entries} == {None}
    assert "RSS of the kernel" in "".join(text(report, exact=True, limit=None))


def test_no_mappings_at_all():
    account, problems = ledger(target_of(), [])
    assert (account.total, account.residual, account.entries, problems) == (0, 0, [], [])


def test_a_million_intervals_are_quick(maker):
    import time

    starts = np.arange(1_000_000, dtype=np.uint64) * np.uint64(64) + np.uint64(0x10000)
    middles, ends = starts + np.uint64(16), starts + np.uint64(64)
    charges = [Charge("overhead", starts, middles), Charge("in use", middles, ends)]
    target = target_of(Region(0x10000, int(ends[-1])))
    begun = time.process_time()
    account, _ = ledger(target, [heap_of(*charges)])
    assert account.residual == 0
    assert time.process_time() - begun < 2  # 0.15 s where it was written


@pytest.mark.parametrize("live", [True, False])
def test_problems_of_target_and_heaps_are_handed_on(live):
    from gdbext.report import Problem

    target = replace(target_of(), live=live, problems=[Problem("truncated", None, "short")])
    heap = replace(heap_of(), problems=[Problem("chunk-size", 1, "bad", True)], complete=False)
    report = rss(target, [heap])
    assert [problem.kind for problem in report.problems] == ["chunk-size"]
    assert not report.complete
