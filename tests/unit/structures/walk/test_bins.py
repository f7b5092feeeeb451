"""Tables that the test lays out bin by bin, in every arrangement, sound and with one thing wrong."""

from __future__ import annotations

import struct
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import I386, X86_64, Abi
from gdbext.errors import FaultError, ShapeError
from gdbext.kernels import chains as chaining
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.structures.walk import binheads as heading
from gdbext.structures.walk import chainwalk as following
from gdbext.structures.walk import gather as gathering
from gdbext.structures.walk.bins import Misplaced, check_bins, misplaced, walk_bins
from gdbext.structures.walk.model import BinArray, ChainEnd, End, Links, ListHead, Node, Scalar, Table
from gdbext.target import Target
from tests.support.examples import examples

TABLE, BINS, NODES = 0x8000, 0x100000, 0x400000
STEP = 64
UNMAPPED = 0x55550000
PPC = Abi(4, "big", "20", 4096)
NEXT, PREV, HASH, LRU_NEXT, LRU_PREV = 0, 8, 16, 24, 32  # in a node


class World:
    """Memory of a table, its bins and its nodes; words are put where they belong."""

    def __init__(self, abi=X86_64, bins=1 << 12, nodes=1 << 14):
        self.abi = abi
        self.parts = {start: bytearray(size) for start, size in ((TABLE, 4096), (BINS, bins), (NODES, nodes))}

    def put(self, address, value, size=None):
        size = size or self.abi.pointer_size
        start = max(start for start in self.parts if start <= address)
        at = address - start
        self.parts[start][at : at + size] = (value % (1 << 8 * size)).to_bytes(size, self.abi.byteorder)

    def get(self, address, size=None):
        size = size or self.abi.pointer_size
        start = max(start for start in self.parts if start <= address)
        return int.from_bytes(self.parts[start][address - start : address - start + size], self.abi.byteorder)

    def target(self, copying=False, regions=(), without=()):
        segments = [(start, data) for start, data in self.parts.items() if start not in without]
        memory = FakeMemory(segments, regions)
        return Target(Copying(memory) if copying else memory, self.abi)


class Copying:
    """Memory as a process has it: read, never lent."""

    def __init__(self, memory):
        self.regions, self._memory = memory.regions, memory

    def read(self, address, size):
        return bytes(self._memory.read(address, size))


def node_at(at):
    return NODES + STEP * at


def hash_of(bin_, at, bins):
    return bin_ + bins * (at + 1)


def masked(bins):
    return lambda hashes: hashes % np.uint64(bins)


def lay_out(world, chains, end="null", stride=16, head=8):
    """Write the chains (node numbers by bin) and return the table; hashes fit, links back too."""
    count, nodes = len(chains), [node for chain in chains for node in chain]
    for bin_, chain in enumerate(chains):
        at_head = BINS + bin_ * stride + head
        back_end = at_head - NEXT if end == "head" else 0
        path = [node_at(node) for node in chain]
        world.put(at_head, path[0] if path else back_end)
        for node, following_node, before in zip(path, [*path[1:], back_end], [back_end, *path[:-1]]):
            world.put(node + NEXT, following_node)
            world.put(node + PREV, before)
        if end == "head":
            world.put(at_head + PREV, path[-1] if path else back_end)
        for node in chain:
            world.put(node_at(node) + HASH, hash_of(bin_, node, count), 4)
    links = Links(NEXT, prev=PREV, alignment=8)
    array = BinArray(BINS, count, stride, head, bin_of=masked(count))
    return Table(TABLE, Node(links, Scalar(HASH, 4)), [array], end, entries=len(nodes))


def chains_at_random():
    """Bins, each with different nodes."""
    return st.lists(st.integers(0, 12), max_size=60).flatmap(
        lambda owners: st.permutations(range(len(owners))).map(
            lambda order: [[node for node in order if owners[node] == bin_] for bin_ in range(13)]
        )
    )


def found_chains(table, walk):
    """Return the walk as node numbers by bin, having seen that owners and lengths agree."""
    assert np.bincount(walk.owners.astype(int), minlength=table.bins).tolist() == walk.lengths.tolist()
    assert (np.diff(walk.owners.astype(np.int64)) >= 0).all()
    chains = [[] for _ in range(table.bins)]
    for node, owner in zip(walk.nodes.tolist(), walk.owners.tolist()):
        chains[owner].append((node - NODES) // STEP)
    return chains


def kinds(problems):
    return [problem.kind for problem in problems]


CHAINS = [[0, 1, 2], [], [3], [7, 5], [], [4], [], [6]]


@settings(max_examples=examples(100), deadline=None)
@given(
    chains_at_random(),
    st.sampled_from(["null", "head"]),
    st.sampled_from([None, 0, 4096, 1 << 28]),
    st.integers(1, 20),
    st.sampled_from([0, 96]),
)
def test_a_table_is_walked_bin_by_bin_and_found_sound(chains, end, kept, batch, few):
    """``kept``: bytes of windows that are kept of a memory that must be copied; None: it is lent."""
    world = World()
    table = lay_out(world, chains, end, stride=32 if end == "head" else 16)
    target = world.target(kept is not None)
    limits = patch.object(gathering, "MOST_KEPT", kept or 0), patch.object(following, "_FEW", few)
    with patch.object(heading, "_BATCH", batch), patch.object(chaining, "_FEW", few), limits[0], limits[1]:
        walk = walk_bins(target, table)
        problems = check_bins(target, table, walk)
    assert found_chains(table, walk) == chains
    assert walk.complete and not walk.ends and not problems
    assert set(walk.reasons.tolist()) <= {End.HEAD if end == "head" else End.NULL}
    assert misplaced(target, table, walk) == (0, ())


@pytest.mark.parametrize("abi", [I386, PPC])
def test_a_table_of_32_bits(abi):
    world = World(abi)
    for bin_, chain in enumerate(CHAINS):
        path = [node_at(node) for node in chain]
        world.put(BINS + 12 * bin_ + 4, path[0] if path else 0)
        for node, following_node in zip(path, [*path[1:], 0]):
            world.put(node, following_node)
    table = Table(TABLE, Node(Links(0)), [BinArray(BINS, len(CHAINS), 12, 4)], entries=8)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS and check_bins(world.target(), table, walk) == []


def test_links_of_heads_and_nodes_carry_tags():
    world = World()
    table = lay_out(world, CHAINS)
    for bin_ in range(len(CHAINS)):
        world.put(
            BINS + 16 * bin_ + 8, world.get(BINS + 16 * bin_ + 8) | 1
        )  # linux hlist_bl: a lock in the head
    table = table._replace(node=table.node._replace(links=table.node.links._replace(mask=7, prev=None)))
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS and check_bins(world.target(), table, walk) == []


def test_heads_that_end_by_a_bit_are_empty():
    world = World()
    table = lay_out(world, CHAINS)
    for bin_, chain in enumerate(CHAINS):  # linux hlist_nulls: the end is the bin's number, odd
        world.put(node_at(chain[-1]) + NEXT if chain else BINS + 16 * bin_ + 8, 2 * bin_ + 1)
    links = table.node.links._replace(end_bits=1, prev=None)
    table = table._replace(node=table.node._replace(links=links))
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS and check_bins(world.target(), table, walk) == []
    assert set(walk.reasons.tolist()) == {End.SENTINEL}


def test_mangled_chains_hang_on_plain_heads():
    world = World()
    table = lay_out(world, CHAINS)
    for chain in CHAINS:
        for node in chain:
            place = node_at(node) + NEXT
            world.put(place, world.get(place) ^ (place >> 12))
    links = Links(NEXT, mangled=True, alignment=16)
    table = table._replace(node=Node(links))
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS


@pytest.mark.parametrize("abi", [X86_64, PPC])
def test_nodes_whose_links_lead_to_links(abi):
    """Linux: the head is a link inside the bin, and links lead to the links inside the elements."""
    world, word = World(abi), abi.pointer_size
    link_at = 4 * word
    for bin_, chain in enumerate(CHAINS):
        head = BINS + 4 * word * bin_ + word
        path = [head, *(node_at(node) + link_at for node in chain), head]
        for before, at, after in zip([path[-2], *path], path[:-1], path[1:]):
            world.put(at, after)
            world.put(at + word, before)
    links = Links(link_at, prev=link_at + word, relative=-link_at)
    table = Table(TABLE, Node(links), [BinArray(BINS, len(CHAINS), 4 * word, word)], "head", entries=8)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS and set(walk.reasons.tolist()) == {End.HEAD}
    assert check_bins(world.target(), table, walk) == []


def test_bins_that_close_their_chains_without_being_nodes():
    """CIRCLEQ: the ends of a chain lead to the head itself, whose members are not where a node has its own."""
    world, own = World(), 24  # where the links are in a node
    for bin_, chain in enumerate(CHAINS):
        head = BINS + 16 * bin_
        path = [node_at(node) for node in chain]
        world.put(head, path[0] if path else head)
        world.put(head + 8, path[-1] if path else head)
        for before, at, after in zip([head, *path], path, [*path[1:], head]):
            world.put(at + own, after)
            world.put(at + own + 8, before)
    array = BinArray(BINS, len(CHAINS), 16, 0, stop=0)
    table = Table(TABLE, Node(Links(own, prev=own + 8)), [array], "head", entries=8)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS and set(walk.reasons.tolist()) == {End.HEAD}
    assert check_bins(world.target(), table, walk) == []
    first = node_at(CHAINS[0][0])
    world.put(first + own + 8, BINS + 16)  # the next bin's head
    (problem,) = check_bins(world.target(), table, walk)
    assert (problem.kind, problem.address) == ("chain-prev", first)


def test_bare_keys_are_entries_without_a_link():
    """Redis: an odd pointer is a key, in a bin's head or at a chain's end."""
    world = World()
    table = lay_out(world, CHAINS)
    keys = [NODES + 0x2001, NODES + 0x2011]
    world.put(BINS + 8 + 16 * 1, keys[0])
    world.put(node_at(2) + NEXT, keys[1])
    table = table._replace(node=Node(Links(NEXT, mask=6, leaf_bits=1)), arrays=[replace(table.arrays[0], bin_of=None)])
    walk = walk_bins(world.target(), table)
    expected = [node_at(0), node_at(1), node_at(2), keys[1], keys[0], node_at(3)]
    assert walk.nodes[:6].tolist() == expected
    assert walk.lengths.tolist() == [4, 1, 1, 2, 0, 1, 0, 1] and set(walk.reasons.tolist()) == {End.NULL}


def counted(world, chains):
    """SQLite: all nodes are one list, a bin says where its part begins and how long it is."""
    path = [node for chain in chains for node in chain]
    for node, following_node in zip(path, [*path[1:], None]):
        world.put(node_at(node) + NEXT, 0 if following_node is None else node_at(following_node))
    for bin_, chain in enumerate(chains):
        world.put(BINS + 16 * bin_, len(chain), 4)
        world.put(BINS + 16 * bin_ + 8, node_at(chain[0]) if chain else 0)
    array = BinArray(BINS, len(chains), 16, 8, length=Scalar(0, 4))
    return Table(TABLE, Node(Links(NEXT)), [array], "count", entries=len(path))


@settings(max_examples=50, deadline=None)
@given(chains_at_random())
def test_chains_that_end_by_their_count(chains):
    world = World()
    table = counted(world, chains)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == chains and check_bins(world.target(), table, walk) == []
    assert set(walk.reasons.tolist()) <= {End.NULL, End.COUNT}


def test_a_chain_that_is_shorter_than_its_count_is_told():
    world = World()
    table = counted(world, CHAINS)
    world.put(BINS + 16 * 7, 5, 4)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS
    (problem,) = check_bins(world.target(), table, walk)
    assert (problem.kind, problem.address) == ("chain-count", BINS + 16 * 7)
    assert problem.message == "bin 7 counts 5 entries, 1 were walked"


def test_counts_beside_chains_that_end_by_null_are_compared():
    """uthash: each bin counts, and its chain ends with null."""
    world = World()
    table = lay_out(world, CHAINS)
    for bin_, chain in enumerate(CHAINS):
        world.put(BINS + 16 * bin_, len(chain), 4)
    table = table._replace(arrays=[replace(table.arrays[0], length=Scalar(0, 4))])
    walk = walk_bins(world.target(), table)
    assert check_bins(world.target(), table, walk) == []
    world.put(BINS + 16 * 3, 9, 4)
    assert kinds(check_bins(world.target(), table, walk)) == ["chain-count"]


def segmented(world, chains, each=4):
    """dynahash: a directory of pointers to segments of bins."""
    count = -(-len(chains) // each)
    for segment in range(count):
        world.put(BINS + 8 * segment, BINS + 0x100 + 0x80 * ((3 * segment) % 5))
    for bin_, chain in enumerate(chains):
        place = BINS + 0x100 + 0x80 * ((3 * (bin_ // each)) % 5) + 8 * (bin_ % each)
        world.put(place, node_at(chain[0]) if chain else 0)
        for node, following_node in zip(chain, [*chain[1:], None]):
            world.put(node_at(node) + NEXT, 0 if following_node is None else node_at(following_node))
    return Table(TABLE, Node(Links(NEXT)), [BinArray(BINS, len(chains), 8, segment=each)])


@settings(max_examples=50, deadline=None)
@given(chains_at_random(), st.integers(1, 5), st.booleans())
def test_bins_in_segments(chains, batch, copying):
    world = World()
    table = segmented(world, chains)
    with patch.object(heading, "_BATCH", batch):
        walk = walk_bins(world.target(copying), table)
    assert found_chains(table, walk) == chains and walk.complete


def test_a_segment_that_is_not_mapped_loses_only_its_bins():
    world = World()
    chains = [*CHAINS, [8], [9]]
    table = segmented(world, chains)
    world.put(BINS + 8, UNMAPPED)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == [*CHAINS[:4], [], [], [], [], [8], [9]]
    assert (walk.reasons[4:8] == End.BAD_POINTER).all() and walk.ends[5] == ChainEnd(
        End.BAD_POINTER, 0, UNMAPPED + 8
    )
    assert kinds(check_bins(world.target(), table, walk)) == ["chain-pointer"] * 4


def test_two_arrays_while_it_is_rehashed_are_numbered_through():
    world = World()
    old = lay_out(world, CHAINS)
    new_chains = [[10], [], [11, 12], []]
    for bin_, chain in enumerate(new_chains):
        world.put(BINS + 0x800 + 8 * bin_, node_at(chain[0]) if chain else 0)
        for node, following_node in zip(chain, [*chain[1:], None]):
            world.put(node_at(node) + NEXT, 0 if following_node is None else node_at(following_node))
            world.put(node_at(node) + HASH, hash_of(bin_, node, 4), 4)
    new = BinArray(BINS + 0x800, 4, 8, bin_of=masked(4))
    node = old.node._replace(links=old.node.links._replace(prev=None))
    table = old._replace(node=node, arrays=[*old.arrays, new], entries=11, rehashing=True)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == [*CHAINS, *new_chains]
    assert check_bins(world.target(), table, walk) == []
    world.put(node_at(11) + HASH, 3, 4)
    assert misplaced(world.target(), table, walk) == (1, (Misplaced(node_at(11), 3, 10, 11),))


def spread(world, chains):
    """libstdc++: one list, and a bin points to the node before its first; the first of all hangs on the table."""
    path = [node for chain in chains for node in chain]
    before = TABLE + 0x100
    world.put(before + NEXT, node_at(path[0]) if path else 0)
    for node, following_node in zip(path, [*path[1:], None]):
        world.put(node_at(node) + NEXT, 0 if following_node is None else node_at(following_node))
    for bin_, chain in enumerate(chains):
        world.put(BINS + 8 * bin_, before if chain else 0)
        before = node_at(chain[-1]) if chain else before
        for node in chain:
            world.put(node_at(node) + HASH, hash_of(bin_, node, len(chains)), 4)
    array = BinArray(BINS, len(chains), 8, bin_of=masked(len(chains)))
    first = node_at(path[0]) if path else 0
    return Table(TABLE, Node(Links(NEXT), Scalar(HASH, 4)), [array], "next-bin", first, entries=len(path))


@settings(max_examples=examples(100), deadline=None)
@given(chains_at_random(), st.integers(1, 20), st.booleans())
def test_bins_of_one_list_are_told_apart(chains, batch, copying):
    world = World()
    table = spread(world, chains)
    with patch.object(heading, "_BATCH", batch):
        walk = walk_bins(world.target(copying), table)
    assert found_chains(table, walk) == chains and walk.complete and not walk.ends
    assert check_bins(world.target(), table, walk) == []
    assert set(walk.reasons.tolist()) <= {End.NULL, End.COUNT}


def test_a_broken_list_is_taken_up_again_at_the_next_bin():
    world = World()
    table = spread(world, CHAINS)
    world.put(node_at(3) + NEXT, UNMAPPED)  # bin 2's only node; bin 3 was found through it
    world.put(BINS + 8 * 3, TABLE + 0x200)
    world.put(TABLE + 0x200, node_at(7))
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS
    assert walk.ends == {2: ChainEnd(End.BAD_POINTER, 1, UNMAPPED)}
    assert kinds(check_bins(world.target(), table, walk)) == ["chain-pointer"]


def test_a_cycle_in_the_one_list_ends_in_the_bin_that_closes_it():
    world = World()
    table = spread(world, CHAINS)
    world.put(node_at(6) + NEXT, node_at(3))
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS
    assert walk.ends == {7: ChainEnd(End.CYCLE, 1, node_at(3), 5)}


def test_a_bin_that_points_nowhere_is_told():
    world = World()
    table = spread(world, CHAINS)
    world.put(BINS + 8, UNMAPPED)
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk) == CHAINS and walk.ends == {1: ChainEnd(End.BAD_POINTER, 0, UNMAPPED)}


def test_bins_that_claim_the_same_part_share_its_nodes():
    world = World()
    table = spread(world, CHAINS)
    world.put(BINS + 8, world.get(BINS + 8 * 3))
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk)[1] == found_chains(table, walk)[3] == [7, 5]
    assert "chain-shared" in kinds(check_bins(world.target(), table, walk))


def test_a_bound_cuts_each_bin_of_the_one_list():
    world = World()
    table = spread(world, CHAINS)
    walk = walk_bins(world.target(), table, most=2)
    assert found_chains(table, walk) == [chain[:2] for chain in CHAINS]
    assert walk.reasons[0] == End.LIMIT and check_bins(world.target(), table, walk) == []


ENDS = {
    "unmapped": (UNMAPPED, End.BAD_POINTER, "chain-pointer"),
    "misaligned": (node_at(9) + 4, End.DECODE_ERROR, "chain-misaligned"),
    "marker": (0xDEAD0000, End.FORBIDDEN, "chain-marker"),
    "cycle": (node_at(1), End.CYCLE, "chain-cycle"),
}


@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize("damage", ENDS)
def test_a_broken_chain_is_told_and_the_others_walked(damage, copying):
    value, reason, kind = ENDS[damage]
    world = World()
    table = lay_out(world, CHAINS)
    world.put(node_at(2) + NEXT, value)
    links = table.node.links._replace(forbidden=(0xDEAD0000,))
    table = table._replace(node=table.node._replace(links=links))
    target = world.target(copying)
    walk = walk_bins(target, table)
    assert found_chains(table, walk) == CHAINS and walk.reasons[0] == reason and not walk.reasons[1:].any()
    assert walk.ends == {0: ChainEnd(reason, 3, value, 2 if damage == "cycle" else None)}
    (problem,) = check_bins(target, table, walk)
    assert problem.kind == kind and problem.address == value and "the chain of bin 0" in problem.message


def test_a_node_in_two_bins_is_told():
    world = World()
    table = lay_out(world, CHAINS)
    world.put(node_at(3) + NEXT, node_at(1))
    walk = walk_bins(world.target(), table)
    assert found_chains(table, walk)[2] == [3, 1, 2]
    problems = check_bins(world.target(), table, walk)
    shared = [problem for problem in problems if problem.kind == "chain-shared"]
    assert [problem.address for problem in shared] == [node_at(1), node_at(2)]
    assert shared[0].message == "the node is in bin 0 and in bin 2"
    assert {"misplaced-entry", "chain-prev", "table-count"} <= set(kinds(problems))


def test_an_entry_in_another_bin_than_its_hash_says_is_told():
    world = World()
    table = lay_out(world, CHAINS)
    world.put(node_at(5) + HASH, 0x106, 4)
    walk = walk_bins(world.target(), table)
    assert misplaced(world.target(), table, walk) == (1, (Misplaced(node_at(5), 0x106, 3, 6),))
    (problem,) = check_bins(world.target(), table, walk)
    assert problem.kind == "misplaced-entry" and problem.address == node_at(5)
    assert problem.message == "the entry is in bin 3, its hash 0x106 belongs to bin 6"


def test_where_nothing_tells_the_bin_of_an_entry_none_is_misplaced():
    world = World()
    table = lay_out(world, CHAINS)
    walk = walk_bins(world.target(), table)
    assert misplaced(world.target(), table._replace(node=table.node._replace(hash=None)), walk) == (None, ())
    unknown = table._replace(arrays=[replace(table.arrays[0], bin_of=None)])
    assert misplaced(world.target(), unknown, walk) == (None, ())


def test_a_link_back_that_is_off_is_told():
    world = World()
    table = lay_out(world, CHAINS)
    world.put(node_at(5) + PREV, node_at(1))
    (problem,) = check_bins(world.target(), table, walk_bins(world.target(), table))
    assert problem.kind == "chain-prev" and problem.address == node_at(5)


def test_a_count_of_the_table_that_is_off_is_told():
    world = World()
    table = lay_out(world, CHAINS)._replace(entries=100)
    (problem,) = check_bins(world.target(), table, walk_bins(world.target(), table))
    assert (problem.kind, problem.message) == ("table-count", "the table counts 100 entries, 8 were walked")


def test_a_circular_chain_that_ends_with_null_is_told():
    world = World()
    table = lay_out(world, CHAINS, "head", stride=32)
    world.put(node_at(2) + NEXT, 0)
    (problem,) = check_bins(world.target(), table, walk_bins(world.target(), table))
    assert (problem.kind, problem.address) == ("chain-end", node_at(2))


def with_lru(world, table, order):
    path = [node_at(node) for node in order]
    for node, after, before in zip(path, [*path[1:], 0], [0, *path[:-1]]):
        world.put(node + LRU_NEXT, after)
        world.put(node + LRU_PREV, before)
    lru = ListHead(TABLE + 0x40, path[0], Node(Links(LRU_NEXT, prev=LRU_PREV)), last=path[-1])
    return table._replace(lru=lru)


def test_the_list_through_all_entries_is_held_to_them():
    world = World()
    table = with_lru(world, lay_out(world, CHAINS), [3, 1, 0, 7, 6, 5, 4, 2])
    walk = walk_bins(world.target(), table)
    assert check_bins(world.target(), table, walk) == []
    table = with_lru(world, table, [3, 1, 0, 7, 6, 5, 9])
    problems = check_bins(world.target(), table, walk)
    assert kinds(problems) == ["lru-count", "lru-entries", "lru-entries"]
    assert problems[0].message == "the list through all entries has 7, the bins have 8"
    assert problems[1].address == node_at(9) and "1 entries are in no bin" in problems[1].message
    assert problems[2].address == node_at(2) and "2 entries are in the bins only" in problems[2].message
    world.put(node_at(0) + LRU_PREV, UNMAPPED)
    assert "lru-prev" in kinds(check_bins(world.target(), table, walk))


def test_bins_that_the_core_lacks_are_absent_and_no_damage():
    world = World()
    table = lay_out(world, CHAINS)
    regions = [
        Region(TABLE, TABLE + 4096),
        Region(BINS, BINS + 4096, source="absent"),
        Region(NODES, NODES + (1 << 14)),
    ]
    target = world.target(regions=regions, without=[BINS])
    walk = walk_bins(target, table)
    assert (walk.reasons == End.ABSENT).all() and not walk.complete and not len(walk.nodes)
    problems = check_bins(target, table, walk)
    assert set(kinds(problems)) == {"absent-memory"} and not any(problem.corruption for problem in problems)


def test_bins_that_the_core_lacks_in_part():
    world = World()
    table = lay_out(world, CHAINS)
    data = world.parts[BINS]
    world.parts[BINS] = data[:64]  # four of the eight
    regions = [
        Region(BINS, BINS + 64),
        Region(BINS + 64, BINS + 4096, source="absent"),
        Region(NODES, NODES + (1 << 14)),
    ]
    walk = walk_bins(world.target(regions=regions), table)
    assert found_chains(table, walk)[:4] == CHAINS[:4] and not walk.complete
    assert walk.reasons.tolist() == [End.NULL] * 4 + [End.ABSENT] * 4


def test_nodes_that_the_core_lacks_are_absent():
    world = World()
    table = lay_out(world, CHAINS)
    regions = [Region(BINS, BINS + 4096), Region(NODES, NODES + (1 << 14), source="absent")]
    walk = walk_bins(world.target(regions=regions, without=[TABLE, NODES]), table)
    assert not walk.complete and not len(walk.nodes)
    assert walk.reasons.tolist() == [End.ABSENT if chain else End.NULL for chain in CHAINS]


@pytest.mark.parametrize("end", ["null", "next-bin"])
@pytest.mark.parametrize("address, count", [(UNMAPPED, 8), (BINS, 1 << 24), (BINS - 8, 2), (BINS + 4000, 20)])
def test_bins_that_are_not_mapped_are_an_error(address, count, end):
    world = World()
    table = lay_out(world, CHAINS)._replace(arrays=[BinArray(address, count, 16, 8)], end=end)
    with pytest.raises(FaultError, match=f"of its {count} bins at {address:#x}"):
        walk_bins(world.target(), table)


def test_a_directory_that_is_not_mapped_is_an_error():
    table = Table(TABLE, Node(Links(NEXT)), [BinArray(UNMAPPED, 100, 8, segment=10)])
    with pytest.raises(FaultError, match="of its 100 bins"):
        walk_bins(World().target(), table)


def test_more_bins_than_can_be_are_an_error():
    table = Table(TABLE, Node(Links(NEXT)), [BinArray(BINS, 1 << 40, 8)])
    with pytest.raises(ShapeError, match="the table at 0x8000 claims 1099511627776 bins"):
        walk_bins(World().target(), table)


def test_xor_links_in_bins_are_an_error():
    table = Table(TABLE, Node(Links(NEXT, xor=True)), [BinArray(BINS, 8, 8)])
    with pytest.raises(ShapeError, match="xor"):
        walk_bins(World().target(), table)


@pytest.mark.parametrize("arrays", [[], [BinArray(UNMAPPED, 0, 8)]])
@pytest.mark.parametrize("end", ["null", "next-bin"])
def test_a_table_without_bins_is_empty(arrays, end):
    target, table = World().target(), Table(TABLE, Node(Links(NEXT)), arrays, end, entries=0)
    walk = walk_bins(target, table)
    assert walk.complete and not len(walk.nodes) and check_bins(target, table, walk) == []


class Stopping:
    """A progress that is interrupted after some calls."""

    def __init__(self, calls):
        self.calls = calls

    def at(self, doing, done, total):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("make", [lay_out, spread])
@pytest.mark.parametrize("calls", range(12))
def test_an_interrupt_leaves_the_bins_that_were_walked(calls, make):
    world = World()
    table = make(world, CHAINS)
    with patch.object(heading, "_BATCH", 2):
        walk = walk_bins(world.target(), table, progress=Stopping(calls))
    for chain, expected, reason in zip(found_chains(table, walk), CHAINS, walk.reasons.tolist()):
        assert chain == expected if reason != End.INTERRUPTED else chain == expected[: len(chain)]
    assert walk.complete == (End.INTERRUPTED not in walk.reasons)
    assert "table-count" not in kinds(check_bins(world.target(), table, walk))
    if calls == 0:
        assert not walk.complete


def test_a_bound_holds_for_each_bin():
    world = World()
    table = lay_out(world, CHAINS)
    walk = walk_bins(world.target(), table, most=1)
    assert found_chains(table, walk) == [chain[:1] for chain in CHAINS] and walk.complete
    assert walk.ends[0] == ChainEnd(End.LIMIT, 1, node_at(1))
    assert check_bins(world.target(), table, walk) == []


def test_many_broken_bins_are_counted():
    world = World(bins=1 << 15)
    table = Table(TABLE, Node(Links(NEXT)), [BinArray(BINS, 2000, 16, 8)])
    for bin_ in range(2000):
        world.put(BINS + 16 * bin_ + 8, UNMAPPED)
    walk = walk_bins(world.target(), table)
    assert len(walk.ends) == 1000
    problems = check_bins(world.target(), table, walk)
    assert len(problems) == 21 and problems[-1].message == "1 980 more chains end so: bad-pointer"


@pytest.mark.parametrize("kept", [None, 0, 4096])
@pytest.mark.parametrize("end", ["null", "next-bin"])
def test_bins_that_all_lead_into_one_chain_are_given_up(end, kept):
    length, count = 3000, 1000
    nodes = NODES + 16 * np.arange(length, dtype=np.uint64)
    links = np.zeros(2 * length, np.uint64)
    links[:-2:2] = nodes[1:]
    memory = FakeMemory([(BINS, struct.pack("<Q", NODES) * count), (NODES, memoryview(links).cast("B"))])
    table = Table(TABLE, Node(Links(0)), [BinArray(BINS, count, 8)], end, list_first=NODES)
    target = Target(memory if kept is None else Copying(memory), X86_64)
    limits = {"_UNWATCHED": 10_000, "_AT_FIRST": 1000}
    few_bins = patch.object(heading, "_BATCH", 300)
    with patch.multiple(following, **limits), patch.object(gathering, "MOST_KEPT", kept or 0), few_bins:
        walk = walk_bins(target, table)
    assert End.INTERRUPTED not in walk.reasons
    assert not walk.complete and len(walk.nodes) < 100_000 and (walk.reasons == End.LIMIT).any()
    assert "chain-shared" in kinds(check_bins(target, table, walk)) or end == "next-bin"


def test_a_large_sound_table_is_not_given_up():
    count = 5000
    links = np.zeros(2 * count, np.uint64)
    nodes = NODES + 16 * np.arange(count, dtype=np.uint64)
    links[:-2:2] = np.where(np.arange(count - 1) % 10 == 9, 0, nodes[1:])
    heads = np.ascontiguousarray(nodes[::10])
    memory = FakeMemory([(BINS, memoryview(heads).cast("B")), (NODES, memoryview(links).cast("B"))])
    table = Table(TABLE, Node(Links(0)), [BinArray(BINS, count // 10, 8)], entries=count)
    target = Target(memory, X86_64)
    with patch.object(following, "_UNWATCHED", 100), patch.object(following, "_AT_FIRST", 50):
        walk = walk_bins(target, table)
    assert walk.complete and (walk.nodes == nodes).all() and not check_bins(target, table, walk)
