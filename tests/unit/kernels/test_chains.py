"""Walks along chains against a walk that is written down step by step here, over graphs of all kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gdbext.kernels import chains
from gdbext.kernels.chains import (
    CYCLE,
    FORBIDDEN,
    HEAD,
    LIMIT,
    MISALIGNED,
    MOST_NODES,
    NULL,
    OUTSIDE,
    SENTINEL,
    LinkRules,
    close_cycles,
    decode_links,
    gather_scalars,
    walk_chain,
    walk_chains,
)
from tests.support.examples import examples

BASE = 0x10000
FORBIDDEN_WORD = 0x8000_0001
SENTINEL_WORD = 0x7000_0000
UNMAPPED = 0x5550_0000
NO_NODES = {-1: 0, -2: FORBIDDEN_WORD, -3: SENTINEL_WORD, -4: UNMAPPED, -5: BASE + 2}


def u64(values):
    return np.array(values, np.uint64)


@dataclass
class Plain:
    """The walk as the contract states it, one byte of memory at a time."""

    spans: list
    rules: LinkRules

    def byte(self, address) -> Optional[int]:
        for start, data in self.spans:
            if start <= address < start + len(data):
                return data[address - start]
        return None

    def link(self, node) -> Optional[int]:
        data = [self.byte(node + self.rules.next + at) for at in range(self.rules.word)]
        return None if None in data else int.from_bytes(bytes(data), self.rules.byteorder)

    def special(self, value):
        rules = self.rules
        return value in rules.forbidden or value in rules.sentinels or value & rules.end_bits

    def decode(self, link, node):
        rules = self.rules
        if rules.mangled:
            link ^= (node + rules.next) >> 12
        if self.special(link):
            return link
        if not link & ~rules.mask & ~rules.leaf_bits:
            return 0
        return ((link & ~(rules.mask & ~rules.leaf_bits)) + rules.relative) % (1 << 8 * rules.word)

    def judge(self, node, stop, room):
        rules = self.rules
        if node == 0:
            return NULL
        if node in rules.forbidden:
            return FORBIDDEN
        if node & rules.end_bits:
            return SENTINEL
        if node == stop:
            return HEAD
        if node in rules.sentinels:
            return SENTINEL
        if not room:
            return LIMIT
        if node & rules.leaf_bits:
            return OUTSIDE if self.byte(node) is None else None
        if node % rules.alignment:
            return MISALIGNED
        return OUTSIDE if self.link(node) is None else None

    def walk(self, node, stop, most):
        """Return nodes, end, what comes after them, and the cycle's length."""
        found = []
        while True:
            if node in found:
                at = found.index(node)
                return found, CYCLE, node, len(found) - at
            end = self.judge(node, stop, most - len(found))
            if end is not None:
                return found, end, node, 0
            if node & self.rules.leaf_bits:
                return [*found, node & ~self.rules.mask], NULL, 0, 0
            found.append(node)
            node = self.decode(self.link(node), node)


def links():
    return st.one_of(
        st.integers(0, 39),  # a node
        st.sampled_from(list(NO_NODES)),
    )


@st.composite
def memories(draw):
    """Spans, rules and the addresses of nodes with any links between them."""
    word = draw(st.sampled_from([4, 8]))
    order = draw(st.sampled_from(["little", "big"]))
    shift = draw(st.sampled_from([0, 0, 1, 3]))  # of all nodes: unaligned
    next_at = draw(st.sampled_from([0, word, 5 if shift else 2 * word]))
    style = draw(st.sampled_from(["plain", "tagged", "mangled", "relative", "nulls", "leaves"]))
    rules = LinkRules(
        next=next_at,
        word=word,
        byteorder=order,
        mask={"tagged": 7, "leaves": 6}.get(style, 0) if not shift else 0,
        mangled=style == "mangled",
        relative=-next_at if style == "relative" else 0,
        end_bits=1 if style == "nulls" and not shift else 0,
        leaf_bits=3 if style == "leaves" and not shift else 0,
        sentinels=(SENTINEL_WORD,) if draw(st.booleans()) else (),
        forbidden=(FORBIDDEN_WORD,) if draw(st.booleans()) else (),
        alignment=1 if shift else draw(st.sampled_from([1, 8])),
    )
    nodes = [BASE + 32 * at + shift for at in range(draw(st.integers(1, 40)))]
    data = bytearray(32 * 42)
    for node in nodes:
        to = draw(links())
        target = nodes[to % len(nodes)] if to >= 0 else NO_NODES[to]
        link = target - rules.relative if target and to >= 0 else target
        link |= draw(st.sampled_from([0, 0, 1, 2])) if style in ("tagged", "leaves", "nulls") else 0
        if rules.mangled:
            link ^= (node + next_at) >> 12
        at = node + next_at - BASE
        data[at : at + word] = (link % (1 << 8 * word)).to_bytes(word, order)
    cuts = sorted(draw(st.lists(st.integers(1, len(data) - 1), max_size=3, unique=True)))
    gap = draw(st.sampled_from([None, *range(len(cuts) + 1)])) if cuts else None
    pieces = list(zip([0, *cuts], [*cuts, len(data)]))
    spans = [(BASE + low, bytes(data[low:high])) for at, (low, high) in enumerate(pieces) if at != gap]
    return spans, rules, nodes


def firsts_of(draw, rules, nodes):
    return draw(st.lists(st.sampled_from([0, UNMAPPED, FORBIDDEN_WORD, *nodes]), min_size=1, max_size=8))


@settings(max_examples=examples(400), deadline=None)
@given(memories(), st.data(), st.sampled_from([0, 2, 96]))
def test_chains_are_as_a_walk_step_by_step_finds_them(memory, data, few):
    spans, rules, nodes = memory
    firsts = firsts_of(data.draw, rules, nodes)
    stops = data.draw(st.one_of(st.none(), st.just([data.draw(st.sampled_from(nodes)) for _ in firsts])))
    most = data.draw(
        st.one_of(st.just(MOST_NODES), st.integers(0, 50), st.just([len(nodes) // 2] * len(firsts)))
    )
    with patch.object(chains, "_FEW", few):
        found = walk_chains(spans, u64(firsts), None if stops is None else u64(stops), rules,
                            u64(most) if isinstance(most, list) else most)  # fmt: skip
    plain, begin = Plain(spans, rules), 0
    for chain, first in enumerate(firsts):
        bound = most[chain] if isinstance(most, list) else most
        expected = plain.walk(first, stops and stops[chain], bound)
        length = int(found.lengths[chain])
        got = found.nodes[begin : begin + length].tolist()
        begin += length
        assert (got, found.ends[chain], found.last[chain], found.cycles[chain]) == expected
    assert begin == len(found.nodes)


@settings(max_examples=examples(100), deadline=None)
@given(memories(), st.integers(1, 60), st.sampled_from([0, 96]), st.data())
def test_no_more_nodes_than_the_total_are_walked_and_each_chain_is_a_beginning(memory, total, few, data):
    spans, rules, nodes = memory
    firsts = firsts_of(data.draw, rules, nodes)
    with patch.object(chains, "_FEW", few):
        found = walk_chains(spans, u64(firsts), None, rules, MOST_NODES, total)
    assert len(found.nodes) <= max(total, len(firsts))
    plain, begin = Plain(spans, rules), 0
    for chain, first in enumerate(firsts):
        expected, end, _, _ = plain.walk(first, None, MOST_NODES)
        length = int(found.lengths[chain])
        assert found.nodes[begin : begin + length].tolist() == expected[:length]
        assert found.ends[chain] in (end, LIMIT)
        if found.ends[chain] == LIMIT and length < len(expected):
            following = int(found.last[chain])
            leaf = following & rules.leaf_bits  # its tags are left until it is counted
            assert (following & ~rules.mask if leaf else following) == expected[length]
        begin += length


@settings(max_examples=examples(100), deadline=None)
@given(memories(), st.data())
def test_one_chain_by_single_reads_is_the_same(memory, data):
    spans, rules, nodes = memory
    first, plain = data.draw(st.sampled_from(nodes)), Plain(spans, rules)

    def read(address, size):
        found = [plain.byte(address + at) for at in range(size)]
        return None if None in found else bytes(found)

    found, end, last = walk_chain(read, first, None, rules, 1000)
    closed = close_cycles(u64([len(found)]), np.array([end], np.uint8), u64([last]), u64(found))
    got = (closed.nodes.tolist(), closed.ends[0], closed.last[0], closed.cycles[0])
    assert got == plain.walk(first, None, MOST_NODES)


@settings(deadline=None)
@given(memories(), st.data())
def test_links_are_decoded_alike_one_by_one_and_together(memory, data):
    spans, rules, nodes = memory
    words = st.one_of(st.integers(0, (1 << 8 * rules.word) - 1), st.sampled_from(nodes))
    values = data.draw(st.lists(words, max_size=9))
    plain, places = Plain(spans, rules), u64([nodes[0] + rules.next] * len(values))
    assert decode_links(u64(values), places, rules).tolist() == [
        plain.decode(value, nodes[0]) for value in values
    ]


def ring(length, lead=0, word=8, order="little", distance=16):
    """Return a span with ``lead`` nodes that lead into a cycle of ``length``."""
    count = lead + length
    data = bytearray()
    for at in range(count):
        to = at + 1 if at + 1 < count else lead
        data += (BASE + distance * to).to_bytes(word, order) + bytes(distance - word)
    return [(BASE, bytes(data))]


@pytest.mark.parametrize("few", [0, 96])
@pytest.mark.parametrize(
    "lead, length", [(0, 1), (0, 2), (1, 1), (5, 3), (15, 1), (16, 17), (100, 1), (3, 1000), (1000, 7)]
)
def test_a_cycle_is_told_with_its_first_node_and_length(lead, length, few):
    with patch.object(chains, "_FEW", few):
        found = walk_chains(ring(length, lead), u64([BASE]), None, LinkRules(0, 8), MOST_NODES)
    assert found.ends.tolist() == [CYCLE] and found.lengths.tolist() == [lead + length]
    assert found.last.tolist() == [BASE + 16 * lead] and found.cycles.tolist() == [length]
    assert found.nodes.tolist() == [BASE + 16 * at for at in range(lead + length)]


def test_a_limit_inside_a_cycle_counts_each_node_once():
    found = walk_chains(ring(10, 4), u64([BASE]), None, LinkRules(0, 8), 21)
    assert found.ends.tolist() == [CYCLE] and found.lengths.tolist() == [14]
    found = walk_chains(ring(10, 4), u64([BASE]), None, LinkRules(0, 8), 13)
    assert found.ends.tolist() == [LIMIT] and found.last.tolist() == [BASE + 16 * 13]


@pytest.mark.parametrize("few", [0, 96])
def test_a_leaf_is_the_last_node_and_must_be_there(few):
    span = [(BASE, (BASE + 17).to_bytes(8, "little") + (BASE + 33).to_bytes(8, "little") + bytes(8))]
    rules = LinkRules(0, 8, mask=6, leaf_bits=3)
    with patch.object(chains, "_FEW", few):
        found = walk_chains(span, u64([BASE, BASE + 8, BASE + 18, BASE + 24]), None, rules, MOST_NODES)
    assert found.ends.tolist() == [NULL, OUTSIDE, NULL, OUTSIDE]
    assert found.last.tolist() == [0, BASE + 33, 0, BASE + 24]
    assert found.nodes.tolist() == [BASE, BASE + 17, BASE + 8, BASE + 16]


def test_many_chains_into_one_cycle_end():
    nodes = BASE + 16 * np.arange(1000, dtype=np.uint64)
    found = walk_chains(ring(400, 600), nodes, None, LinkRules(0, 8), MOST_NODES)
    assert (found.ends == CYCLE).all() and (found.cycles == 400).all()
    lengths = [1000 - at if at < 600 else 400 for at in range(1000)]
    assert found.lengths.tolist() == lengths


def test_chains_that_run_into_each_other_stay_within_the_total():
    nodes = u64([BASE] * 500)
    found = walk_chains(ring(1, 5000), nodes, None, LinkRules(0, 8), MOST_NODES, 100_000)
    assert len(found.nodes) <= 100_000 and (found.ends == LIMIT).all()


def test_no_chain_and_no_memory():
    found = walk_chains([], u64([]), None, LinkRules(0, 8), MOST_NODES)
    assert not len(found.lengths) and not len(found.nodes)
    found = walk_chains([], u64([0, BASE]), None, LinkRules(0, 8), MOST_NODES)
    assert found.ends.tolist() == [NULL, OUTSIDE] and found.last.tolist() == [0, BASE]


@pytest.mark.parametrize("few", [0, 96])
@pytest.mark.parametrize("next_at", [0, 8, 0x7FFF_FFFF_FFFF_FFFF, -8])
def test_the_ends_of_the_address_space_are_no_trap(next_at, few):
    top = (1 << 64) - 16
    spans = [(0x1000, bytes(32)), (top, bytes(16))]
    firsts = u64([top, top + 8, top + 9, (1 << 64) - 1, 1, 0x1000, 0x1018, 0x101F])
    rules, plain = LinkRules(next_at, 8), Plain(spans, LinkRules(next_at, 8))
    plain.link = lambda node, link=plain.link: link((node + next_at) % (1 << 64) - next_at)
    with patch.object(chains, "_FEW", few):
        found = walk_chains(spans, firsts, None, rules, MOST_NODES)
    expected = [plain.walk(int(first), None, MOST_NODES) for first in firsts]
    assert found.ends.tolist() == [end for _, end, _, _ in expected]
    assert found.lengths.tolist() == [len(nodes) for nodes, _, _, _ in expected]


def test_negative_markers_stand_for_all_ones_of_the_word():
    span = [(BASE, b"\xff\xff\xff\xff" + bytes(4))]
    found = walk_chains(span, u64([BASE]), None, LinkRules(0, 4, forbidden=(-1,)), MOST_NODES)
    assert found.ends.tolist() == [FORBIDDEN] and found.last.tolist() == [0xFFFF_FFFF]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 70), max_size=20),
    st.integers(1, 8),
    st.sampled_from(["little", "big"]),
    st.booleans(),
    st.lists(st.integers(1, 63), max_size=3, unique=True),
)
@example([0, 61, 64], 3, "little", True, [2])
def test_numbers_are_gathered_from_any_place(offsets, size, order, signed, cuts):
    data = bytes((37 * at + 11) % 256 for at in range(64))
    bounds = [0, *sorted(cuts), 64]
    spans = [(BASE + low, data[low:high]) for low, high in zip(bounds, bounds[1:])]
    values, known = gather_scalars(spans, u64([BASE + at for at in offsets]), size, order, signed)
    for at, value, there in zip(offsets, values.tolist(), known.tolist()):
        assert there == (at + size <= 64)
        if there:
            expected = int.from_bytes(data[at : at + size], order, signed=signed)
            assert value == expected % (1 << 64)
        else:
            assert value == 0
