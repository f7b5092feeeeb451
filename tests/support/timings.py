"""Where a run's time went: the slowest files, and the sum of each area."""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, Iterator, Mapping, Sequence

SHORT = 30.0  # seconds: a run that nobody asks about
SLOWEST = 10


def describe(stats: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    """Return lines on where the time went, none for a short run or one of a single file.

    :param stats: the terminal reporter's, in which setup, call and teardown are reports of their own.
    """
    files: Counter[str] = Counter()
    for report in (report for reports in stats.values() for report in reports if hasattr(report, "duration")):
        files[report.nodeid.partition("::")[0]] += report.duration
    if len(files) < 2 or sum(files.values()) < SHORT:
        return
    areas: Counter[str] = Counter()
    for file, seconds in files.items():
        areas[area_of(file)] += seconds
    yield from _lines("slowest files", files.most_common(SLOWEST))
    yield from _lines("areas, seconds of all processes together", areas.most_common())


def area_of(file: str) -> str:
    """Return the folder that a file counts for: unit tests by what they test, others by their kind."""
    folders = file.split("/")[:-1]
    return "/".join(folders[: 3 if folders[1:2] == ["unit"] else 2])


def _lines(title: str, rows: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"{title}:"
    for name, seconds in rows:
        yield f"{seconds:8.1f} s  {name}"
