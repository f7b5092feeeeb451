"""What the checks of lists, bins and their nodes share."""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.kernels import decode_links
from gdbext.report import Problem
from gdbext.structures.walk.chainwalk import rules_of
from gdbext.structures.walk.gather import Windows, gather
from gdbext.structures.walk.model import U64, ChainEnd, End, Mask, Node, Rows, Scalar, unsigned
from gdbext.wording import grouped

MOST_TOLD = 20  # problems of one kind
LEFT_OFF = (End.LIMIT, End.ABSENT, End.INTERRUPTED)  # ends after which there may be more entries

_BROKEN = {
    End.CYCLE: "cycle",
    End.BAD_POINTER: "pointer",
    End.DECODE_ERROR: "misaligned",
    End.FORBIDDEN: "marker",
}
_FAULTS = {
    End.BAD_POINTER: "which is not mapped",
    End.DECODE_ERROR: "which is not aligned as its nodes are",
    End.FORBIDDEN: "which marks a node that is on no list",
}


def tell(
    kind: str, rows: Sequence[int], describe: Callable[[int], Tuple[Optional[int], str]]
) -> List[Problem]:
    """Return a problem for each of the first rows, and one that counts the rest.

    :param describe: row -> address and message.
    """
    told = [Problem(kind, *describe(row), corruption=True) for row in rows[:MOST_TOLD]]
    if len(rows) > MOST_TOLD:
        told.append(Problem(kind, None, f"{len(rows) - MOST_TOLD} more of this kind", corruption=True))
    return told


def kind_of(reason: End, prefix: str) -> str:
    """Return the problem kind of an end that is not sound."""
    return f"{prefix}-{_BROKEN[reason]}" if reason in _BROKEN else "absent-memory"


def describe_end(end: ChainEnd) -> str:
    """Return what is wrong with an end, as a sentence goes on after "the list"."""
    where = f"link {end.link}" if end.link else "its first link"
    if end.reason == End.CYCLE:
        return f"runs into a cycle of {end.cycle} nodes at {end.address:#x} after {end.link} nodes"
    if end.reason == End.ABSENT:
        return f"goes on at {end.address:#x} ({where}), which the core does not hold"
    return f"breaks off: {where} holds {end.address:#x}, {_FAULTS[end.reason]}"


def check_end(end: ChainEnd, prefix: str, subject: str) -> List[Problem]:
    """Return what is wrong with how one chain ended; nothing where it was only cut short."""
    if end.reason.sound or end.reason in (End.LIMIT, End.INTERRUPTED):
        return []
    message = f"{subject} {describe_end(end)}"
    return [Problem(kind_of(end.reason, prefix), end.address, message, end.reason != End.ABSENT)]


def check_count(kind: str, what: str, address: int, entries: Optional[int], walked: int) -> List[Problem]:
    """Compare how many entries a structure counts with how many were walked.

    :param what: the structure in a word: "list".
    :param entries: its own count, or None where it keeps none.
    """
    if entries is None or entries == walked:
        return []
    counted = f"{grouped(entries)} {'entry' if entries == 1 else 'entries'}"
    were = f"{grouped(walked)} {'was' if walked == 1 else 'were'} walked"
    return [Problem(kind, address, f"the {what} counts {counted}, {were}", corruption=True)]


def check_links_back(
    windows: Windows,
    node: Node,
    nodes: U64,
    begins: Rows,
    kind: str,
    closing: Sequence[int] = (),
    stops: Optional[U64] = None,
) -> List[Problem]:
    """Compare each node's link back with the node before it.

    The first node's must be null, a sentinel, one of ``closing``, or lead to a link that leads to the node.

    :param nodes: chain by chain.
    :param begins: the rows of the chains' first nodes.
    :param stops: the node that ends each chain where they are circular: its first node may lead back there.
    """
    if node.links.prev is None or not len(nodes):
        return []
    word = windows.target.abi.pointer_size
    stored, known = gather(windows.target, nodes, Scalar(node.links.prev, word), windows)
    held = _decode_back(windows, node, stored)
    before = np.concatenate((nodes[:1], nodes[:-1]))
    expected = before + unsigned(node.links.next) if node.links.prev_is_link else before
    wrong = known & (held != expected)
    had = known[begins]
    firsts = begins[had]
    wrong[firsts] = ~_leads_to(windows, node, held[firsts], nodes[firsts])
    allowed = [0, *node.links.sentinels, *closing]
    wrong[firsts] &= ~np.isin(held[firsts], np.array([unsigned(value) for value in allowed], np.uint64))
    if stops is not None:
        wrong[firsts] &= held[firsts] != stops[had]
    numbers = np.arange(len(nodes)) - begins[np.searchsorted(begins, np.arange(len(nodes)), side="right") - 1]
    return tell(kind, np.flatnonzero(wrong).tolist(), _describe_back(nodes, held, expected, numbers))


def _describe_back(nodes: U64, held: U64, expected: U64, numbers: Rows) -> Callable[[int], Tuple[int, str]]:
    def describe(row: int) -> Tuple[int, str]:
        which = f"the link back of node {numbers[row] + 1} of its chain holds {int(held[row]):#x}"
        should = f"expected {int(expected[row]):#x}" if numbers[row] else "which does not lead here"
        return int(nodes[row]), f"{which}, {should}"

    return describe


def _decode_back(windows: Windows, node: Node, stored: U64) -> U64:
    if not node.links.prev_is_link:
        return decode_links(stored, None, rules_of(node.links, windows.target.abi))
    held: U64 = stored & unsigned(~node.links.mask)
    return held


def _leads_to(windows: Windows, node: Node, held: U64, nodes: U64) -> Mask:
    """Return for each link back whether what it leads to leads to the node."""
    at = 0 if node.links.prev_is_link else node.links.next
    places = held + unsigned(at)
    links, known = gather(windows.target, held, Scalar(at, windows.target.abi.pointer_size), windows)
    decoded = decode_links(links, places, rules_of(node.links, windows.target.abi))
    leads: Mask = known & (decoded == nodes)
    return leads
