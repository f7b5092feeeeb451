"""The tables of ``blocks leaks``: leak roots, types, sizes, and all blocks one by one, made while they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.blocks.contents import contents_hint, pointer_namer
from gdbext.analysis.leaks.groups import LEAK_ROOT, NO_LEADER, ROLE_NAMES, LeakGroups
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.model import CONFIDENCE_NAMES, BlockTypes
from gdbext.columns import ROWS_AT_ONCE, Batch, Column, constant
from gdbext.heap.model import U8
from gdbext.kernels import MAYBE_REACHED, SKIPPED, count_values
from gdbext.memory.intervals import I64, slices
from gdbext.report import Kind, Rows, column, rows_of_batches

_HINTS = 1000  # rows of a list whose contents are looked at
_HINTS_AT_ONCE = 20
_CONFIDENCE = [name or None for name in CONFIDENCE_NAMES]
_SIZES_AT_ONCE = 1 << 22
_EQUAL = 3  # equal leak roots that are worth one line


@dataclass(frozen=True)
class LeakRootRow:
    """One leak root.

    :param address: user pointer.
    :param size: usable bytes.
    :type size: bytes
    :param kept_blocks: itself, and blocks that it alone leads to.
    :param kept_bytes: the order of the list.
    :param cycle: blocks of the cycle that it represents; 0: it is in none.
    :param type: None: types could not be looked for.
    :param contents: what its first bytes look like: a hint; None beyond the first 1000 rows.
    """

    address: int = column("leak root", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    kept_blocks: int = column("blocks kept", Kind.COUNT)
    kept_bytes: int = column("bytes kept", Kind.BYTES)
    cycle: int = column("in cycle", Kind.COUNT)
    type: Optional[str] = column("type")
    contents: Optional[str] = column("contents")


@dataclass(frozen=True)
class SizeRow:
    """The leaked blocks of one usable size.

    :param size: usable bytes of each.
    :type size: bytes
    :param blocks: leaked blocks of that size.
    :param bytes: the order of the list.
    :param leak_roots: of them leak roots.
    """

    size: int = column("size", Kind.COUNT)
    blocks: int = column("leaked blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    leak_roots: int = column("of them leak roots", Kind.COUNT)


@dataclass(frozen=True)
class TypeRow:
    """The leaked blocks of one type.

    :param type: what the blocks are, as in ``blocks types``.
    :param recognised_by: ``vtable``, ``debug info``, ``container``, ``shape``, ``python``, ``similarity``, ``text``,
        ``zeros``, ``pointers``, ``unknown``.
    :type recognised_by: word
    :param blocks: leaked blocks of the type.
    :param bytes: usable bytes of them.
    :param leak_roots: of them leak roots.
    :param kept_bytes: what these leak roots keep; the order of the list.
    """

    type: str = column("type")
    recognised_by: str = column("recognised by")
    blocks: int = column("leaked blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    leak_roots: int = column("of them leak roots", Kind.COUNT)
    kept_bytes: int = column("these keep", Kind.BYTES)


@dataclass(frozen=True)
class LeakedRow:
    """One leaked block.

    :param address: in the order of addresses.
    :param size: usable bytes.
    :type size: bytes
    :param state: ``leak root``, ``indirect``, ``cycle`` (in the cycle of a leak root, which is its lowest block).
    :type state: word
    :param leak_root: the one that alone leads to it, itself for a leak root; None: several do.
    :param kept_by: the same for people.
    :param type: as above.
    :param confidence: of the type: ``low``, ``medium``, ``high``; None where it is unknown.
    :type confidence: word
    """

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    state: str = column("state")
    leak_root: Optional[int] = column(None, Kind.ADDRESS)
    kept_by: str = column("leak root", json=False)
    type: Optional[str] = column("type")
    confidence: Optional[str] = column(None)


@dataclass(frozen=True)
class MaybeRow:
    """One block to which every path needs an interior pointer.

    :param address: in the order of addresses.
    :param size: usable bytes.
    :type size: bytes
    :param type: as above.
    :param contents: as above.
    """

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    type: Optional[str] = column("type")
    contents: Optional[str] = column("contents")


@dataclass(frozen=True)
class OffsetRow:
    """One block that start pointers lead to behind a header alone.

    :param address: reached where an offset of ``headers`` counts, possibly leaked otherwise; in the order of addresses.
    :param size: usable bytes.
    :type size: bytes
    :param reached_by_offset: bytes of the header.
    :param type: as above.
    """

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    reached_by_offset: int = column("reached by offset", Kind.COUNT)
    type: Optional[str] = column("type")


@dataclass(frozen=True)
class Tables:
    """The tables of a report on leaks.

    :param types: None where they were not looked for.
    """

    reach: Reach
    groups: LeakGroups
    types: Optional[BlockTypes]

    def leak_roots(self, most: Optional[int] = None) -> Rows[LeakRootRow]:
        """Return the leak roots, those that keep most bytes first; None: all of them."""
        order = self.groups.by_kept[:most]
        runs = self._leak_root_runs
        return Rows.of_columns(lambda _: self._leak_roots(order), LeakRootRow, len(order), runs, reads=_HINTS)

    def leaked(self) -> Rows[LeakedRow]:
        """Return every leaked block, in address order."""
        return Rows.of_columns(self._leaked, LeakedRow, len(self.groups), reads=0)

    def possibly_leaked(self) -> Rows[MaybeRow]:
        """Return every possibly leaked block, in address order."""
        rows = np.flatnonzero(self.reach.states == MAYBE_REACHED)
        return Rows.of_columns(lambda _: self._possibly_leaked(rows), MaybeRow, len(rows), reads=_HINTS)

    def reached_by_offset(self) -> Rows[OffsetRow]:
        """Return every block that is reached by an offset alone, in address order."""
        rows = np.flatnonzero(self.reach.header_offsets)
        return Rows.of_columns(lambda _: self._by_offset(rows), OffsetRow, len(rows), reads=0)

    def contents_of(self, row: int) -> Optional[str]:
        """Return what a row's first bytes look like."""
        return Hints(self.reach).of(int(self.reach.address[row]), int(self.reach.size[row]))

    def leader_of(self, row: int) -> Optional[int]:
        """Return the row of the leak root that alone leads to a leaked block; None for any other block."""
        groups = self.groups
        place = int(np.searchsorted(groups.rows, row))
        if place == len(groups) or groups.rows[place] != row or groups.leader[place] == NO_LEADER:
            return None
        return int(groups.rows[groups.leader[place]])

    def by_size(self) -> Rows[SizeRow]:
        """Return the sizes of leaked blocks, most bytes first."""
        rows = sorted(self._size_rows(), key=lambda row: (-row.bytes, row.size))
        return Rows(lambda: rows, SizeRow, len(rows), reads=0)

    def by_type(self) -> Optional[Rows[TypeRow]]:
        """Return the types of leaked blocks, those whose leak roots keep most first; None where types are not known."""
        if self.types is None:
            return None
        rows = sorted(self._type_rows(self.types), key=lambda row: (-row.kept_bytes, -row.bytes, row.type))
        return Rows(lambda: rows, TypeRow, len(rows), reads=0)

    def _leak_root_runs(self) -> Optional[Iterable[Tuple[LeakRootRow, int]]]:
        """Return leak roots of one size and type that keep as much, each with their number; None where all differ."""
        groups = self.groups
        rows = groups.rows[groups.roots]
        code = np.zeros(len(rows), np.int64) if self.types is None else self.types.code[rows].astype(np.int64)
        size, blocks, kept = (
            each.astype(np.int64) for each in (self.reach.size[rows], groups.kept_blocks, groups.kept_bytes)
        )
        keys = np.stack((code, groups.cycle, size, blocks, -kept))
        order = np.lexsort(keys)  # of equals the lowest address is first
        differs = np.any(np.diff(keys[:, order]) != 0, axis=0)
        starts = np.concatenate((np.zeros(min(len(order), 1), np.int64), np.flatnonzero(differs) + 1))
        lengths = np.diff(np.append(starts, len(order)))
        if not np.any(lengths >= _EQUAL):
            return None
        return zip(rows_of_batches(self._leak_roots(order[starts]), LeakRootRow), lengths.tolist())

    def _leak_roots(self, order: I64) -> Iterator[Batch]:
        groups, hints = self.groups, Hints(self.reach)
        for part in _pieces(len(order)):
            at = order[part]
            rows = groups.rows[groups.roots[at]]
            yield {
                **self._blocks(rows),
                "kept_blocks": Column(groups.kept_blocks[at]),
                "kept_bytes": Column(groups.kept_bytes[at]),
                "cycle": Column(groups.cycle[at]),
                "contents": hints.column(self.reach, rows),
            }

    def _leaked(self, names: Sequence[str]) -> Iterator[Batch]:
        groups, types = self.groups, self.types
        for part in slices(len(groups), ROWS_AT_ONCE):
            rows, leader = groups.rows[part], groups.leader[part]
            above = self.reach.address[groups.rows[np.maximum(leader, 0)]]
            leak_root = Column(above, leader != NO_LEADER)
            yield {
                **self._blocks(rows),
                "state": Column(groups.role[part], words=ROLE_NAMES),
                "leak_root": leak_root,
                "kept_by": _kept_by(leak_root) if "kept_by" in names else constant(None, len(rows)),
                "confidence": Column(types.confidence[rows], words=_CONFIDENCE) if types else constant(None, len(rows)),
            }

    def _possibly_leaked(self, rows: I64) -> Iterator[Batch]:
        hints = Hints(self.reach)
        for part in _pieces(len(rows)):
            yield {**self._blocks(rows[part]), "contents": hints.column(self.reach, rows[part])}

    def _by_offset(self, rows: I64) -> Iterator[Batch]:
        for part in slices(len(rows), ROWS_AT_ONCE):
            offsets = Column(self.reach.header_offsets[rows[part]])
            yield {**self._blocks(rows[part]), "reached_by_offset": offsets}

    def _blocks(self, rows: I64) -> Dict[str, Column]:
        """Return what all these tables say of blocks."""
        return {
            "address": Column(self.reach.address[rows]),
            "size": Column(self.reach.size[rows]),
            "type": Column(self.types.code[rows], words=self._type_names) if self.types else constant(None, len(rows)),
        }

    @cached_property
    def _type_names(self) -> Sequence[str]:
        return [each.name for each in self.types.types] if self.types else []

    def _size_rows(self) -> Iterator[SizeRow]:
        """Iterate over the sizes, of which there are far fewer than blocks."""
        sums: Dict[int, List[int]] = {}
        sizes, is_root = self.reach.size[self.groups.rows], (self.groups.role == LEAK_ROOT).astype(np.uint8)
        for part in slices(len(sizes), _SIZES_AT_ONCE):
            values, counts = count_values(sizes[part], is_root[part], _OTHER_OR_ROOT, 2)
            for size, (other, root) in zip(values.tolist(), counts.tolist()):
                known = sums.setdefault(size, [0, 0])
                known[0] += other + root
                known[1] += root
        for size, (blocks, roots) in sums.items():
            yield SizeRow(size, blocks, size * blocks, roots)

    def _type_rows(self, types: BlockTypes) -> Iterator[TypeRow]:
        groups, count = self.groups, len(types.types)
        code, size = types.code[groups.rows], self.reach.size[groups.rows]
        of_roots = code[groups.roots]
        columns = (
            np.bincount(code, minlength=count),
            np.bincount(code, size, count),
            np.bincount(of_roots, minlength=count),
            np.bincount(of_roots, groups.kept_bytes, count),
        )
        figures = (each.astype(np.int64).tolist() for each in columns)
        for one, blocks, bytes_, roots, kept in zip(types.types, *figures):
            if blocks:
                yield TypeRow(one.name, one.kind, blocks, bytes_, roots, kept)

    def type_of(self, row: int) -> Optional[str]:
        """Return the name of a row's type; None where types are not known."""
        return None if self.types is None else self.types.name(row)


def _pieces(count: int) -> Iterator[slice]:
    """Iterate over slices of rows: short ones as far as contents are looked at, since often few rows are wanted."""
    yield from slices(min(count, _HINTS), _HINTS_AT_ONCE)
    for part in slices(count - _HINTS, ROWS_AT_ONCE):
        yield slice(part.start + _HINTS, part.stop + _HINTS)


def _kept_by(leak_root: Column) -> Column:
    return Column(["several" if root is None else f"{root:#x}" for root in leak_root.cells()])


_OTHER_OR_ROOT: U8 = np.array([0, 1, *[SKIPPED] * 254], np.uint8)


class Hints:
    """Contents of the first so many blocks of a list: millions would take minutes."""

    def __init__(self, reach: Reach) -> None:
        self._reader = reach.target.reader
        self._name = pointer_namer(reach.target, reach.heaps)
        self._left = _HINTS

    def of(self, address: int, size: int) -> Optional[str]:
        """Return what a block's first bytes look like, or None where enough have been looked at."""
        self._left -= 1
        return contents_hint(self._reader, address, size, self._name) if self._left >= 0 else None

    def column(self, reach: Reach, rows: I64) -> Column:
        """Return the same of rows that follow those before."""
        some = slice(max(self._left, 0))
        blocks = zip(reach.address[rows[some]].tolist(), reach.size[rows[some]].tolist())
        contents = [self.of(*block) for block in blocks]
        return Column([*contents, *[None] * (len(rows) - len(contents))])
