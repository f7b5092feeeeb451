"""The native kernels over graphs of blocks against the reference: equal on random graphs, an error on hostile ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.kernels import dominators, graph, native, pointers
from gdbext.kernels.graph import NONE, Edges, TooManyEdges
from gdbext.kernels.native import NativeError
from gdbext.kernels.native_graph import NativeGraphs
from gdbext.kernels.pointers import BlockIndex, PointerRules
from tests.support.examples import examples

KERNELS, WHY = native.find_library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"no native kernels: {WHY}")
GRAPHS = None if KERNELS is None else NativeGraphs(KERNELS)
MANY = settings(max_examples=examples(120), deadline=None)
BASE = 0x10000


def column(values, kind="u8"):
    return np.array(values, kind)


def same(found, expected):
    columns = found.__dataclass_fields__ if hasattr(found, "__dataclass_fields__") else range(len(found))
    for name in columns:
        left, right = (getattr(one, name) if isinstance(name, str) else one[name] for one in (found, expected))
        assert left.dtype == right.dtype and left.tolist() == right.tolist(), name


@st.composite
def seeds(draw):
    """What a graph is made from by numpy: sizes up to some thousand edges."""
    return np.random.default_rng(draw(st.integers(0, 1 << 32))), draw(st.sampled_from([0, 1, 2, 5, 40, 700]))


def random_graph(rng, rows):
    """Sparse or dense, of edges near or far, some into middles."""
    degree = rng.integers(0, rng.integers(1, 6), rows) if rows else np.zeros(0, np.int64)
    first = np.concatenate(([0], np.cumsum(degree))).astype(np.uint64)
    source = np.repeat(np.arange(rows), degree)
    reach = int(rng.choice([2, 10, 10_000]))
    to = (source + rng.integers(-reach, reach + 1, len(source))) % max(rows, 1)
    return Edges(first, to.astype(np.uint32), rng.random(len(to)) < rng.choice([0, 0.1, 0.9]))


def some(rng, rows, share):
    return rng.random(rows) < share


# -- the same as the reference ------------------------------------------------------------------------


@MANY
@given(seeds(), st.booleans())
def test_components(seed, interior):
    rng, rows = seed
    edges, wanted = random_graph(rng, rows), some(rng, rows, rng.choice([0.5, 0.95, 1]))
    found = GRAPHS.find_components(edges, wanted, interior)
    assert found.dtype == np.uint32
    assert found.tolist() == graph.find_components(edges, wanted, interior).tolist()


@MANY
@given(seeds())
def test_ways_from_roots(seed):
    rng, rows = seed
    edges, live = random_graph(rng, rows), some(rng, rows, rng.choice([0.5, 0.95, 1]))
    roots = np.where(some(rng, rows, rng.choice([0.01, 0.1])), rng.integers(1, 4, rows), 0).astype(np.uint8)
    same(GRAPHS.breadth_first(edges, roots, live), graph.breadth_first(edges, roots, live))


@MANY
@given(seeds())
def test_dominators_and_what_is_kept(seed):
    rng, rows = seed
    edges, count = random_graph(rng, rows), int(rng.integers(0, 6)) if rows else 0
    entry = rng.integers(0, max(rows, 1), count).astype(np.uint32)
    entries = rng.integers(0, 4, count).astype(np.uint32)
    found = GRAPHS.find_dominators(edges, entry, entries)
    assert found.dtype == np.uint32
    assert found.tolist() == dominators.find_dominators(edges, entry, entries).tolist()
    size = rng.integers(0, 1 << 63, len(found)).astype(np.uint64)
    same(GRAPHS.sum_up_tree(found, size), dominators.sum_up_tree(found, size))


@st.composite
def heaps(draw, step=8):
    """Blocks, small and large, with gaps between them, and memory that is cut up, and partly missing."""
    rng, rows = draw(seeds())
    word, order = draw(st.sampled_from([4, 8])), draw(st.sampled_from(["little", "big"]))
    size = rng.choice([0, 1, 8, 12, 16, 40, 400, 3000], rows, p=[0.1, 0.1, 0.2, 0.1, 0.3, 0.1, 0.05, 0.05])
    taken = np.maximum(size, 1) + rng.choice([0, 0, 3, 8, 9000], rows)
    address = (BASE + np.cumsum(taken) - taken).astype(np.uint64)
    end = int(address[-1]) + int(size[-1]) + 9 if rows else BASE + 64
    words = rng.integers(BASE - 64, end, (end - BASE) // word).astype(f"{'<' if order == 'little' else '>'}u{word}")
    if rows:
        chosen = some(rng, len(words), rng.choice([0, 0.5, 0.9]))
        words[chosen] = address[rng.integers(0, rng.choice([min(rows, 30), rows]), int(chosen.sum()))]
    mangled = draw(st.booleans())
    if mangled:
        places = (BASE + np.arange(len(words)) * word).astype(np.uint64)
        words ^= np.where(some(rng, len(words), 0.5), places >> np.uint64(12), 0).astype(words.dtype)
    cuts = (np.unique(rng.integers(0, end - BASE, 4)) // step * step).tolist()
    data = words.tobytes()
    spans = [(BASE + low, data[low:high]) for low, high in zip(cuts, [*cuts[1:], len(data)]) if low < high]
    index = BlockIndex(address, size.astype(np.uint64))
    headers = draw(st.sampled_from([(), (), (8,), (1, 2, 3, 16)]))
    clear, part = draw(st.sampled_from([0, 7])), draw(st.sampled_from([0, 0, 3, 50]))
    return rng, spans, index, PointerRules(word, order, clear, mangled, headers, part)


@MANY
@given(heaps(1))
def test_edges_of_blocks(heap):
    rng, spans, index, rules = heap
    live = some(rng, len(index), rng.choice([0.5, 1]))
    expected = graph.block_edges(spans, index, rules, live)
    same(GRAPHS.block_edges(spans, index, rules, live), expected)
    same(GRAPHS.block_edges(spans, index, rules, live, len(expected)), expected)
    if len(expected):
        for kernels in (GRAPHS, graph):
            with pytest.raises(TooManyEdges):
                kernels.block_edges(spans, index, rules, live, len(expected) - 1)


@MANY
@given(heaps())
def test_what_is_marked_is_what_ways_lead_to(heap):
    rng, spans, index, rules = heap
    live = some(rng, len(index), rng.choice([0.5, 1]))
    roots = np.where(some(rng, len(index), 0.05), rng.integers(1, 4, len(index)), 0).astype(np.uint8)
    states = KERNELS.mark_blocks(spans, index, rules, live, roots)
    assert states.tolist() == pointers.mark_blocks(spans, index, rules, live, roots).tolist()
    edges = GRAPHS.block_edges(spans, index, rules, live)
    tree = GRAPHS.breadth_first(edges, roots, live)
    assert (tree.depth != NONE).tolist() == (states != pointers.NOT_REACHED).tolist()


# -- hostile arguments --------------------------------------------------------------------------------


@MANY
@given(st.data())
def test_graphs_that_lead_out_are_refused_by_both(data):
    number = st.sampled_from([0, 0, 1, 2, 3, 1 << 31, NONE, (1 << 64) - 1])
    first = column(data.draw(st.lists(number, max_size=5)))
    to = column([each & NONE for each in data.draw(st.lists(number, max_size=4))], "u4")
    edges = Edges(first, to, np.zeros(data.draw(st.sampled_from([len(to), len(to), 1])), np.bool_))
    rows = max(len(first) - 1, 0)
    answers = []
    for kernels, error in ((GRAPHS, NativeError), (graph, ValueError)):
        try:
            answers.append(kernels.find_components(edges, np.ones(rows, np.bool_)).tolist())
        except error:
            answers.append(None)
    assert answers[0] == answers[1]


@MANY
@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, dominators.SUPER, NONE]), max_size=5))
def test_trees_that_are_none_are_refused_by_both(tree):
    answers = []
    for kernels, error in ((GRAPHS, NativeError), (dominators, ValueError)):
        try:
            answers.append([each.tolist() for each in kernels.sum_up_tree(column(tree, "u4"), column([3] * len(tree)))])
        except error:
            answers.append(None)
    assert answers[0] == answers[1]


def test_columns_that_do_not_fit_are_refused():
    edges, none = Edges(column([0, 0]), column([], "u4"), column([], "?")), column([], "u4")
    for call in (
        lambda: GRAPHS.find_components(edges, column([], "?")),
        lambda: GRAPHS.breadth_first(edges, column([1, 2], "u1"), column([True], "?")),
        lambda: GRAPHS.find_dominators(edges, column([1], "u4"), column([0], "u4")),
        lambda: GRAPHS.find_dominators(edges, column([0], "u4"), column([NONE], "u4")),
        lambda: GRAPHS.find_dominators(edges, column([0], "u4"), none),
        lambda: GRAPHS.sum_up_tree(none, column([1])),
        lambda: GRAPHS.block_edges([], BlockIndex(column([8]), column([8])), PointerRules(8), column([], "?")),
    ):
        with pytest.raises(NativeError):
            call()


# -- interrupts, and lists of a million -----------------------------------------------------------------


def long_list(count):
    first = np.minimum(np.arange(count + 1), count - 1).astype(np.uint64)
    return Edges(first, np.arange(1, count, dtype=np.uint32), np.zeros(count - 1, np.bool_))


def test_a_list_of_a_million():
    count = 1_000_000
    edges, every, roots = long_list(count), np.ones(count, np.bool_), np.zeros(count, np.uint8)
    roots[0] = 2
    assert (GRAPHS.find_components(edges, every) == np.arange(count)).all()
    assert (GRAPHS.breadth_first(edges, roots, every).depth == np.arange(count)).all()
    by = GRAPHS.find_dominators(edges, column([0], "u4"), column([0], "u4"))
    assert by[0] == count and (by[1:count] == np.arange(count - 1)).all()
    total, number = GRAPHS.sum_up_tree(by, np.full(count + 1, 2, np.uint64))
    assert (number == np.append(np.arange(count, 0, -1), count + 1)).all() and (total == 2 * number).all()


@pytest.mark.parametrize("name", ["edges", "components", "breadth", "dominators", "sums"])
def test_an_interrupt_ends_the_work(monkeypatch, name):
    count = 1 << 18
    edges, every, roots = long_list(count), np.ones(count, np.bool_), np.full(count, 2, np.uint8)
    address = column(BASE + 32 * np.arange(count))
    index = BlockIndex(address, np.full(count, 32, np.uint64))
    by = np.append(np.arange(1, count, dtype=np.uint32), np.uint32(dominators.SUPER))
    calls = {
        "edges": lambda: GRAPHS.block_edges([(BASE, bytes(32 * count))], index, PointerRules(8), every),
        "components": lambda: GRAPHS.find_components(edges, every),
        "breadth": lambda: GRAPHS.breadth_first(edges, roots, every),
        "dominators": lambda: GRAPHS.find_dominators(edges, column([0], "u4"), column([0], "u4")),
        "sums": lambda: GRAPHS.sum_up_tree(by, np.ones(count, np.uint64)),
    }
    calls[name]()
    steps = []

    def interrupted(answer):
        steps.append(answer)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(native, "STEP_MILLISECONDS", 0)
    monkeypatch.setattr(GRAPHS, "_told", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calls[name]()
    assert steps == [0, 0]
