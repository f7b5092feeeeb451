"""Conditions: what may be written, what is said of the rest, and when they are raised."""

from __future__ import annotations

import pytest

from gdbext.analysis.growth.sample import HEAP, TOTAL, Row, Sample
from gdbext.errors import UsageError
from gdbext.recording.conditions import Alarm, find_figure, parse_condition

MIB = 1 << 20


@pytest.mark.parametrize(
    "text, expected",
    [
        ("rss > 2G", ("rss", ">", 2 << 30, 0.0)),
        (" rss>=4096 ", ("rss", ">=", 4096, 0.0)),
        ("heap < 1 MiB", ("heap", "<", MIB, 0.0)),
        ("blocks > 1000000", ("blocks", ">", 1_000_000, 0.0)),
        ("threads <= 0x10", ("threads", "<=", 16, 0.0)),
        ("grown > 20%", ("grown", ">", 0.2, 0.0)),
        ("grown > 2.5 % after 10m", ("grown", ">", 0.025, 600.0)),
    ],
)
def test_what_is_written_is_what_is_meant(text, expected):
    parsed = parse_condition(text)
    assert (parsed.figure, parsed.comparison, parsed.amount, parsed.after) == expected
    assert parsed.text == text.strip()


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "expected a figure"),
        ("rss", "expected a figure"),
        ("rss = 2G", "expected a figure"),
        ("rss > ", "'' is not a size"),
        ("rss > 2X", "'2X' is not a size"),
        ("rss > 2G and heap > 1G", "'2G and heap > 1G' is not a size"),
        ("pss > 2G", "expected rss, heap, blocks, threads, grown, got 'pss'"),
        ("RSS > 2G", "got 'RSS'"),
        ("blocks > 2.5", "'2.5' is not a number"),
        ("grown > 20", "'20' is not a percentage"),
        ("grown > 0%", "'0%' is not a percentage"),
        ("grown > 20% after", "'20% after' is not a percentage"),
        ("grown > 20% after soon", "'soon' is not a duration"),
        ("rss > 2G after 1m", "after is for grown alone"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(text, said):
    with pytest.raises(UsageError) as caught:
        parse_condition(text)
    assert said in caught.value.message and repr(text) in caught.value.message and caught.value.hint


def sample(rss=None, heap=None, blocks=None, threads=1, measure="resident"):
    rows = {TOTAL: [Row("memory", None, rss), Row("threads", threads, None)]}
    if heap is not None:
        rows[HEAP] = [Row("glibc in use", blocks, heap), Row("glibc free", 7, 70), Row("jemalloc in use", 1, 2)]
    return Sample(measure=measure, rows=rows)


def test_figures_are_those_of_the_sample():
    one = sample(5 * MIB, heap=100, blocks=10, threads=3)
    assert [find_figure(one, name) for name in ("rss", "heap", "blocks", "threads")] == [5 * MIB, 102, 11, 3]


def test_a_figure_that_was_not_measured_is_none():
    assert find_figure(sample(5 * MIB), "heap") is None
    assert find_figure(sample(5 * MIB, measure="mapped"), "rss") is None
    assert find_figure(Sample(), "threads") is None


def raised(text, values, step=1.0):
    alarm = Alarm(parse_condition(text))
    return [at for at, value in enumerate(values) if alarm.is_raised(sample(value), at * step)]


def test_it_is_raised_once_until_it_was_false_again():
    assert raised("rss > 100", [50, 101, 150, 100, 101, 99, 500, 500]) == [1, 4, 6]
    assert raised("rss < 100", [50, 40, 120, 30]) == [0, 3]


def test_a_sample_without_the_figure_changes_nothing():
    assert raised("rss > 100", [None, 101, None, 150, None, 50, None, 101]) == [1, 7]


def test_growth_is_of_the_first_sample():
    assert raised("grown > 20%", [100, 119, 120, 121, 150, 90, 130]) == [3, 6]


def test_growth_counts_from_the_first_sample_after_the_warm_up():
    values = [10, 100, 1000, 1100, 1201, 1500]
    assert raised("grown > 20% after 2s", values) == [4]
    assert raised("grown > 20% after 1.5s", values) == [4]
    assert raised("grown > 20% after 1h", values) == []


def test_nothing_grows_from_nothing():
    assert raised("grown > 20%", [0, 100]) == []
