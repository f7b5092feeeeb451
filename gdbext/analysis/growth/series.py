"""The figures of several samples, side by side: a series for each kind and key, whatever process each is of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbext.analysis.growth.sample import (
    KINDS,
    LEAK,
    MEMORY,
    OTHER,
    OWNER,
    ROOT,
    TABLE,
    TOTAL,
    TYPE,
    Row,
    Sample,
    is_address_key,
    is_same_process,
)
from gdbext.analysis.growth.trend import FEW, Trend, find_trend, median_rate

_NAMED = (TYPE, LEAK, ROOT, TABLE)  # whose keys are others without a debugger
_Table = Optional[Dict[str, Row]]  # a kind's rows by key; None where they were not measured
_FIRST = 1.0  # seconds between samples of which nobody knows when they were


@dataclass(frozen=True)
class Series:
    """One figure over all samples.

    :param counts: None where it is not known: it was not measured, or is part of the rest there.
    :param bytes: likewise; all None where bytes are not the measure.
    """

    kind: str
    key: str
    counts: Sequence[Optional[int]]
    bytes: Sequence[Optional[int]]

    @property
    def values(self) -> Sequence[Optional[int]]:
        """The bytes, or where there are none the counts."""
        return self.bytes if any(value is not None for value in self.bytes) else self.counts

    @property
    def ends(self) -> Optional[Tuple[int, int]]:
        """The first value that is known, and the last sample's; None where there are no two."""
        known = [value for value in self.values if value is not None]
        return None if len(known) < 2 or self.values[-1] is None else (known[0], known[-1])

    @property
    def change(self) -> int:
        """The last value less the first; 0 where that is not known."""
        return 0 if self.ends is None else self.ends[1] - self.ends[0]


@dataclass(frozen=True)
class Recording:
    """Samples in the order of time.

    :param samples: two or more.
    """

    samples: Sequence[Sample]

    @cached_property
    def one_process(self) -> bool:
        """Whether all are of one process."""
        first = self.samples[0].process
        return all(is_same_process(first, one.process) for one in self.samples[1:])

    @cached_property
    def timed(self) -> bool:
        """Whether it is known when each sample was, and each was after the one before."""
        times = [one.time for one in self.samples]
        return None not in times and all(one < other for one, other in zip(times, times[1:]))  # type: ignore[operator]

    @cached_property
    def times(self) -> Sequence[float]:
        """Seconds from the first sample to each; where they are not known, their numbers."""
        if not self.timed:
            return [_FIRST * number for number in range(len(self.samples))]
        times = [one.time or 0.0 for one in self.samples]
        return [time - times[0] for time in times]

    @cached_property
    def last_run(self) -> int:
        """Number of the first sample of the process that the last is of; 0 where these are too few to judge."""
        last = self.samples[-1].process
        at = len(self.samples) - 1
        while at and is_same_process(self.samples[at - 1].process, last):
            at -= 1
        return at if len(self.samples) - at >= FEW else 0

    def trend(self, series: Series, few: int = FEW) -> Trend:
        """Return what a series does; of a process that was restarted, since then, if it was sampled often enough."""
        return find_trend(*self._known(series), few)

    def rate(self, series: Optional[Series]) -> float:
        """Return how fast a series grew at last: in the second half of the samples, where there are enough."""
        if series is None:
            return 0.0
        times, values = self._known(series)
        half = len(values) // 2 if len(values) >= FEW else 0
        return median_rate(times[half:], values[half:])

    def _known(self, series: Series) -> Tuple[Sequence[float], Sequence[int]]:
        pairs = zip(self.times[self.last_run :], series.values[self.last_run :])
        known = [(time, value) for time, value in pairs if value is not None]
        return [time for time, _ in known], [value for _, value in known]

    @cached_property
    def series(self) -> Mapping[Tuple[str, str], Series]:
        """Every figure that the last sample and another have measured, by kind and key."""
        found = (one for kind in self.kinds for one in self._of_kind(kind))
        return {(one.kind, one.key): one for one in found}

    @cached_property
    def kinds(self) -> Sequence[str]:
        """The kinds that the last sample and another have measured in the same terms."""
        return [kind for kind in KINDS if self._having(kind)[-1] and sum(self._having(kind)) > 1]

    def of_kind(self, kind: str) -> Sequence[Series]:
        """Return the series of a kind, without the rest of what is not listed."""
        return [one for (of, key), one in self.series.items() if of == kind and key != OTHER]

    def find(self, kind: str, key: str) -> Optional[Series]:
        """Return a series, or None."""
        return self.series.get((kind, key))

    def _having(self, kind: str) -> Sequence[bool]:
        """Return which samples have measured a kind, in the terms of the last."""
        last = self.samples[-1]
        return [
            kind in one.rows
            and (kind not in _NAMED or one.named == last.named)
            and (kind != OWNER or one.measure == last.measure)
            for one in self.samples
        ]

    def _of_kind(self, kind: str) -> Iterator[Series]:
        tables: List[_Table] = [
            {row.key: row for row in one.rows[kind]} if has else None
            for one, has in zip(self.samples, self._having(kind))
        ]
        keys = dict.fromkeys(key for table in reversed(tables) if table is not None for key in table)
        for key in keys:
            if self.one_process or not is_address_key(key):
                own = self._of_one_measure(tables) if (kind, key) == (TOTAL, MEMORY) else tables
                yield _series(kind, key, own, [one.complete for one in self.samples])

    def _of_one_measure(self, tables: Sequence[_Table]) -> Sequence[_Table]:
        measure = self.samples[-1].measure
        return [table if one.measure == measure else None for one, table in zip(self.samples, tables)]


def _series(kind: str, key: str, tables: Sequence[_Table], whole: Sequence[bool]) -> Series:
    """Return the figures of one key: nothing of it is 0, unless it may be in what is not listed or was not examined.

    :param whole: of each sample whether all was examined.
    """
    rows = [None if table is None else table.get(key) for table in tables]
    nothing = Row(key, _zero(row.count for row in rows if row), _zero(row.bytes for row in rows if row))
    known = [
        nothing if row is None and table is not None and OTHER not in table and examined else row
        for row, table, examined in zip(rows, tables, whole)
    ]
    return Series(
        kind, key, [row.count if row else None for row in known], [row.bytes if row else None for row in known]
    )


def _zero(values: Iterable[Optional[int]]) -> Optional[int]:
    return 0 if any(value is not None for value in values) else None
