"""What series do: those that grow, and twins of each that do not, made by chance."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from gdbext.analysis.growth.trend import (
    BY_CHANCE,
    FEW,
    FEW_WITH_AGES,
    MANY,
    Shape,
    chance_of_order,
    find_trend,
    floor_of,
    goes_on,
    median_rate,
    order_of,
    seconds_until,
)
from gdbext.report import Confidence
from tests.support.examples import examples

TWINS = 60  # of each kind


def linear(chance, count):
    return [100 + 10 * at + chance.gauss(0, 1) for at in range(count)]


def rising_sawtooth(chance, count):
    period, phase = chance.uniform(2, 3), chance.random()
    return [10 + 12 * ((at / period + phase) % 1) + 10 * at for at in range(count)]


def noise(chance, count):
    return [100 + chance.gauss(0, 10) for _ in range(count)]


def saturating(chance, count):
    pace = chance.uniform(0.1, 0.4) * count
    return [10 + 100 * (1 - math.exp(-at / pace)) + chance.gauss(0, 0.5) for at in range(count)]


def filling(chance, count):
    full = chance.uniform(0.2, 0.75) * count
    return [10 + 100 * min(1, at / full) + chance.gauss(0, 0.3) for at in range(count)]


def jump(chance, count):
    when = chance.randrange(1, count)
    return [10 + (100 if at >= when else 0) + chance.gauss(0, 0.3) for at in range(count)]


def sawtooth(chance, count):
    period, phase = chance.uniform(1.5, 0.8 * count), chance.random()
    return [10 + 100 * ((at / period + phase) % 1) for at in range(count)]


def traffic(chance, count):
    return [chance.uniform(0, 100) for _ in range(count)]


def tide(chance, count):
    level, found = 100.0, []
    for _ in range(count):
        level = 0.75 * level + chance.uniform(0, 50)
        found.append(level)
    return found


def steady(chance, count):
    return [10_000 + chance.uniform(0, 20) for _ in range(count)]


def falling(chance, count):
    return linear(chance, count)[::-1]


def trend(values, few=FEW):
    return find_trend([2.0 * at for at in range(len(values))], values, few)


@pytest.mark.parametrize("make", [noise, saturating, filling, jump, sawtooth, traffic, tide, steady, falling])
@pytest.mark.parametrize("count", [8, 10, 25])
def test_twins_without_growth_give_no_warning(make, count):
    for seed in range(examples(TWINS)):
        values = make(random.Random(seed), count)
        assert not trend(values).warns, (seed, values)


@pytest.mark.parametrize("make", [saturating, filling, jump, traffic, steady])
def test_nor_do_they_where_blocks_suffice_with_fewer_samples(make):
    for seed in range(examples(TWINS)):
        values = make(random.Random(seed), FEW_WITH_AGES)
        assert not trend(values, FEW_WITH_AGES).warns, (seed, values)


@pytest.mark.parametrize("count", [8, 10, 25])
def test_growth_with_noise_is_found(count):
    for seed in range(examples(TWINS)):
        found = trend(linear(random.Random(seed), count))
        assert found.shape is Shape.GROWING and found.warns
        assert found.rate == pytest.approx(5, rel=0.1)
        assert found.confidence is (Confidence.HIGH if count >= MANY else Confidence.MEDIUM)


def test_a_sawtooth_that_rises_is_found_after_a_while():
    found = [trend(rising_sawtooth(random.Random(seed), 25)) for seed in range(examples(TWINS))]
    assert all(one.warns for one in found)


@pytest.mark.parametrize("count", range(2, FEW))
def test_few_samples_never_warn(count):
    found = trend([float(10 * at) for at in range(count)])
    assert found.shape is Shape.GROWING and found.confidence is Confidence.LOW and not found.warns
    assert trend([float(10 * at) for at in range(count)], FEW_WITH_AGES).warns is (count >= FEW_WITH_AGES)


@pytest.mark.parametrize(
    "values, shape",
    [
        ([], Shape.UNKNOWN),
        ([1], Shape.UNKNOWN),
        ([0, 0], Shape.FLAT),
        ([5] * 10, Shape.FLAT),
        ([0, 5], Shape.GROWING),
        ([5, 0], Shape.SHRINKING),
        ([1, 1, 1, 9, 9, 9, 9, 9], Shape.JUMP),
        ([0, 5, 7, 8, 8, 8, 8, 8], Shape.WARMING_UP),
        ([1, 9, 1, 9, 1, 9, 1, 9], Shape.SAWTOOTH),
        ([9, 8, 7, 6, 5, 4, 3, 2], Shape.SHRINKING),
        ([0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14, 17], Shape.GROWING),
    ],
)
def test_shapes_by_hand(values, shape):
    assert trend(values).shape is shape


def test_one_large_value_among_many_does_not_count_as_growth():
    assert not trend([10.0] * 9 + [1000.0]).warns
    assert not trend([1000.0, *range(9)]).warns


@pytest.mark.parametrize("count", range(1, 8))
def test_the_chance_of_an_order_is_counted_out(count):
    orders = [order_of(list(order)) for order in itertools.permutations(range(count))]
    for order in itertools.permutations(range(count)):
        expected = sum(other >= order_of(list(order)) for other in orders) / len(orders)
        assert chance_of_order(list(order)) == pytest.approx(expected)
        break
    rising = list(range(count))
    assert chance_of_order(rising) == pytest.approx(1 / math.factorial(count))


def test_the_chance_of_long_series_goes_on_where_counting_ends():
    counted, estimated = chance_of_order(list(range(24))), chance_of_order(list(range(25)))
    assert estimated < counted * 1e20 and estimated < BY_CHANCE
    half = [at * 7 % 25 for at in range(25)]
    assert 0.05 < chance_of_order(half) < 0.95


def test_equal_values_make_a_rise_less_likely():
    assert chance_of_order([1, 1, 1, 2, 2, 2, 3, 3]) > chance_of_order(list(range(8)))


def test_rates_heed_when_samples_were():
    assert median_rate([0, 1, 10], [0, 5, 50]) == 5
    assert median_rate([3, 3], [0, 5]) == 0.0


def test_a_rise_goes_on_or_not():
    times = list(map(float, range(9)))
    assert goes_on(times, times)
    assert not goes_on(times, [0, 1, 2, 3, 4, 5, 5, 5, 5])
    assert not goes_on([0.0] * 9, times)


def test_samples_that_are_not_quite_even_count_as_such():
    uneven = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.5, 13.0]
    steps = [10.0 * at for at in range(9)]
    assert not goes_on(uneven, steps) and find_trend(uneven, steps).warns
    long_last = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]  # a cache that fills looks like that
    assert not find_trend(long_last, steps).warns


def test_the_floor_of_a_long_series_is_the_least_of_each_part():
    times, floor = floor_of(list(map(float, range(21))), [5, *([9, 1] * 10)])
    assert floor == [1] * 10 and times[0] == 1.5
    assert floor_of([1.0, 2.0], [3, 4]) == ([1.0, 2.0], [3, 4])


def test_when_a_limit_is_reached():
    assert seconds_until(100, 40, 2.0) == 30
    assert seconds_until(100, 100, 0.0) == 0
    assert seconds_until(100, 40, 0.0) is None and seconds_until(100, 40, -1.0) is None
