from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gdbext.memory.intervals import Coverage, columns, for_each_chosen, joined, merged, slices, subtract, unite, without

BOUND = 120
PAIRS = st.tuples(st.integers(0, BOUND), st.integers(0, 12))
INTERVALS = st.lists(PAIRS.map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=15)


def pairs(intervals):
    return list(zip(*(side.tolist() for side in intervals)))


def cells(starts, ends):
    return {cell for start, end in zip(starts.tolist(), ends.tolist()) for cell in range(start, end)}


def test_slices_cover_everything_once():
    assert [(part.start, part.stop) for part in slices(10, 4)] == [(0, 4), (4, 8), (8, 10)]
    assert list(slices(0)) == []


@given(INTERVALS)
def test_union_covers_what_the_intervals_cover(intervals):
    union = unite([columns(intervals)])
    depth = {}
    for start, end in intervals:
        for cell in range(start, end):
            depth[cell] = depth.get(cell, 0) + 1
    assert cells(union.covered.starts, union.covered.ends) == set(depth)
    assert union.covered.bytes == len(depth)
    assert union.overlap == sum(depth.values()) - len(depth)
    assert all(depth[cell] > 1 for cell in union.clashes.tolist())
    assert bool(len(union.clashes)) == (union.overlap > 0)
    assert np.all(union.covered.starts[1:] > union.covered.ends[:-1])  # touching ones are merged


@given(INTERVALS, INTERVALS, st.integers(1, 4))
def test_many_are_united_as_few(some, others, at_once):
    parts = [columns(sorted(some)), columns(others)]
    whole = unite(parts)
    with mock.patch("gdbext.memory.intervals._SLICE", at_once):
        again = unite(parts)
    for one, other in ((whole.covered.starts, again.covered.starts), (whole.covered.ends, again.covered.ends)):
        assert one.tolist() == other.tolist()
    assert again.clashes.tolist() == whole.clashes.tolist() and again.overlap == whole.overlap


@given(INTERVALS, INTERVALS)
def test_within_counts_common_cells(intervals, others):
    covered = unite([columns(intervals)]).covered
    inside = cells(covered.starts, covered.ends)
    expected = sum(cell in inside for start, end in others for cell in range(start, end))
    assert covered.within(*columns(others)) == expected


@given(INTERVALS, INTERVALS)
def test_subtract_leaves_what_only_the_first_covers(outer, inner):
    first, second = unite([columns(outer)]).covered, unite([columns(inner)]).covered
    starts, ends, source = subtract(first, second)
    assert cells(starts, ends) == cells(first.starts, first.ends) - cells(second.starts, second.ends)
    assert np.all((first.starts[source] <= starts) & (ends <= first.ends[source]))


def test_index_of_addresses_at_the_edges():
    coverage = Coverage(*columns([(10, 20), (20, 30), (40, 50)]))
    addresses = np.array([0, 9, 10, 19, 20, 29, 30, 49, 50, 2**64 - 1], np.uint64)
    assert coverage.index(addresses).tolist() == [-1, -1, 0, 0, 1, 1, -1, 2, -1, -1]


def test_addresses_at_the_top_of_the_address_space():
    high = 2**64 - 4096
    coverage = Coverage(*columns([(high, 2**64 - 1)]))
    assert coverage.within(*columns([(high - 10, high + 10), (high + 100, high + 200)])) == 110


def test_what_coverage_holds():
    whole = Coverage(*columns([(0, 10), (20, 30)]))
    assert whole.holds(np.array([0, 9, 10, 29, 30], np.uint64)).tolist() == [True, True, False, True, False]
    stretches = columns([(0, 10), (9, 21), (20, 31), (40, 41), (5, 4)])
    assert whole.holds_whole(*stretches).tolist() == [True, False, False, False, False]
    assert Coverage(*columns([])).holds_whole(*columns([(1, 2)])).tolist() == [False]


def test_columns_end_at_the_address_space():
    assert pairs(columns([(30, 2**70)])) == [(30, 2**64 - 1)]
    assert pairs(columns([])) == []


def test_disjoint_intervals_that_touch_are_joined():
    assert pairs(joined(columns([(5, 9), (1, 3), (3, 5), (20, 20), (30, 40)]))) == [(1, 9), (30, 40)]
    assert pairs(joined(columns([]))) == []


@given(INTERVALS)
def test_merged_intervals_cover_the_same_and_only_touch(intervals):
    starts, ends = merged(columns(intervals))
    assert cells(starts, ends) == cells(*columns(intervals))
    assert np.all(starts[1:] >= ends[:-1])


def test_merged_intervals_stay_apart_where_they_touch():
    assert pairs(merged(columns([(1, 9), (2, 3), (8, 12), (12, 13)]))) == [(1, 12), (12, 13)]
    assert pairs(merged(columns([]))) == []


@given(INTERVALS, INTERVALS)
def test_without_leaves_what_only_the_first_covers(intervals, taken):
    first, second = (unite([columns(each)]).covered for each in (intervals, taken))
    left = without((first.starts, first.ends), (second.starts, second.ends))
    assert cells(*left) == cells(first.starts, first.ends) - cells(second.starts, second.ends)


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 7))
def test_chosen_positions_come_so_many_at_a_time(mask, count):
    parts = list(for_each_chosen(np.array(mask, np.bool_), count))
    whole = [at for _, rows in parts for at in rows.tolist()]
    assert whole == [at for at, chosen in enumerate(mask) if chosen]
    assert [before for before, _ in parts] == list(range(0, len(whole), count))
    assert all(len(rows) == count for _, rows in parts[:-1])
