"""What a series of numbers does: flat, warming up, growing, up and down. ``docs/growth.md`` has the rule and why.

Whether values rise at all is judged by their order alone (M. G. Kendall, "A New Measure of Rank Correlation", 1938),
so that neither noise nor one large step passes for growth; whether they go on rising, by what each part of the time
adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import combinations
from statistics import mean, median
from typing import List, Optional, Sequence, Tuple

import numpy as np

from gdbext.report import Confidence

FEW = 8  # samples below which order alone proves nothing: of 7, one series in 5040 rises by chance
FEW_WITH_AGES = 6
MANY = 16  # from which confidence is high
BY_CHANCE = 3e-5  # how likely the order of values that do not rise may be: many series are judged
_LIKELY = 0.02  # from which a rise is mentioned
_GOES_ON = 0.6  # of the rise before: what the last part of the time adds, at least
_EVEN = 0.4  # of the rate: what a step adds, at least, where each step adds something
_UNEVEN = 3.0  # times the median: gaps between samples up to that count as even
_NOISE = 0.1  # of the range: a smaller drop is no tooth
_STEADY = 0.02  # of the largest value: a smaller range is flat
_PARTS = 10  # in which long series are judged
_EXACT = 24  # samples up to which chances are counted out


class Shape(Enum):
    """What a series does."""

    UNKNOWN = "too few samples"
    FLAT = "flat"
    WARMING_UP = "warming up"  # it rose, and does so less and less, or no more
    JUMP = "one jump"
    SAWTOOTH = "up and down"
    GROWING = "growing"
    RISING_SAWTOOTH = "up and down but rising"
    SHRINKING = "shrinking"

    @property
    def grows(self) -> bool:
        """Whether nothing says that it ends."""
        return self in (Shape.GROWING, Shape.RISING_SAWTOOTH)


@dataclass(frozen=True)
class Trend:
    """What a series does.

    :param rate: per unit of time, over all of it: the median over all pairs of samples.
    :param chance: how likely values that do not rise come in such an order.
    :param confidence: that it is as ``shape`` has it.
    """

    shape: Shape
    rate: float
    chance: float
    confidence: Confidence

    @property
    def warns(self) -> bool:
        """Whether the shape by itself is worth a warning."""
        return self.shape.grows and self.confidence is not Confidence.LOW


def find_trend(times: Sequence[float], values: Sequence[float], few: int = FEW) -> Trend:
    """Return what a series does.

    :param times: when each value was, rising; any unit.
    :param few: samples below which confidence is low.
    """
    samples = len(values)
    if samples < 2:
        return Trend(Shape.UNKNOWN, 0.0, 1.0, Confidence.LOW)
    chance, steady = chance_of_order(values), max(values) - min(values) <= _STEADY * max(map(abs, values))
    times, values = floor_of(times, values)
    rate = median_rate(times, values)
    chance = max(chance, chance_of_order(values))  # teeth may be in step with the parts
    if steady and chance > BY_CHANCE:
        return Trend(Shape.FLAT, rate, 1.0, _confidence(samples, few))
    shape = _shape(times, values, chance, few)
    return Trend(shape, rate, chance, _confidence(samples, few))


def floor_of(times: Sequence[float], values: Sequence[float]) -> Tuple[Sequence[float], Sequence[float]]:
    """Return a long series as the least of each ten parts: what is never given back.

    Values that follow each other closely depend on each other, so that many of them would prove what few do not.
    """
    step = len(values) // _PARTS
    if step < 2:
        return times, values
    parts = [slice(at, at + step) for at in range(len(values) % step, len(values), step)]
    return [mean(times[part]) for part in parts], [min(values[part]) for part in parts]


def _confidence(samples: int, few: int) -> Confidence:
    if samples < few:
        return Confidence.LOW
    return Confidence.HIGH if samples >= MANY else Confidence.MEDIUM


def _shape(times: Sequence[float], values: Sequence[float], chance: float, few: int) -> Shape:
    if _is_jump(values):
        return Shape.JUMP
    if _rises(values, chance):
        if len(values) >= few and not _goes_on(times, values):
            return Shape.WARMING_UP
        return Shape.RISING_SAWTOOTH if _teeth(values) else Shape.GROWING
    if _teeth(values) and _teeth([-value for value in values]):
        return Shape.SAWTOOTH
    falls = chance_of_order([-value for value in values])
    if falls <= _LIKELY or all(one >= other for one, other in zip(values, values[1:])):
        return Shape.SHRINKING
    return Shape.WARMING_UP if values[-1] > values[0] else Shape.FLAT


def _rises(values: Sequence[float], chance: float) -> bool:
    if len(values) >= FEW:
        return chance <= BY_CHANCE
    return chance <= _LIKELY or _only_rises(values)


def _only_rises(values: Sequence[float]) -> bool:
    return all(one < other for one, other in zip(values, values[1:]))


def median_rate(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the median slope of all pairs (Theil-Sen), 0.0 where no two times differ."""
    pairs = combinations(zip(times, values), 2)
    slopes = [(high - low) / (later - earlier) for (earlier, low), (later, high) in pairs if later > earlier]
    return median(slopes) if slopes else 0.0


def _goes_on(times: Sequence[float], values: Sequence[float]) -> bool:
    """Return whether a rise goes on by time or, where samples are about equally far apart, by sample.

    What grows does so by the work done, which a busy machine spreads unevenly over time.
    """
    gaps = [after - before for before, after in zip(times, times[1:])]
    even = max(gaps) <= _UNEVEN * median(gaps)
    return goes_on(times, values) or (even and goes_on([float(at) for at in range(len(values))], values))


def goes_on(times: Sequence[float], values: Sequence[float]) -> bool:
    """Return whether a rise is as fast at the end as before, and sets new records there.

    A cache that fills rises ever less, or stands still once it is full. What rises in each step has to do so in the
    last one, too, and where there are few, as much in each.
    """
    rate = median_rate(times, values)
    if _only_rises(values):
        steps = _rates(times, values)
        if min(steps if len(values) < FEW else steps[-1:]) < _EVEN * rate:
            return False
    thirds = _thirds(times, values)
    (early, low), (middle, half), (late, high) = thirds
    if not (early < middle < late) or half <= low:
        return False
    if (high - half) / (late - middle) < _GOES_ON * (half - low) / (middle - early):
        return False
    last = max(2, len(values) // 4)
    record = max(values[-last:]) - max(values[:-last])
    return record >= _GOES_ON * rate * (times[-1] - times[-last - 1])


def _rates(times: Sequence[float], values: Sequence[float]) -> List[float]:
    """Return the rate of each step; times that do not differ count as far apart."""
    steps = zip(times, times[1:], values, values[1:])
    return [(high - low) / (later - earlier) if later > earlier else 0.0 for earlier, later, low, high in steps]


def _thirds(times: Sequence[float], values: Sequence[float]) -> List[Tuple[float, float]]:
    """Return mean time and mean value of the first, the middle and the last third of the samples."""
    count = len(values)
    cuts = [0, (count + 1) // 3, count - (count + 1) // 3, count]
    parts = [slice(low, high) for low, high in zip(cuts, cuts[1:])]
    return [(mean(times[part]), mean(values[part])) for part in parts]


def _teeth(values: Sequence[float]) -> int:
    """Return how often a series falls by more than noise."""
    least = _NOISE * (max(values) - min(values))
    return sum(one - other > least for one, other in zip(values, values[1:]))


def _is_jump(values: Sequence[float]) -> bool:
    """Return whether most of a rise is one step, and all values before it are below all behind it."""
    steps = [other - one for one, other in zip(values, values[1:])]
    at = steps.index(max(steps)) + 1
    return len(values) > 3 and steps[at - 1] > 0.8 * (max(values) - min(values)) and max(values[:at]) < min(values[at:])


def order_of(values: Sequence[float]) -> int:
    """Return Kendall's S: pairs of values that rise less those that fall."""
    row = np.array(values, np.float64)
    return int(np.triu(np.sign(row[None, :] - row[:, None])).sum())


def chance_of_order(values: Sequence[float]) -> float:
    """Return how likely values in any order rise in so many pairs or more; equal ones make it less likely, not more."""
    count, order = len(values), order_of(values)
    if count <= _EXACT:
        falls = (count * (count - 1) // 2 - order) // 2
        return sum(_orders(count)[: falls + 1]) / math.factorial(count)
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return 0.5 * math.erfc((order - 1) / spread / math.sqrt(2))


@lru_cache(maxsize=None)
def _orders(count: int) -> Tuple[int, ...]:
    """Return how many orders of so many different values have 0, 1, 2, … pairs that fall (Mahonian numbers)."""
    if count < 2:
        return (1,)
    before, most = _orders(count - 1), count * (count - 1) // 2
    return tuple(sum(before[max(0, at - count + 1) : at + 1]) for at in range(most + 1))


def seconds_until(limit: float, taken: float, rate: float) -> Optional[float]:
    """Return when a limit is reached at a rate; 0.0 where it is, None where it is not."""
    if taken >= limit:
        return 0.0
    return (limit - taken) / rate if rate > 0 else None
