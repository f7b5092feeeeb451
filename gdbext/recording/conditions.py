"""Thresholds that are written as conditions: ``rss > 2G``, ``grown > 20% after 10m``."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import Callable, Mapping, Optional, Union

from gdbext.analysis.growth.sample import HEAP, IN_USE, MEMORY, RESIDENT, THREADS, TOTAL, Sample
from gdbext.errors import UsageError
from gdbext.grammar.arguments import parse_duration, parse_int, parse_share, parse_size

_Number = Union[int, float]

_OPERATORS: Mapping[str, Callable[[_Number, _Number], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_AMOUNTS: Mapping[str, Callable[[str], _Number]] = {
    "rss": parse_size,
    "heap": parse_size,
    "blocks": parse_int,
    "threads": parse_int,
    "grown": parse_share,
}
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*(.*?)\s*(?:\bafter\s+(.*))?", re.DOTALL)
HINT = "write rss > 2G, heap > 500M, blocks > 1000000, threads > 64, or grown > 20% after 10m"


@dataclass(frozen=True)
class Condition:
    """A threshold.

    :param text: as it was written.
    :param figure: ``rss``, ``heap`` (bytes in use), ``blocks`` (in use), ``threads``, or ``grown``: of rss.
    :param comparison: ``>``, ``>=``, ``<`` or ``<=``.
    :param amount: bytes, a count, or a share of what rss was at first.
    :param after: of ``grown``: seconds after which the first sample is the one that others are compared with.
    """

    text: str
    figure: str
    comparison: str
    amount: _Number
    after: float = 0.0

    def holds(self, value: _Number) -> bool:
        """Return whether it is true of a figure."""
        return _OPERATORS[self.comparison](value, self.amount)


def parse_condition(text: str) -> Condition:
    """Take a condition apart.

    :raises UsageError: it is wrong; the message says what was expected.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise _wrong(text, "expected a figure, one of > >= < <=, and an amount")
    figure, comparison, amount, after = match.groups()
    if figure not in _AMOUNTS:
        raise _wrong(text, f"expected {', '.join(_AMOUNTS)}, got {figure!r}")
    if after is not None and figure != "grown":
        raise _wrong(text, "after is for grown alone")
    try:
        seconds = 0.0 if after is None else parse_duration(after)
        return Condition(text.strip(), figure, comparison, _AMOUNTS[figure](amount), seconds)
    except UsageError as error:
        raise UsageError(f"condition {text!r}: {error.message}", error.hint) from None


def _wrong(text: str, expected: str) -> UsageError:
    return UsageError(f"condition {text!r}: {expected}", HINT)


def find_figure(sample: Sample, figure: str) -> Optional[int]:
    """Return a figure of a sample, but ``grown``, which needs two; None where it was not measured."""
    if figure == "rss":
        memory = sample.find(TOTAL, MEMORY)
        return memory.bytes if memory is not None and sample.measure == RESIDENT else None
    if figure == "threads":
        threads = sample.find(TOTAL, THREADS)
        return threads.count if threads is not None else None
    if HEAP not in sample.rows:
        return None
    rows = [row for row in sample.rows[HEAP] if row.key.endswith(IN_USE)]
    return sum((row.bytes if figure == "heap" else row.count) or 0 for row in rows)


class Alarm:
    """A condition over the samples of one process: it is raised once, and again only after it was false.

    :ivar value: the figure at the last sample, None where that had none.
    """

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self.value: Optional[_Number] = None
        self._first: Optional[int] = None
        self._raised = False

    def is_raised(self, sample: Sample, elapsed: float) -> bool:
        """Return whether the condition has become true with a sample. One without the figure changes nothing.

        :param elapsed: seconds since the recording of this process began.
        """
        self.value = self._find_value(sample, elapsed)
        if self.value is None:
            return False
        before, self._raised = self._raised, self.condition.holds(self.value)
        return self._raised and not before

    def _find_value(self, sample: Sample, elapsed: float) -> Optional[_Number]:
        if self.condition.figure != "grown":
            return find_figure(sample, self.condition.figure)
        now = find_figure(sample, "rss")
        if now is None or elapsed < self.condition.after:
            return None
        if self._first is None:
            self._first = now
        return now / self._first - 1 if self._first else None
