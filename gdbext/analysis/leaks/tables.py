"""The tables of ``blocks leaks``: leak roots, types, sizes, and all blocks one by one, made while they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from gdbext.analysis.blocks.contents import contents_hint, pointer_namer
from gdbext.analysis.leaks.groups import LEAK_ROOT, NO_LEADER, ROLE_NAMES, LeakGroups
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.model import CONFIDENCE_NAMES, BlockTypes
from gdbext.heap.model import U8
from gdbext.kernels import MAYBE_REACHED, SKIPPED, count_values
from gdbext.memory.intervals import I64, slices
from gdbext.report import Kind, Rows, column

_HINTS = 1000  # rows of a list whose contents are looked at
_AT_ONCE = 4096  # rows made at once
_SIZES_AT_ONCE = 1 << 22
_EQUAL = 3  # equal leak roots that are worth one line


@dataclass(frozen=True)
class LeakRootRow:
    """One leak root.

    :param cycle: blocks of the cycle that it stands for; 0 for none.
    :param kept_blocks: itself and those that only it leads to.
    :param type: None where types were not looked for.
    :param contents: what its first bytes look like; None far down in a long list.
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
    """The leaked blocks of one usable size."""

    size: int = column("size", Kind.COUNT)
    blocks: int = column("leaked blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    leak_roots: int = column("of them leak roots", Kind.COUNT)


@dataclass(frozen=True)
class TypeRow:
    """The leaked blocks of one type.

    :param kept_bytes: by its leak roots.
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

    :param leak_root: the one that alone leads to it, itself for a leak root; None where several do.
    :param kept_by: the same for people.
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
    """One block to which every path needs an interior pointer."""

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    type: Optional[str] = column("type")
    contents: Optional[str] = column("contents")


@dataclass(frozen=True)
class OffsetRow:
    """One block that start pointers lead to behind a header alone."""

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

    def leak_roots(self, most: Optional[int] = None) -> Rows:
        """Return the leak roots, those that keep most bytes first; None: all of them."""
        number = len(self.groups.roots[:most])
        def rows() -> Iterator[LeakRootRow]:
            return islice(self._leak_root_rows(), most)

        return Rows(rows, LeakRootRow, number, self._leak_root_runs, reads=_HINTS)

    def leaked(self) -> Rows:
        """Return every leaked block, in address order."""
        return Rows(self._leaked_rows, LeakedRow, len(self.groups), reads=0)

    def possibly_leaked(self) -> Rows:
        """Return every possibly leaked block, in address order."""
        rows = np.flatnonzero(self.reach.states == MAYBE_REACHED)
        return Rows(lambda: self._maybe_rows(rows), MaybeRow, len(rows), reads=_HINTS)

    def reached_by_offset(self) -> Rows:
        """Return every block that is reached by an offset alone, in address order."""
        rows = np.flatnonzero(self.reach.header_offsets)
        return Rows(lambda: self._offset_rows(rows), OffsetRow, len(rows))

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

    def by_size(self) -> Rows:
        """Return the sizes of leaked blocks, most bytes first."""
        rows = sorted(self._size_rows(), key=lambda row: (-row.bytes, row.size))
        return Rows(lambda: rows, SizeRow, len(rows), reads=0)

    def by_type(self) -> Optional[Rows]:
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
        return zip(self._leak_root_rows(order[starts]), lengths.tolist())

    def _leak_root_rows(self, order: Optional[I64] = None) -> Iterator[LeakRootRow]:
        groups = self.groups
        order = groups.by_kept if order is None else order
        hint = Hints(self.reach)
        for part in slices(len(order), _AT_ONCE):
            at = order[part]
            rows = groups.rows[groups.roots[at]]
            columns = (rows, groups.kept_blocks[at], groups.kept_bytes[at], groups.cycle[at])
            for row, blocks, kept, cycle in zip(*(each.tolist() for each in columns)):
                address, size = int(self.reach.address[row]), int(self.reach.size[row])
                contents = hint.of(address, size)
                yield LeakRootRow(address, size, blocks, kept, cycle, self.type_of(row), contents)

    def _leaked_rows(self) -> Iterator[LeakedRow]:
        groups, address = self.groups, self.reach.address
        for part in slices(len(groups), _AT_ONCE):
            rows, leader = groups.rows[part], groups.leader[part]
            above = address[groups.rows[np.maximum(leader, 0)]]
            columns = (rows, address[rows], self.reach.size[rows], groups.role[part], leader, above)
            for row, place, size, role, by, root in zip(*(each.tolist() for each in columns)):
                known = None if by == NO_LEADER else root
                kept_by = "several" if known is None else f"{known:#x}"
                kind, sure = self.type_of(row), self._confidence(row)
                yield LeakedRow(place, size, ROLE_NAMES[role], known, kept_by, kind, sure)

    def _maybe_rows(self, rows: I64) -> Iterator[MaybeRow]:
        hint = Hints(self.reach)
        for part in slices(len(rows), _AT_ONCE):
            chosen = rows[part]
            columns = (chosen, self.reach.address[chosen], self.reach.size[chosen])
            for row, address, size in zip(*(each.tolist() for each in columns)):
                yield MaybeRow(address, size, self.type_of(row), hint.of(address, size))

    def _offset_rows(self, rows: I64) -> Iterator[OffsetRow]:
        for part in slices(len(rows), _AT_ONCE):
            chosen = rows[part]
            columns = (chosen, self.reach.address[chosen], self.reach.size[chosen], self.reach.header_offsets[chosen])
            for row, address, size, offset in zip(*(each.tolist() for each in columns)):
                yield OffsetRow(address, size, offset, self.type_of(row))

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

    def _confidence(self, row: int) -> Optional[str]:
        return None if self.types is None else CONFIDENCE_NAMES[int(self.types.confidence[row])] or None


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
