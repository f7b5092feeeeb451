"""The bins of a chained hash table: walked, and checked."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from gdbext.kernels import decode_links
from gdbext.progress import SILENT, Progress
from gdbext.report import Problem
from gdbext.structures.walk.binheads import MOST_ENDS, Heads, batches, check_arrays, read_heads
from gdbext.structures.walk.chainwalk import Followed, Repeats, follow, rules_of
from gdbext.structures.walk.checking import (
    LEFT_OFF,
    MOST_TOLD,
    check_count,
    check_end,
    check_links_back,
    kind_of,
    tell,
)
from gdbext.structures.walk.gather import Windows, gather
from gdbext.structures.walk.lists import check_walk, walk_list
from gdbext.structures.walk.model import U64, BinArray, BinsWalk, ChainEnd, ChainsWalk, End, Mask, Table, unsigned
from gdbext.structures.walk.sharedlist import SharedListWalk
from gdbext.target import Target
from gdbext.wording import count_text, grouped


def walk_bins(
    target: Target, table: Table, most: Optional[int] = None, progress: Progress = SILENT
) -> BinsWalk:
    """Walk the chains of all bins.

    An interrupt leaves what was walked: bins that were not come as INTERRUPTED. Bins that the core lacks are
    ABSENT, those of segments that are not mapped BAD_POINTER. A table whose bins run into each other without
    end is given up: the bins that are left end with LIMIT, and the walk is not complete.

    :param most: nodes of one bin after which it ends with LIMIT; None: only the memory bounds it.
    :raises FaultError: when an array of bins cannot be read.
    :raises ShapeError: when there are more bins than can be.
    """
    check_arrays(target, table)
    kind = SharedListWalk if table.end == "next-bin" else _Walk
    walk = kind(target, table, most, progress)
    try:
        walk.run()
    except KeyboardInterrupt:
        walk.complete = False
    return walk.result()


class _Walk:
    def __init__(self, target: Target, table: Table, most: Optional[int], progress: Progress) -> None:
        self._table, self._most, self._progress = table, most, progress
        self._windows, self._repeats = Windows(target), Repeats()
        self._rules = rules_of(table.node.links, target.abi)
        self._lengths = np.zeros(table.bins, np.uint64)
        self._reasons = np.full(table.bins, End.INTERRUPTED, np.uint8)
        self._nodes: List[U64] = []
        self._ends: Dict[int, ChainEnd] = {}
        self._given_up: Optional[str] = None
        self.complete = True

    def run(self) -> None:
        for base, bins, part in batches(self._table):
            self._progress.at("bins", base, self._table.bins)
            self._walk_part(base, bins, part)
            if not self.complete:
                rows = slice(base, base + len(part))
                if not (self._reasons[rows] == End.INTERRUPTED).any():
                    self._give_up(base + len(part))
                return

    def result(self) -> BinsWalk:
        nodes = self._nodes[0] if len(self._nodes) == 1 else np.concatenate([*self._nodes, np.empty(0, np.uint64)])
        whole = self.complete and not (self._reasons == End.ABSENT).any()
        return ChainsWalk(self._lengths, self._reasons, nodes, None, self._ends, whole, self._given_up)  # type: ignore[arg-type]

    def _give_up(self, row: int) -> None:
        self._reasons[row:] = End.LIMIT
        walked = grouped(sum(len(nodes) for nodes in self._nodes))
        self._given_up = f"its chains run into each other; given up after {walked} nodes, most of them met before"

    def _walk_part(self, base: int, bins: BinArray, part: range) -> None:
        heads = read_heads(self._windows, bins, part)
        found = self._follow(bins, heads)
        self.complete = found.complete
        rows = slice(base, base + len(part))
        unread, reasons = heads.reasons != End.NULL, found.reasons
        if unread.any():
            reasons = np.where(unread, heads.reasons, found.reasons)
        if self._table.end == "count" and heads.counts is not None:
            reached = (found.reasons == End.LIMIT) & (found.lengths == heads.counts)
            reasons = np.where(reached, np.uint8(End.COUNT), reasons)
        self._lengths[rows], self._reasons[rows] = found.lengths, reasons
        self._nodes.append(found.nodes)
        for row in np.flatnonzero((reasons > End.COUNT) & (reasons != End.INTERRUPTED)).tolist():
            if len(self._ends) >= MOST_ENDS:
                break
            at = ChainEnd(End(int(reasons[row])), 0, int(heads.bins[row]))
            self._ends[rows.start + row] = at if unread[row] else found.end(row)

    def _follow(self, bins: BinArray, heads: Heads) -> Followed:
        stops = _find_stops(self._table, bins, heads)
        most = None if self._most is None else np.full(len(heads.links), max(self._most, 0), np.uint64)
        if self._table.end == "count" and heads.counts is not None:
            most = heads.counts if most is None else np.minimum(most, heads.counts)
        firsts = decode_links(heads.links, None, self._rules)
        return follow(self._windows, firsts, stops, self._rules, most, self._repeats, self._progress)


def _find_stops(table: Table, bins: BinArray, heads: Heads) -> Optional[U64]:
    """Return the node that ends the chain of each bin, where chains are circular."""
    if table.end != "head":
        return None
    links = table.node.links
    return heads.bins + unsigned(bins.head - links.next if bins.stop is None else bins.stop + links.relative)


class Misplaced(NamedTuple):
    """An entry in a bin that its hash does not lead to; bins are numbered through all arrays."""

    node: int
    hash: int
    bin: int
    expected: int


def misplaced(target: Target, table: Table, walk: BinsWalk) -> Tuple[Optional[int], Tuple[Misplaced, ...]]:
    """Return how many entries are in another bin than their stored hash says, and the first few.

    :return: None and nothing where the table stores no hashes, or nothing tells the bin of a hash.
    """
    if table.node.hash is None:
        return None, ()
    hashes, known = gather(target, walk.nodes, table.node.hash)
    expected = find_expected(table, walk.owners, hashes, known)
    if expected is None:
        return None, ()
    wrong = np.flatnonzero(expected != walk.owners)
    columns = (walk.nodes, hashes, walk.owners, expected)
    return len(wrong), tuple(
        Misplaced(*(int(column[row]) for column in columns)) for row in wrong[:MOST_TOLD]
    )


def find_expected(table: Table, owners: U64, hashes: U64, known: Mask) -> Optional[U64]:
    """Return the bin of its own array that each entry's stored hash leads to; None where nothing tells.

    An entry whose hash is not known, or in an array that does not say how bins are chosen, is where it belongs.

    :param owners: the bin that each entry is in, numbered through all arrays.
    """
    if all(bins.bin_of is None for bins in table.arrays):
        return None
    expected: U64 = owners.copy()
    base = 0
    for bins in table.arrays:
        rows = known & (owners >= np.uint64(base)) & (owners < np.uint64(base + bins.count))
        if bins.bin_of is not None and rows.any():
            expected[rows] = bins.bin_of(hashes[rows]) + np.uint64(base)
        base += bins.count
    return expected


def check_outcome(table: Table, walk: BinsWalk) -> List[Problem]:
    """Return what the walk of a table tells by itself: chains that end badly, and a count that does not agree.

    Kinds: ``chain-cycle``, ``chain-pointer``, ``chain-misaligned``, ``chain-marker``, ``table-count``,
    ``chain-shared`` (it was given up), ``absent-memory``. A table of which anything was left off is not held to
    its count.
    """
    problems = _check_ends(walk)
    if walk.given_up is not None:
        problems.append(Problem("chain-shared", table.address, walk.given_up, True))
    if walk.complete and not np.isin(walk.reasons, LEFT_OFF).any():
        problems += check_count("table-count", "table", table.address, table.entries, len(walk.nodes))
    return problems


def check_bins(target: Target, table: Table, walk: BinsWalk) -> List[Problem]:
    """Return what is wrong with a table that was walked.

    Kinds besides those of :func:`check_outcome`: ``chain-end`` (null where the head should close it),
    ``chain-prev``, ``chain-shared`` (a node in two bins), ``chain-count`` (a bin's own), ``misplaced-entry``,
    ``lru-count``, ``lru-entries`` (not those of the bins), and for the list through all entries those of
    ``check_list`` with ``lru`` before the dash.
    """
    windows = Windows(target)
    problems = check_outcome(table, walk)
    problems += _check_closed(table, walk)
    begins = np.flatnonzero(np.diff(walk.owners, prepend=unsigned(-1)))
    stops = _find_all_stops(windows, table)
    if stops is not None:
        stops = stops[walk.owners[begins].astype(np.intp)]
    problems += check_links_back(windows, table.node, walk.nodes, begins, "chain-prev", stops=stops)
    problems += _check_shared(walk)
    problems += _check_places(target, table, walk)
    problems += _check_lengths(windows, table, walk)
    problems += _check_lru(windows, table, walk)
    return problems


def _find_all_stops(windows: Windows, table: Table) -> Optional[U64]:
    found = (_find_stops(table, bins, read_heads(windows, bins, part)) for _, bins, part in batches(table))
    stops = [each for each in found if each is not None]
    return np.concatenate(stops) if stops else None


def _check_ends(walk: BinsWalk) -> List[Problem]:
    problems: List[Problem] = []
    for reason in (End.CYCLE, End.BAD_POINTER, End.DECODE_ERROR, End.FORBIDDEN, End.ABSENT):
        rows = np.flatnonzero(walk.reasons == reason)
        told = [row for row in rows[:MOST_TOLD].tolist() if row in walk.ends]
        for row in told:
            problems += check_end(walk.ends[row], "chain", f"the chain of bin {row}")
        if len(rows) > len(told):
            more = count_text(len(rows) - len(told), "more chain ends", "more chains end")
            problems.append(
                Problem(kind_of(reason, "chain"), None, f"{more} so: {reason.word}", reason != End.ABSENT)
            )
    return problems


def _check_closed(table: Table, walk: BinsWalk) -> List[Problem]:
    if table.end != "head":
        return []
    rows = np.flatnonzero((walk.reasons == End.NULL) & (walk.lengths > 0))
    last = np.cumsum(walk.lengths)
    what = "the chain of bin {} ends with null after {} nodes, though its head should close it"
    return tell(
        "chain-end",
        rows.tolist(),
        lambda row: (int(walk.nodes[int(last[row]) - 1]), what.format(row, int(walk.lengths[row]))),
    )


def _check_shared(walk: BinsWalk) -> List[Problem]:
    order = np.argsort(walk.nodes, kind="stable")
    nodes, owners = walk.nodes[order], walk.owners[order]
    again = np.flatnonzero(nodes[1:] == nodes[:-1])
    what = "the node is in bin {} and in bin {}"
    return tell(
        "chain-shared",
        again.tolist(),
        lambda row: (int(nodes[row]), what.format(int(owners[row]), int(owners[row + 1]))),
    )


def _check_places(target: Target, table: Table, walk: BinsWalk) -> List[Problem]:
    count, examples = misplaced(target, table, walk)
    problems = [
        Problem(
            "misplaced-entry",
            entry.node,
            f"the entry is in bin {entry.bin}, its hash {entry.hash:#x} belongs to bin {entry.expected}",
            True,
        )
        for entry in examples
    ]
    if count and count > len(examples):
        message = f"{count - len(examples)} more entries are in another bin than their hash says"
        problems.append(Problem("misplaced-entry", None, message, True))
    return problems


def _check_lengths(windows: Windows, table: Table, walk: BinsWalk) -> List[Problem]:
    problems: List[Problem] = []
    for base, bins, part in batches(table):
        if bins.length is not None:
            problems += _check_lengths_of(read_heads(windows, bins, part), base, walk)
    return problems


def _check_lengths_of(heads: Heads, base: int, walk: BinsWalk) -> List[Problem]:
    rows = slice(base, base + len(heads.links))
    lengths, counts = walk.lengths[rows], heads.counts
    if counts is None:
        return []
    told = (heads.reasons == End.NULL) & ~np.isin(walk.reasons[rows], LEFT_OFF)
    what = "bin {} counts {} entries, {} were walked"
    return tell(
        "chain-count",
        np.flatnonzero(told & (lengths != counts)).tolist(),
        lambda row: (int(heads.bins[row]), what.format(base + row, int(counts[row]), int(lengths[row]))),
    )


def _check_lru(windows: Windows, table: Table, walk: BinsWalk) -> List[Problem]:
    if table.lru is None:
        return []
    lru = walk_list(windows.target, table.lru)
    problems = check_walk(windows, table.lru, lru, "lru")
    if not lru.end.reason.sound or not walk.complete or np.isin(walk.reasons, LEFT_OFF).any():
        return problems
    if len(lru.nodes) != len(walk.nodes):
        message = f"the list through all entries has {len(lru.nodes)}, the bins have {len(walk.nodes)}"
        problems.append(Problem("lru-count", table.lru.address, message, True))
    listed = lru.nodes - unsigned(table.lru.node.element)
    binned = walk.nodes - unsigned(table.node.element)
    for strange, where, missing in (
        (listed, binned, "no bin"),
        (binned, listed, "the bins only, not on that list"),
    ):
        alone = np.setdiff1d(strange, where)
        if len(alone):
            message = f"{len(alone)} entries are in {missing}, the first at {int(alone[0]):#x}"
            problems.append(Problem("lru-entries", int(alone[0]), message, True))
    return problems
