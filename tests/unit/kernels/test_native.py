"""The native kernels against the reference: equal on sound, random and damaged memory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.kernels import chains, columns, native, pointers, reference, tally
from gdbext.kernels.chains import LinkRules
from gdbext.kernels.pointers import BlockIndex, PointerRules
from gdbext.kernels.reference import ChunkRules, words_of
from tests.support.examples import examples

KERNELS, WHY = native.find_library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"no native kernels: {WHY}")
MANY = settings(max_examples=examples(120), deadline=None)
BASE = 0x10000
INTERVAL = st.tuples(st.integers(-50, 600), st.integers(0, 600))  # from BASE on, and how long
WORDS = st.sampled_from([4, 8])
ORDERS = st.sampled_from(["little", "big"])


def column(values):
    return np.array(values, np.uint64)


def packed(words, word, order):
    return b"".join((value & ((1 << 8 * word) - 1)).to_bytes(word, order) for value in words)


def same(found, expected):
    for name in expected.__dataclass_fields__:
        left, right = getattr(found, name), getattr(expected, name)
        if isinstance(right, np.ndarray):
            assert left.dtype == right.dtype and left.tolist() == right.tolist(), name
        else:
            assert left == right, name


# -- chunks -----------------------------------------------------------------------------------------


@st.composite
def heaps(draw):
    """Chunks in a row, some damaged, their bytes, and where the walk begins and ends."""
    word, order = draw(WORDS), draw(ORDERS)
    granule = 2 * word
    sizes = draw(st.lists(st.integers(2, 9), max_size=40))
    words = []
    for size in sizes:
        flags = draw(st.integers(0, 7))
        words += [draw(st.sampled_from([0, size * granule])), (size * granule) | flags]
        words += [0] * (size * granule // word - 2)
    words += [0, draw(st.integers(0, 1 << 20))]
    for at, value in draw(st.lists(st.tuples(st.integers(0, len(words) - 1), st.integers(0, 1 << 64)), max_size=3)):
        words[at] = value
    stop = draw(st.integers(0, len(words)))
    return packed(words, word, order), word, order, draw(st.integers(0, stop)), stop


@MANY
@given(heaps(), st.integers(1, 50))
def test_chunks(heap, limit):
    data, word, order, start, stop = heap
    words = words_of(data, word, order)
    rules = ChunkRules(word, 4 * word, 2 * word)
    same(
        KERNELS.read_chunks(words, BASE, start, stop, rules, limit),
        columns.read_chunks(words, BASE, start, stop, rules, limit),
    )
    found, end = KERNELS.walk_chunks(words, start, stop, rules)
    expected, expected_end = reference.walk_chunks(words, start, stop, rules)
    assert (found.tolist(), end) == (expected.tolist(), expected_end)


# -- columns ----------------------------------------------------------------------------------------


@MANY
@given(st.lists(st.integers(0, 1 << 64 - 1), max_size=400, unique=True), st.lists(st.integers(0, 999), max_size=700))
def test_rows(address, picks):
    address = column(sorted(address))
    wanted = column([int(address[pick % len(address)]) if len(address) and pick % 3 else pick for pick in picks] * 3)
    assert KERNELS.rows_of(address, wanted).tolist() == columns.rows_of(address, wanted).tolist()


@MANY
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 255)), max_size=200), st.integers(1, 4))
def test_counts(rows, categories):
    category = np.array([kind % (categories + 1) for kind in range(256)], np.uint8)
    category[category == categories] = columns.SKIPPED
    values, kinds = column([row[0] for row in rows]), np.array([row[1] for row in rows], np.uint8)
    found = KERNELS.count_values(values, kinds, category, categories)
    expected = columns.count_values(values, kinds, category, categories)
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


@MANY
@given(st.data())
def test_slabs(data):
    groups = data.draw(st.integers(1, 8))
    slab = st.tuples(st.integers(0, 1 << 63), st.integers(1, 1 << 16), st.integers(0, 64 * groups))
    slabs = data.draw(st.lists(slab))
    words = groups * len(slabs)
    bits = data.draw(st.lists(st.integers(0, (1 << 64) - 1), min_size=words, max_size=words))
    start, region, count = ([slab[at] for slab in slabs] for at in range(3))
    arguments = (column(start), column(region), np.array(count, np.uint32), column(bits).reshape(len(slabs), groups))
    found, expected = KERNELS.slab_regions(*arguments), columns.slab_regions(*arguments)
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


@st.composite
def memories(draw, step=1):
    """Spans of few different bytes, near each other or apart."""
    spans, at = [], BASE
    for _ in range(draw(st.integers(0, 4))):
        at += draw(st.sampled_from([0, 16, 4096, 1 << 26]))
        at += draw(st.integers(0, 40)) // step * step
        data = draw(st.binary(min_size=1, max_size=120))
        data = data if draw(st.booleans()) else bytes(len(data))
        data += bytes(-len(data) % step)
        spans.append((at, data))
        at += len(data)
    return spans


@MANY
@given(memories(), st.lists(INTERVAL, max_size=5), st.sampled_from([1, 8, 64]))
def test_pages(spans, intervals, page):
    starts = column([BASE + low for low, _ in intervals])
    ends = column([BASE + low + size for low, size in intervals])
    found, expected = KERNELS.page_census(spans, starts, ends, page), columns.page_census(spans, starts, ends, page)
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


# -- chains -----------------------------------------------------------------------------------------


@st.composite
def tables(draw):
    """Nodes that lead to each other, and what may stand in their links."""
    word, order = draw(WORDS), draw(ORDERS)
    count, apart = draw(st.integers(1, 30)), draw(st.sampled_from([word, 2 * word]))
    rules = LinkRules(
        next=draw(st.sampled_from([0, 0, word, -word])),
        word=word,
        byteorder=order,
        mask=draw(st.sampled_from([0, 0, 1, 7])),
        mangled=draw(st.booleans()) and draw(st.booleans()),
        relative=draw(st.sampled_from([0, 0, 8, -8])),
        end_bits=draw(st.sampled_from([0, 0, 1])),
        leaf_bits=draw(st.sampled_from([0, 0, 2])),
        sentinels=tuple(draw(st.lists(st.sampled_from([BASE, 5, BASE + apart]), max_size=2))),
        forbidden=tuple(draw(st.lists(st.sampled_from([(1 << 64) - 1, 5]), max_size=2))),
        alignment=draw(st.sampled_from([1, 1, word])),
    )
    node = st.integers(0, count + 1).map(lambda row: BASE + apart * row)
    link = st.one_of(node, node, node, node.map(lambda at: at | 1), st.sampled_from([0, 2, 5, (1 << 64) - 1]))
    words = [draw(link) for _ in range(count * (apart // word))]
    data = packed(words, word, order)
    cut = draw(st.integers(0, len(data) // word)) * word
    spans = [(BASE, data)] if not 0 < cut < len(data) else [(BASE, data[:cut]), (BASE + cut, data[cut:])]
    firsts = column(draw(st.lists(st.one_of(node, node, st.just(0), link), max_size=140)))
    return spans, firsts & np.uint64((1 << 8 * word) - 1), rules


@MANY
@given(tables(), st.data())
def test_chains(table, data):
    spans, firsts, rules = table
    stops = data.draw(st.one_of(st.none(), st.just(np.full(len(firsts), BASE + 16, np.uint64))))
    each = np.arange(len(firsts), dtype=np.uint64)
    most = data.draw(st.one_of(st.just(chains.MOST_NODES), st.integers(0, 40), st.just(each)))
    found = KERNELS.walk_chains(spans, firsts, stops, rules, most)
    same(found, chains.walk_chains(spans, firsts, stops, rules, most))


@MANY
@given(tables(), st.integers(0, 60))
def test_a_bound_of_all_nodes_is_kept(table, total):
    spans, firsts, rules = table
    found = KERNELS.walk_chains(spans, firsts, None, rules, chains.MOST_NODES, total)
    assert len(found.nodes) == int(found.lengths.sum()) <= total
    whole = chains.walk_chains(spans, firsts, None, rules, chains.MOST_NODES)
    ended = found.ends != chains.LIMIT
    assert found.lengths[ended].tolist() == whole.lengths[ended].tolist()


@MANY
@given(tables(), st.data())
def test_tallies(table, data):
    spans, firsts, rules = table
    word = rules.word
    stops = data.draw(st.sampled_from([None, None, (BASE, 0), (BASE - 64, 16)]))
    heads = firsts.astype(("<" if data.draw(st.booleans()) else ">") + f"u{word}")
    heads = np.repeat(heads, 3)[:: 3] if data.draw(st.booleans()) else heads
    total = data.draw(st.sampled_from([tally.MOST_TALLIED, 100]))
    found = KERNELS.tally_chains(spans, heads, stops, rules, total)
    expected = tally.tally_chains(spans, heads, stops, rules, total)
    assert (found is None) == (expected is None)
    if found is not None:
        same(replace(found, sample=np.sort(found.sample)), replace(expected, sample=np.sort(expected.sample)))


# -- pointers ---------------------------------------------------------------------------------------


@st.composite
def graphs(draw):
    """Blocks, memory around them whose words point into them, and how; some are mangled where that counts."""
    clear, headers = draw(st.sampled_from([0, 0, 1, 7])), draw(st.sampled_from([(), (), (8,), (4, 1, 40)]))
    part = draw(st.sampled_from([0, 0, 2, 5]))
    rules = PointerRules(draw(WORDS), draw(ORDERS), clear, draw(st.booleans()), headers, part)
    address, size, at = [], [], BASE
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0, 8, 24, 5000, 1 << 25]))
        address.append(at)
        size.append(draw(st.sampled_from([0, 4, 8, 20, 40])))
        at += max(size[-1], 1) + -max(size[-1], 1) % 8
    near = st.sampled_from([0, 0, 4, 1, 8])
    target = st.tuples(st.sampled_from(address), near).map(sum)
    word = st.one_of(target, target, st.integers(0, (1 << 64) - 1))
    spans = []
    for start, length in zip(address, size):
        if draw(st.integers(0, 7)):
            count = -(-max(length, 1) // 8) * 8 // rules.word
            hidden = [rules.mangled and draw(st.booleans()) and start + at * rules.word for at in range(count)]
            data = packed([draw(word) ^ place >> 12 for place in hidden], rules.word, rules.byteorder)
            if not spans or spans[-1][0] + len(spans[-1][1]) <= start:
                spans.append((start, data))
    return spans, BlockIndex(column(address), column(size)), rules


@MANY
@given(graphs(), st.data())
def test_scans(graph, data):
    spans, index, rules = graph
    wanted = data.draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=len(index), max_size=len(index))))
    wanted = None if wanted is None else np.array(wanted, np.bool_)
    same(KERNELS.scan_pointers(spans, index, rules, wanted), pointers.scan_pointers(spans, index, rules, wanted))


@MANY
@given(graphs(), st.data())
def test_blocks_of_addresses(graph, data):
    _, index, _ = graph
    near = st.tuples(st.sampled_from(index.address.tolist()), st.integers(-50, 50)).map(lambda pair: sum(pair) % 2**64)
    places = np.tile(column(data.draw(st.lists(st.one_of(near, st.integers(0, 2**64 - 1)), min_size=1))), 300)
    for begins in (False, True):
        found = KERNELS.find_blocks(index, places, begins)
        assert found.tolist() == pointers.find_blocks(index, places, begins).tolist()


@MANY
@given(
    st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=20)), max_size=6),
    st.lists(st.integers(-12, 140), min_size=1, max_size=40),
    st.integers(1, 8),
    ORDERS,
    st.booleans(),
    st.sampled_from([BASE, (1 << 64) - 120]),
)
def test_numbers_from_any_place(pieces, offsets, size, order, signed, at):
    spans = []
    for gap, data in pieces:
        spans.append((at + gap, data[: max((1 << 64) - at - gap, 0)]))
        at += gap + len(data)
    places = np.tile(column([(spans[0][0] if spans else BASE) + offset & (1 << 64) - 1 for offset in offsets]), 300)
    found = KERNELS.gather_scalars(spans, places, size, order, signed)
    expected = chains.gather_scalars(spans, places, size, order, signed)
    for left, right in zip(found, expected):
        assert left.dtype == right.dtype and left.tolist() == right.tolist()


@MANY
@given(graphs(), st.data())
def test_marks(graph, data):
    spans, index, rules = graph
    rows = {"min_size": len(index), "max_size": len(index)}
    live = np.array(data.draw(st.lists(st.integers(0, 5).map(bool), **rows)), np.bool_)
    roots = np.array(data.draw(st.lists(st.sampled_from([0, 0, 0, 1, 2]), **rows)), np.uint8)
    found = KERNELS.mark_blocks(spans, index, rules, live, roots)
    assert found.tolist() == pointers.mark_blocks(spans, index, rules, live, roots).tolist()
    rounds = data.draw(st.integers(0, 3))
    with pytest.MonkeyPatch.context() as patch:  # the rest is followed block by block
        patch.setattr(pointers, "_ROUNDS", rounds)
        assert found.tolist() == pointers.mark_blocks(spans, index, rules, live, roots).tolist()


def test_a_long_list_is_marked_without_a_round_a_node():
    count = 1 << 18
    nodes = np.arange(count, dtype=np.uint64) * np.uint64(16) + np.uint64(BASE)
    words = np.zeros((count, 2), np.uint64)
    words[:-1, 0] = nodes[1:]
    index, live = BlockIndex(nodes, np.full(count, 16, np.uint64)), np.ones(count, np.bool_)
    roots = np.zeros(count, np.uint8)
    roots[0] = pointers.MAYBE_REACHED
    states = pointers.mark_blocks([(BASE, words.tobytes())], index, PointerRules(8), live, roots)
    assert (states == pointers.MAYBE_REACHED).all()
    roots[count // 2] = pointers.REACHED
    states = pointers.mark_blocks([(BASE, words.tobytes())], index, PointerRules(8), live, roots)
    assert states.tolist() == [pointers.MAYBE_REACHED] * (count // 2) + [pointers.REACHED] * (count // 2)


# -- what the library refuses, and who chooses ---------------------------------------------------------


def test_what_cannot_be_is_refused_and_does_no_harm():
    index = BlockIndex(column([8, 16]), column([9, 1]))  # they overlap
    with pytest.raises(native.NativeError, match="refuse an argument"):
        KERNELS.scan_pointers([(0, bytes(8))], index, PointerRules(8))
    with pytest.raises(native.NativeError, match="refuse an argument"):
        KERNELS.walk_chains([(8, bytes(8)), (0, bytes(8))], column([1]), None, LinkRules(0, 8), 5)
    with pytest.raises(native.NativeError, match="for every block"):
        KERNELS.mark_blocks([], BlockIndex(column([8]), column([8])), PointerRules(8), column([]), column([]))


def test_an_interrupt_ends_a_long_walk(monkeypatch):
    count = 1 << 21
    links = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(8) + np.uint64(BASE)
    told, steps = KERNELS._told, []

    def interrupted(answer):
        steps.append(answer)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return told(answer)

    monkeypatch.setattr(native, "STEP_MILLISECONDS", 0)
    monkeypatch.setattr(KERNELS, "_told", interrupted)
    with pytest.raises(KeyboardInterrupt):
        KERNELS.walk_chains([(BASE, links.tobytes())], column([BASE]), None, LinkRules(0, 8), chains.MOST_NODES)


@pytest.mark.parametrize(("chosen", "runs"), [("reference", "reference"), ("native", "native"), ("", "native")])
def test_the_environment_chooses(chosen, runs):
    code = "from gdbext import kernels; print(kernels.IN_USE, kernels.walk_chains.__module__)"
    environment = {**os.environ, "GDBEXT_KERNELS": chosen}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split()[0] == runs
