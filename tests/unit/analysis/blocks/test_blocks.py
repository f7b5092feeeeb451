import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.abi import X86_64
from gdbext.analysis.blocks import listing, place, summary
from gdbext.analysis.blocks.contents import pointer_namer
from gdbext.analysis.blocks.listing import Filters
from gdbext.analysis.blocks.sums import tally
from gdbext.errors import GdbextError, NoHeapError, UsageError
from gdbext.heap.model import FREE_STATES, USED_STATES, Arena, Blocks, Heap, Span, State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module, Thread
from gdbext.render import json_pieces, text
from gdbext.target import Target

START = 0x10000
KINDS = [State.IN_USE, State.SMALL, State.TCACHE, State.IN_USE, State.FASTBIN, State.TOP]


def json_of(report, limit=None):
    return json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=limit)))["data"]


def heap_of(rows, **extra):
    address, size, state, owner = zip(*rows) if rows else ([], [], [], [])
    arenas = [Arena(number, 0xA000 + number, "main", 0) for number in range(3)]
    columns = Blocks(
        np.array(address, np.uint64),
        np.array(size, np.uint64),
        np.array(state, np.uint8),
        np.array(owner, np.uint32),
    )
    return Heap("test", columns, arenas, **extra)


def test_summary_partitions_all_blocks(maker):
    maker.span(START, [(100, kind) for kind in KINDS])
    maker.span(0x7F0000, [(200_000, State.MMAPPED)], "mmapped")
    maker.span(0x80000, [(50, State.FENCEPOST)])
    data = json_of(summary.summary([maker.heap()]))
    assert data["totals"] == {
        "used_blocks": 3,
        "used_bytes": 2 * 104 + 200_008,
        "free_blocks": 3,
        "free_bytes": 3 * 104,
        "tcache_blocks": 1,
        "tcache_bytes": 104,
    }
    assert data["by_size"] == [
        {"size": 200_008, "used_blocks": 1, "tcache_blocks": 0, "free_blocks": 0},
        {"size": 104, "used_blocks": 2, "tcache_blocks": 1, "free_blocks": 3},
    ]


ROWS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from(list(State)), st.integers(0, 2)), max_size=60
).map(lambda rows: [(0x1000 + 0x100 * at, *row) for at, row in enumerate(rows)])


@given(ROWS, st.integers(0, 60))
def test_summary_agrees_with_a_count_one_by_one(rows, cut):
    heaps = [heap_of(rows[:cut]), heap_of(rows[cut:])]
    data = json_of(summary.summary(heaps))
    used = [row for row in rows if row[2] in USED_STATES]
    free = [row for row in rows if row[2] in FREE_STATES]
    assert data["totals"]["used_blocks"] == len(used)
    assert data["totals"]["used_bytes"] == sum(row[1] for row in used)
    assert data["totals"]["free_bytes"] == sum(row[1] for row in free)
    counts = Counter(row[1] for row in free)
    assert {row["size"]: row["free_blocks"] for row in data["by_size"] if row["free_blocks"]} == counts
    assert sum(row["used_bytes"] for row in data["arenas"]) == data["totals"]["used_bytes"]
    assert sum(row["tcache_blocks"] for row in data["arenas"]) == data["totals"]["tcache_blocks"]


def test_summary_in_text_has_shares_and_all_sizes_in_json():
    rows = [(0x1000 + 0x1000 * at, 8 + 16 * at, State.IN_USE, 0) for at in range(150)]
    report = summary.summary([heap_of(rows)], exact=True)
    shown = "".join(text(report, exact=True, limit=None))
    assert "50 more (--limit 0 shows all)" in shown
    assert "cumulative" in shown and "in powers of two" not in shown
    assert "used     " in shown
    assert len(json_of(report)["by_size"]) == 150


def test_summary_joins_sizes_to_powers_of_two():
    rows = [(0x1000 + 0x1000 * at, 8 + 16 * at, State.IN_USE, 0) for at in range(150)]
    rows += [(0x200000, 0, State.FREE, 0), (0x210000, (1 << 40) + 8, State.FREE, 0)]
    report = summary.summary([heap_of(rows)])
    data = json_of(report)
    assert json_of(summary.summary([heap_of(rows)], exact=True)) == data  # text alone differs
    powers = {row["from_size"]: row for row in data["by_power"]}
    assert list(powers) == [1 << 40, 1024, 2048, 512, 256, 128, 64, 32, 16, 8, 1]
    for start, row in powers.items():
        sizes = [size for _, size, *_ in rows if start <= size < 2 * start or (start == 1 and not size)]
        assert row["used_blocks"] + row["free_blocks"] == len(sizes)
        assert row["used_bytes"] + row["free_bytes"] == row["bytes"] == sum(sizes)
    shown = "".join(text(report, exact=False, limit=None, plain=False))
    assert "in powers of two" in shown and "cumulative" not in shown and "█" * 18 in shown


def test_sums_are_exact_beyond_floats():
    counts = tally(heap_of([(0x1000, 2**61 + 1, State.IN_USE, 0), (0x2000, 2**61 + 2, State.IN_USE, 0)]))
    assert counts.size(0) == 2**62 + 3


NO_ARENA = 2**32 - 1


def test_blocks_of_no_arena_are_counted_and_listed():
    heap = heap_of([(0x1000, 100, State.IN_USE, 0), (0x2000, 9000, State.MMAPPED, NO_ARENA)])
    data = json_of(summary.summary([heap]))
    assert data["totals"]["used_bytes"] == 9100
    assert [(row["address"], row["used_bytes"]) for row in data["arenas"]][-1] == (None, 9000)
    assert [row["arena"] for row in json_of(listing.listing([heap]))["blocks"]] == ["0xa000", None]
    target = Target(FakeMemory([], [Region(0x2000, 0x5000)]), X86_64)
    assert json_of(place.describe([heap], target, 0x2000))["arena"] is None


def test_no_heap_is_one_line():
    with pytest.raises(NoHeapError, match="no heap of a known allocator was found"):
        summary.summary([])
    with pytest.raises(NoHeapError):
        listing.listing([])


def test_caches_that_could_not_be_found_are_unknown_and_not_empty():
    rows = [(0x1000, 32, State.IN_USE, 0), (0x2000, 16, State.SMALL, 0)]
    heap = replace(heap_of(rows), caches_known=False)
    data = json_of(summary.summary([heap, heap_of([(0x5000, 64, State.TCACHE, 0)])]))
    assert (data["totals"]["tcache_blocks"], data["totals"]["tcache_bytes"]) == (None, None)
    assert [row["tcache_bytes"] for row in data["arenas"] if row["used_blocks"] or row["tcache_blocks"]] == [None, 64]
    assert {row["tcache_blocks"] for row in data["by_size"]} == {None}
    assert data["totals"]["used_bytes"] == 32


def addresses(heap, **filters):
    return [row.address for row in listing.listing([heap], Filters(**filters)).data.blocks]


def listed_rows():
    states = [State.IN_USE, State.TCACHE, State.SMALL, State.TOP]
    return [(0x1000 + 0x100 * at, 16 * (at % 7 + 1), states[at % 4], at % 3) for at in range(40)]


def test_listing_shows_every_block_in_order():
    rows = listed_rows()
    report = listing.listing([heap_of(rows)])
    assert [(row.address, row.size, row.arena - 0xA000) for row in report.data.blocks] == [
        (row[0], row[1], row[3]) for row in rows
    ]
    assert json_of(report)["blocks"][1] == {
        "address": "0x1100",
        "size": 32,
        "state": "tcache",
        "arena": "0xa001",
        "allocator": "test",
    }
    assert report.data.blocks.total == report.data.matching_blocks == 40


FILTERS = {
    "states": st.sampled_from([frozenset({State.TOP}), frozenset(FREE_STATES)]),
    "min_size": st.integers(0, 130),
    "max_size": st.integers(0, 130),
    "arena": st.sampled_from([0xA000, 0xA002, 1]),
    "start": st.integers(0xF00, 0x4000),
    "end": st.integers(0xF00, 0x4000),
}


@given(st.fixed_dictionaries({}, optional=FILTERS))
def test_filters_are_subsets_and_together_their_intersection(chosen):
    heap = heap_of(listed_rows())
    together = addresses(heap, **chosen)
    expected = set(addresses(heap))
    for name, value in chosen.items():
        expected &= set(addresses(heap, **{name: value}))
    assert together == sorted(expected)


def test_bounds_beyond_any_address_are_no_bounds():
    heap = heap_of(listed_rows())
    assert len(addresses(heap, max_size=1 << 70, end=1 << 64)) == 40


def test_unknown_arena():
    with pytest.raises(UsageError, match="no arena 7; the arenas are 0xa000, 0xa001, 0xa002"):
        listing.listing([heap_of([])], Filters(arena=7))
    with pytest.raises(UsageError, match="no arena 0x7777"):
        listing.listing([heap_of([])], Filters(arena=0x7777))


def test_arena_indices_count_only_with_one_heap():
    heaps = [heap_of(listed_rows()), replace(heap_of(listed_rows()), allocator="other")]
    with pytest.raises(UsageError, match="no arena 1"):
        listing.listing(heaps, Filters(arena=1))
    report = listing.listing(heaps, Filters(arena=0xA001))
    assert {row.allocator for row in report.data.blocks} == {"test", "other"}


def test_state_names():
    assert summary.states_named("in-use,TOP") == {State.IN_USE, State.TOP}
    assert summary.states_named("in_use") == {State.IN_USE}
    assert summary.states_named("used, free") == {*USED_STATES, *FREE_STATES}
    with pytest.raises(UsageError, match='no state "fre"; the states are cached, dirty, fastbin'):
        summary.states_named("fre")


WORD = (0x400010).to_bytes(8, "little")


def scene():
    """Three blocks of one span, the middle one holding a pointer into a module."""
    data = bytearray(0x1000)
    data[0x10:0x20] = b"GET /index.html\0"
    data[0x40:0x48] = WORD
    rows = [(0x10010, 24, State.IN_USE, 0), (0x10040, 24, State.IN_USE, 0), (0x10070, 24, State.SMALL, 0)]
    heap = heap_of(rows, spans=[Span(0x10000, 0x11000, "brk", 0)])
    regions = [
        Region(0x10000, 0x11000, "rw-", "[heap]"),
        Region(0x20000, 0x21000),
        Region(0x400000, 0x401000, "r-x", "/bin/server", 0x3000),
    ]
    target = Target(
        FakeMemory([(0x10000, bytes(data))], regions),
        X86_64,
        modules=[Module("/bin/server", 0x400000, 0x401000, None)],
        threads=[Thread(3, 30, None, 0x20800)],
    )
    return [heap], target


def test_at_a_block():
    heaps, target = scene()
    report = place.describe(heaps, target, 0x10048)
    data = json_of(report)
    assert data["block"] == "0x10040"
    assert data["place"] == "0x10048 is 8 bytes inside of the block 0x10040"
    assert (data["size"], data["offset"], data["state"], data["arena"]) == (24, 8, "in use", "0xa000")
    assert data["contents"] == "-> server+0x10"
    assert [(row["place"], row["address"], row["contents"]) for row in data["around"]] == [
        ("before", "0x10010", '"GET /index.html"'),
        ("this", "0x10040", "-> server+0x10"),
        ("after", "0x10070", "zeros"),
    ]
    assert "is the start of the block" in place.describe(heaps, target, 0x10040).data.place


def test_at_names_no_neighbour_in_another_stretch_of_memory(maker):
    maker.span(0x10000, [(24, State.IN_USE), (24, State.IN_USE)])
    maker.span(0x20000, [(24, State.MMAPPED)], "mmapped")
    maker.span(0x30000, [(24, State.MMAPPED)], "mmapped")
    heap, target = maker.heap(), maker.target()
    around = {at: place.describe([heap], target, at).data.around for at in (0x10010, 0x10030, 0x20010)}
    assert {at: [row.place for row in rows] for at, rows in around.items()} == {
        0x10010: ["this", "after"],
        0x10030: ["before", "this"],
        0x20010: ["this"],
    }


def test_at_a_block_that_points_to_anonymous_memory(maker):
    maker.span(0x10000, [(24, State.IN_USE)])
    target = maker.target(Region(0x70000, 0x71000))
    name = pointer_namer(target, [maker.heap()])
    assert name(0x10010) == "test block 0x10010"
    assert name(0x70010) == "anonymous memory 0x70010"
    assert name(0x99000) is None


def test_at_is_one_line_outside_every_block():
    heaps, target = scene()
    shown = "".join(text(place.describe(heaps, target, 0x10030), exact=False, limit=None, width=200))
    where = "test's own bytes, in arena 0xa000, 16 bytes before the block 0x10040"
    assert shown == f"place: 0x10030 is in no block: {where}\n"
    assert json_of(place.describe(heaps, target, 0x10030))["block"] is None


@pytest.mark.parametrize(
    "address, expected",
    [
        (0x10FF0, "test's own bytes, in arena 0xa000, behind the last block"),
        (0x400123, "/bin/server (0x400000-0x401000 r-x, file offset 0x3123)"),
        (0x20001, "stack of thread 3 (0x20000-0x21000 rw-)"),
    ],
)
def test_at_other_memory(address, expected):
    heaps, target = scene()
    assert place.describe(heaps, target, address).data.place.endswith(expected)


def test_at_without_any_heap_says_the_mapping():
    _, target = scene()
    assert place.describe([], target, 0x10010).data.place.endswith("[heap] (0x10000-0x11000 rw-)")


@pytest.mark.parametrize("address", [0, 0x5, 2**64 - 1])
def test_at_nothing(address):
    heaps, target = scene()
    with pytest.raises(GdbextError, match=f"{address:#x} is not mapped; `info proc mappings` lists what is"):
        place.describe(heaps, target, address)
