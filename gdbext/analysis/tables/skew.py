"""``slabskew``: how evenly the entries of a hash table lie in its bins, and why where they do not."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.tables import distribution, sentences
from gdbext.analysis.tables.counts import TableRow, Walked, is_complete, notes_of, problems_of, table_row
from gdbext.analysis.tables.figures import WORST, Measured, measure
from gdbext.analysis.tables.keys import Entries
from gdbext.analysis.tables.verdicts import BinRow, Judged, Limits, Verdict, findings_of, judge, limits, shares
from gdbext.errors import UsageError
from gdbext.report import Bar, Confidence, Finding, Kind, Report, Settings, Severity, column, line, table
from gdbext.structures.shapes.opening import Structure
from gdbext.structures.shapes.resolve import Opened
from gdbext.structures.walk.model import BinOf, BinsWalk, Group, ListHead, ProbeTable, Table, TreeRoot
from gdbext.structures.walk.probes import ProbeWalk
from gdbext.target import Target
from gdbext.wording import address_text, grouped

_TOLD = 4  # tables with the same verdict that are explained each
_ALARM = 1000  # entries in one bin from which a finding is critical


@dataclass(frozen=True)
class SkewRow(TableRow):
    """One table.

    :param p50: the length that half of the bins which hold anything do not exceed; ``p99`` likewise.
    :param fair_max: the greatest length that a fair hash would give: see ``distribution.fair_max``.
    :param share: of the group's entries.
    :param distance_p50: of open addressing, probes beyond the first; None of chained tables.
    """

    nonempty: Optional[int] = column(None, Kind.COUNT)
    end: Mapping[str, int] = column(None, Kind.OBJECT)
    fair_max: int = column("fair", Kind.COUNT, default=0)
    load: Optional[float] = column("load", default=None)
    empty_share: Optional[float] = column("empty", Kind.SHARE, default=None)
    p50: int = column("p50", Kind.COUNT, default=0)
    p99: int = column("p99", Kind.COUNT, default=0)
    share: Optional[float] = column("share", Kind.SHARE, default=None)
    distinct_hashes: Optional[int] = column("hashes", Kind.COUNT, default=None)
    misplaced: Optional[int] = column("misplaced", Kind.COUNT, default=None)
    verdict: Optional[Verdict] = column("verdict", default=None)
    distance_p50: Optional[int] = column(None, Kind.COUNT, default=None)
    distance_p99: Optional[int] = column(None, Kind.COUNT, default=None)
    distance_max: Optional[int] = column(None, Kind.COUNT, default=None)
    worst_bins: Sequence[BinRow] = column(None, Kind.OBJECT, default=())
    histogram: Sequence[Tuple[int, int]] = column(None, Kind.OBJECT, default=())


@dataclass(frozen=True)
class ProbeSkewRow(SkewRow):
    """One table of open addressing: the probe distances are shown too."""

    distance_p50: Optional[int] = column("distance p50", Kind.COUNT, default=None)
    distance_p99: Optional[int] = column("distance p99", Kind.COUNT, default=None)
    distance_max: Optional[int] = column("distance max", Kind.COUNT, default=None)


@dataclass(frozen=True)
class HistogramRow:
    """Bins of a length, or of a few."""

    length: str = column("length")
    bins: int = column("bins", Kind.COUNT)
    bins_share: Optional[float] = column("of bins", Kind.SHARE)
    entries: int = column("entries", Kind.COUNT)
    entries_share: Optional[float] = column("of entries", Kind.SHARE)
    bar: Bar = column("", Kind.BAR, json=False)


@dataclass(frozen=True)
class SkewReport:
    """What ``slabskew`` answers."""

    shape: str = line("shape")
    verdict: Optional[Verdict] = line("verdict")
    explanations: Sequence[str] = table("Why")
    tables: Sequence[SkewRow] = table("Tables")
    worst_bins: Sequence[BinRow] = table("Longest bins")
    lengths: Sequence[HistogramRow] = table("Lengths of the bins", json=False)
    histogram: Sequence[Tuple[int, int]] = line(None, Kind.OBJECT, default=())
    total: int = line(None, Kind.COUNT, default=0)
    max_len: int = line(None, Kind.COUNT, default=0)
    misplaced: Optional[int] = line(None, Kind.COUNT, default=None)


@dataclass(frozen=True)
class FairReport(SkewReport):
    """As :class:`SkewReport`, with nothing to explain."""

    explanations: Sequence[str] = table(None)


@dataclass(frozen=True)
class Examined:
    """Tables, measured and judged."""

    walked: Sequence[Walked]
    measured: Sequence[Measured]
    judged: Judged

    def where(self, at: int) -> str:
        """Return a table in words."""
        return f"table {self.measured[at].figures.index}" if len(self.measured) > 1 else "the table"

    def describe(self, at: int, verdict: Verdict, where: str) -> Tuple[str, str]:
        """Return sentence and advice for a verdict of a table."""
        figures = [each.figures for each in self.measured]
        group = len(figures), sum(each.walked for each in figures)
        return sentences.describe(figures[at], verdict, where, self.measured[at].key, group)


def check_bins_of(opened: Opened) -> None:
    """Refuse what has no bins.

    :raises UsageError: for a list or tree.
    """
    structure = opened.structure
    for each in structure.tables if isinstance(structure, Group) else [structure]:
        if isinstance(each, (ListHead, TreeRoot)):
            raise UsageError(f"{opened.described}: it has no bins", "walklist walks it")


def examine(target: Target, structure: Structure, walked: Sequence[Walked], settings: Settings) -> Examined:
    """Measure and judge the tables that a walk went through.

    :param walked: what ``tables.walk_structure`` returned for the structure; none of them a list or tree.
    """
    bounds = limits(settings)
    group = structure if isinstance(structure, Group) else None
    measured = []
    for each in walked:
        found = _measure(target, each, bounds, group.slab_of if group else None)
        if group is not None and isinstance(each.table, Table) and not each.table.arrays:  # left out
            found = replace(found, figures=replace(found.figures, complete=False))
        measured.append(found)
    return Examined(walked, measured, judge([each.figures for each in measured], bounds))


def _measure(target: Target, each: Walked, bounds: Limits, slab_of: Optional[BinOf]) -> Measured:
    assert isinstance(each.table, (Table, ProbeTable)) and isinstance(each.walk, BinsWalk)
    entries = Entries(target, each.table, each.walk)
    return measure(each.index, each.table, each.walk, entries, bounds, slab_of)


def skew_report(opened: Opened, examined: Examined) -> Report:
    """Return the report on tables that were examined."""
    measured = examined.measured
    histogram = distribution.merged([each.histogram for each in measured])
    explanations = list(_explanations(examined))
    overall = examined.judged.overall
    bins = sorted((row for each in measured for row in each.figures.worst), key=lambda row: -row.len)
    hidden = _unknowable(examined)
    placed = [each.figures.misplaced for each in measured if each.figures.misplaced is not None]
    data = (SkewReport if explanations else FairReport)(
        opened.described,
        overall,
        explanations,
        [_without(row, hidden) for row in _rows(examined)],
        [_without(row, hidden) for row in bins[:WORST]],
        _histogram_rows(histogram),
        histogram,
        sum(each.figures.walked for each in measured),
        max((each.figures.longest for each in measured), default=0),
        sum(placed) if placed else None,
    )
    return Report(
        data,
        evidence=opened.evidence,
        problems=problems_of(opened, examined.walked),
        complete=is_complete(opened, examined.walked),
        notes=[*notes_of(examined.walked), *_notes(examined)],
        findings=overall is not None and overall.is_finding,
    )


def _unknowable(examined: Examined) -> Tuple[str, ...]:
    """Return the columns that no table has anything for: entries store no hash, or their keys are not known."""
    tables = [each.table for each in examined.walked]
    hidden: List[str] = []
    if not any(_stored(table)[0] for table in tables):
        hidden += ["distinct_hashes", "hash", "hash_entries", "hash_keys"]
        if all(each.figures.misplaced is None for each in examined.measured):
            hidden.append("misplaced")
    if not any(_stored(table)[1] for table in tables):
        hidden += ["distinct_keys", "hash_keys"]
    return tuple(hidden)


def _without(row: Any, hidden: Tuple[str, ...]) -> Any:
    """Return a row that shows less in text."""
    return _narrowed(type(row).__name__, hidden)(**vars(row)) if hidden else row


@lru_cache(maxsize=None)
def _narrowed(name: str, hidden: Tuple[str, ...]) -> Any:
    kind: Any = next(one for one in (SkewRow, ProbeSkewRow, BinRow) if one.__name__ == name)
    names = [name for name in dict.fromkeys(hidden) if name in kind.__dataclass_fields__]
    fields = [(name, Optional[int], _unshown(kind.__dataclass_fields__[name])) for name in names]
    return make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True)


def _unshown(field: Any) -> Any:
    return column(None, field.metadata["show"].kind, default=field.default)


def _notes(examined: Examined) -> Iterator[str]:
    if not any(_is_hash_table(each) for each in examined.walked):
        yield "Neither hash nor key of the entries is known: the lengths alone are judged."


def _explanations(examined: Examined) -> Iterator[str]:
    """Iterate over sentences, those of one verdict together, and what to do next."""
    told = findings_of(examined.judged)
    told += [(at, verdict) for at, verdict in enumerate(examined.judged.verdicts) if verdict is Verdict.MID_REHASH]
    for verdict, group in groupby(told, key=lambda item: item[1]):
        tables = [at for at, _ in group]
        described = [examined.describe(at, verdict, examined.where(at)) for at in tables[:_TOLD]]
        for sentence, _ in described:
            yield sentences.capital(sentence)
        if len(tables) > _TOLD:
            yield f"{verdict.value} in {len(tables) - _TOLD} more tables."
        yield from dict.fromkeys(advice for _, advice in described if advice)


def _rows(examined: Examined) -> List[SkewRow]:
    fractions = shares([each.figures.walked for each in examined.measured])
    made = zip(examined.walked, examined.measured, examined.judged.verdicts, fractions)
    return [_row(walked, measured, verdict, share) for walked, measured, verdict, share in made]


def _row(walked: Walked, measured: Measured, verdict: Optional[Verdict], share: Optional[float]) -> SkewRow:
    figures = measured.figures
    plain = table_row(walked)
    distances = _distances(walked)
    kind = SkewRow if distances is None else ProbeSkewRow
    near, far, most = distances or (None, None, None)
    return kind(
        **vars(plain),
        load=None if figures.load is None else round(figures.load, 3),
        empty_share=1 - measured.nonempty / figures.bins if figures.bins else None,
        p50=distribution.percentile(measured.histogram, 0.5),
        p99=distribution.percentile(measured.histogram, 0.99),
        fair_max=figures.fair,
        distinct_hashes=measured.distinct_hashes,
        misplaced=figures.misplaced,
        share=share,
        verdict=verdict,
        distance_p50=near,
        distance_p99=far,
        distance_max=most,
        worst_bins=figures.worst,
        histogram=measured.histogram,
    )


def _distances(walked: Walked) -> Optional[Tuple[Optional[int], Optional[int], Optional[int]]]:
    """Return p50, p99 and maximum of the probe distances; None for a chained table."""
    if not isinstance(walked.walk, ProbeWalk):
        return None
    found = walked.walk.distances
    if found is None or not (found >= 0).any():
        return None, None, None
    counts = distribution.histogram(found[found >= 0].astype(np.uint64))
    near, far = (distribution.percentile(counts, share, 0) for share in (0.5, 0.99))
    return near, far, counts[-1][0]


def _histogram_rows(histogram: Sequence[Tuple[int, int]]) -> List[HistogramRow]:
    bins, entries = sum(number for _, number in histogram), sum(length * number for length, number in histogram)
    rows = distribution.buckets(histogram)
    most = max((number for _, _, number, _ in rows), default=1)
    return [
        HistogramRow(
            str(first) if first == last else f"{first}-{last}",
            number,
            number / bins if bins else None,
            inside,
            inside / entries if entries else None,
            Bar(number / most),
        )
        for first, last, number, inside in rows
    ]


_KINDS: Mapping[Verdict, str] = {
    Verdict.STALE_HASH: "stale-hash",
    Verdict.EQUAL_HASH_FLOOD: "hot-bin",
    Verdict.WEAK_HASH: "weak-hash",
    Verdict.HOT_BIN: "hot-bin",
    Verdict.SLAB_SKEW: "slab-skew",
}


def find_table_findings(
    target: Target, structure: Structure, walked: Sequence[Walked], name: str, settings: Settings
) -> List[Finding]:
    """Return what is wrong with one table or group of tables, for ``triage``.

    A structure without bins has none, nor has one whose entries store neither hash nor key: it may well
    be no hash table (malloc's caches are chained in bins too). One verdict is told once, for the table where it is
    worst.

    :param walked: what ``tables.walk_structure`` returned for the structure.
    :param name: the structure's, as an expression of gdb: "rrset_cache".
    """
    if not all(_is_hash_table(each) for each in walked):
        return []
    examined = examine(target, structure, walked, settings)
    told: dict[str, Finding] = {}
    found = findings_of(examined.judged)
    for at, verdict in sorted(found, key=lambda item: -examined.measured[item[0]].figures.longest):
        if verdict in _KINDS:
            told.setdefault(_KINDS[verdict], _finding(examined, at, verdict, name))
    return list(told.values())


def _is_hash_table(each: Walked) -> bool:
    return any(_stored(each.table))


def _stored(table: Optional[Structure]) -> Tuple[bool, bool]:
    """Return whether entries store a hash, and a key."""
    if isinstance(table, ProbeTable):
        return table.hash is not None, table.key is not None
    if isinstance(table, Table):
        return table.node.hash is not None, table.node.key is not None
    return False, False


def _finding(examined: Examined, at: int, verdict: Verdict, name: str) -> Finding:
    figures, key = examined.measured[at].figures, examined.measured[at].key
    where = f"{name}, table {figures.index}" if len(examined.measured) > 1 else name
    sentence, advice = examined.describe(at, verdict, where)
    grave = figures.hot and figures.longest >= _ALARM and verdict is not Verdict.SLAB_SKEW
    guessed = verdict is Verdict.STALE_HASH and (key is None or key.compare == "pointer")
    return Finding(
        _KINDS[verdict],
        Severity.CRITICAL if grave else Severity.WARNING,
        Confidence.MEDIUM if guessed or not figures.complete else Confidence.HIGH,
        sentence,
        evidence=tuple(_evidence(examined, at, name)),
        remedy=advice,
        details=_details(examined, at, name),
    )


def _details(examined: Examined, at: int, name: str) -> Dict[str, Any]:
    figures = examined.measured[at].figures
    longest = figures.worst[0] if figures.worst else None
    return {
        "table": name,
        "address": address_text(examined.walked[at].table.address),
        "index": figures.index,
        "tables": len(examined.measured),
        "entries": figures.walked,
        "bins": figures.bins,
        "fair_length": figures.fair,
        "hot_bins": figures.hot_bins,
        "hot_entries": figures.hot_entries,
        "hot_hashes": figures.hot_hashes,
        "longest": None if longest is None else _bin_details(longest),
    }


def _bin_details(row: BinRow) -> Dict[str, Any]:
    return {
        "bin": row.bin,
        "length": row.len,
        "distinct_hashes": row.distinct_hashes,
        "distinct_keys": row.distinct_keys,
        "hash": address_text(row.hash),
        "hash_entries": row.hash_entries,
        "hash_keys": row.hash_keys,
    }


def _evidence(examined: Examined, at: int, name: str) -> Iterator[str]:
    measured = examined.measured[at]
    figures = measured.figures
    yield (
        f"{grouped(figures.walked)} entries in {grouped(figures.bins)} bins, {grouped(measured.nonempty)} of them not "
        f"empty; a fair hash gives no bin more than {figures.fair}"
    )
    for row in figures.worst:
        if row.len > figures.limit:
            yield _bin_text(row)
    if len(examined.measured) > 1:
        others = ", ".join(grouped(each.figures.walked) for each in examined.measured[:16])
        yield f"entries of the {len(examined.measured)} tables: {others}{', …' if len(examined.measured) > 16 else ''}"
    yield f"slabskew {name}"


def _bin_text(row: BinRow) -> str:
    parts = [f"bin {row.bin}: {grouped(row.len)} entries"]
    if row.distinct_hashes is not None:
        parts.append(f"{grouped(row.distinct_hashes)} distinct stored hash{'' if row.distinct_hashes == 1 else 'es'}")
    if row.distinct_keys is not None:
        parts.append(f"{grouped(row.distinct_keys)} distinct key{'' if row.distinct_keys == 1 else 's'}")
    return ", ".join(parts)
