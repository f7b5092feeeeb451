"""Sums over tables that the test lays out bin by bin: those of the chains, or none where a chain is not sound."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.errors import FaultError
from gdbext.structures.walk import binheads, tallying
from gdbext.structures.walk.bins import check_outcome, walk_bins
from gdbext.structures.walk.model import BinArray, End, Scalar, Table
from gdbext.structures.walk.tallying import check_tally, tally_bins
from tests.support.examples import examples
from tests.unit.structures.walk.test_bins import (
    BINS,
    CHAINS,
    NEXT,
    NODES,
    STEP,
    UNMAPPED,
    World,
    chains_at_random,
    lay_out,
    node_at,
)


class Told:
    """Progress that interrupts at the call with a number."""

    def __init__(self, last):
        self.left = last

    def at(self, doing, done, total):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def assert_sums(tally, chains, end):
    lengths = [len(chain) for chain in chains]
    assert tally.bins == len(chains) and tally.nodes == sum(lengths)
    assert tally.nonempty == sum(map(bool, lengths)) and tally.longest == max(lengths)
    assert tally.at == (lengths.index(max(lengths)) if any(lengths) else None)
    assert tally.ends == {end: len(chains)} and not tally.interrupted


@settings(max_examples=examples(100), deadline=None)
@given(chains_at_random(), st.sampled_from(["null", "head"]), st.integers(1, 20))
def test_sums_are_those_of_the_chains(chains, end, batch):
    world = World()
    table = lay_out(world, chains, end, stride=32 if end == "head" else 16)
    with patch.object(binheads, "_BATCH", batch):
        tally = tally_bins(world.target(), table)
    assert_sums(tally, chains, End.HEAD if end == "head" else End.NULL)
    assert not check_tally(table, tally)


def test_heads_that_end_by_a_bit():
    world = World()
    table = lay_out(world, CHAINS)
    for bin_, chain in enumerate(CHAINS):  # linux hlist_nulls: the end is the bin's number, odd
        world.put(node_at(chain[-1]) + NEXT if chain else BINS + 16 * bin_ + 8, 2 * bin_ + 1)
    links = table.node.links._replace(end_bits=1, prev=None)
    tally = tally_bins(world.target(), table._replace(node=table.node._replace(links=links)))
    assert tally.ends == {End.SENTINEL: len(CHAINS)} and tally.nodes == 8


def test_a_count_that_does_not_agree_is_told_as_by_the_walk():
    world = World()
    table = lay_out(world, CHAINS)._replace(entries=11)
    target = world.target()
    assert check_tally(table, tally_bins(target, table)) == check_outcome(table, walk_bins(target, table)) != []


@pytest.mark.parametrize("link", [UNMAPPED, node_at(0), NODES + 3])
def test_a_table_that_is_not_sound_has_no_sums(link):
    world = World()
    table = lay_out(world, CHAINS)
    assert tally_bins(world.target(), table)
    world.put(node_at(2) + NEXT, link)  # the last of the first bin
    assert tally_bins(world.target(), table) is None


def test_more_nodes_than_bins_can_sensibly_have_are_left_to_the_walk_that_watches():
    world = World()
    table = lay_out(world, [[0, 1, 2]])
    with patch.object(tallying, "_FEW_NODES", 2), patch.object(tallying, "_NODES_A_BIN", 2):
        assert tally_bins(world.target(), table) is None
    assert tally_bins(world.target(), table).nodes == 3


def test_memory_that_must_be_copied_or_is_missing_is_left_to_the_walk():
    world = World()
    table = lay_out(world, CHAINS)
    assert tally_bins(world.target(copying=True), table) is None
    assert tally_bins(world.target(without=(NODES,)), table) is None


@pytest.mark.parametrize(
    "made",
    [
        {"end": "count", "arrays": [BinArray(BINS, 8, 16, 8, length=Scalar(0, 4))]},
        {"end": "next-bin"},
        {"arrays": [BinArray(BINS, 8, 16, 8, segment=4)]},
        {"arrays": [BinArray(BINS, 8, 0, 8)]},
        {"arrays": [BinArray(BINS, 8, 16, 12)]},
    ],
)
def test_arrangements_of_which_only_the_walk_knows(made):
    world = World()
    assert tally_bins(world.target(), lay_out(world, CHAINS)._replace(**made)) is None


def test_two_arrays_are_numbered_through():
    world = World()
    table = lay_out(world, CHAINS)
    array = table.arrays[0]
    arrays = [replace(array, count=3), replace(array, address=BINS + 48, count=5)]
    assert_sums(tally_bins(world.target(), table._replace(arrays=arrays)), CHAINS, End.NULL)


def test_a_table_without_bins_is_empty():
    world = World()
    empty = lay_out(world, CHAINS)._replace(arrays=[])
    tally = tally_bins(world.target(), empty)
    assert (tally.bins, tally.nodes, tally.longest, tally.at, tally.ends) == (0, 0, 0, None, {})


def test_bins_that_are_not_mapped_are_an_error():
    table = Table(0x8000, lay_out(World(), CHAINS).node, [BinArray(UNMAPPED, 8, 16)])
    with pytest.raises(FaultError, match="its 8 bins"):
        tally_bins(World().target(), table)


def test_an_interrupt_leaves_the_sums_of_the_bins_before():
    world = World()
    table = lay_out(world, CHAINS)._replace(entries=99)
    with patch.object(binheads, "_BATCH", 3):
        tally = tally_bins(world.target(), table, Told(2))
    assert tally.interrupted and tally.ends == {End.NULL: 3, End.INTERRUPTED: 5}
    assert (tally.bins, tally.nodes, tally.longest, tally.at) == (8, 4, 3, 0)
    assert check_tally(table, tally) == []  # what was not walked is not held to its count


def test_a_sample_is_that_of_the_nodes():
    world = World(nodes=STEP * 2000)
    table = lay_out(world, [list(range(at, 2000, 100)) for at in range(100)])
    target = world.target()
    sample = sorted(tally_bins(target, table).sample.tolist())
    assert sample and set(sample) <= set(walk_bins(target, table).nodes.tolist())
