"""``blocks retained``: the bytes that only one root, one block or the blocks of one type keep alive.

What a node of the graph of roots and blocks *retains* is what it dominates: what every way from any root goes through
it for (T. Lengauer, R. Tarjan, 1979). So no byte counts for two roots, and what several roots lead to counts for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.pins.naming import Places
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.owners import Owned, find_owners
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.debuginfo import RootNames
from gdbext.heap.model import U32, U64, Mask
from gdbext.kernels import NOT_REACHED, SUPER, find_dominators, sum_up_tree
from gdbext.report import Kind, Problem, Report, column, line, table

SHARED = "several roots"
_BITS = 22  # 2 ** 31 numbers of so many bits add up exactly in a float


@dataclass(frozen=True)
class RootRow:
    """One owner of root words.

    :param words: that point at blocks.
    """

    retained: int = column("retained", Kind.BYTES)
    blocks: int = column("blocks", Kind.COUNT)
    words: int = column("words", Kind.COUNT)
    kind: str = column("kind")
    address: Optional[int] = column(None, Kind.ADDRESS)
    thread: Optional[int] = column(None, Kind.COUNT)
    root: str = column("root")


@dataclass(frozen=True)
class BlockRow:
    """A block that keeps others alive.

    :param retained: its own bytes, and those of all that only it keeps.
    :param by: what keeps it alive.
    """

    retained: int = column("retained", Kind.BYTES)
    blocks: int = column("blocks", Kind.COUNT)
    address: int = column("block", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    type: Optional[str] = column("type")
    by: str = column("kept by")


@dataclass(frozen=True)
class TypeRow:
    """All reached blocks of one type.

    :param retained: None of those whose type is not known: they have nothing in common.
    """

    retained: Optional[int] = column("retained", Kind.BYTES)
    share: Optional[float] = column("of all", Kind.SHARE)
    own: int = column("own", Kind.BYTES)
    blocks: int = column("blocks", Kind.COUNT)
    type: str = column("type")


@dataclass(frozen=True)
class Retained:
    """What ``blocks retained`` answers: ``kept_by_one`` + ``shared`` is ``reached``."""

    reached_blocks: int = line("blocks that roots lead to", Kind.COUNT)
    reached: int = line("their bytes", Kind.BYTES)
    kept_by_one: int = line("of them kept by one root", Kind.BYTES)
    shared: int = line("shared by several roots", Kind.BYTES)
    shared_blocks: int = column(None, Kind.COUNT)
    leaked: int = line("leaked, in no figure here", Kind.BYTES)
    root_count: int = column(None, Kind.COUNT)
    roots: Sequence[RootRow] = table("By root")
    blocks: Sequence[BlockRow] = table("By block, chains by their first")
    types: Optional[Sequence[TypeRow]] = table("By type")


@dataclass(frozen=True)
class Kept:
    """The dominator tree with its sums: blocks first, then owners of roots.

    :param bytes: that each node retains.
    :param count: blocks that each node retains; an owner is none itself.
    """

    owned: Owned
    dominator: U32
    bytes: U64
    count: U64
    rows: int

    @property
    def reached(self) -> Mask:
        """Which blocks any root leads to."""
        mask: Mask = self.count[: self.rows] > 0
        return mask


def find_kept(reach: Reach, names: RootNames) -> Kept:
    """Return what keeps what alive."""
    owned = find_owners(reach, names)
    reach.progress.at("finding what keeps what alive", 0, None)
    dominator = find_dominators(reach.edges, owned.row, owned.owner)
    rows, roots = len(reach), len(owned.owners)
    total, count = sum_up_tree(dominator, np.concatenate((reach.size, np.zeros(roots, np.uint64))))
    count[rows:] -= np.minimum(count[rows:], np.uint64(1))
    return Kept(owned, dominator, total, count, rows)


def retained(reach: Reach, kept: Kept, places: Places, top: int, problems: Sequence[Problem] = ()) -> Report:
    """Sum up what each root, block and type keeps alive.

    :param top: rows of each table.
    """
    rows, reached = kept.rows, kept.reached
    shared = reached & (kept.dominator[:rows] == SUPER)
    whole = int(reach.size[reached].sum())
    data = Retained(
        int(np.count_nonzero(reached)),
        whole,
        int(kept.bytes[rows:].sum()),
        int(kept.bytes[:rows][shared].sum()),
        int(kept.count[:rows][shared].sum()),
        int(reach.size[reach.states == NOT_REACHED].sum()),
        len(kept.owned.owners),
        list(_root_rows(kept, top)),
        list(_block_rows(reach, kept, places, top)),
        _type_rows(reach, kept, places, top, whole),
    )
    return report_on_reach(reach, data, problems)


def _most(values: U64, top: int) -> "List[int]":
    """Return the positions of the greatest values above 0, the greatest first, equal ones in order."""
    kept = np.flatnonzero(values)
    if len(kept) > top > 0:
        least = np.partition(values[kept], len(kept) - top)[len(kept) - top]
        kept = kept[values[kept] >= least]
    order = np.lexsort((kept, ~values[kept]))
    return kept[order][: top or None].tolist()  # type: ignore[no-any-return]


def _root_rows(kept: Kept, top: int) -> Iterator[RootRow]:
    for at in _most(kept.bytes[kept.rows :], top):
        owner, node = kept.owned.owners[at], kept.rows + at
        words = kept.owned.words[at]
        yield RootRow(
            int(kept.bytes[node]), int(kept.count[node]), words, owner.kind, owner.address, owner.thread, owner.name()
        )


def _block_rows(reach: Reach, kept: Kept, places: Places, top: int) -> Iterator[BlockRow]:
    for row in _most(np.where(_heads(kept), kept.bytes[: kept.rows], np.uint64(0)), top):
        yield BlockRow(
            int(kept.bytes[row]),
            int(kept.count[row]),
            int(reach.address[row]),
            int(reach.size[row]),
            places.block_type(row),
            _keeper(reach, kept, row),
        )


def _heads(kept: Kept) -> Mask:
    """Return which blocks are shown: all but those that keep more than half of what the block above them keeps."""
    by = kept.dominator[: kept.rows]
    below = by < np.uint32(min(kept.rows, SUPER))
    parts = np.zeros(kept.rows, np.bool_)
    parts[below] = kept.bytes[: kept.rows][below] > kept.bytes[by[below]] // np.uint64(2)
    heads: Mask = kept.reached & ~parts
    return heads


def _keeper(reach: Reach, kept: Kept, row: int) -> str:
    by = int(kept.dominator[row])
    if by == SUPER:
        return SHARED
    return f"block {int(reach.address[by]):#x}" if by < kept.rows else kept.owned.owners[by - kept.rows].name()


# -- types


def _type_rows(reach: Reach, kept: Kept, places: Places, top: int, whole: int) -> Optional[Sequence[TypeRow]]:
    types = places.types
    if types is None:
        return None
    code, names = types.code, types.types
    count = np.bincount(code[kept.reached], minlength=len(names))
    outer = kept.reached & (code > 0) & ~_nested(kept, code)
    total = _sums(code, kept.bytes[: kept.rows], outer, len(names))
    own = _sums(code, reach.size, kept.reached, len(names))
    rows = [
        TypeRow(int(total[at]), int(total[at]) / whole, int(own[at]), int(count[at]), names[at].name)
        for at in _most(total, top)
    ]
    unknown = [TypeRow(None, None, int(own[0]), int(count[0]), names[0].name)] if count[0] else []
    return [*rows, *unknown]


def _sums(code: U32, values: U64, chosen: Mask, known: int) -> U64:
    """Return the sum of chosen values by code, exact: a float has room for some bits of each at a time."""
    code, values, total = code[chosen], values[chosen], np.zeros(known, np.uint64)
    for shift in range(0, 64, _BITS):
        part = (values >> np.uint64(shift)) & np.uint64((1 << _BITS) - 1)
        sums = np.bincount(code, weights=part, minlength=known).astype(np.uint64)
        total += sums << np.uint64(shift)
    return total


def _nested(kept: Kept, code: U32) -> Mask:
    """Return which blocks something of their own type dominates.

    In a tour of the tree each node comes before what it dominates, which lies in one stretch behind it. So among those
    of one type a node is nested where a stretch that began earlier has not ended.
    """
    nested = np.zeros(kept.rows, np.bool_)
    leads = np.zeros(int(code.max(initial=0)) + 1, np.bool_)
    leads[code[kept.count[: kept.rows] > 1]] = True
    leads[0] = False  # the unknown
    rows = np.flatnonzero(kept.reached & leads[code])
    if not len(rows):
        return nested
    first, end = _stretches(kept)
    rows = rows[np.lexsort((first[rows], code[rows]))]
    apart = code[rows].astype(np.int64) * (int(end.max(initial=0)) + 1)  # types follow each other
    ends = np.maximum.accumulate(end[rows] + apart)
    nested[rows[1:]] = ends[:-1] > (first[rows] + apart)[1:]
    return nested


def _stretches(kept: Kept) -> Tuple[U32, U32]:
    """Return where each node of the tree comes in a tour through it, and where what it dominates has ended."""
    count = kept.count.astype(np.uint32)
    count[kept.rows :] += np.uint32(1)
    above = np.minimum(kept.dominator, np.uint32(len(count)))  # SUPER and NONE are greater than any node
    place = np.zeros(len(count) + 1, np.uint32)
    _put_siblings(place, above, count)
    place[:-1][count == 0] = 0
    first: U32 = _summed_up(place, np.append(above, np.uint32(len(count))))[:-1]
    return first, first + count


def _put_siblings(place: U32, above: U32, count: U32) -> None:
    """Set how far behind what dominates it each node comes in the tour: behind those beside it that come first."""
    order = np.argsort(above, kind="stable")
    before = np.cumsum(count[order], dtype=np.uint32) - count[order]
    above = above[order]
    begun = np.append(True, above[1:] != above[:-1])[: len(above)]
    before -= np.repeat(before[begun], np.diff(np.append(np.flatnonzero(begun), len(above))))
    place[order] = before + np.uint32(1)


def _summed_up(place: U32, above: U32) -> U32:
    """Return for each node the sum of what it and all above it have: by ways that double in length."""
    total, up = place, above
    top = len(above) - 1
    while (up != top).any():
        total = total + total[up]
        up = up[up]
    return total
