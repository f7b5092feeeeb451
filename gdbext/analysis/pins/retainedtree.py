"""What roots keep alive, as a tree of types: each root, the types of the blocks that it alone keeps, what these keep.

The tree of dominators has a node for each block; here all blocks of one type that are kept by the same node of this
tree are one node. What is small is summed up, so that millions of blocks make a few hundred nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.pins.retained import SHARED, Kept
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.kinds import folded_name, kind_name, kinds_of
from gdbext.analysis.types.model import BlockTypes
from gdbext.kernels import SUPER
from gdbext.memory.intervals import I64
from gdbext.report import Kind, column

_DEPTH = 14
_SHARE = 1000  # one part in so many of all makes a node of its own
_WIDEST = 60  # nodes below one
_GROUPS = 50_000  # that are summed up, before the small ones go
_SMALLER = "smaller ones"
_NOT_YET, _TOO_MANY = -1, -2


@dataclass(frozen=True)
class TreeRow:
    """One node of the tree of what is kept.

    :param above: position of the node that it hangs below, which comes before it; None: it is a root.
    :param name: a root, ``several roots``, a type, ``N bytes`` where the type is not known, ``smaller ones``.
    :param kind: ``register``, ``stack``, ``tls``, ``global``, ``file``, ``anonymous``, ``several`` (roots); ``type``.
    :type kind: word
    :param bytes: what would be unreachable without its blocks, theirs included.
    :param blocks: blocks of these bytes.
    """

    above: Optional[int] = column("below", Kind.NUMBER)
    name: str = column("what")
    kind: str = column("kind")
    bytes: int = column("bytes", Kind.BYTES)
    blocks: int = column("blocks", Kind.COUNT)


def retained_tree(reach: Reach, kept: Kept, types: Optional[BlockTypes]) -> Sequence[TreeRow]:
    """Return the tree, roots first; of siblings those with most bytes come first."""
    return _Grower(reach, kept, types).rows()


def folded(rows: Sequence[TreeRow]) -> Iterator[str]:
    """Iterate over the lines of a tree for flame graph tools: names from the root on, and the bytes of a node alone."""
    own = [row.bytes for row in rows]
    paths: List[str] = []
    for row in rows:
        name = folded_name(row.name)
        paths.append(name if row.above is None else f"{paths[row.above]};{name}")
        if row.above is not None:
            own[row.above] -= row.bytes
    yield from (f"{path} {bytes_}\n" for path, bytes_ in zip(paths, own) if bytes_ > 0)


@dataclass
class _Group:
    """All blocks of one type below one node; what is kept by a block of their own type counts with that."""

    above: Optional[int]
    name: str
    kind: str
    bytes: int
    blocks: int


class _Grower:
    """Makes the tree level by level: blocks whose dominator is in the tree are grouped below it."""

    def __init__(self, reach: Reach, kept: Kept, types: Optional[BlockTypes]) -> None:
        self._reach, self._kept, self._types = reach, kept, types
        self._groups: List[_Group] = []
        self._known: Dict[Tuple[int, int], int] = {}  # by the group above and the code
        # Of each block, of each owner of roots, of what several roots lead to, and of nothing.
        self._node = np.full(kept.rows + len(kept.owned.owners) + 2, _NOT_YET, np.int32)
        self._code = kinds_of(reach.size, None if types is None else types.code)
        self._add_roots()
        self._add_levels()

    def rows(self) -> Sequence[TreeRow]:
        """Return the nodes that are large enough; what is not is summed up below the same node."""
        least = max(sum(one.bytes for one in self._groups if one.above is None) // _SHARE, 1)
        below: Dict[Optional[int], List[int]] = {}
        for at, group in enumerate(self._groups):
            below.setdefault(group.above, []).append(at)
        found: List[TreeRow] = []
        waiting: List[Tuple[Optional[int], Optional[int]]] = [(None, None)]
        for group_above, row_above in waiting:
            order = sorted(below.get(group_above, ()), key=lambda at: (-self._groups[at].bytes, at))
            large = [at for at in order[:_WIDEST] if self._groups[at].bytes >= least]
            for at in large:
                one = self._groups[at]
                waiting.append((at, len(found)))
                found.append(TreeRow(row_above, one.name, one.kind, one.bytes, one.blocks))
            small = [self._groups[at] for at in order[len(large) :]]
            rest = sum(one.bytes for one in small)
            if rest >= least:
                kind = "several" if row_above is None else "type"
                found.append(TreeRow(row_above, _SMALLER, kind, rest, sum(one.blocks for one in small)))
        return found

    def _add_roots(self) -> None:
        kept, first = self._kept, self._kept.rows
        found = [(bytes_, at) for at, bytes_ in enumerate(kept.bytes[first:].tolist()) if bytes_]
        for number, (bytes_, at) in enumerate(sorted(found, key=lambda pair: (-pair[0], pair[1]))):
            owner = kept.owned.owners[at]
            name = owner.name() if number < _WIDEST else ""  # others are not shown, and a lookup may take long
            self._node[first + at] = len(self._groups)
            self._groups.append(_Group(None, name, owner.kind, bytes_, int(kept.count[first + at])))
        shared = kept.reached & (kept.dominator[:first] == SUPER)
        bytes_, blocks = int(kept.bytes[:first].sum(where=shared)), int(kept.count[:first].sum(where=shared))
        if bytes_:
            self._node[-2] = len(self._groups)
            self._groups.append(_Group(None, SHARED, "several", bytes_, blocks))

    def _add_levels(self) -> None:
        left, above = self._heads()
        placed = self._node != _NOT_YET  # the same in a quarter of the memory, which all that is left is looked up in
        for _ in range(_DEPTH):
            found = placed[above]
            met = np.flatnonzero(found)
            if not len(met):
                return
            node = self._node[above[met]]
            begun = node >= 0
            self._node[left[met]] = _TOO_MANY
            placed[left[met]] = True
            self._group(left[met[begun]], node[begun])
            above[met] = len(self._node) - 1  # where nothing ever is
            if 2 * len(met) > len(left):
                left, above = left[~found], above[~found]

    def _heads(self) -> Tuple[I64, I64]:
        """Return the blocks that no block of their own type keeps, and what keeps each: of such blocks the first.

        So a list is one node, however long it is: by ways that double in length.
        """
        rows, last = self._kept.rows, len(self._node) - 2
        above = np.minimum(self._kept.dominator[:rows], np.uint32(last))
        head = np.arange(len(self._node), dtype=np.uint32)
        first = self._kept.reached.copy()
        inside = np.flatnonzero(first & (above < rows))
        run = inside[self._code[above[inside]] == self._code[inside]]
        first[run] = False
        head[run] = above[run]
        while len(run):
            further = head[head[run]]
            run, further = run[further != head[run]], further[further != head[run]]
            head[run] = further
        left = np.flatnonzero(first)
        return left, head[above[left]].astype(np.int64)

    def _group(self, rows: I64, node: "np.typing.NDArray[np.int32]") -> None:
        """Put blocks into groups below those that keep them."""
        code = self._code[rows]
        order = np.lexsort((code, node))
        rows, node, code = rows[order], node[order], code[order]
        heads = np.flatnonzero(np.append(True, (node[1:] != node[:-1]) | (code[1:] != code[:-1]))[: len(rows)])
        if not len(heads):
            return
        total = np.add.reduceat(self._kept.bytes[rows], heads).tolist()
        count = np.add.reduceat(self._kept.count[rows].astype(np.int64), heads).tolist()
        keys = zip(node[heads].tolist(), code[heads].tolist())
        made = [self._add(*key, bytes_, blocks) for key, bytes_, blocks in zip(keys, total, count)]
        self._node[rows] = np.repeat(np.array(made, np.int32), np.diff(np.append(heads, len(rows))))

    def _add(self, above: int, code: int, bytes_: int, blocks: int) -> int:
        at = self._known.get((above, code))
        if at is None and len(self._groups) >= _GROUPS:
            return _TOO_MANY
        if at is None:
            at = self._known[above, code] = len(self._groups)
            self._groups.append(_Group(above, kind_name(code, self._types), "type", 0, 0))
        self._groups[at].bytes += bytes_
        self._groups[at].blocks += blocks
        return at
