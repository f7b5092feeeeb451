"""The figures of one hash table, from its walk and the stored hashes of its entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import numpy as np

from gdbext.analysis.tables import distribution
from gdbext.analysis.tables.verdicts import BinRow, Figures, Limits, Rest
from gdbext.structures.walk.bins import find_expected
from gdbext.structures.walk.model import U64, BinOf, BinsWalk, End, Key, Mask, ProbeTable, Rows, Table
from gdbext.structures.walk.probes import ProbeWalk, misplaced
from gdbext.wording import grouped

WORST = 5  # bins that are looked at closely
_SURE = 20.0  # a run of empty bins that chance gives with exp(-20) is no chance


class Values(NamedTuple):
    """Numbers of entries, and which of them could be read.

    :param known: a mask; the numbers where it is false mean nothing.
    """

    values: U64
    known: Mask


class EntrySource(Protocol):
    """What :class:`gdbext.analysis.tables.keys.Entries` offers."""

    @property
    def key(self) -> Optional[Key]:
        """How keys are told apart."""

    def find_hashes(self) -> Optional[Values]:
        """Return the stored hash of every entry."""

    def find_keys(self, rows: Rows) -> Optional[Values]:
        """Return numbers for keys of entries."""


@dataclass(frozen=True)
class Measured:
    """A table's figures with what only the report shows.

    :param histogram: [(length, bins)], the empty bins included.
    :param distinct_hashes: None where entries store none.
    """

    figures: Figures
    nonempty: int
    histogram: Sequence[Tuple[int, int]]
    distinct_hashes: Optional[int]
    key: Optional[Key]


def measure(
    index: int,
    table: Union[Table, ProbeTable],
    walk: BinsWalk,
    entries: EntrySource,
    bounds: Limits,
    slab_of: Optional[BinOf] = None,
) -> Measured:
    """Return what a walk says of a table.

    :param index: of the table in its group.
    :param slab_of: the group's rule, to tell entries that belong to another table.
    """
    return _Measure(index, table, walk, entries, bounds, slab_of).measured()


class _Measure:
    def __init__(
        self,
        index: int,
        table: Union[Table, ProbeTable],
        walk: BinsWalk,
        entries: EntrySource,
        bounds: Limits,
        slab_of: Optional[BinOf],
    ) -> None:
        self.index, self.table, self.walk, self.entries = index, table, walk, entries
        self.slab_of = slab_of
        self.bins = len(walk.lengths)
        self.walked = len(walk.nodes)
        self.longest = int(walk.lengths.max()) if self.bins else 0
        self.effective = _effective_bins(table, self.bins)
        self.fair = distribution.fair_max(self.effective, self.walked / max(self.effective, 1))
        self.limit = max(bounds.bin, bounds.factor * self.fair)
        self.hashes = entries.find_hashes()

    def measured(self) -> Measured:
        """Return all figures."""
        counts = distribution.histogram(self.walk.lengths)
        distinct, hot_hashes = self._repeated()
        wrong, elsewhere = self._misplaced()
        hot_bins = np.flatnonzero(self.walk.lengths > np.uint64(self.limit))
        flood = self._entries_with(hot_hashes)
        figures = Figures(
            index=self.index,
            bins=self.bins,
            effective=self.effective,
            walked=self.walked,
            longest=self.longest,
            longest_bin=int(self.walk.lengths.argmax()) if self.longest else None,
            fair=self.fair,
            limit=self.limit,
            hot_bins=len(hot_bins),
            hot_entries=int(self.walk.lengths[hot_bins].sum()),
            hot_hashes=None if distinct is None else len(hot_hashes),
            flooded=int(flood.sum()),
            rest=self._rest(hot_bins, flood, distinct, hot_hashes),
            worst=[self._row(number) for number in _longest(self.walk.lengths)],
            misplaced=wrong,
            elsewhere=elsewhere,
            moving=self._moving(),
            complete=self._is_whole(),
        )
        nonempty = self.bins - sum(bins for length, bins in counts if not length)
        return Measured(figures, nonempty, counts, distinct, self.entries.key)

    def _is_whole(self) -> bool:
        """Whether every chain was walked to a sound end; not so a table that counts entries and has no bins."""
        sound = bool((self.walk.reasons <= End.COUNT).all())
        return self.walk.complete and sound and (self.bins > 0 or not self.table.entries)

    def _repeated(self) -> Tuple[Optional[int], U64]:
        """Return how many different hashes are stored, and those that are hot."""
        if self.hashes is None:
            return None, np.empty(0, np.uint64)
        values, counts = np.unique(self.hashes.values[self.hashes.known], return_counts=True)
        return len(values), values[counts > self.limit]

    def _entries_with(self, hashes: U64) -> Mask:
        if self.hashes is None or not len(hashes):
            return np.zeros(self.walked, np.bool_)
        return np.isin(self.hashes.values, hashes) & self.hashes.known

    def _rest(self, hot_bins: Rows, flood: Mask, distinct: Optional[int], hot_hashes: U64) -> Rest:
        """Return the table without what is hot: the entries with hot hashes if they explain the hot bins, else
        all entries in hot bins."""
        lengths = self.walk.lengths
        if 2 * int(flood.sum()) >= int(lengths[hot_bins].sum()) > 0:
            taken = np.bincount(self.walk.owners[flood].astype(np.int64), minlength=self.bins)
            lengths = lengths - taken.astype(np.uint64)
            distinct = None if distinct is None else distinct - len(hot_hashes)
        elif len(hot_bins):
            lengths = lengths.copy()
            lengths[hot_bins] = 0
            distinct = self._distinct_outside(hot_bins)
        entries = int(lengths.sum())
        return Rest(
            entries,
            distinct,
            int(np.count_nonzero(lengths)),
            distribution.expected_nonempty(self.effective, entries),
            int(lengths.max()) if len(lengths) else 0,
        )

    def _distinct_outside(self, bins: Rows) -> Optional[int]:
        if self.hashes is None:
            return None
        outside = ~np.isin(self.walk.owners, bins.astype(np.uint64)) & self.hashes.known
        return len(np.unique(self.hashes.values[outside]))

    def _row(self, number: int) -> BinRow:
        rows = np.flatnonzero(self.walk.owners == np.uint64(number))
        keys = self.entries.find_keys(rows)
        common, distinct, having = self._commonest(rows)
        row = BinRow(self.index, number, len(rows), distinct, None, common, None, None)
        if keys is not None:
            row = replace(row, distinct_keys=_distinct(keys, np.ones(len(rows), np.bool_)))
        if having is not None:
            row = replace(row, hash_entries=int(having.sum()))
        if keys is None or having is None:
            return row
        return replace(row, hash_keys=_distinct(keys, having), keys_read=int((keys.known & having).sum()))

    def _commonest(self, rows: Rows) -> Tuple[Optional[int], Optional[int], Optional[Mask]]:
        """Return the commonest hash, how many different ones there are, and which entries have the commonest."""
        if self.hashes is None:
            return None, None, None
        values, known = self.hashes.values[rows], self.hashes.known[rows]
        if not known.any():
            return None, None, None
        different, counts = np.unique(values[known], return_counts=True)
        common = different[int(counts.argmax())]
        return int(common), len(different), (values == common) & known

    def _misplaced(self) -> Tuple[Optional[int], int]:
        """Return how many entries do not belong where they are, and how many of these belong to another table."""
        if isinstance(self.walk, ProbeWalk):
            return (None if self.walk.distances is None else len(misplaced(self.walk))), 0
        if self.hashes is None or not isinstance(self.table, Table):
            return None, 0
        expected = find_expected(self.table, self.walk.owners, *self.hashes)
        elsewhere = np.zeros(self.walked, np.bool_)
        if self.slab_of is not None:
            elsewhere = (self.slab_of(self.hashes.values) != np.uint64(self.index)) & self.hashes.known
        if expected is None:
            return (int(elsewhere.sum()), int(elsewhere.sum())) if self.slab_of is not None else (None, 0)
        return int(((expected != self.walk.owners) | elsewhere).sum()), int(elsewhere.sum())

    def _moving(self) -> Optional[str]:
        if not isinstance(self.table, Table):
            return None
        if self.table.rehashing:
            arrays = ", ".join(f"{grouped(array.count)} bins" for array in self.table.arrays)
            return f"its entries move from one array to the next ({arrays})"
        return self._half_moved(self.table.entries)

    def _half_moved(self, entries: Optional[int]) -> Optional[str]:
        """Tell a table whose first bins were emptied into an array that it does not know yet."""
        missing = (entries or 0) - self.walked
        if missing <= 0 or not self.longest:
            return None
        first = int((self.walk.lengths > 0).argmax())
        if first * self.walked / (self.bins - first) < _SURE:
            return None
        return f"bins 0 to {first - 1} are empty, and {grouped(missing)} of its {grouped(entries or 0)} entries missing"


def _effective_bins(table: Union[Table, ProbeTable], bins: int) -> int:
    """Return the bins that entries surely have: during a rehash, of the smaller array."""
    if isinstance(table, Table) and len(table.arrays) > 1:
        return min(array.count for array in table.arrays)
    return bins


def _longest(lengths: U64) -> List[int]:
    """Return the longest bins, the longest first, of equal ones that with the lower index; none that is empty."""
    if not len(lengths):
        return []
    least = np.partition(lengths, max(len(lengths) - WORST, 0))[max(len(lengths) - WORST, 0)]
    above = np.flatnonzero(lengths > least)
    equal = np.flatnonzero(lengths == least)[: WORST - len(above)] if least else above[:0]
    chosen = np.concatenate([above, equal])
    order = np.lexsort((chosen, -lengths[chosen].astype(np.int64)))
    return [int(number) for number in chosen[order]]


def _distinct(keys: Values, among: Mask) -> Optional[int]:
    known = keys.known & among
    return len(np.unique(keys.values[known])) if known.any() else None
