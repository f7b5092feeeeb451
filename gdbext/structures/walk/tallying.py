"""The sums over a chained hash table, without its nodes: quick, and only for tables that are sound."""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.errors import FaultError
from gdbext.kernels import MOST_TALLIED, SOUND, LinkRules, Tally, tally_chains
from gdbext.memory import view
from gdbext.progress import SILENT, Progress
from gdbext.report import Problem
from gdbext.structures.walk.binheads import batches, check_arrays
from gdbext.structures.walk.chainwalk import rules_of
from gdbext.structures.walk.checking import check_count
from gdbext.structures.walk.gather import Windows
from gdbext.structures.walk.model import U64, BinArray, End, Table
from gdbext.target import Target

_MOST_AT_ONCE = 1 << 28  # bytes of heads
_NODES_A_BIN = 8  # on average; beyond that the walk that watches for repeats is asked
_FEW_NODES = 1 << 20  # for which nobody asks


class BinsTally(NamedTuple):
    """What the bins of a table come to.

    :param longest: nodes of the longest chain; ``at`` is the first bin that has so many, or None.
    :param ends: chains by the reason of their end; those an interrupt left out are INTERRUPTED.
    :param sample: addresses of some nodes, as ``kernels.sampled`` chooses them.
    """

    bins: int
    nodes: int
    nonempty: int
    longest: int
    at: Optional[int]
    ends: Mapping[End, int]
    sample: U64

    @property
    def interrupted(self) -> bool:
        """Whether bins are left out."""
        return End.INTERRUPTED in self.ends


def tally_bins(target: Target, table: Table, progress: Progress = SILENT) -> Optional[BinsTally]:
    """Sum up the chains of all bins; an interrupt leaves the sums of the bins before.

    :return: None where only ``bins.walk_bins`` can tell: a chain that does not end soundly, memory that must be copied
        or is missing, bins in segments or with counts of their own that end them.
    :raises FaultError: when an array of bins cannot be read.
    :raises ShapeError: when there are more bins than can be.
    """
    check_arrays(target, table)
    if table.end not in ("null", "head") or any(bins.segment or bins.stride <= 0 for bins in table.arrays):
        return None
    found: List[Tuple[int, Tally]] = []
    tallying = _Tallying(target, table)
    try:
        for base, bins, part in batches(table):
            progress.at("bins", base, table.bins)
            tally = tallying.tally(bins, part)
            if tally is None:
                return None
            found.append((base, tally))
    except KeyboardInterrupt:
        done = sum(sum(tally.ends) for _, tally in found)
        return _joined(table, found, table.bins - done)
    return _joined(table, found, 0)


def check_tally(table: Table, tally: BinsTally) -> List[Problem]:
    """Return what the sums tell by themselves, as ``bins.check_outcome``: a count that does not agree."""
    if tally.interrupted:
        return []
    return check_count("table-count", "table", table.address, table.entries, tally.nodes)


class _Tallying:
    def __init__(self, target: Target, table: Table) -> None:
        self._target, self._table, self._windows = target, table, Windows(target)
        self._rules: LinkRules = rules_of(table.node.links, target.abi)

    def tally(self, bins: BinArray, part: range) -> Optional[Tally]:
        spans = self._windows.lend(bins.address + part.start * bins.stride)
        heads = self._find_heads(bins, part) if spans else None
        if heads is None:
            return None
        most = min(max(_NODES_A_BIN * len(part), _FEW_NODES), MOST_TALLIED)
        return tally_chains(spans, heads, self._find_stops(bins, part), self._rules, most)

    def _find_heads(self, bins: BinArray, part: range) -> "Optional[npt.NDArray[np.unsignedinteger]]":
        """Return the heads as they are stored, or None where they are not all in one stretch."""
        size, abi = len(part) * bins.stride, self._target.abi
        if size > _MOST_AT_ONCE or bins.head < 0 or bins.head + abi.pointer_size > bins.stride:
            return None
        try:
            stretch = view(self._target.memory, bins.address + part.start * bins.stride, size)
        except FaultError:
            return None
        kind = f"{abi.order_mark}u{abi.pointer_size}"
        heads: "npt.NDArray[np.unsignedinteger]"
        heads = np.ndarray((len(part),), kind, buffer=stretch, offset=bins.head, strides=(bins.stride,))
        return heads

    def _find_stops(self, bins: BinArray, part: range) -> Optional[Tuple[int, int]]:
        if self._table.end != "head":
            return None
        links = self._table.node.links
        at = bins.head - links.next if bins.stop is None else bins.stop + links.relative
        return bins.address + part.start * bins.stride + at, bins.stride


def _joined(table: Table, found: List[Tuple[int, Tally]], left: int) -> BinsTally:
    """Return the sum over several parts.

    :param left: bins that an interrupt left out.
    """
    longest = max((tally.longest for _, tally in found), default=0)
    at = next((base + tally.at for base, tally in found if tally.at is not None and tally.longest == longest), None)
    ends = {End(reason): sum(tally.ends[row] for _, tally in found) for row, reason in enumerate(SOUND)}
    ends[End.INTERRUPTED] = left
    return BinsTally(
        table.bins,
        sum(tally.nodes for _, tally in found),
        sum(tally.nonempty for _, tally in found),
        longest,
        at,
        {reason: number for reason, number in ends.items() if number},
        np.concatenate([np.empty(0, np.uint64), *(tally.sample for _, tally in found)]),
    )
