"""When samples are due: a whole number of intervals after the first, so that nothing drifts, and within a budget."""

from __future__ import annotations

import math


class Schedule:
    """The moments at which samples of one process are due. All times are of a clock that never jumps, in seconds.

    :param interval: between two samples.
    :param budget: share of the time since ``start``, above 0, that the process may stand still for samples.
    :param start: since when time counts.
    :param first: when the first sample is due.
    :ivar due: when the next one is.
    :ivar held: seconds that the process stood still.
    :ivar missed: samples that were due while another one was taken.
    :ivar stretched: samples that were left out to stay within the budget.
    """

    def __init__(self, interval: float, budget: float, start: float, first: float) -> None:
        self.due = first
        self.held = 0.0
        self.missed = self.stretched = 0
        self._interval, self._budget = interval, budget
        self._start, self._first = start, first
        self._number = 0  # of the sample that is due
        self._longest = 0.0

    def add_pause(self, seconds: float) -> None:
        """Count for how long the process stood still."""
        self.held += seconds
        self._longest = max(self._longest, seconds)

    def advance(self, now: float) -> None:
        """Take note that a sample was tried, and find when the next one is due, if it takes as long as the longest."""
        next_one = max(self._number, math.floor((now - self._first) / self._interval)) + 1
        affordable = self._start + (self.held + self._longest) / self._budget
        number = max(next_one, math.ceil((affordable - self._first) / self._interval))
        self.missed += next_one - self._number - 1
        self.stretched += number - next_one
        self._number = number
        self.due = self._first + number * self._interval
