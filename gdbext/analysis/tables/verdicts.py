"""What is wrong with a hash table, decided from its figures; no memory is read here.

A bin is *hot* when it holds more than ``hot-bin`` entries **and** more than ``hot-bin-factor`` times the greatest
length that a fair hash would give any bin of the table (``distribution.fair_max``). A stored hash is hot when
more entries than that share it. Nothing is said of a table without a hot bin but what ``misplaced``,
``table-too-small`` and ``slab-skew`` have statistics of their own for.

Why a bin is hot shows in what is left without the hot entries. Of tables that share their work by the same
hash (a group) the remains are taken together. They speak for the hash function when they are at least a
twentieth of all entries, use half as many bins as chance would, and half of their stored hashes are
different ones. Where nothing is left but one hash of different keys, the function is constant: no
hash of it can be stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import List, Optional, Sequence, Tuple

from gdbext.analysis.tables.distribution import improbable
from gdbext.report import Kind, Settings, column

DEFAULTS: Settings = {
    "hot-bin": 20,
    "hot-bin-factor": 2,
    "small-table-load": 8,
    "slab-skew-factor": 2,
    "slab-skew-entries": 1000,
}
_FEW_HASHES = 4  # so many hot hashes are single ones, where nothing speaks for the hash function
_TELLING = 20  # remains of at least one entry in so many tell something


class Verdict(Enum):
    """What is wrong, worst first."""

    STALE_HASH = "stale-hash"
    EQUAL_HASH_FLOOD = "equal-hash-flood"
    WEAK_HASH = "weak-hash"
    HOT_BIN = "hot-bin"
    MISPLACED = "misplaced"
    SLAB_SKEW = "slab-skew"
    TABLE_TOO_SMALL = "table-too-small"
    MID_REHASH = "mid-rehash"
    OK = "ok"

    @property
    def is_finding(self) -> bool:
        """Whether it is a defect: a rehash under way is none."""
        return self not in (Verdict.MID_REHASH, Verdict.OK)


_RANK = {verdict: rank for rank, verdict in enumerate(Verdict)}


def worst(verdicts: Sequence[Optional[Verdict]]) -> Optional[Verdict]:
    """Return the worst; None (unknown) is worse than what is no finding, and better than what is one."""
    findings = [verdict for verdict in verdicts if verdict is not None and verdict.is_finding]
    if findings:
        return min(findings, key=_RANK.__getitem__)
    known = [verdict for verdict in verdicts if verdict is not None]
    return min(known, key=_RANK.__getitem__) if known and len(known) == len(verdicts) else None


@dataclass(frozen=True)
class Limits:
    """The settings; see :data:`DEFAULTS`.

    :param bin: entries that a bin may always hold.
    :param factor: times the fair maximum that it may hold.
    :param load: entries a bin from which a table is too small.
    :param slab_factor: times its fair share that a slab may hold.
    :param slab_entries: of a group, below which shares tell nothing.
    """

    bin: int
    factor: int
    load: int
    slab_factor: int
    slab_entries: int


def limits(settings: Settings) -> Limits:
    """Return the limits; a setting that is not given has its default."""
    chosen = {**DEFAULTS, **settings}
    return Limits(*(chosen[name] for name in DEFAULTS))


@dataclass(frozen=True)
class BinRow:
    """One of the longest bins.

    :param distinct_keys: None where keys are not known; of the first 100 000 entries in a longer bin whose keys
        are strings.
    :param hash: the stored hash that most of its entries have; the smallest of several.
    :param hash_entries: how many have it.
    :param hash_keys: how many different keys these have, counted as ``distinct_keys``.
    :param keys_read: of these entries; fewer than ``hash_entries`` where keys cannot be read.
    """

    table: int = column("table", Kind.COUNT)
    bin: int = column("bin", Kind.NUMBER)
    len: int = column("length", Kind.COUNT)
    distinct_hashes: Optional[int] = column("distinct hashes", Kind.COUNT)
    distinct_keys: Optional[int] = column("distinct keys", Kind.COUNT)
    hash: Optional[int] = column("commonest hash", Kind.ADDRESS)
    hash_entries: Optional[int] = column("entries with it", Kind.COUNT)
    hash_keys: Optional[int] = column("their keys", Kind.COUNT)
    keys_read: Optional[int] = column(None, Kind.COUNT, json=False, default=None)


@dataclass(frozen=True)
class Rest:
    """A table without its hot entries.

    :param distinct: stored hashes, or None where there are none.
    :param expected: bins that a fair hash would use.
    """

    entries: int
    distinct: Optional[int]
    nonempty: int
    expected: float
    longest: int


@dataclass(frozen=True)
class Figures:
    """What is known of one table.

    :param effective: bins that may hold entries: of the smaller array during a rehash.
    :param limit: a bin or stored hash of more entries than that is hot.
    :param hot_bins: how many; ``hot_entries`` are in them.
    :param hot_hashes: how many; ``flooded`` are the entries in hot bins with a hot hash.
    :param worst: the longest bins, first the longest.
    :param misplaced: entries that do not belong where they are; None where the shape tells not.
    :param elsewhere: of these, those of another table of the group.
    :param moving: why a rehash is under way, or None.
    :param complete: whether the walk was; a table that was not walked to its end is never ``ok``.
    """

    index: int
    bins: int
    effective: int
    walked: int
    longest: int
    longest_bin: Optional[int]
    fair: int
    limit: int
    hot_bins: int
    hot_entries: int
    hot_hashes: Optional[int]
    flooded: int
    rest: Rest
    worst: Sequence[BinRow]
    misplaced: Optional[int] = None
    elsewhere: int = 0
    moving: Optional[str] = None
    complete: bool = True

    @property
    def load(self) -> Optional[float]:
        """Entries a bin."""
        return self.walked / self.effective if self.effective else None

    @property
    def hot(self) -> bool:
        """Whether it has a hot bin."""
        return self.longest > self.limit


@dataclass(frozen=True)
class Judged:
    """What is to be said of a group, or of one table.

    :param verdicts: of each table; None where the walk does not tell.
    :param skewed: the index of the table with far more than its share, or None.
    """

    verdicts: Sequence[Optional[Verdict]]
    skewed: Optional[int] = None

    @property
    def overall(self) -> Optional[Verdict]:
        """The worst of all."""
        return worst([*self.verdicts, *([Verdict.SLAB_SKEW] if self.skewed is not None else [])])


def judge(tables: Sequence[Figures], bounds: Limits) -> Judged:
    """Decide what is wrong with tables that share their work."""
    verdicts = [_verdict(table, tables, bounds) for table in tables]
    return Judged(verdicts, _find_skew(tables, bounds))


def _verdict(table: Figures, tables: Sequence[Figures], bounds: Limits) -> Optional[Verdict]:
    if table.hot:
        return _why_hot(table, tables, bounds)
    if table.misplaced:
        return Verdict.MISPLACED
    if (table.load or 0) >= bounds.load and table.longest > bounds.bin:
        return Verdict.TABLE_TOO_SMALL
    if table.moving:
        return Verdict.MID_REHASH
    return Verdict.OK if table.complete else None


def _why_hot(table: Figures, tables: Sequence[Figures], bounds: Limits) -> Verdict:
    flood = 2 * table.flooded >= table.hot_entries
    sound = _speaks_for_the_hash(tables, bounds)
    hot = sum(each.hot_hashes or 0 for each in tables) if flood else sum(each.hot_bins for each in tables)
    single = hot <= (_FEW_HASHES if flood else 1)
    if sound is False or (sound is None and not single):
        return Verdict.WEAK_HASH
    if not flood:
        return Verdict.HOT_BIN
    if not _different_keys(table.worst[0]):
        return Verdict.EQUAL_HASH_FLOOD
    return Verdict.STALE_HASH if sound or _others_spread(tables) else Verdict.WEAK_HASH


def _others_spread(tables: Sequence[Figures]) -> bool:
    """Return whether the function makes other hashes, too: where all entries share one, it is constant."""
    entries = sum(table.rest.entries for table in tables)
    distinct = sum(table.rest.distinct or 0 for table in tables)
    return distinct > 1 and 2 * distinct >= entries


def _speaks_for_the_hash(tables: Sequence[Figures], bounds: Limits) -> Optional[bool]:
    """Return whether the entries that are not hot look as if a fair hash had placed them; None for too few."""
    rests = [table.rest for table in tables]
    entries = sum(rest.entries for rest in rests)
    if entries <= bounds.bin or _TELLING * entries < sum(table.walked for table in tables):
        return None
    distinct = [rest.distinct for rest in rests if rest.distinct is not None]
    if len(distinct) == len(rests) and 2 * sum(distinct) < entries:
        return False
    return 2 * sum(rest.nonempty for rest in rests) >= sum(rest.expected for rest in rests)


def _different_keys(row: BinRow) -> bool:
    return bool(row.hash_keys and row.keys_read and row.hash_keys > 1 and 2 * row.hash_keys >= row.keys_read)


def _find_skew(tables: Sequence[Figures], bounds: Limits) -> Optional[int]:
    """Return the table with far more than its share, hot entries left aside: their bins are told already."""
    counts = [table.walked - table.hot_entries for table in tables]
    total = sum(counts)
    if len(counts) < 2 or total < bounds.slab_entries:
        return None
    most = max(counts)
    if most * len(counts) < bounds.slab_factor * total or not improbable(counts):
        return None
    return counts.index(most)


def shares(counts: Sequence[int]) -> List[Optional[float]]:
    """Return each count's share of the sum; None of nothing."""
    total = sum(counts)
    return [count / total if total else None for count in counts]


def findings_of(judged: Judged) -> List[Tuple[int, Verdict]]:
    """Return (table, verdict) of what is a finding, worst first; the skewed table counts once more."""
    found = [(at, verdict) for at, verdict in enumerate(judged.verdicts) if verdict and verdict.is_finding]
    if judged.skewed is not None:
        found.append((judged.skewed, Verdict.SLAB_SKEW))
    return sorted(found, key=lambda item: (_RANK[item[1]], item[0]))
