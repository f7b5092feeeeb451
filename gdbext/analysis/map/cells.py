"""Stretches of memory as cells of one size: how many pages of each use, and the largest block in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.map.pages import Units, Use, uses_of
from gdbext.heap.model import CACHED_STATES, FREE_STATES, U64, USED_STATES, Blocks, Heap
from gdbext.memory.intervals import I64, slices
from gdbext.report import Kind, Memory, Mosaic, column, line, table
from gdbext.target import Target

MOST = 4096  # cells of a picture
_PARTS = 1024  # stretches that are drawn; of more the largest
_BLOCKS_AT_ONCE = 1 << 20
_LOW = np.uint64(_BLOCKS_AT_ONCE - 1)
_LARGEST = np.uint64((1 << 44) - 1)
_PARTS_OF_MIXED = 4
_MEMORY = [Memory(use.label) for use in Use]
_COUNTED = (*USED_STATES, *CACHED_STATES, *FREE_STATES)


class Stretch(NamedTuple):
    """What is to be drawn.

    :param arena: address of the arena that it belongs to, or None.
    """

    start: int
    end: int
    name: str
    arena: Optional[int] = None


@dataclass(frozen=True)
class PartRow:
    """One stretch of addresses; between two there is a gap.

    :param start: its first address.
    :param end: first address after it.
    :param bytes: between them.
    :param name: what it is.
    :param arena: address of its arena; None: of none.
    :param first: position of its first cell in ``cells``.
    :param cells: how many it has.
    """

    start: int = column("start", Kind.ADDRESS)
    end: int = column("end", Kind.ADDRESS)
    bytes: int = column("bytes", Kind.BYTES)
    name: str = column("what")
    arena: Optional[int] = column("arena", Kind.ADDRESS)
    first: int = column(None, Kind.COUNT)
    cells: int = column(None, Kind.COUNT)


@dataclass(frozen=True)
class UseRow:
    """All pages of one use.

    :param use: ``used`` (a block in use lies in it), ``cached`` (blocks in thread caches, none in use), ``free`` (free
        blocks alone), ``returned`` (free, and given back to the system), ``untouched`` (never written), ``overhead``
        (the allocator's own), ``file``, ``stack``, ``anonymous``, ``reserved``, ``missing`` (not in the core).
    :type use: word
    :param pages: of the map's ``page_bytes``.
    :param bytes: of these pages.
    :param share: of all pages of the map.
    """

    use: str = column("pages are")
    pages: int = column("pages", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    share: Optional[float] = column("share", Kind.SHARE)


@dataclass(frozen=True)
class Cells:
    """The cells of all parts, as columns.

    :param uses: ``used``, ``cached``, ``free``, ``returned``, ``untouched``, ``overhead``, ``file``, ``stack``,
        ``anonymous``, ``reserved``, ``missing``: of each cell its pages of that use; a word that no cell has is left
        out.
    :type uses: counts by word
    :param largest: usable bytes of each cell's largest block, in whole or in part; null: it has none.
    :type largest: numbers
    :param block: addresses of these blocks, as texts ("0x…").
    :type block: texts or nulls
    """

    uses: "dict[str, List[int]]" = line(None, Kind.OBJECT)
    largest: Sequence[Optional[int]] = line(None, Kind.OBJECT)
    block: Sequence[Optional[str]] = line(None, Kind.OBJECT)

    def __len__(self) -> int:
        return len(self.largest)


@dataclass(frozen=True)
class AddressMap:
    """Stretches of the address space to scale.

    :param page_bytes: what counts as one page: the machine's; more where there would be more than four million of them.
    :param cell_bytes: of a whole cell; the last one of a part may be smaller.
    :param left_out: stretches that are not drawn: the smallest, where there are more than a thousand.
    :param left_out_bytes: of them.
    """

    picture: Mosaic = table("", json=False)
    page_bytes: int = line(None, Kind.BYTES)
    cell_bytes: int = line("one cell", Kind.BYTES)
    left_out: int = line(None, Kind.COUNT)
    left_out_bytes: int = line(None, Kind.BYTES)
    uses: Sequence[UseRow] = table("Pages")
    parts: Sequence[PartRow] = table(None)
    cells: Cells = line(None, Kind.OBJECT)


def map_heaps(heaps: Sequence[Heap]) -> Sequence[Stretch]:
    """Return the stretches that heaps consist of, arena by arena."""
    return [stretch for heap in heaps for stretch in _of_heap(heap)]


def _of_heap(heap: Heap) -> Iterator[Stretch]:
    last: Optional[Stretch] = None
    for span in sorted(heap.spans, key=lambda span: (span.arena, span.start)):
        arena = heap.arenas[span.arena] if span.arena < len(heap.arenas) else None
        address = None if arena is None else arena.address
        name = f"{heap.allocator} {span.kind}" if arena is None else f"{heap.allocator} {arena.kind} {span.kind}"
        if last is not None and last.end == span.start and (last.name, last.arena) == (name, address):
            last = last._replace(end=span.end)
            continue
        if last is not None:
            yield last
        last = Stretch(span.start, span.end, name, address)
    if last is not None:
        yield last


def map_all(target: Target) -> Sequence[Stretch]:
    """Return everything that is mapped, mappings that touch as one."""
    found: List[Stretch] = []
    for region in target.memory.regions():
        if found and found[-1].end == region.start:
            found[-1] = found[-1]._replace(end=region.end, name=found[-1].name or region.name)
        else:
            found.append(Stretch(region.start, region.end, region.name))
    return [one._replace(name=one.name or "anonymous") for one in found]


def draw(target: Target, heaps: Sequence[Heap], wanted: Sequence[Stretch], most: int = MOST) -> AddressMap:
    """Return stretches as cells.

    :param wanted: they do not overlap.
    :param most: cells, unless there are more stretches than that.
    """
    kept = sorted(sorted(wanted, key=lambda one: one.start - one.end)[:_PARTS])
    left_out = sum(one.end - one.start for one in wanted) - sum(one.end - one.start for one in kept)
    starts = np.array([one.start for one in kept], np.uint64)
    ends = np.array([one.end for one in kept], np.uint64)
    units = Units.of(starts, ends, target.abi.page_size)
    per = _units_per_cell(np.diff(units.first), most)
    grid = _Grid(units, per)
    uses = uses_of(target, heaps, units)
    counts = grid.count(uses)
    first = grid.first.tolist()
    parts = [
        PartRow(one.start, one.end, one.end - one.start, one.name, one.arena, at, behind - at)
        for one, at, behind in zip(kept, first, first[1:])
    ]
    rows = _use_rows(uses, units)
    cells = Cells({use.label: counts[use].tolist() for use in Use if counts[use].any()}, *_largest(heaps, grid))
    return AddressMap(
        picture=_mosaic(parts, counts),
        page_bytes=units.unit,
        cell_bytes=units.unit * per,
        left_out=len(wanted) - len(kept),
        left_out_bytes=left_out,
        uses=rows,
        parts=parts,
        cells=cells,
    )


def _mosaic(parts: Sequence[PartRow], counts: I64) -> Mosaic:
    """Return each cell as what most of its pages are, or that it is mixed: a quarter of it used, and a quarter not."""
    most = [_MEMORY[use] for use in counts.argmax(axis=0).tolist()] if counts.size else []
    used, unused, every = counts[Use.USED], counts[[Use.CACHED, Use.FREE, Use.RETURNED]].sum(axis=0), counts.sum(axis=0)
    for cell in np.flatnonzero((_PARTS_OF_MIXED * used >= every) & (_PARTS_OF_MIXED * unused >= every)).tolist():
        most[cell] = Memory.MIXED
    named = [(f"{part.name} {part.start:#x}", most[part.first : part.first + part.cells]) for part in parts]
    return Mosaic(named)


def _units_per_cell(units: I64, most: int) -> int:
    per = 1
    while (-(-units // per)).sum() > max(most, len(units)):
        per *= 2
    return per


@dataclass(frozen=True)
class _Grid:
    """Cells of so many units; those of a part begin with it."""

    units: Units
    per: int

    @property
    def first(self) -> I64:
        """The first cell of each part, and at last how many there are."""
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(-(-np.diff(self.units.first) // self.per))))

    def cell_of(self) -> I64:
        """Return the cell of each unit."""
        counts = np.diff(self.units.first)
        within = np.arange(len(self.units)) - np.repeat(self.units.first[:-1], counts)
        cell: I64 = np.repeat(self.first[:-1], counts) + within // self.per
        return cell

    def count(self, uses: "np.typing.NDArray[np.uint8]") -> I64:
        """Return by use, and by cell, how many units there are."""
        total = int(self.first[-1])
        counts: I64 = np.bincount(uses.astype(np.int64) * total + self.cell_of(), minlength=len(Use) * total)
        return counts.reshape(len(Use), total)

    def bounds(self) -> Tuple[U64, U64]:
        """Return the first address of each cell, and the first after it."""
        starts, ends = self.units.bounds()
        cell = self.cell_of()
        heads = np.flatnonzero(np.append(True, cell[1:] != cell[:-1])[: len(cell)])
        return starts[heads], ends[np.append(heads[1:], len(cell)) - 1] if len(cell) else ends


def _use_rows(uses: "np.typing.NDArray[np.uint8]", units: Units) -> Sequence[UseRow]:
    starts, ends = units.bounds()
    size = (ends - starts).astype(np.float64)
    pages, sums = np.bincount(uses, minlength=len(Use)), np.bincount(uses, size, len(Use))
    rows = zip(Use, pages.tolist(), sums.tolist())
    return [UseRow(use.label, count, int(total), count / len(units)) for use, count, total in rows if count]


def _largest(heaps: Sequence[Heap], grid: _Grid) -> Tuple[Sequence[Optional[int]], Sequence[Optional[str]]]:
    """Return of each cell the size of its largest block, and that block's address."""
    starts, ends = grid.bounds()
    size, address = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    for heap in heaps:
        for part in slices(len(heap.blocks), _BLOCKS_AT_ONCE):
            some = heap.blocks.select(part)
            _take_larger(some.select(some.having(_COUNTED)), starts, ends, size, address)
    found = zip(size.tolist(), address.tolist())
    pairs = [(bytes_, f"{at:#x}") if at else (None, None) for bytes_, at in found]
    return [bytes_ for bytes_, _ in pairs], [at for _, at in pairs]


def _take_larger(blocks: Blocks, starts: U64, ends: U64, size: U64, address: U64) -> None:
    """Put the larger of what is known and of these blocks, which are in order of addresses, into each cell."""
    if not len(blocks):
        return
    low, high = np.searchsorted(blocks.address, starts), np.searchsorted(blocks.address, ends)
    before = np.maximum(low - 1, 0)  # the block that the cell may begin in
    inside = (low > 0) & (blocks.size[before] > starts - blocks.address[before])
    _put(np.flatnonzero(inside), before[inside], blocks, size, address)
    some = np.flatnonzero(high > low)
    if len(some):
        key = np.minimum(blocks.size, _LARGEST) << np.uint64(20) | (_LOW - np.arange(len(blocks), dtype=np.uint64))
        edges = np.stack((low[some], high[some]), axis=1).ravel()
        best = np.maximum.reduceat(np.append(key, np.uint64(0)), edges)[::2]
        _put(some, (_LOW - (best & _LOW)).astype(np.int64), blocks, size, address)


def _put(cells: I64, rows: I64, blocks: Blocks, size: U64, address: U64) -> None:
    larger = blocks.size[rows] > size[cells]
    size[cells[larger]], address[cells[larger]] = blocks.size[rows[larger]], blocks.address[rows[larger]]
