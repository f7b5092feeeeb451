"""``blocks retained``: the bytes that only one root, one block or the blocks of one type keep alive.

What a node of the graph of roots and blocks *retains* is what it dominates: what every way from any root goes through
it for (T. Lengauer, R. Tarjan, 1979). So no byte counts for two roots, and what several roots lead to counts for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.pins.naming import Places
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.owners import Owned, find_owners
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.debuginfo import RootNames
from gdbext.heap.model import U32, U64, Mask
from gdbext.kernels import NOT_REACHED, SUPER, find_dominators, sum_up_tree
from gdbext.memory.intervals import I64, slices
from gdbext.memory.room import give_back
from gdbext.report import Kind, Problem, Report, column, line, table

SHARED = "several roots"
_STEPS = 16  # up the tree, before it is toured


@dataclass(frozen=True)
class RootRow:
    """One owner of root words.

    :param retained: what only this root leads to; the order of the list.
    :param blocks: blocks of these bytes.
    :param words: its words that point at or into blocks.
    :param kind: ``register``, ``stack``, ``tls``, ``global``, ``file``, ``anonymous``.
    :type kind: word
    :param address: of a variable, or where a mapping or module begins; None of what a thread has.
    :param thread: the debugger's number; None of others.
    :param root: its name.
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

    :param retained: what would be lost without the block, itself included; the order of the list.
    :param blocks: blocks of these bytes.
    :param address: user pointer. A block is left out that keeps more than half of what the block above it keeps.
    :param size: usable bytes.
    :type size: bytes
    :param type: None: not known.
    :param by: what alone keeps it: a block, a root, or ``several roots``.
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

    :param retained: what would be lost without all blocks of the type; types overlap. None: ``unknown`` is no type.
    :param share: of ``reached``.
    :param own: usable bytes of the blocks themselves.
    :param blocks: of the type.
    :param type: as in ``blocks types``.
    """

    retained: Optional[int] = column("retained", Kind.BYTES)
    share: Optional[float] = column("of all", Kind.SHARE)
    own: int = column("own", Kind.BYTES)
    blocks: int = column("blocks", Kind.COUNT)
    type: str = column("type")


@dataclass(frozen=True)
class Retained:
    """What ``blocks retained`` answers: ``kept_by_one`` + ``shared`` is ``reached``.

    :param reached_blocks: blocks that roots lead to, by pointers into the middle of blocks too: reached and possibly
        leaked ones.
    :param reached: usable bytes of them.
    :param kept_by_one: of them, what only one root leads to.
    :param shared: what several roots lead to.
    :param shared_blocks: blocks of these bytes.
    :param leaked: of blocks that no root leads to, in no other figure.
    :param root_count: roots that point at blocks.
    """

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
    count: U32
    rows: int

    @cached_property
    def reached(self) -> Mask:
        """Which blocks any root leads to."""
        mask: Mask = self.count[: self.rows] > 0
        return mask

    @property
    def shared(self) -> Tuple[int, int]:
        """Bytes that several roots lead to, and their blocks."""
        total = count = 0
        for part in slices(self.rows):
            rows = part.start + np.flatnonzero(self.reached[part] & (self.dominator[: self.rows][part] == SUPER))
            total += int(self.bytes[rows].sum())
            count += int(self.count[rows].sum())
        return total, count


class Keepers(NamedTuple):
    """The dominator tree without its sums, which take three times as much."""

    owned: Owned
    dominator: U32


def find_keepers(reach: Reach, names: RootNames) -> Keepers:
    """Return what keeps what alive."""
    owned = find_owners(reach, names)
    reach.progress.at("finding what keeps what alive", 0, None)
    dominator = find_dominators(reach.find_edges(), owned.row, owned.owner)
    give_back()
    return Keepers(owned, dominator)


def sum_up(reach: Reach, keepers: Keepers) -> Kept:
    """Return how much each keeps alive."""
    rows = len(reach)
    total, count = sum_up_tree(keepers.dominator, reach.size)
    count[rows:] -= np.minimum(count[rows:], np.uint32(1))
    give_back()
    return Kept(*keepers, total, count, rows)


def retained(reach: Reach, kept: Kept, places: Places, top: int, problems: Sequence[Problem] = ()) -> Report:
    """Sum up what each root, block and type keeps alive.

    :param top: rows of each table.
    """
    rows, reached = kept.rows, kept.reached
    whole = int(reach.size.sum(where=reached))
    data = Retained(
        int(np.count_nonzero(reached)),
        whole,
        int(kept.bytes[rows:].sum()),
        *kept.shared,
        int(reach.size.sum(where=reach.states == NOT_REACHED)),
        len(kept.owned.owners),
        list(root_rows(kept, top)),
        list(_block_rows(reach, kept, places, top)),
        _type_rows(reach, kept, places, top, whole),
    )
    return report_on_reach(reach, data, problems)


def _most(values: U64, top: int) -> "List[int]":
    """Return the positions of the greatest values above 0, the greatest first, equal ones in order."""
    return _most_of_parts(((part.start, values[part]) for part in slices(len(values))), top)


def _most_of_parts(parts: Iterable[Tuple[int, U64]], top: int) -> "List[int]":
    """As :func:`_most`, of values that come in parts, each with the position of its first."""
    places, kept = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for start, values in parts:
        at = _greatest(values, top)
        places.append(start + at)
        kept.append(values[at])
    place, value = np.concatenate(places), np.concatenate(kept)
    at = _greatest(value, top)
    order = np.lexsort((place[at], ~value[at]))
    return place[at][order][: top or None].tolist()  # type: ignore[no-any-return]


def _greatest(values: U64, top: int) -> I64:
    """Return where the greatest values above 0 are, and those that equal the last of them; 0: all."""
    kept = np.flatnonzero(values)
    if len(kept) > top > 0:
        least = np.partition(values[kept], len(kept) - top)[len(kept) - top]
        kept = kept[values[kept] >= least]
    return kept


def root_rows(kept: Kept, top: int) -> Iterator[RootRow]:
    """Iterate over roots, those that retain most first.

    :param top: how many; 0: all that retain anything.
    """
    for at in _most(kept.bytes[kept.rows :], top):
        owner, node = kept.owned.owners[at], kept.rows + at
        words = kept.owned.words[at]
        yield RootRow(
            int(kept.bytes[node]), int(kept.count[node]), words, owner.kind, owner.address, owner.thread, owner.name()
        )


def _block_rows(reach: Reach, kept: Kept, places: Places, top: int) -> Iterator[BlockRow]:
    for row in _most_of_parts(_for_each_head(kept), top):
        yield BlockRow(
            int(kept.bytes[row]),
            int(kept.count[row]),
            int(reach.address[row]),
            int(reach.size[row]),
            places.block_type(row),
            _keeper(reach, kept, row),
        )


def _for_each_head(kept: Kept) -> Iterator[Tuple[int, U64]]:
    """Iterate over the bytes of the blocks that are shown, in parts, each with its first row.

    0 stands for others: those that keep more than half of what keeps them.
    """
    for part in slices(kept.rows):
        found, by = kept.bytes[: kept.rows][part].copy(), kept.dominator[: kept.rows][part]
        below = np.flatnonzero(by < np.uint32(min(kept.rows, SUPER)))
        below = below[found[below] > kept.bytes[by[below]] // np.uint64(2)]
        found[below] = 0
        yield part.start, found


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
    code, names, reached = types.code, types.types, kept.reached
    count = np.zeros(len(names), np.int64)
    for part in slices(len(code)):
        count += np.bincount(code[part][reached[part]], minlength=len(names))
    outer = _nested(kept, code)
    for part in slices(len(code)):
        outer[part] = reached[part] & (code[part] > 0) & ~outer[part]
    total = _sums(code, kept.bytes[: kept.rows], outer, len(names))
    own = _sums(code, reach.size, reached, len(names))
    rows = [
        TypeRow(int(total[at]), int(total[at]) / whole, int(own[at]), int(count[at]), names[at].name)
        for at in _most(total, top)
    ]
    unknown = [TypeRow(None, None, int(own[0]), int(count[0]), names[0].name)] if count[0] else []
    return [*rows, *unknown]


def _sums(code: U32, values: U64, chosen: Mask, known: int) -> U64:
    """Return the sum of chosen values by code, exact: a float has room for those of halves, so many at a time."""
    total = np.zeros(known, np.uint64)
    for part in slices(len(code)):
        some, of = values[part][chosen[part]], code[part][chosen[part]]
        for shift in (0, 32):
            half = (some >> np.uint64(shift)) & np.uint64(0xFFFF_FFFF)
            total += np.bincount(of, half, known).astype(np.uint64) << np.uint64(shift)
    return total


def _nested(kept: Kept, code: U32) -> Mask:
    """Return which blocks something of their own type dominates."""
    nested = np.zeros(kept.rows, np.bool_)
    leads = np.zeros(int(code.max(initial=0)) + 1, np.bool_)
    for part in slices(kept.rows):
        leads[code[part][kept.count[: kept.rows][part] > 1]] = True
    leads[0] = False  # the unknown
    left, reached = 0, kept.reached
    for part in slices(kept.rows):
        rows = part.start + np.flatnonzero(reached[part] & leads[code[part]])
        left += len(_climb(kept, code, rows, nested))
    if left:
        nested[_nested_in_tour(kept, code, leads)] = True
    return nested


def _climb(kept: Kept, code: U32, rows: I64, nested: Mask) -> I64:
    """Mark the rows that a block of their own type dominates, a few steps up; return those that need more steps."""
    above = kept.dominator[rows]
    for _ in range(_STEPS):
        inside = above < np.uint32(min(kept.rows, SUPER))
        rows, above = rows[inside], above[inside]
        same = code[above] == code[rows]
        nested[rows[same]] = True
        rows, above = rows[~same], kept.dominator[above[~same]]
        if not len(rows):
            break
    return rows


def _nested_in_tour(kept: Kept, code: U32, leads: Mask) -> I64:
    """Return the rows that something of their own type dominates.

    In a tour of the tree each node comes before what it dominates, which lies in one stretch behind it. So among those
    of one type a node is nested where a stretch that began earlier has not ended.
    """
    rows = np.flatnonzero(kept.reached & leads[code])
    first, end = _stretches(kept)
    rows = rows[np.lexsort((first[rows], code[rows]))]
    apart = code[rows].astype(np.int64) * (int(end.max(initial=0)) + 1)  # types follow each other
    ends = np.maximum.accumulate(end[rows] + apart)
    return rows[1:][ends[:-1] > (first[rows] + apart)[1:]]


def _stretches(kept: Kept) -> Tuple[U32, U32]:
    """Return where each node of the tree comes in a tour through it, and where what it dominates has ended."""
    count = kept.count.copy()
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
