"""jemalloc in the neutral model, of a heap that was laid out by hand: blocks, spans, charges, what an address is."""

import random
import time
from dataclasses import replace

import numpy as np
import pytest

from gdbext.analysis.blocks.listing import Filters, listing
from gdbext.analysis.blocks.place import describe
from gdbext.analysis.blocks.summary import summary
from gdbext.analysis.footprint.ledger import rss
from gdbext.analysis.page import make_page
from gdbext.errors import NoHeapError
from gdbext.heap import detect
from gdbext.heap.jemalloc.find.globals import Found, find_jemallocs
from gdbext.heap.jemalloc.heap import find_heaps, neutral
from gdbext.heap.jemalloc.layouts import recorded
from gdbext.heap.jemalloc.model import CacheBin, ThreadCache
from gdbext.heap.jemalloc.read import convert, hugepages
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.heap.model import NO_ARENA, Arena, Blocks, Heap, Span, State
from gdbext.progress import SILENT
from gdbext.report import Problem
from tests.support.jeworld import BASE, BASE_SIZE, HEAP, HEAP_SIZE, MODULE, NARROW, ROOT, WIDE, World

LAYOUTS = {layout.version: layout for layout in recorded()}
PAGE = 4096
SLAB, FULL, LARGE, DIRTY, MUZZY, RETAINED = (HEAP + PAGE * at for at in (1, 8, 20, 40, 50, 60))
IN_USE = (0, 5, 511)  # regions of the slab of 8-byte regions


def laid(version="5.3.0", shape=NARROW):
    """A slab with three regions in use, a full one, a large block off its page, one extent in each other state."""
    world = World(LAYOUTS[version], shape)
    pages = [FULL, FULL + PAGE, FULL + 2 * PAGE]
    world.slab = world.extent(SLAB, PAGE, slab=1, szind=0, nfree=512 - len(IN_USE), arena=0)
    world.full = world.extent(FULL, 3 * PAGE, pages, slab=1, szind=3, nfree=0, arena=1)
    world.large = world.extent(LARGE + 0x340, 5 * PAGE, szind=36, arena=1)
    world.dirty = world.extent(DIRTY, 2 * PAGE, state=1, szind=232, arena=0)
    world.extent(MUZZY, PAGE, state=2, szind=232, arena=0)
    world.extent(RETAINED, 4 * PAGE, state=3, szind=232, arena=1)
    bitmap = np.ones(512, np.uint8)
    bitmap[list(IN_USE)] = 0
    at = world.slab + world.layout["extent"].offset("bitmap")
    world.poke(at, np.packbits(bitmap, bitorder="little").tobytes())
    world.put("bin", world.bin_of(0, 0), slabcur=world.slab)
    world.put("bin", world.bin_of(1, 3), slabcur=world.full)
    return world


def read(world, **how):
    target = world.target(**how)
    (location,) = find_jemallocs(target, SILENT).locations
    return read_jemalloc(target, location, SILENT)


def view(world):
    """Return the neutral heap; its counters and lists are all 0, of which `jemalloc check` has much to say."""
    return neutral(read(world))


def rows(heap):
    blocks = heap.blocks
    columns_ = (blocks.address, blocks.size, blocks.state, blocks.owner)
    return list(zip(*(column.tolist() for column in columns_)))


def by_owner(heap):
    return {charge.owner: charge.bytes for charge in heap.charges if charge.bytes}


def pieces(heap):
    found = [pair for charge in heap.charges for pair in zip(charge.starts.tolist(), charge.ends.tolist())]
    return sorted(found)


def check_tiled(heap):
    """The charges are disjoint and cover exactly what the spans do; the spans are disjoint."""
    spans = [(span.start, span.end) for span in heap.spans]
    assert spans == sorted(spans)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))
    parts = pieces(heap)
    assert all(start < end for start, end in parts)
    assert all(end <= start for (_, end), (start, _) in zip(parts, parts[1:]))
    assert _merged(parts) == _merged(spans)


def _merged(parts):
    whole = []
    for start, end in parts:
        if whole and whole[-1][1] == start:
            whole[-1][1] = end
        else:
            whole.append([start, end])
    return whole


# -- blocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [NARROW, WIDE], ids=["48", "57"])
@pytest.mark.parametrize("version", list(LAYOUTS))
def test_every_region_and_extent_is_a_block(version, shape):
    expected = [
        (SLAB + 8 * at, 8, State.IN_USE if at in IN_USE else State.FREE, 0) for at in range(512)
    ]
    expected += [(FULL + 48 * at, 48, State.IN_USE, 1) for at in range(256)]
    expected += [(LARGE + 0x340, 16384, State.IN_USE, 1)]
    expected += [(DIRTY, 2 * PAGE, State.DIRTY, 0), (MUZZY, PAGE, State.MUZZY, 0)]
    assert rows(view(laid(version, shape))) == expected


def test_what_thread_caches_hold_is_neither_used_nor_free():
    heap = read(laid())
    free, used, full = SLAB + 8, SLAB + 40, FULL + 48
    pointers = np.array([full, used, LARGE + 0x340, free, used + 1, 0, 2**64 - 1], np.uint64)
    heap.tcaches = [ThreadCache(None, BASE + 64, 0, (CacheBin(0, 8, pointers),))]
    cached = [row[0] for row in rows(neutral(heap)) if row[2] == State.TCACHE]
    assert cached == [used, full, LARGE + 0x340]  # one that the bitmap calls free is for `jemalloc check`
    line = neutral(heap).explain(used)
    assert line.endswith(f"; in the thread cache {BASE + 64:#x} of no thread of this target")


def test_blocks_are_made_when_they_are_asked_for(monkeypatch):
    made = []
    make = convert.make_blocks
    monkeypatch.setattr(convert, "make_blocks", lambda heap: made.append(1) or make(heap))
    heap = view(laid())
    assert heap.detail.arenas and heap.arenas and heap.spans and not made
    assert len(heap.blocks) == len(heap.blocks) == 771 and made == [1]
    assert heap.blocks.find(FULL + 100) == 512 + 2


def test_arenas_keep_their_numbers_and_blocks_their_places():
    world = laid()
    world.word(MODULE + 0x1000, 0)  # arena 0 is gone
    world.word(MODULE + 0x1000 + 16, world._arena(2))
    world.word(MODULE + 0x1000 + 8 * 5, world._arena(5))
    world.set_bits(world.dirty, state=1, szind=232, arena=5)
    heap = view(world)
    assert [arena.index for arena in heap.arenas] == [1, 2, 5]
    owners = {address: owner for address, _, _, owner in rows(heap)}
    assert owners[DIRTY] == 2 and owners[FULL] == 0 and owners[SLAB] == NO_ARENA
    listed = listing([heap], Filters(arena=5)).data.blocks
    assert [(row.address, row.arena) for row in listed] == [(DIRTY, heap.arenas[2].address)]


def test_a_slab_that_is_cut_short_has_fewer_regions():
    world = laid()
    world.extent(HEAP + PAGE * 70, PAGE, [HEAP + PAGE * 70], slab=1, szind=3, nfree=0, arena=0)
    own = [row for row in rows(view(world)) if row[0] >= HEAP + PAGE * 70]
    assert own == [(HEAP + PAGE * 70 + 48 * at, 48, State.IN_USE, 0) for at in range(85)]


# -- spans and charges ---------------------------------------------------------------------------------


def test_every_byte_is_charged_once():
    heap = view(laid())
    check_tiled(heap)
    assert by_owner(heap) == {
        "jemalloc in use": 3 * 8 + 3 * PAGE + 16384,
        "jemalloc free regions": 509 * 8,
        "jemalloc slab and size-class slack": PAGE,
        "jemalloc dirty": 2 * PAGE,
        "jemalloc muzzy": PAGE,
        "jemalloc retained": 4 * PAGE,
        "jemalloc base blocks (metadata)": BASE_SIZE,
    }
    assert Span(BASE, BASE + BASE_SIZE, "base", heap.spans[-1].arena) == heap.spans[-1]
    assert [span.start for span in heap.spans] == [SLAB, FULL, LARGE, DIRTY, MUZZY, RETAINED, BASE]
    assert [span.arena for span in heap.spans[:-1]] == [0, 1, 1, 0, 0, 1]


def test_neighbours_of_one_arena_are_one_span():
    world = laid()
    world.extent(SLAB + PAGE, 3 * PAGE, state=1, szind=232, arena=0)
    world.extent(SLAB + 4 * PAGE, PAGE, state=3, szind=232, arena=1)
    spans = view(world).spans
    assert (spans[0].start, spans[0].end, spans[0].arena) == (SLAB, SLAB + 4 * PAGE, 0)
    assert (spans[1].start, spans[1].end, spans[1].arena) == (SLAB + 4 * PAGE, SLAB + 5 * PAGE, 1)


def test_the_ledger_has_no_rest():
    world = laid()
    report = rss(world.target(), [view(world)])
    assert report.data.residual == 0
    assert [problem for problem in report.problems if problem.kind.startswith("ledger")] == []
    left = {entry.owner: entry.bytes for entry in report.data.entries}
    taken = 16 * PAGE  # of the heap's mapping: all extents
    assert left["anonymous rest"] == HEAP_SIZE - taken


def test_extents_in_hpas_cache_and_huge_pages():
    world = laid("5.3.1")
    huge = HEAP + (2 << 20)
    world.extent(huge + PAGE, 4 * PAGE, szind=36, pai=1, arena=1)
    world.extent(huge + 16 * PAGE, 2 * PAGE, szind=232, pai=1, arena=1)
    heap = view(world)
    check_tiled(heap)
    charged = by_owner(heap)
    assert charged["jemalloc cache of small extents"] == 2 * PAGE
    assert charged["jemalloc huge pages (free)"] == (2 << 20) - 6 * PAGE
    assert (huge + 16 * PAGE, 2 * PAGE, State.FREE, 1) in rows(heap)
    assert heap.explain(huge) == f"unused part of the huge page slab {huge:#x} of 2 MiB"
    assert heap.explain(huge + 17 * PAGE).endswith("arena 1, in HPA's cache of small extents")


def with_eden(eden, left):
    world = laid()
    central = world.allocate(world.layout["hpa_central"].size)
    world.put("arena", world.arenas[0], use_hpa=1, hpa_central=central)
    world.put("hpa_central", central, eden=eden, eden_len=left)
    return view(world)


def test_the_newest_eden_is_hpas_too(monkeypatch):
    size = 2 << 20
    monkeypatch.setattr(hugepages, "_EDEN", 8)  # 128 need more than the laid out mapping
    heap = with_eden(HEAP + 6 * size, 2 * size)
    assert by_owner(heap)["jemalloc huge pages (free)"] == 8 * size - 16 * PAGE
    check_tiled(heap)


@pytest.mark.parametrize(
    ("eden", "left"),
    [(HEAP, 2 << 20), (HEAP + 5, 2 << 20), (HEAP, 2**64 - 1), (0, 2 << 20), (HEAP, 0), (1 << 62, 2 << 20)],
)
def test_an_eden_that_cannot_be_is_left_out(eden, left):
    heap = with_eden(eden, left)
    assert "jemalloc huge pages (free)" not in by_owner(heap)
    check_tiled(heap)


# -- damage --------------------------------------------------------------------------------------------


def test_extents_that_overlap_are_charged_once():
    world = laid()
    world.extent(FULL + PAGE * 2 + 0, 6 * PAGE, [FULL + PAGE * 7], state=1, arena=0)
    world.extent(DIRTY - PAGE, 3 * PAGE, [DIRTY - PAGE, DIRTY + PAGE], state=1, arena=1)
    heap = view(world)
    assert heap.problems
    check_tiled(heap)


def test_extents_where_nothing_is_mapped_are_told_and_left_out():
    world = laid()
    outside = HEAP + HEAP_SIZE + (1 << 20)
    lost = world.extent(outside, 2 * PAGE, state=1, szind=232, arena=0)
    heap = view(world)
    told = [problem for problem in heap.problems if problem.address == outside]
    message = f"1 extent, the first at {outside:#x}, where nothing is mapped: not among the blocks"
    assert [(one.message, one.corruption) for one in told] == [(message, True)]
    assert outside not in heap.blocks.address.tolist()
    check_tiled(heap)
    world.set_bits(lost, state=3, szind=232, arena=0)  # a core may lack mappings of what is retained
    assert not any(problem.address == outside for problem in view(world).problems)


def test_an_active_extent_of_no_class_is_unknown():
    world = laid("5.3.1")
    small = world.extent(HEAP + PAGE * 70, PAGE, szind=36, arena=0)  # all of it would be padding
    world.set_bits(world.full, slab=1, szind=200, arena=1)
    world.set_bits(world.dirty, state=4, arena=0)
    heap = view(world)
    assert by_owner(heap)["jemalloc unknown (damaged or in flux)"] == (1 + 3 + 2) * PAGE
    check_tiled(heap)
    assert small and "active, of no size class: 36" in heap.explain(HEAP + PAGE * 70)
    assert "of no small size class: 200" in heap.explain(FULL)
    assert heap.explain(DIRTY).endswith("arena 0, transition")


def test_base_blocks_that_cannot_be_are_left_out():
    world = laid()
    world.put("base_block", BASE, size=2**63)
    heap = view(world)
    assert "jemalloc base blocks (metadata)" not in by_owner(heap)
    check_tiled(heap)


@pytest.mark.parametrize("seed", range(40))
def test_hostile_bytes_are_tiled_too(seed):
    chance = random.Random(seed)
    world = laid(chance.choice(list(LAYOUTS)), chance.choice([NARROW, WIDE]))
    places = [*world.arenas, world.slab, world.full, world.large, world.dirty, *world.nodes.values(), BASE]
    for _ in range(chance.choice([1, 10, 100])):
        at = chance.choice(places) + 8 * chance.randrange(24)
        values = [0, 1, 2**64 - 1, chance.getrandbits(64), chance.choice(places), HEAP + PAGE * chance.randrange(80)]
        world.word(at, chance.choice(values))
    start = time.process_time()
    for heap in find_heaps(world.target(), SILENT):
        if heap.detail is not None:
            check_tiled(heap)
        for address in (SLAB, FULL + 50, LARGE, LARGE + 5 * PAGE - 1, DIRTY, BASE, MODULE, 0, 2**64 - 1):
            if heap.explain is not None:
                heap.explain(address)
        make_page(world.target(), [heap], {})
    assert time.process_time() - start < 5


# -- what an address is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "line"),
    [
        (SLAB + 43, f"region 5 of 512 (8 bytes each) in slab {SLAB:#x} of 4 KiB, arena 0, bin 0; 509 regions free"),
        (FULL, f"region 0 of 256 (48 bytes each) in slab {FULL:#x} of 12 KiB, arena 1, bin 3; 0 regions free"),
        (LARGE + 0x340, f"large block {LARGE + 0x340:#x} of 16384 bytes in extent {LARGE:#x} of 20 KiB, arena 1"),
        (
            LARGE + 0x33F,
            f"padding around the large block {LARGE + 0x340:#x} of 16384 bytes in extent {LARGE:#x} of 20 KiB, arena 1",
        ),
        (DIRTY + PAGE, f"extent {DIRTY:#x} of 8 KiB, arena 0, dirty"),
        (MUZZY, f"extent {MUZZY:#x} of 4 KiB, arena 0, muzzy"),
        (RETAINED + 5, f"extent {RETAINED:#x} of 16 KiB, arena 1, retained"),
        (BASE, f"metadata of arena 0, in the base block {BASE:#x} of 12 MiB"),
        (HEAP, None),
        (MODULE, None),
        (2**64 - 1, None),
    ],
)
def test_an_address_is_explained(address, line):
    assert view(laid()).explain(address) == line


def test_metadata_that_was_read_is_named():
    world = laid()
    heap = view(world)
    assert f"what describes the extent {FULL:#x}, in the base block" in heap.explain(world.full + 8)
    assert "its own structure, in the base block" in heap.explain(world.arenas[0] + 100)


def test_behind_the_last_region():
    world = laid()
    start = HEAP + PAGE * 70
    world.extent(start, PAGE, [start], slab=1, szind=3, nfree=0, arena=0)
    line = view(world).explain(start + PAGE - 1)
    assert line.startswith(f"behind the last region of 85 (48 bytes each) in slab {start:#x} of 4 KiB")


def test_details_of_places():
    world = laid()
    heap = view(world)
    found = describe([heap], world.target(), FULL + 50).data
    assert found.block == FULL + 48 and found.details.startswith("region 1 of 256 (48 bytes each)")
    lost = describe([heap], world.target(), RETAINED).data
    assert lost.block is None and lost.details.endswith("retained")
    assert lost.place == f"{RETAINED:#x} is in no block: jemalloc, {lost.details}"
    base = describe([heap], world.target(), heap.detail.arenas[0].base.blocks[0][0] + 8).data
    assert base.place.startswith(f"{base.address:#x} is in no block: jemalloc, metadata of arena 0, ")
    assert describe([replace(heap, explain=None)], world.target(), FULL + 50).data.details is None
    assert describe([heap], world.target(), MODULE + ROOT).data.details is None


# -- several heaps, and none ---------------------------------------------------------------------------


def refused():
    world = laid()
    for arena in world.arenas:
        world.put("arena", arena, base=BASE + 64)
    return world


def test_a_jemalloc_that_is_not_believed_is_a_heap_without_detail():
    world = refused()
    (heap,) = find_heaps(world.target(), SILENT)
    assert (heap.allocator, heap.detail, heap.complete, len(heap.blocks)) == ("jemalloc", None, False, 0)
    assert "is not believed: arenas[" in heap.problems[0].message
    page = make_page(world.target(), [heap], {})
    assert not page.complete and heap.problems[0] in page.problems
    assert page.data.verdict == "No findings in what was examined; not examined: a part of the jemalloc heap"
    assert heap.problems[0] in rss(world.target(), [heap]).problems
    with pytest.raises(NoHeapError, match="no heap of this target can be read: .*is not believed"):
        summary([heap])


def test_doubts_about_a_module_that_was_read_after_all_are_its_heaps(monkeypatch):
    world = laid()
    target = world.target()
    (location,) = find_jemallocs(target, SILENT).locations
    own, other = Problem("no-layout", MODULE + 8, "x"), Problem("no-layout", BASE, "y")
    found = Found((location,), (own, other))
    monkeypatch.setattr("gdbext.heap.jemalloc.heap.find_jemallocs", lambda target, progress: found)
    first, second = find_heaps(target, SILENT)
    assert first.allocator == "jemalloc" and own in first.problems
    assert (second.allocator, second.family, list(second.problems)) == ("jemalloc (not read)", "jemalloc", [other])


def idle(**more):
    return Heap("glibc", Blocks.empty(), [Arena(0, 0x1000, "main", 0)], **more)


@pytest.mark.parametrize(
    ("beside", "more", "kept"),
    [
        (True, {}, False),
        (True, {"spans": [Span(0, 4096, "brk", 0)]}, True),
        (True, {"problems": [Problem("bin", 0, "damaged", True)]}, True),
        (True, {"complete": False}, True),
        (False, {}, True),
    ],
)
def test_an_allocator_that_was_never_used_is_not_listed_beside_another(monkeypatch, beside, more, kept):
    others = [view(laid())] if beside else []
    monkeypatch.setattr(detect, "FINDERS", [lambda *_: [idle(**more)], lambda *_: others])
    found = [heap.allocator for heap in detect.find_heaps(None, SILENT)]
    assert found == (["glibc"] if kept else []) + [heap.allocator for heap in others]
