"""Maps of planted heaps: cells are counted by hand, page by page."""

from __future__ import annotations

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.analysis.map.cells import Stretch, draw, map_all, map_heaps
from gdbext.analysis.map.pages import Units
from gdbext.heap.model import Arena, Blocks, Heap, Span, State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Thread
from gdbext.report import Memory
from gdbext.target import Target

PAGE = 4096
HEAP = 0x10_0000


class Written(FakeMemory):
    """A memory that knows which pages were written."""

    def __init__(self, regions, written):
        super().__init__([], regions)
        self.written = written

    def for_each_written(self, start, end):
        for low, high in self.written:
            if low < end and high > start:
                yield max(low, start), min(high, end)


def target_of(regions, written=None, **extra):
    memory = FakeMemory([], regions) if written is None else Written(regions, written)
    return Target(memory, X86_64, **extra)


def heap_of(rows, spans, arenas=1, **extra):
    """Return a heap of blocks of address, size, state, arena."""
    columns = list(zip(*rows)) or [(), (), (), ()]
    kinds = (np.uint64, np.uint64, np.uint8, np.uint32)
    blocks = Blocks(*(np.array(each, kind) for each, kind in zip(columns, kinds)))
    made = [Arena(at, 0xA000 + at, "thread" if at else "main", 0) for at in range(arenas)]
    return Heap("glibc", blocks, made, spans, **extra)


def one_span(rows, pages, **extra):
    return heap_of([(*row, 0) for row in rows], [Span(HEAP, HEAP + pages * PAGE, "brk", 0)], **extra)


def pages_of(states, first=HEAP):
    """Return a block that fills a page but for its header, for each state."""
    return [(first + at * PAGE + 16, PAGE - 16, state) for at, state in enumerate(states)]


def drawn(heap, written=None, most=4096):
    span = heap.spans[0]
    target = target_of([Region(span.start, span.end)], written)
    return draw(target, [heap], map_heaps([heap]), most)


def cells_of(drawn_map):
    """Return what each cell is, where all its pages are alike."""
    uses = drawn_map.cells.uses
    return [[use for use in uses if uses[use][at]] for at in range(len(drawn_map.cells))]


def test_every_second_page_freed():
    heap = one_span(pages_of([State.IN_USE, State.SMALL] * 32), 64)
    found = drawn(heap)
    assert cells_of(found) == [["used"], ["free"]] * 32
    assert [(row.use, row.pages, row.bytes, row.share) for row in found.uses] == [
        ("used", 32, 32 * PAGE, 0.5), ("free", 32, 32 * PAGE, 0.5)
    ]  # fmt: skip
    assert [cells for _, cells in found.picture.stretches] == [[Memory.USED, Memory.FREE] * 32]
    halved = drawn(heap, most=32)
    assert halved.cell_bytes == 2 * PAGE
    assert halved.cells.uses == {"used": [1] * 32, "free": [1] * 32}
    assert [cells for _, cells in halved.picture.stretches] == [[Memory.MIXED] * 32]


def test_a_pinned_top():
    """Free memory of 60 pages below one live block, and then the top."""
    heap = one_span(
        [(HEAP + 16, 59 * PAGE - 16, State.UNSORTED), (HEAP + 59 * PAGE + 16, 100, State.IN_USE),
         (HEAP + 59 * PAGE + 136, 5 * PAGE - 136, State.TOP)], 64
    )  # fmt: skip
    found = drawn(heap, written=[(HEAP, HEAP + 60 * PAGE)])
    assert cells_of(found) == [["free"]] * 59 + [["used"]] + [["untouched"]] * 4
    assert found.cells.largest == [59 * PAGE - 16] * 59 + [5 * PAGE - 136] * 5
    assert found.cells.block[0] == hex(HEAP + 16) and found.cells.block[63] == hex(HEAP + 59 * PAGE + 136)


def test_forty_arenas():
    spans = [Span(HEAP + at * 0x40_0000, HEAP + at * 0x40_0000 + 8 * PAGE, "heap", at) for at in range(40)]
    rows = [(span.start + 64, PAGE, State.IN_USE, span.arena) for span in spans]
    rows += [(span.start + 2 * PAGE, 6 * PAGE, State.TOP, span.arena) for span in spans]
    heap = heap_of(sorted(rows), spans, arenas=40)
    found = draw(target_of([Region(one.start, one.end) for one in spans]), [heap], map_heaps([heap]))
    assert len(found.parts) == 40 and len(found.picture.stretches) == 40
    assert [part.arena for part in found.parts] == [0xA000 + at for at in range(40)]
    assert {part.cells for part in found.parts} == {8}
    assert cells_of(found) == ([["used"]] * 2 + [["free"]] * 6) * 40


def test_the_states_of_pages():
    states = [State.IN_USE, State.TCACHE, State.FASTBIN, State.LARGE, State.FREE, State.MMAPPED, State.DIRTY]
    found = drawn(one_span(pages_of(states), len(states)))
    assert cells_of(found) == [["used"], ["cached"], ["free"], ["free"], ["free"], ["used"], ["free"]]


def test_what_is_not_there():
    """Pages that nobody wrote: of free blocks they went back, of others nobody has touched them."""
    states = [State.IN_USE, State.TCACHE, State.SMALL, State.TOP]
    found = drawn(one_span(pages_of(states), len(states)), written=[])
    assert cells_of(found) == [["untouched"], ["returned"], ["returned"], ["untouched"]]


def test_one_block_in_use_makes_a_page_used():
    rows = [(HEAP + 16, 1000, State.SMALL), (HEAP + 1040, 32, State.IN_USE), (HEAP + 1088, 3000, State.TCACHE)]
    assert cells_of(drawn(one_span(rows, 1))) == [["used"]]
    assert cells_of(drawn(one_span(rows[:1] + rows[2:], 1))) == [["cached"]]


def test_a_block_over_several_pages_and_cells():
    found = drawn(one_span([(HEAP + 16, 10 * PAGE, State.IN_USE)], 16), most=4)
    assert found.cells.uses["used"] == [4, 4, 3, 0]
    assert found.cells.uses["overhead"] == [0, 0, 1, 4]
    assert found.cells.largest == [10 * PAGE] * 3 + [None]


def test_the_rest_of_the_address_space():
    regions = [
        Region(0x1000, 0x3000, "r-x", "/bin/app"),
        Region(0x10000, 0x12000, "rw-", ""),
        Region(0x20000, 0x24000, "---", ""),
        Region(0x30000, 0x32000, "rw-", "", source="absent"),
        Region(0x40000, 0x42000, "rw-", "[stack]"),
    ]
    threads = [Thread(1, 1, "main", stack_pointer=0x41800)]
    target = target_of(regions, [(0x11000, 0x12000), (0x41000, 0x42000)], threads=threads)
    found = draw(target, [], map_all(target))
    assert cells_of(found) == [
        ["file"], ["file"], ["untouched"], ["anonymous"], *[["reserved"]] * 4, ["missing"], ["missing"],
        ["untouched"], ["stack"],
    ]  # fmt: skip
    assert [part.name for part in found.parts] == ["/bin/app", "anonymous", "anonymous", "anonymous", "[stack]"]


def test_mappings_that_touch_are_one_stretch():
    touching = Region(0x1000, 0x2000, "r--", "/x"), Region(0x2000, 0x4000, "rw-", "/x")
    target = target_of([*touching, Region(0x9000, 0xA000)])
    assert [(one.start, one.end) for one in map_all(target)] == [(0x1000, 0x4000), (0x9000, 0xA000)]


def test_reserves_of_a_heap_are_no_part_of_it():
    heap = one_span(pages_of([State.IN_USE]), 1, reserves=[(HEAP + PAGE, HEAP + 4 * PAGE)])
    target = target_of([Region(HEAP, HEAP + 4 * PAGE)])
    found = draw(target, [heap], map_all(target))
    assert cells_of(found) == [["used"], ["reserved"], ["reserved"], ["reserved"]]


@pytest.mark.parametrize("pages", [1, 7, 4096, 100_000])
def test_cells_are_bounded_and_hold_every_page(pages):
    target = target_of([Region(HEAP, HEAP + pages * PAGE)])
    found = draw(target, [], map_all(target), most=1000)
    assert len(found.cells) <= 1000
    assert sum(map(sum, found.cells.uses.values())) == pages == sum(row.pages for row in found.uses)


def test_what_is_enormous_has_larger_pages():
    """A terabyte: no column is as long as its pages are many."""
    target = target_of([Region(1 << 30, (1 << 30) + (1 << 40), "rw-")], [(1 << 30, (1 << 30) + 1)])
    found = draw(target, [], map_all(target), most=1024)
    assert found.page_bytes == 1 << 18 and len(found.cells) == 1024
    assert found.cells.uses["anonymous"][:2] == [1, 0]


def test_more_stretches_than_can_be_drawn():
    regions = [Region((at + 1) << 20, ((at + 1) << 20) + PAGE * (2 if at < 100 else 1)) for at in range(3000)]
    target = target_of(regions)
    found = draw(target, [], map_all(target))
    assert (len(found.parts), found.left_out, found.left_out_bytes) == (1024, 1976, 1976 * PAGE)
    assert sum(part.bytes > PAGE for part in found.parts) == 100


def test_hostile_sizes_stay_within_their_stretch():
    rows = [(HEAP + 16, (1 << 63) - 1, State.IN_USE), (HEAP + PAGE + 16, 0, State.SMALL)]
    found = drawn(one_span(rows, 3))
    assert cells_of(found) == [["used"], ["used"], ["overhead"]]  # as far as the next block


def test_units_of_nothing():
    none = np.empty(0, np.uint64)
    units = Units.of(none, none, PAGE)
    assert len(units) == 0 and len(units.touched(none, none)) == 0
    found = draw(target_of([Region(HEAP, HEAP + PAGE)]), [], [])
    assert len(found.cells) == 0 and found.parts == []


def test_a_part_of_a_stretch():
    heap = one_span(pages_of([State.IN_USE, State.SMALL] * 4), 8)
    target = target_of([Region(HEAP, HEAP + 8 * PAGE)])
    found = draw(target, [heap], [Stretch(HEAP + PAGE, HEAP + 4 * PAGE, "x")])
    assert cells_of(found) == [["free"], ["used"], ["free"]]
