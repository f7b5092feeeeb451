"""Bins of a table whose entries are all one list: each bin points to the node *before* its first.

As in libstdc++ (bits/hashtable.h, ``_Hashtable``): a bin's chain ends where the chain of another begins. The
list is walked once and cut at the nodes where bins begin. Where it is broken, it is taken up again at the bins
whose nodes were not met.
"""

from __future__ import annotations

from typing import Dict, List, Optional

import numpy as np

from gdbext.kernels import decode_links
from gdbext.progress import Progress
from gdbext.structures.walk.binheads import MOST_ENDS, batches, read_heads
from gdbext.structures.walk.chainwalk import follow, rules_of
from gdbext.structures.walk.gather import Windows, gather
from gdbext.structures.walk.model import U64, BinArray, BinsWalk, ChainEnd, End, Rows, Scalar, Table, unsigned
from gdbext.target import Target
from gdbext.wording import grouped

_MOST_RUNS = 16  # pieces of a broken list


class SharedListWalk:
    """The walk of one table, its arrays checked; see ``bins.walk_bins``."""

    def __init__(self, target: Target, table: Table, most: Optional[int], progress: Progress) -> None:
        self._target, self._table, self._most, self._progress = target, table, most, progress
        self._windows = Windows(target)
        self._rules = rules_of(table.node.links, target.abi)
        self._lengths = np.zeros(table.bins, np.uint64)
        self._reasons = np.full(table.bins, End.INTERRUPTED, np.uint8)
        self._begins = np.zeros(table.bins, np.uint64)  # the first node of each bin
        self._rows = np.full(table.bins, -1, np.intp)  # of that node among all
        self._runs: List[U64] = []
        self._run_begins: List[int] = []
        self._run_ends: List[ChainEnd] = []
        self._ends: Dict[int, ChainEnd] = {}
        self._given_up: Optional[str] = None
        self.complete = True

    def run(self) -> None:
        """Walk the bins and the list."""
        for base, bins, part in batches(self._table):
            self._progress.at("bins", base, self._table.bins)
            self._read_begins(base, bins, part)
        if self._table.list_first:
            self._add_run(self._table.list_first)
        for _ in range(_MOST_RUNS):
            lost = self._find_rows()
            lost = lost[~np.isin(self._begins[lost], np.array(self._run_begins, np.uint64))]
            if not self.complete or not len(lost):
                break
            self._add_run(int(self._begins[lost[0]]))
        self._cut()

    def result(self) -> BinsWalk:
        """Return what has been found so far."""
        owners = np.repeat(np.arange(len(self._lengths), dtype=np.uint64), self._lengths.astype(np.intp))
        counts = self._lengths.astype(np.intp)
        rows = np.arange(len(owners)) + np.repeat(self._rows - (np.cumsum(counts) - counts), counts)
        whole = self.complete and not (self._reasons == End.ABSENT).any()
        nodes = self._nodes()[rows]
        return BinsWalk(self._lengths, self._reasons, nodes, owners, self._ends, whole, self._given_up)

    def _nodes(self) -> U64:
        return np.concatenate([*self._runs, self._begins[:0]])

    def _read_begins(self, base: int, bins: BinArray, part: range) -> None:
        heads = read_heads(self._windows, bins, part)
        before = decode_links(heads.links, None, self._rules)
        reasons, begins = heads.reasons.copy(), np.zeros(len(before), np.uint64)
        used = np.flatnonzero(before)
        link = Scalar(self._table.node.links.next, self._rules.word)
        links, known = gather(self._target, before[used], link, self._windows)
        places = before[used] + unsigned(link.offset)
        begins[used] = np.where(known, decode_links(links, places, self._rules), np.uint64(0))
        absent = self._windows.absent(places, link.size)
        reasons[used[~known]] = np.where(absent, End.ABSENT, End.BAD_POINTER)[~known]
        unread = np.flatnonzero(reasons != End.NULL)
        for row in unread[: MOST_ENDS - len(self._ends)].tolist():
            self._ends[base + row] = ChainEnd(End(int(reasons[row])), 0, int(before[row] or heads.bins[row]))
        reasons[begins != 0] = End.INTERRUPTED  # until the list has been walked
        rows = slice(base, base + len(before))
        self._begins[rows], self._reasons[rows] = begins, reasons

    def _add_run(self, first: int) -> None:
        """Walk the list from a node on, up to where it was walked already."""
        start = np.array([first], np.uint64)
        found = follow(self._windows, start, None, self._rules, None, None, self._progress)
        nodes, end = found.nodes, found.end(0)
        met = np.flatnonzero(np.isin(nodes, self._nodes())) if self._runs else np.zeros(0, np.intp)
        if len(met):
            nodes, end = nodes[: met[0]], ChainEnd(End.COUNT, int(met[0]), int(nodes[met[0]]))
        self._run_begins.append(first)
        self._runs.append(nodes)
        self._run_ends.append(end)
        self.complete = self.complete and found.complete

    def _find_rows(self) -> Rows:
        """Find the bins' first nodes among those walked; return the bins whose node was not met."""
        nodes, begun = self._nodes(), np.flatnonzero(self._begins)
        if not len(nodes):
            return begun
        order = np.argsort(nodes, kind="stable")
        begun = begun[np.argsort(self._begins[begun], kind="stable")]  # sorted needles are found much faster
        begins = self._begins[begun]
        at = order[np.minimum(np.searchsorted(nodes[order], begins), len(order) - 1)]
        met = nodes[at] == begins
        self._rows[begun[met]] = at[met]
        return np.sort(begun[~met])

    def _cut(self) -> None:
        """Give each bin its part of the list."""
        bins = np.flatnonzero(self._rows >= 0)
        rows = self._rows[bins]
        bounds = np.cumsum([len(run) for run in self._runs], dtype=np.intp)
        run = np.searchsorted(bounds, rows, side="right")
        begins, firsts, which = np.unique(rows, return_index=True, return_inverse=True)
        following = np.append(begins, bounds[-1:])[which + 1] if len(begins) else begins
        ends = np.minimum(following, bounds[run])
        lengths = (ends - rows).astype(np.uint64)
        at_end = ends == bounds[run]
        reasons = np.full(len(bins), End.COUNT, np.uint8)
        reasons[at_end] = np.array([end.reason for end in self._run_ends] or [End.NULL], np.uint8)[
            run[at_end]
        ]
        again = np.ones(len(bins), np.bool_)
        again[firsts] = False
        if lengths[again].sum() > np.uint64(len(self._nodes())):  # many bins that claim one chain
            lengths[again], reasons[again], self.complete = 0, End.LIMIT, False
            self._given_up = f"{grouped(int(again.sum()))} bins begin at nodes of others; they were left out"
        if self._most is not None:
            over = lengths > np.uint64(max(self._most, 0))
            lengths[over], reasons[over] = max(self._most, 0), End.LIMIT
        self._lengths[bins], self._reasons[bins] = lengths, reasons
        self._give_up(np.flatnonzero((self._begins != 0) & (self._rows < 0)))
        for row in np.flatnonzero((reasons > End.COUNT) & (reasons < End.INTERRUPTED)).tolist():
            self._note_end(int(bins[row]), self._run_ends[int(run[row])], int(lengths[row]))

    def _note_end(self, row: int, end: ChainEnd, length: int) -> None:
        if len(self._ends) < MOST_ENDS:
            reason = End(int(self._reasons[row]))
            address = end.address if reason == end.reason else None
            self._ends[row] = ChainEnd(reason, length, address, end.cycle if reason == End.CYCLE else None)

    def _give_up(self, lost: Rows) -> None:
        """End bins whose first node was not met: by why it could not be walked, or as left off."""
        if not self.complete:
            return
        tried = {
            begin: end
            for begin, run, end in zip(self._run_begins, self._runs, self._run_ends)
            if not len(run)
        }
        for row in lost.tolist() if tried else ():
            end = tried.get(int(self._begins[row]))
            if end is not None:
                self._reasons[row] = end.reason
                self._note_end(row, end, 0)
        left = lost[self._reasons[lost] == End.INTERRUPTED]
        if len(left):
            self._reasons[left], self.complete = End.LIMIT, False
            self._given_up = f"its list is broken: {grouped(len(left))} bins begin at nodes that are not on it"
