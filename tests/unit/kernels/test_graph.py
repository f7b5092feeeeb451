"""The reference kernels over graphs of blocks, against their definitions told by brute force on small graphs."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.kernels import dominators, graph
from gdbext.kernels.dominators import SUPER
from gdbext.kernels.graph import NONE, ROOT, Edges, TooManyEdges
from gdbext.kernels.pointers import BlockIndex, PointerRules
from tests.support.examples import examples

MANY = settings(max_examples=examples(150), deadline=None)
BASE = 0x10000


def column(values, kind="u8"):
    return np.array(values, kind)


def edges_of(rows):
    """Return the graph in which row i leads to the (target, interior) of ``rows[i]``."""
    first = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.uint64)
    flat = [edge for row in rows for edge in row]
    return Edges(first, column([to for to, _ in flat], "u4"), column([into for _, into in flat], "?"))


@st.composite
def graphs(draw, most=9):
    """Rows of few edges; no row leads to itself, and to no other twice."""
    count = draw(st.integers(0, most))
    rows = []
    for row in range(count):
        targets = draw(st.lists(st.integers(0, count - 1), max_size=4, unique=True))
        rows.append([(to, draw(st.integers(0, 3)) == 0) for to in targets if to != row])
    return rows


def marks(draw, rows, values):
    return draw(st.lists(values, min_size=len(rows), max_size=len(rows)))


def reached(starts, leads):
    """Return all that can be reached from some nodes."""
    seen, open_ = set(starts), list(starts)
    while open_:
        for to in leads(open_.pop()):
            if to not in seen:
                seen.add(to)
                open_.append(to)
    return seen


# -- edges ------------------------------------------------------------------------------------------


@st.composite
def heaps(draw):
    """Blocks and the bytes in and around them, some missing."""
    word, order = draw(st.sampled_from([4, 8])), draw(st.sampled_from(["little", "big"]))
    clear, headers = draw(st.sampled_from([0, 3])), draw(st.sampled_from([(), (4, 9)]))
    rules = PointerRules(word, order, clear, draw(st.booleans()), headers)
    address, size, at = [], [], BASE
    for _ in range(draw(st.integers(0, 8))):
        at += draw(st.sampled_from([0, 4, 8, 24, 5000]))
        address.append(at)
        size.append(draw(st.sampled_from([0, 4, 8, 20, 40, 72, 73])))
        at += max(size[-1], 1) + draw(st.sampled_from([0, 3]))
    data = bytearray(at - BASE + 16)
    for place in range(0, len(data) - rules.word, rules.word):
        if address and draw(st.integers(0, 2)):
            value = draw(st.sampled_from(address)) + draw(st.sampled_from([0, 0, 0, 1, 4, 9, 40]))
            if rules.mangled and draw(st.booleans()):
                value ^= BASE + place >> 12
            data[place : place + rules.word] = value.to_bytes(rules.word, rules.byteorder)
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=3))})
    spans = [(BASE + low, bytes(data[low:high])) for low, high in zip(cuts, cuts[1:]) if draw(st.integers(0, 5))]
    return spans, address, size, rules


def edges_by_definition(spans, address, size, rules, live):
    """Yield for each block its edges, from a dictionary of all bytes."""
    held = {place: (start, place - start, data) for start, data in spans for place in range(start, start + len(data))}
    for row, (start, length) in enumerate(zip(address, size)):
        words = {}
        for place in range(start + -start % rules.word, start + length - rules.word + 1, rules.word):
            if not live[row] or place not in held or held[place][0] != held.get(place + rules.word - 1, (None,))[0]:
                continue
            _, at, data = held[place]
            stored = int.from_bytes(data[at : at + rules.word], rules.byteorder)
            for value in (stored, stored ^ place >> 12)[: 1 + rules.mangled]:
                value &= ~rules.clear
                found = [to for to, low in enumerate(address) if low <= value < low + max(size[to], 1)]
                for to in found:
                    if live[to] and to != row:
                        words.setdefault(to, []).append((value - address[to] not in (0, *rules.headers), place))
                if found:
                    break
        kept = sorted((place, to, into) for to, places in words.items() for into, place in [min(places)])
        yield [(to, into) for _, to, into in kept]


@MANY
@given(heaps(), st.data())
def test_edges(heap, data):
    spans, address, size, rules = heap
    live = data.draw(st.lists(st.integers(0, 4).map(bool), min_size=len(address), max_size=len(address)))
    index = BlockIndex(column(address), column(size))
    found = graph.block_edges(spans, index, rules, column(live, "?"))
    expected = edges_of(list(edges_by_definition(spans, address, size, rules, live)))
    for name in ("first", "to", "interior"):
        assert getattr(found, name).dtype == getattr(expected, name).dtype
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


def test_more_edges_than_there_is_room_for():
    words = column([BASE + 16, BASE + 24, BASE, 0])
    index = BlockIndex(column([BASE, BASE + 16]), column([16, 16]))
    spans, rules, live = [(BASE, words.tobytes())], PointerRules(8), np.ones(2, np.bool_)
    assert len(graph.block_edges(spans, index, rules, live, 2)) == 2
    with pytest.raises(TooManyEdges, match="2 edges, of which 1"):
        graph.block_edges(spans, index, rules, live, 1)


# -- components -------------------------------------------------------------------------------------


@MANY
@given(graphs(), st.booleans(), st.data())
def test_components_are_what_leads_to_each_other(rows, interior, data):
    wanted = marks(data.draw, rows, st.integers(0, 4).map(bool))

    def leads(row):
        return [to for to, into in rows[row] if wanted[to] and (interior or not into)]

    below = [reached([row], leads) for row in range(len(rows))]
    expected, numbers = [], {}
    for row in range(len(rows)):
        lowest = min(to for to in below[row] if row in below[to])
        expected.append(numbers.setdefault(lowest, len(numbers)) if wanted[row] else NONE)
    found = graph.find_components(edges_of(rows), column(wanted, "?"), interior)
    assert found.dtype == np.uint32 and found.tolist() == expected


# -- ways from roots --------------------------------------------------------------------------------


def distances(rows, given, live, counts):
    """Relax until nothing changes: the distance of each row that is not given, and its lowest parent at that."""
    far = dict(given)
    for _ in rows:
        for row, edges in enumerate(rows):
            for to, into in edges:
                if row in far and live[to] and to not in given and counts(into):
                    far[to] = min(far.get(to, NONE), far[row] + 1)
    parents = {
        to: min(
            row
            for row, edges in enumerate(rows)
            if row in far and far[row] + 1 == far[to] and any(at == to and counts(into) for at, into in edges)
        )
        for to in far
        if to not in given
    }
    return far, parents


@MANY
@given(graphs(), st.data())
def test_ways_are_the_shortest(rows, data):
    live = marks(data.draw, rows, st.integers(0, 4).map(bool))
    roots = marks(data.draw, rows, st.sampled_from([0, 0, 0, 0, 1, 2, 7]))
    own = {row: 0 for row in range(len(rows)) if live[row] and roots[row] >= 2}
    first, parents = distances(rows, own, live, lambda into: not into)
    own.update({row: 0 for row in range(len(rows)) if live[row] and roots[row] == 1 and row not in first})
    last, more = distances(rows, {**own, **first}, live, lambda into: True)
    parents = {**parents, **more, **dict.fromkeys(own, ROOT)}
    tree = graph.breadth_first(edges_of(rows), column(roots, "u1"), column(live, "?"))
    assert tree.depth.tolist() == [last.get(row, NONE) for row in range(len(rows))]
    assert tree.parent.tolist() == [parents.get(row, NONE) for row in range(len(rows))]


# -- dominators -------------------------------------------------------------------------------------


def entries_of(draw, rows):
    count = len(rows)
    pair = st.tuples(st.integers(0, max(count - 1, 0)), st.integers(0, 2))
    pairs = draw(st.lists(pair, max_size=5)) if count else []
    return column([row for row, _ in pairs], "u4"), column([root for _, root in pairs], "u4")


def dominators_by_definition(rows, entry, entries):
    """One node dominates another that cannot be reached without it; the immediate one is dominated by all others."""
    count, roots = len(rows), int(entries.max()) + 1 if len(entries) else 0

    def leads(node, without):
        if node == SUPER:
            found = [count + root for root in range(roots)]
        elif node >= count:
            found = [row for row, root in zip(entry.tolist(), entries.tolist()) if root == node - count]
        else:
            found = [to for to, _ in rows[node]]
        return [to for to in found if to != without]

    everything = reached([SUPER], lambda node: leads(node, None))
    above = {node: {SUPER} for node in everything - {SUPER}}
    for without in everything - {SUPER}:
        for node in everything - reached([SUPER], lambda node, gone=without: leads(node, gone)) - {without}:
            above[node].add(without)
    above[SUPER] = set()
    return [max(above[node], key=lambda by: len(above[by])) if node in above else NONE for node in range(count + roots)]


@MANY
@given(graphs(), st.data())
def test_dominators_are_what_nothing_goes_around(rows, data):
    entry, entries = entries_of(data.draw, rows)
    found = dominators.find_dominators(edges_of(rows), entry, entries)
    assert found.dtype == np.uint32 and found.tolist() == dominators_by_definition(rows, entry, entries)


def lines_run(function, *arguments):
    """Return how many lines of Python a call runs."""
    count, tracer = 0, sys.gettrace()

    def trace(frame, event, _):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(tracer)
    return count


def ring(count):
    return [[(row - 1) % count, (row + 1) % count] for row in range(count)]


def tree_that_leads_up(count):
    return [[to for to in (2 * row + 1, 2 * row + 2, (row - 1) // 2) if 0 <= to < count] for row in range(count)]


@pytest.mark.parametrize("shape", [ring, tree_that_leads_up])
def test_dominators_take_steps_in_proportion_to_the_graph(shape):
    def steps(count):
        edges = edges_of([[(to, False) for to in row] for row in shape(count)])
        return lines_run(dominators.find_dominators, edges, column([0], "u4"), column([0], "u4"))

    assert steps(4000) < 12 * steps(400)


@MANY
@given(graphs(), st.data())
def test_what_is_kept_is_what_is_lost_without_it(rows, data):
    entry, entries = entries_of(data.draw, rows)
    by = dominators.find_dominators(edges_of(rows), entry, entries).tolist()
    size = [data.draw(st.integers(0, 100)) if node < len(rows) else 0 for node in range(len(by))]
    total, count = dominators.sum_up_tree(column(by, "u4"), column(size))

    def dominated(node):
        return [other for other in range(len(by)) if by[other] != NONE and node in chain(other)]

    def chain(node):
        return [node] + (chain(by[node]) if by[node] != SUPER else [])

    assert total.tolist() == [sum(size[other] for other in dominated(node)) for node in range(len(by))]
    assert count.tolist() == [len(dominated(node)) for node in range(len(by))]


# -- what cannot be ---------------------------------------------------------------------------------


def test_edges_that_lead_out_are_refused():
    for first, to in (([0, 1], [1]), ([0, 2, 1], [0]), ([1, 1], []), ([], []), ([0, 2], [0])):
        edges = Edges(column(first), column(to, "u4"), np.zeros(len(to), np.bool_))
        with pytest.raises(ValueError):
            graph.find_components(edges, np.ones(max(len(first) - 1, 0), np.bool_))
    with pytest.raises(ValueError, match="one item for each row"):
        graph.breadth_first(edges_of([[], []]), column([1], "u1"), column([True], "?"))
    with pytest.raises(ValueError, match="out of the graph"):
        dominators.find_dominators(edges_of([[]]), column([1], "u4"), column([0], "u4"))
    with pytest.raises(ValueError, match="for every block"):
        graph.block_edges([], BlockIndex(column([8]), column([8])), PointerRules(8), column([], "?"))


@pytest.mark.parametrize("tree", [[1, 0], [0], [1, NONE], [2, SUPER], [1, 2, 1, SUPER]])
def test_sums_over_what_is_no_tree_are_refused(tree):
    with pytest.raises(ValueError):
        dominators.sum_up_tree(column(tree, "u4"), column([1] * len(tree)))
    with pytest.raises(ValueError):
        dominators.sum_up_tree(column(tree, "u4"), column([1] * (len(tree) + 1)))


def test_a_long_list_takes_no_recursion():
    count = 20_000
    rows = [[(row + 1, False)] for row in range(count - 1)] + [[]]
    edges, every = edges_of(rows), np.ones(count, np.bool_)
    roots = np.zeros(count, np.uint8)
    roots[0] = 2
    assert graph.find_components(edges, every).tolist() == list(range(count))
    assert graph.breadth_first(edges, roots, every).depth.tolist() == list(range(count))
    by = dominators.find_dominators(edges, column([0], "u4"), column([0], "u4"))
    assert by.tolist() == [count, *range(count - 1), SUPER]
    total, number = dominators.sum_up_tree(by, np.full(count + 1, 2, np.uint64))
    assert total[0] == 2 * count and number[-1] == count + 1
