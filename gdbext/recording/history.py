"""What the last samples have in common: each figure's course, for as long as a screen shows it."""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, Optional, Sequence, Tuple

from gdbext.analysis.growth.sample import KINDS, OTHER, Row, Sample, is_same_process

_MOST = 240  # samples that are kept


class Course:
    """One figure over the last samples.

    :ivar key: what it is of, within its kind.
    :ivar is_bytes: whether its values are bytes, and no count.
    :ivar values: oldest first; None where a sample does not list it.
    """

    def __init__(self, kind: str, row: Row, first: Optional[int], skipped: int) -> None:
        self.kind, self.key = kind, row.key
        self.is_bytes = row.bytes is not None
        self.values: Deque[Optional[int]] = deque([None] * skipped, maxlen=_MOST)
        self._first = first

    def add(self, row: Optional[Row]) -> None:
        """Take its value in the next sample."""
        value = None if row is None else row.bytes if self.is_bytes else row.count
        self.values.append(value)
        if self._first is None:
            self._first = value

    @property
    def now(self) -> Optional[int]:
        """Its value in the last sample."""
        return self.values[-1]

    @property
    def change(self) -> Optional[int]:
        """What it has gained since the sample before the last."""
        before = self.values[-2] if len(self.values) > 1 else None
        return None if self.now is None or before is None else self.now - before

    @property
    def growth(self) -> Optional[int]:
        """What it has gained since the first sample of the process."""
        return None if self.now is None or self._first is None else self.now - self._first


class History:
    """The samples of one process at a time.

    :ivar count: of its samples so far.
    :ivar last: the last one.
    :ivar began: when the first one was taken, seconds since the epoch.
    :ivar held: for how long it stood still for all of them, seconds.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.count, self.held = 0, 0.0
        self.last: Optional[Sample] = None
        self.began = 0.0
        self._courses: Dict[Tuple[str, str], Course] = {}

    def add(self, sample: Sample) -> None:
        """Take the next sample; one of another process begins anew."""
        if self.last is not None and not is_same_process(self.last.process, sample.process):
            self._forget()
        if self.last is None:
            self.began = sample.time or 0.0
        for kind, rows in sample.rows.items():
            self._add_rows(kind, rows)
        self.last = sample
        self.count += 1
        self.held += sample.held_seconds or 0.0

    def _add_rows(self, kind: str, rows: Sequence[Row]) -> None:
        listed = {row.key: row for row in rows}
        for row in rows:
            if (kind, row.key) not in self._courses:
                self._courses[kind, row.key] = Course(kind, row, self._find_first(kind), min(self.count, _MOST))
        known = [course for course in self._courses.values() if course.kind == kind]
        for course in known:
            course.add(listed.get(course.key))
            if course.key not in listed and not any(value is not None for value in course.values):
                del self._courses[kind, course.key]

    def _find_first(self, kind: str) -> Optional[int]:
        """Return what a figure that is new was at first: nothing, where all of its kind are listed."""
        if self.last is None or kind not in self.last.rows or (kind, OTHER) in self._courses:
            return None
        return 0

    def courses(self, *kinds: str) -> List[Course]:
        """Return the figures that the last sample lists, the largest of each kind first."""
        listed = [course for course in self._courses.values() if course.kind in kinds and course.now is not None]
        return sorted(listed, key=lambda course: (KINDS.index(course.kind), -(course.now or 0), course.key))
