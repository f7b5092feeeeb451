"""Binary trees, walked in order: level by level through memory, then put in order.

A tree is read a whole level at a time, which for a balanced one of a million nodes is some twenty gathers. No
node is taken twice, so a damaged tree ends like a sound one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from gdbext.progress import SILENT, Progress
from gdbext.report import Problem
from gdbext.structures.walk.checking import LEFT_OFF, MOST_TOLD, check_count, tell
from gdbext.structures.walk.gather import Windows, gather
from gdbext.structures.walk.model import U64, ChainEnd, End, ListWalk, Mask, Scalar, TreeRoot
from gdbext.target import Target

I64 = npt.NDArray[np.int64]

MOST_LEVELS = 1 << 15  # a search tree has some 40; a list taken for a tree has as many as it has nodes
_MOST_ENDS = 1000


@dataclass(frozen=True)
class TreeWalk(ListWalk):
    """What a walk through a tree found; ``nodes`` are in order.

    ``end`` is the first of ``ends``, or a sound one. The ``link`` of a bad end is its level, the root's being 1.

    :param parents: for each node the one whose link leads there; 0 for the root.
    :param depth: levels.
    :param ends: what is wrong with links that lead nowhere, at most 1000.
    """

    parents: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    depth: int = 0
    ends: Sequence[ChainEnd] = ()


def walk_tree(
    target: Target, root: TreeRoot, most: Optional[int] = None, progress: Progress = SILENT
) -> TreeWalk:
    """Walk a tree in order.

    A link that leads to no node, or to one that another link leads to already (``CYCLE``), is left out.

    :param most: nodes after which it ends with ``LIMIT``; None: only the memory bounds it.
    """
    walk = _Walk(target, root, most)
    try:
        while walk.pending:
            progress.at("tree nodes", walk.count, root.entries)
            walk.take_level()
    except KeyboardInterrupt:
        walk.interrupt()
    return walk.result()


def check_tree(target: Target, root: TreeRoot, walk: TreeWalk) -> "list[Problem]":
    """Return what contradicts itself in a tree: links, links back, its own count, its first and last node."""
    problems = [*check_outcome(root, walk), *_check_parents(target, root, walk)]
    return problems + (_check_outermost(root, walk) if walk.end.reason.sound else [])


def check_outcome(root: TreeRoot, walk: TreeWalk) -> "list[Problem]":
    """Return what the walk of a tree tells by itself: links that lead to no node, and a count that does not agree.

    Kinds: ``tree-link``, ``tree-count``, ``absent-memory``. A tree of which anything was left off is not held to its
    count.
    """
    problems = _check_links(root, walk)
    if not any(end.reason in LEFT_OFF for end in walk.ends):
        problems += check_count("tree-count", "tree", root.address, root.entries, len(walk.nodes))
    return problems


def _check_links(root: TreeRoot, walk: TreeWalk) -> "list[Problem]":
    ends = [end for end in walk.ends if end.reason in _REASONS]
    absent = [_describe_end(root, end) for end in ends if end.reason is End.ABSENT]
    wrong = [_describe_end(root, end) for end in ends if end.reason is not End.ABSENT]
    return tell("tree-link", range(len(wrong)), wrong.__getitem__) + [
        Problem("absent-memory", *told) for told in absent[:MOST_TOLD]
    ]


_REASONS = {
    End.BAD_POINTER: "which is not mapped",
    End.DECODE_ERROR: "which is not aligned as its nodes are",
    End.CYCLE: "to which another link leads already",
    End.ABSENT: "which the core does not hold",
}


def _describe_end(root: TreeRoot, end: ChainEnd) -> Tuple[Optional[int], str]:
    where = f"a link of level {end.link} of the tree at {root.address:#x}"
    return end.address, f"{where} leads to {end.address or 0:#x}, {_REASONS[end.reason]}"


def _check_parents(target: Target, root: TreeRoot, walk: TreeWalk) -> "list[Problem]":
    if root.parent is None:
        return []
    values, known = gather(target, walk.nodes, Scalar(root.parent, target.abi.pointer_size))
    holds = values & np.uint64(~root.mask & target.abi.word_mask)
    top = walk.parents == 0
    expected = np.where(top, np.uint64(root.header or 0), walk.parents)
    wrong = known & (holds != expected) & ~(top & (root.header is None))

    def describe(at: int) -> Tuple[int, str]:
        told = f"the parent link holds {int(holds[at]):#x}, but {int(expected[at]):#x} leads to this node"
        return int(walk.nodes[at]), told

    return tell("tree-parent", np.flatnonzero(wrong).tolist(), describe)


def _check_outermost(root: TreeRoot, walk: TreeWalk) -> "list[Problem]":
    nodes, nowhere = walk.nodes, (0, root.header, root.sentinel)
    problems = []
    for word, held, at in (("first", root.leftmost, 0), ("last", root.rightmost, -1)):
        right = held in nowhere if not len(nodes) else held == int(nodes[at])
        if held is not None and not right:
            found = f"it is {int(nodes[at]):#x}" if len(nodes) else "it is empty"
            problems.append(
                Problem(
                    "tree-end", root.address, f"the tree's {word} node is recorded as {held:#x}, {found}", True
                )
            )
    return problems


class _Links(NamedTuple):
    """Links to follow, or followed.

    :param nodes: where they lead.
    :param origins: the rows that they come from, -1 for the root's.
    :param turns: whether they are right ones.
    :param levels: of where they lead; the root's is 1.
    """

    nodes: U64
    origins: I64
    turns: Mask
    levels: I64

    def select(self, rows: "Union[slice, Mask]") -> "_Links":
        return _Links(self.nodes[rows], self.origins[rows], self.turns[rows], self.levels[rows])

    @classmethod
    def join(cls, parts: "Sequence[_Links]") -> "_Links":
        return cls(*(np.concatenate(columns) for columns in zip(*parts)))


class _Walk:
    """What has been found so far; a row is a link that has been followed to its node.

    Where nodes have a link back, links that it contradicts are held until all others have been followed: of two
    links to one node that is the wrong one.
    """

    def __init__(self, target: Target, root: TreeRoot, most: Optional[int]) -> None:
        self.count = 0
        self._target = target
        self._root = root
        self._most = (1 << 62) if most is None else max(most, 0)
        self._windows = Windows(target)
        self._clear = np.uint64(~root.mask & target.abi.word_mask)
        self._seen = _Seen()
        self._ends: List[ChainEnd] = []
        start = np.array([root.root], np.uint64) & self._clear
        self._pending = self._leading(_Links(start, np.array([-1]), np.zeros(1, np.bool_), np.array([1])))
        self._followed = [self._pending.select(slice(0))]
        self._nodes = np.empty(0, np.uint64)
        self._held: "Optional[List[_Links]]" = [] if root.parent is not None else None

    @property
    def pending(self) -> bool:
        """Whether links are left to follow."""
        if not len(self._pending.nodes) and self._held:
            self._pending, self._held = _Links.join(self._held), None
        return len(self._pending.nodes) > 0

    def note(self, reason: End, address: Optional[int], level: int) -> None:
        """Keep what is wrong with a link."""
        if len(self._ends) < _MOST_ENDS:
            self._ends.append(ChainEnd(reason, level, address))

    def take_level(self) -> None:
        """Follow the links that are pending; those of the nodes found are pending then."""
        self._bound()
        self._keep(self._pending.nodes % np.uint64(self._root.alignment) == 0, lambda at: End.DECODE_ERROR)
        self._hold()
        self._keep(self._seen.add(self._pending.nodes), lambda at: End.CYCLE)
        links, known = self._read_links(self._pending.nodes)
        self._keep(known, self._unreadable)
        found = self._pending
        rows = np.arange(self.count, self.count + len(found.nodes))
        self._followed.append(found)
        self._nodes = found.nodes
        self.count += len(rows)
        turns = np.repeat([False, True], len(rows))
        below = _Links(links[:, known].reshape(-1), np.tile(rows, 2), turns, np.tile(found.levels + 1, 2))
        self._pending = self._leading(below)

    def interrupt(self) -> None:
        """End here."""
        self.note(End.INTERRUPTED, None, int(self._pending.levels[0]) if len(self._pending.levels) else 0)

    def result(self) -> TreeWalk:
        """Return everything, in order."""
        rows = _Links.join(self._followed)
        order = _in_order(rows.origins, rows.turns)
        parents = (
            np.where(rows.origins < 0, np.uint64(0), rows.nodes[rows.origins]) if self.count else rows.nodes
        )
        end = self._ends[0] if self._ends else ChainEnd(End.NULL, self.count)
        depth = int(rows.levels.max()) if self.count else 0
        return TreeWalk(rows.nodes[order], end, parents[order], depth, tuple(self._ends))

    def _bound(self) -> None:
        levels = self._pending.levels
        within = levels <= MOST_LEVELS
        within[max(self._most - self.count, 0) :] = False
        if not within.all():
            at = int(np.argmin(within))
            self.note(End.LIMIT, int(self._pending.nodes[at]), int(levels[at]))
            self._pending = self._pending.select(within)

    def _leading(self, links: _Links) -> _Links:
        return links.select((links.nodes != 0) & (links.nodes != np.uint64(self._root.sentinel)))

    def _keep(self, sound: Mask, reason: Callable[[int], End]) -> None:
        bad = self._pending.select(~sound)
        for address, level in zip(bad.nodes[:_MOST_ENDS].tolist(), bad.levels.tolist()):
            self.note(reason(address), address, level)
        self._pending = self._pending.select(sound)

    def _hold(self) -> None:
        if self._held is None or self._root.parent is None or not self.count:
            return
        first = self.count - len(self._nodes)  # pending links come from the level before
        back, known = self._read(self._pending.nodes, self._root.parent)
        contradicted = known & (back & self._clear != self._nodes[self._pending.origins - first])
        if contradicted.any():
            self._held.append(self._pending.select(contradicted))
            self._pending = self._pending.select(~contradicted)

    def _unreadable(self, address: int) -> End:
        span = max(self._root.left, self._root.right) + self._target.abi.pointer_size
        return End.ABSENT if self._target.lacks(address, span) else End.BAD_POINTER

    def _read(self, nodes: U64, offset: int) -> Tuple[U64, Mask]:
        return gather(self._target, nodes, Scalar(offset, self._target.abi.pointer_size), self._windows)

    def _read_links(self, nodes: U64) -> Tuple[U64, Mask]:
        """Return the left and right links of nodes in two rows, and which nodes could be read."""
        left, has_left = self._read(nodes, self._root.left)
        right, has_right = self._read(nodes, self._root.right)
        return np.stack((left, right)) & self._clear, has_left & has_right


class _Seen:
    """Addresses met, in sorted runs of growing size."""

    def __init__(self) -> None:
        self._runs: List[U64] = []

    def add(self, addresses: U64) -> Mask:
        """Take addresses in, and return which were not met before; of equal ones the first."""
        ordered, first = np.unique(addresses, return_index=True)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, ordered), len(run) - 1)
            new = run[at] != ordered
            ordered, first = ordered[new], first[new]
        fresh = np.zeros(len(addresses), np.bool_)
        fresh[first] = True
        if len(ordered):
            self._runs.append(ordered)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._runs.append(np.sort(np.concatenate((self._runs.pop(), self._runs.pop()))))
        return fresh


def _in_order(origins: I64, turns: Mask) -> I64:
    """Return the rows of a tree in order.

    :param origins: the row of each row's parent, -1 for the root; parents come before their children.
    :param turns: whether each is its parent's right child.
    """
    left, right = np.full(len(origins), -1), np.full(len(origins), -1)
    children = np.arange(len(origins))[origins >= 0]
    is_right = turns[origins >= 0]
    left[origins[children[~is_right]]] = children[~is_right]
    right[origins[children[is_right]]] = children[is_right]
    return _descend(left.tolist(), right.tolist())


def _descend(left: "list[int]", right: "list[int]") -> I64:
    order: "list[int]" = []
    waiting: "list[int]" = []
    row = 0 if left else -1
    while waiting or row >= 0:
        while row >= 0:
            waiting.append(row)
            row = left[row]
        row = waiting.pop()
        order.append(row)
        row = right[row]
    return np.array(order, np.int64)
