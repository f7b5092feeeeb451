"""One list: walked, and its links checked."""

from __future__ import annotations

from array import array
from typing import Iterator, List, Optional

import numpy as np

from gdbext.errors import FaultError
from gdbext.kernels import MOST_NODES, decode_links
from gdbext.progress import SILENT, Progress
from gdbext.report import Problem
from gdbext.structures.walk.chainwalk import follow, rules_of
from gdbext.structures.walk.checking import LEFT_OFF, check_count, check_end, check_links_back
from gdbext.structures.walk.gather import Windows, gather
from gdbext.structures.walk.model import ChainEnd, End, ListHead, ListWalk, Scalar
from gdbext.target import Target

_LOOK = 1 << 16  # nodes between two looks at the progress


def walk_list(
    target: Target, head: ListHead, most: Optional[int] = None, progress: Progress = SILENT
) -> ListWalk:
    """Walk a list to its end; an interrupt leaves what was walked, ended by INTERRUPTED.

    :param most: nodes after which it ends with LIMIT; None: only the memory bounds it.
    """
    if head.node.links.xor:
        return _walk_xor(target, head, most, progress)
    firsts = np.array([head.first], np.uint64)
    stops = None if head.stop is None else np.array([head.stop], np.uint64)
    bounds = None if most is None else np.array([max(most, 0)], np.uint64)
    rules = rules_of(head.node.links, target.abi)
    found = follow(Windows(target), firsts, stops, rules, bounds, progress=progress)
    return ListWalk(found.nodes, found.end(0))


def _walk_xor(target: Target, head: ListHead, most: Optional[int], progress: Progress) -> ListWalk:
    walk = _XorWalk(target, head)
    try:
        reason = walk.run(MOST_NODES if most is None else most, progress)
    except KeyboardInterrupt:
        reason = End.INTERRUPTED
    return walk.result(reason)


class _XorWalk:
    """A walk along links that hold the address before XOR the address after; read one by one."""

    def __init__(self, target: Target, head: ListHead) -> None:
        self._target, self._head, self._links = target, head, head.node.links
        self._nodes = array("Q")
        self._before, self._node = head.stop or 0, head.first

    def run(self, most: int, progress: Progress) -> End:
        hare, turn = (self._before, self._node), 1
        while True:
            reason = self._judge(most)
            if reason is not None or not self._step():
                return reason if reason is not None else self._missing()
            if not len(self._nodes) % _LOOK:
                progress.at("nodes", len(self._nodes), None)
            if (self._before, self._node) == hare:
                return End.CYCLE
            if len(self._nodes) == turn:
                hare, turn = (self._before, self._node), 2 * turn

    def result(self, reason: End) -> ListWalk:
        """Return the walk; a list that comes to a node again, also backwards, is in a cycle there."""
        nodes = np.array(self._nodes, np.uint64)
        order = np.argsort(nodes, kind="stable")
        again = np.flatnonzero(nodes[order][1:] == nodes[order][:-1])
        if not len(again):
            return ListWalk(nodes, ChainEnd(reason, len(nodes), self._node if self._node else None))
        at = int(again[np.argmin(order[again + 1])])
        first, second = int(order[at]), int(order[at + 1])
        return ListWalk(nodes[:second], ChainEnd(End.CYCLE, second, int(nodes[first]), second - first))

    def _judge(self, most: int) -> Optional[End]:
        links, node = self._links, self._node
        if not node:
            return End.NULL
        if node in links.forbidden:
            return End.FORBIDDEN
        if node == self._head.stop:
            return End.HEAD
        if node in links.sentinels:
            return End.SENTINEL
        if len(self._nodes) >= most:
            return End.LIMIT
        return End.DECODE_ERROR if node & (links.alignment - 1) else None

    def _step(self) -> bool:
        try:
            link = self._target.reader.word(self._node + self._links.next)
        except FaultError:
            return False
        self._nodes.append(self._node)
        self._before, self._node = self._node, (link ^ self._before) & ~self._links.mask
        return True

    def _missing(self) -> End:
        place = self._node + self._links.next
        return End.ABSENT if self._target.lacks(place, self._target.abi.pointer_size) else End.BAD_POINTER


def check_outcome(head: ListHead, walk: ListWalk, prefix: str = "list") -> List[Problem]:
    """Return what the walk of a list tells by itself: how it ended, and a count that does not agree.

    Kinds: ``list-cycle``, ``list-pointer``, ``list-misaligned``, ``list-marker``, ``list-count``,
    ``absent-memory``. A list that was left off is not held to its count.

    :param prefix: of the kinds, instead of ``list``.
    """
    problems = check_end(walk.end, prefix, f"the list at {head.address:#x}")
    if walk.end.reason not in LEFT_OFF:
        problems += check_count(f"{prefix}-count", "list", head.address, head.entries, len(walk.nodes))
    return problems


def check_list(target: Target, head: ListHead, walk: ListWalk) -> List[Problem]:
    """Return what is wrong with a list that was walked.

    Kinds besides those of :func:`check_outcome`: ``list-end`` (null where the head should close it),
    ``list-prev``, ``list-last``. A list that does not end soundly is not held to its last node.
    """
    return check_walk(Windows(target), head, walk, "list")


def check_walk(windows: Windows, head: ListHead, walk: ListWalk, prefix: str) -> List[Problem]:
    """As :func:`check_list`, with kinds of another ``prefix``."""
    problems = check_outcome(head, walk, prefix)
    problems += _check_closed(head, walk, prefix)
    closing = [] if head.stop is None else [head.stop]
    if len(walk.nodes):
        closing.append(int(walk.nodes[-1]))  # utlist: the first node's link back is the tail
    begins = np.zeros(1, np.intp)
    problems += check_links_back(windows, head.node, walk.nodes, begins, f"{prefix}-prev", closing)
    if walk.end.reason.sound:
        problems += _check_head_back(windows, head, walk, f"{prefix}-prev")
        problems += _check_last(windows, head, walk, f"{prefix}-last")
    return problems


def _check_closed(head: ListHead, walk: ListWalk, prefix: str) -> Iterator[Problem]:
    # a head that was never initialised is an empty list
    if head.stop is not None and walk.end.reason == End.NULL and len(walk.nodes):
        message = (
            f"ends with null after {len(walk.nodes)} nodes, though its head at {head.stop:#x} should close it"
        )
        yield Problem(f"{prefix}-end", int(walk.nodes[-1]), f"the list at {head.address:#x} {message}", True)


def _check_head_back(windows: Windows, head: ListHead, walk: ListWalk, kind: str) -> Iterator[Problem]:
    links = head.node.links
    # A last node that the head names is checked by itself, and such a head need not be laid out as a node.
    if head.last is not None:
        return
    if head.stop is None or links.prev is None or links.prev_is_link or walk.end.reason != End.HEAD:
        return
    stored, known = gather(
        windows.target,
        np.array([head.stop], np.uint64),
        Scalar(links.prev, windows.target.abi.pointer_size),
        windows,
    )
    held = int(decode_links(stored, None, rules_of(links, windows.target.abi))[0])
    last = int(walk.nodes[-1]) if len(walk.nodes) else head.stop
    if known[0] and held != last:
        message = f"the link back of the head holds {held:#x}, the last node is {last:#x}"
        yield Problem(kind, head.stop, message, True)


def _check_last(windows: Windows, head: ListHead, walk: ListWalk, kind: str) -> Iterator[Problem]:
    if head.last is None:
        return
    if not len(walk.nodes):
        yield from _check_last_of_none(windows, head, kind)
        return
    last = int(walk.nodes[-1])
    expected = last + head.node.links.next if head.last_is_link else last
    if head.last != expected:
        what = "link" if head.last_is_link else "node"
        message = (
            f"the head holds {head.last:#x} as its last {what}, the last that was walked is {expected:#x}"
        )
        yield Problem(kind, head.address, message, True)


def _check_last_of_none(windows: Windows, head: ListHead, kind: str) -> Iterator[Problem]:
    last = head.last or 0
    if not head.last_is_link:
        if last not in (0, head.stop):
            yield Problem(
                kind, head.address, f"the list is empty, but its head holds {last:#x} as its last node", True
            )
        return
    word = windows.target.abi.pointer_size
    links, known = gather(windows.target, np.array([last], np.uint64), Scalar(0, word), windows)
    if not known[0] or links[0]:  # the first link of an empty list, in the head: null
        message = f"the list is empty, but its head holds {last:#x} as its last link, which is not null"
        yield Problem(kind, head.address, message, True)
