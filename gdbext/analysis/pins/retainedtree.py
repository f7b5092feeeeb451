"""What roots keep alive, as a tree of types: each root, the types of the blocks that it alone keeps, what these keep.

The tree of dominators has a node for each block; here all blocks of one type that are kept by the same node of this
tree are one node. What is small is summed up, so that millions of blocks make a few hundred nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence

import numpy as np

from gdbext.analysis.pins.retained import SHARED, Kept
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.model import BlockTypes
from gdbext.kernels import SUPER
from gdbext.memory.intervals import I64
from gdbext.report import Kind, column
from gdbext.wording import grouped

_DEPTH = 24
_SHARE = 1000  # one part in so many of all makes a node of its own
_WIDEST = 60  # nodes below one
_SMALLER = "smaller ones"
_NOT_YET = -1


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
    return _Grower(reach, kept, types).rows


def folded(rows: Sequence[TreeRow]) -> Iterator[str]:
    """Iterate over the lines of a tree for flame graph tools: names from the root on, and the bytes of a node alone."""
    own = [row.bytes for row in rows]
    paths: List[str] = []
    for row in rows:
        name = row.name.replace(";", ",").replace("\n", " ")
        paths.append(name if row.above is None else f"{paths[row.above]};{name}")
        if row.above is not None:
            own[row.above] -= row.bytes
    yield from (f"{path} {bytes_}\n" for path, bytes_ in zip(paths, own) if bytes_ > 0)


class _Grower:
    """Makes the tree level by level: blocks whose dominator is in the tree are grouped below it.

    A block of the type of what keeps it, as in a list, belongs to the same node, whose bytes hold its own already.
    """

    def __init__(self, reach: Reach, kept: Kept, types: Optional[BlockTypes]) -> None:
        self._reach, self._kept, self._types = reach, kept, types
        self._least = max(int(reach.size.sum(where=kept.reached)) // _SHARE, 1)
        self.rows: List[TreeRow] = []
        self._codes: List[int] = []  # of each row
        # Of each block, of each owner of roots, and of what several roots lead to.
        self._node = np.full(kept.rows + len(kept.owned.owners) + 1, _NOT_YET, np.int32)
        self._code = self._read_codes()
        self._add_roots()
        self._add_levels()

    def _read_codes(self) -> I64:
        """Return a number for what each block is called: its type, below 0 its size."""
        sizes = -1 - np.minimum(self._reach.size, np.uint64(1 << 40)).astype(np.int64)
        return sizes if self._types is None else np.where(self._types.code == 0, sizes, self._types.code)

    def _name(self, code: int) -> str:
        if code < 0 or self._types is None:
            return f"{grouped(-1 - code)} bytes"
        return self._types.types[code].name

    def _add_roots(self) -> None:
        kept, first = self._kept, self._kept.rows
        shared = kept.reached & (kept.dominator[:first] == SUPER)
        found = [(bytes_, at) for at, bytes_ in enumerate(kept.bytes[first:].tolist()) if bytes_]
        order = [at for _, at in sorted(found, key=lambda pair: (-pair[0], pair[1]))]
        large = [at for at in order[:_WIDEST] if kept.bytes[first + at] >= self._least]
        for at in large:
            owner, node = kept.owned.owners[at], first + at
            self._node[node] = self._add(None, owner.name(), owner.kind, int(kept.bytes[node]), int(kept.count[node]))
        several = int(kept.bytes[:first].sum(where=shared)), int(kept.count[:first].sum(where=shared))
        if several[0]:
            self._node[-1] = self._add(None, SHARED, "several", *several)
        rest = [first + at for at in order[len(large) :]]
        if rest:
            self._add(None, _SMALLER, "several", int(kept.bytes[rest].sum()), int(kept.count[rest].sum()))

    def _add(self, above: Optional[int], name: str, kind: str, bytes_: int, blocks: int, code: int = 0) -> int:
        self.rows.append(TreeRow(above, name, kind, bytes_, blocks))
        self._codes.append(code)
        return len(self.rows) - 1

    def _add_levels(self) -> None:
        dominator = np.minimum(self._kept.dominator[: self._kept.rows], np.uint32(len(self._node) - 1))
        left = np.flatnonzero(self._kept.reached)
        for _ in range(_DEPTH):
            node = self._node[dominator[left]]
            begun = node != _NOT_YET
            if not begun.any():
                return
            self._group(left[begun], node[begun])
            left = left[~begun]

    def _group(self, rows: I64, node: "np.typing.NDArray[np.int32]") -> None:
        """Put blocks into nodes below those that keep them."""
        code = self._code[rows]
        same = code == np.array([*self._codes, 0])[node]
        self._node[rows[same]] = node[same]
        rows, node, code = rows[~same], node[~same], code[~same]
        order = np.lexsort((code, node))
        rows, node, code = rows[order], node[order], code[order]
        heads = np.flatnonzero(np.append(True, (node[1:] != node[:-1]) | (code[1:] != code[:-1]))[: len(rows)])
        if not len(heads):
            return
        total = np.add.reduceat(self._kept.bytes[rows], heads)
        count = np.add.reduceat(self._kept.count[rows].astype(np.int64), heads)
        made = self._add_groups(node[heads], code[heads], total.tolist(), count.tolist())
        self._node[rows] = np.repeat(made, np.diff(np.append(heads, len(rows))))

    def _add_groups(
        self, above: "np.typing.NDArray[np.int32]", code: I64, total: List[int], count: List[int]
    ) -> "np.typing.NDArray[np.int32]":
        """Add the nodes of groups, those that are small as one; return the node of each."""
        made = np.full(len(above), _NOT_YET, np.int32)
        small: "dict[int, list[int]]" = {}
        taken: "dict[int, int]" = {}
        for at in sorted(range(len(total)), key=lambda at: (-total[at], at)):
            parent = int(above[at])
            if total[at] >= self._least and taken.get(parent, 0) < _WIDEST:
                taken[parent] = taken.get(parent, 0) + 1
                made[at] = self._add(parent, self._name(int(code[at])), "type", total[at], count[at], int(code[at]))
            else:
                sums = small.setdefault(parent, [0, 0])
                sums[0], sums[1] = sums[0] + total[at], sums[1] + count[at]
        for parent, (bytes_, blocks) in small.items():
            if bytes_ >= self._least:
                self._add(parent, _SMALLER, "type", bytes_, blocks)
        return made
