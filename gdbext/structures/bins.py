"""The bins of a chained hash table: walked, and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.kernels.chains import decode_links
from gdbext.progress import SILENT, Progress
from gdbext.report import Problem
from gdbext.structures.checking import MOST_TOLD, check_end, check_links_back, kind_of, tell
from gdbext.structures.follow import Followed, Repeats, follow, rules_of
from gdbext.structures.gather import Windows, gather
from gdbext.structures.heads import MOST_ENDS, Heads, batches, check_arrays, read_heads
from gdbext.structures.lists import check_walk, walk_list
from gdbext.structures.model import BinArray, BinsWalk, ChainEnd, End, Table
from gdbext.structures.spread import SpreadWalk
from gdbext.target import Target

U64 = npt.NDArray[np.uint64]


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
    kind = SpreadWalk if table.end == "next-bin" else _Walk
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
        self.complete = True

    def run(self) -> None:
        for base, bins, part in batches(self._table):
            self._progress.at("bins", base, self._table.bins)
            self._walk_part(base, bins, part)
            if not self.complete:
                rows = slice(base, base + len(part))
                if not (self._reasons[rows] == End.INTERRUPTED).any():  # given up, not interrupted
                    self._reasons[base + len(part) :] = End.LIMIT
                return

    def result(self) -> BinsWalk:
        owners = np.repeat(np.arange(len(self._lengths), dtype=np.uint64), self._lengths.astype(np.intp))
        nodes = np.concatenate([*self._nodes, owners[:0]])
        whole = self.complete and not (self._reasons == End.ABSENT).any()
        return BinsWalk(self._lengths, self._reasons, nodes, owners, self._ends, whole)

    def _walk_part(self, base: int, bins: BinArray, part: range) -> None:
        heads = read_heads(self._windows, bins, part)
        found = self._follow(bins, heads)
        self.complete = found.complete
        rows = slice(base, base + len(part))
        unread = heads.reasons != End.NULL
        reasons = np.where(unread, heads.reasons, found.reasons)
        if self._table.end == "count" and heads.counts is not None:
            reasons[(found.reasons == End.LIMIT) & (found.lengths == heads.counts)] = End.COUNT
        self._lengths[rows], self._reasons[rows] = found.lengths, reasons
        self._nodes.append(found.nodes)
        for row in np.flatnonzero((reasons > End.COUNT) & (reasons != End.INTERRUPTED)).tolist():
            if len(self._ends) >= MOST_ENDS:
                break
            at = ChainEnd(End(int(reasons[row])), 0, int(heads.bins[row]))
            self._ends[rows.start + row] = at if unread[row] else found.end(row)

    def _follow(self, bins: BinArray, heads: Heads) -> Followed:
        links = self._table.node.links
        stops = None
        if self._table.end == "head":
            stops = heads.bins + np.uint64((bins.head - links.next) & ((1 << 64) - 1))
        most = None if self._most is None else np.full(len(heads.bins), max(self._most, 0), np.uint64)
        if self._table.end == "count" and heads.counts is not None:
            most = heads.counts if most is None else np.minimum(most, heads.counts)
        firsts = decode_links(heads.links, None, self._rules)
        return follow(self._windows, firsts, stops, self._rules, most, self._repeats, self._progress)


@dataclass(frozen=True)
class Misplaced:
    """An entry in a bin that its hash does not lead to; bins are numbered through all arrays."""

    node: int
    hash: int
    bin: int
    expected: int


def misplaced(target: Target, table: Table, walk: BinsWalk) -> Tuple[Optional[int], Tuple[Misplaced, ...]]:
    """Return how many entries are in another bin than their stored hash says, and the first few.

    :return: None and nothing where the table stores no hashes, or nothing tells the bin of a hash.
    """
    if table.node.hash is None or any(bins.bin_of is None for bins in table.arrays):
        return None, ()
    hashes, known = gather(target, walk.nodes, table.node.hash)
    expected = walk.owners.copy()
    base = 0
    for bins in table.arrays:
        rows = known & (walk.owners >= np.uint64(base)) & (walk.owners < np.uint64(base + bins.count))
        if bins.bin_of is not None and rows.any():
            expected[rows] = bins.bin_of(hashes[rows]) + np.uint64(base)
        base += bins.count
    wrong = np.flatnonzero(expected != walk.owners)
    columns = (walk.nodes, hashes, walk.owners, expected)
    return len(wrong), tuple(
        Misplaced(*(int(column[row]) for column in columns)) for row in wrong[:MOST_TOLD]
    )


def check_bins(target: Target, table: Table, walk: BinsWalk) -> List[Problem]:
    """Return what is wrong with a table that was walked.

    Kinds: ``bin-cycle``, ``bin-pointer``, ``bin-misaligned``, ``bin-marker``, ``bin-end`` (null where the head
    should close it), ``bin-prev``, ``bin-shared`` (a node in two bins), ``bin-misplaced``, ``bin-count`` (a
    bin's own), ``table-count``, ``lru-count``, ``lru-entries`` (not those of the bins), ``absent-memory``, and
    for the list through all entries those of ``check_list`` with ``lru`` before the dash.
    """
    windows = Windows(target)
    problems = _check_ends(walk)
    problems += _check_closed(table, walk)
    begins = np.flatnonzero(np.diff(walk.owners, prepend=np.uint64(_NO_BIN)))
    problems += check_links_back(windows, table.node, walk.nodes, begins, "bin-prev")
    problems += _check_shared(walk)
    problems += _check_places(target, table, walk)
    problems += _check_lengths(windows, table, walk)
    problems += _check_entries(table, walk)
    problems += _check_lru(windows, table, walk)
    return problems


_NO_BIN = (1 << 64) - 1


def _check_ends(walk: BinsWalk) -> List[Problem]:
    problems: List[Problem] = []
    for reason in (End.CYCLE, End.BAD_POINTER, End.DECODE_ERROR, End.FORBIDDEN, End.ABSENT):
        rows = np.flatnonzero(walk.reasons == reason)
        told = [row for row in rows[:MOST_TOLD].tolist() if row in walk.ends]
        for row in told:
            problems += check_end(walk.ends[row], "bin", f"the chain of bin {row}")
        if len(rows) > len(told):
            message = f"the chains of {len(rows) - len(told)} more bins end so: {reason.word}"
            problems.append(Problem(kind_of(reason, "bin"), None, message, reason != End.ABSENT))
    return problems


def _check_closed(table: Table, walk: BinsWalk) -> List[Problem]:
    if table.end != "head":
        return []
    rows = np.flatnonzero((walk.reasons == End.NULL) & (walk.lengths > 0))
    last = np.cumsum(walk.lengths)
    what = "the chain of bin {} ends with null after {} nodes, though its head should close it"
    return tell(
        "bin-end",
        rows.tolist(),
        lambda row: (int(walk.nodes[int(last[row]) - 1]), what.format(row, int(walk.lengths[row]))),
    )


def _check_shared(walk: BinsWalk) -> List[Problem]:
    order = np.argsort(walk.nodes, kind="stable")
    nodes, owners = walk.nodes[order], walk.owners[order]
    again = np.flatnonzero(nodes[1:] == nodes[:-1])
    what = "the node is in bin {} and in bin {}"
    return tell(
        "bin-shared",
        again.tolist(),
        lambda row: (int(nodes[row]), what.format(int(owners[row]), int(owners[row + 1]))),
    )


def _check_places(target: Target, table: Table, walk: BinsWalk) -> List[Problem]:
    count, examples = misplaced(target, table, walk)
    problems = [
        Problem(
            "bin-misplaced",
            entry.node,
            f"the entry is in bin {entry.bin}, its hash {entry.hash:#x} belongs to bin {entry.expected}",
            True,
        )
        for entry in examples
    ]
    if count and count > len(examples):
        message = f"{count - len(examples)} more entries are in another bin than their hash says"
        problems.append(Problem("bin-misplaced", None, message, True))
    return problems


def _check_lengths(windows: Windows, table: Table, walk: BinsWalk) -> List[Problem]:
    problems: List[Problem] = []
    for base, bins, part in batches(table):
        if bins.length is not None:
            problems += _check_lengths_of(read_heads(windows, bins, part), base, walk)
    return problems


def _check_lengths_of(heads: Heads, base: int, walk: BinsWalk) -> List[Problem]:
    rows = slice(base, base + len(heads.bins))
    lengths, counts = walk.lengths[rows], heads.counts
    if counts is None:
        return []
    told = (heads.reasons == End.NULL) & ~np.isin(walk.reasons[rows], _LEFT_OFF)
    what = "bin {} counts {} entries, {} were walked"
    return tell(
        "bin-count",
        np.flatnonzero(told & (lengths != counts)).tolist(),
        lambda row: (int(heads.bins[row]), what.format(base + row, int(counts[row]), int(lengths[row]))),
    )


_LEFT_OFF = [End.LIMIT, End.INTERRUPTED, End.ABSENT]


def _check_entries(table: Table, walk: BinsWalk) -> List[Problem]:
    left_off = not walk.complete or np.isin(walk.reasons, _LEFT_OFF).any()
    if table.entries is None or left_off or table.entries == len(walk.nodes):
        return []
    message = f"the table counts {table.entries} entries, {len(walk.nodes)} were walked"
    return [Problem("table-count", table.address, message, True)]


def _check_lru(windows: Windows, table: Table, walk: BinsWalk) -> List[Problem]:
    if table.lru is None:
        return []
    lru = walk_list(windows.target, table.lru)
    problems = check_walk(windows, table.lru, lru, "lru")
    if not lru.end.reason.sound or not walk.complete or np.isin(walk.reasons, _LEFT_OFF).any():
        return problems
    if len(lru.nodes) != len(walk.nodes):
        message = f"the list through all entries has {len(lru.nodes)}, the bins have {len(walk.nodes)}"
        problems.append(Problem("lru-count", table.lru.address, message, True))
    listed = lru.nodes - np.uint64(table.lru.node.element & _NO_BIN)
    binned = walk.nodes - np.uint64(table.node.element & _NO_BIN)
    for strange, where, missing in (
        (listed, binned, "no bin"),
        (binned, listed, "the bins only, not on that list"),
    ):
        alone = np.setdiff1d(strange, where)
        if len(alone):
            message = f"{len(alone)} entries are in {missing}, the first at {int(alone[0]):#x}"
            problems.append(Problem("lru-entries", int(alone[0]), message, True))
    return problems
