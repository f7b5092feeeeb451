"""Sums over chains against a walk node by node with a set of what was seen, and chains laid out by hand."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.kernels import chains, native, tally
from gdbext.kernels.chains import LinkRules
from tests.support.examples import examples

BASE = 0x10000
STEP = 24  # a node: its link, something else
NATIVE, _ = native.find_library()
KERNELS = [pytest.param(tally, id="reference")]
if NATIVE is not None:
    KERNELS.append(pytest.param(NATIVE, id="native"))


def memory(links):
    return b"".join(struct.pack("<QQQ", link, 7, 9) for link in links)


def node(row):
    return BASE + STEP * row


def model(links, firsts):
    """Return the lengths, or None where a chain is broken."""
    lengths = []
    for first in firsts:
        at, seen = first, []
        while at:
            row, rest = divmod(at - BASE, STEP)
            if rest or not 0 <= row < len(links) or at in seen:
                return None
            seen.append(at)
            at = links[row]
        lengths.append(len(seen))
    return lengths


@pytest.mark.parametrize("kernels", KERNELS)
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_sums_are_those_of_a_walk_node_by_node(kernels, data):
    count = data.draw(st.integers(1, 60))
    later = [st.sampled_from([0, *map(node, range(row + 1, count))]) for row in range(count)]
    links = [data.draw(each) for each in later]  # chains that may share nodes, but end
    if data.draw(st.integers(0, 3)) == 0:
        links[data.draw(st.integers(0, count - 1))] = node(data.draw(st.integers(0, count)))  # back, or outside
    firsts = data.draw(st.lists(st.sampled_from([0, 0, *map(node, range(count))]), max_size=300))
    lengths = model(links, firsts)
    heads = np.zeros((len(firsts), 3), np.uint64)
    heads[:, 1] = firsts
    found = kernels.tally_chains([(BASE, memory(links))], heads[:, 1], None, LinkRules(0, 8))
    assert (found is None) == (lengths is None)
    if found is None or lengths is None:
        return
    assert found.nodes == sum(lengths)
    assert found.nonempty == sum(map(bool, lengths)) and found.longest == max(lengths, default=0)
    assert found.at == (lengths.index(max(lengths)) if found.nodes else None)
    assert found.ends == (len(firsts), 0, 0)


@pytest.mark.parametrize("kernels", KERNELS)
def test_circular_chains_end_at_their_own_heads(kernels):
    heads = np.array([node(0), BASE + 0x1008, 0], np.uint64)  # the second is its own head's stop
    links = [node(1), BASE + 0x1000]
    found = kernels.tally_chains([(BASE, memory(links))], heads, (BASE + 0x1000, 8), LinkRules(0, 8))
    assert found is not None and found.ends == (1, 2, 0)
    assert (found.nodes, found.longest, found.at) == (2, 2, 0)
    one_off = kernels.tally_chains([(BASE, memory(links))], heads, (BASE + 0x1001, 8), LinkRules(0, 8))
    assert one_off is None  # past its head, into what is no memory


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(
    ("links", "rules"),
    [
        ([node(0)], {}),
        ([node(1), node(2), node(1)], {}),
        ([BASE - 8], {}),
        ([5], {"forbidden": (5,)}),
        ([node(0) + 3], {"alignment": 8}),
    ],
)
def test_what_is_not_sound_has_no_sums(kernels, links, rules):
    spans, heads = [(BASE, memory(links))], np.array([node(0)], np.uint64)
    assert kernels.tally_chains(spans, heads, None, LinkRules(0, 8, **rules)) is None
    sound = [(BASE, memory([0]))]
    assert kernels.tally_chains(sound, heads, None, LinkRules(0, 8, **rules)) is not None


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_bound_of_all_nodes(kernels):
    spans, heads = [(BASE, memory([node(1), 0]))], np.array([node(0), node(1)], np.uint64)
    assert kernels.tally_chains(spans, heads, None, LinkRules(0, 8), total=2) is None
    assert kernels.tally_chains(spans, heads, None, LinkRules(0, 8), total=3).nodes == 3


@pytest.mark.parametrize("kernels", KERNELS)
def test_many_long_chains(kernels):
    count, each = 5000, 40
    rows = np.arange(count * each).reshape(count, each)
    links = np.zeros((count * each, 2), np.uint64)
    links[rows[:, :-1].ravel(), 0] = BASE + 16 * rows[:, 1:].ravel()
    spans, heads = [(BASE, links.tobytes())], (BASE + 16 * rows[:, 0]).astype(">u8")
    found = kernels.tally_chains(spans, heads, None, LinkRules(0, 8))
    assert (found.nodes, found.longest, found.at) == (count * each, each, 0)


def test_a_sample_is_one_in_so_many_wherever_nodes_are_met():
    for step in (8, 16, 48, 64, 4096):
        nodes = np.arange(1 << 16, dtype=np.uint64) * np.uint64(step) + np.uint64(0x7F00_0000_0000)
        sample = tally.sampled(nodes)
        assert 0.9 < len(sample) * tally.SAMPLED / len(nodes) < 1.1
        assert tally.sampled(nodes[::-1])[::-1].tolist() == sample.tolist()


@pytest.mark.skipif(NATIVE is None, reason="no native kernels")
def test_arguments_that_cannot_be():
    heads = np.array([8], np.uint64)
    with pytest.raises(native.NativeError, match="refuse an argument"):
        NATIVE.tally_chains([(8, bytes(8)), (0, bytes(8))], heads, None, LinkRules(0, 8))
    assert chains.OUTSIDE not in tally.SOUND
