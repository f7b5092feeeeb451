"""Each shape of leak, its words laid out by hand."""

import numpy as np
import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.leaks.groups import NO_LEADER, ROLE_NAMES, group_leaks
from tests.support.reachworld import DATA, HEAP, ReachWorld


class Leaky(ReachWorld):
    """Blocks by their names, 0x100 bytes apart in the order in which they are named."""

    def __init__(self, names, abi=X86_64, size=32):
        super().__init__(abi)
        self.at = {name: self.block(HEAP + 0x100 * (1 + number), size) for number, name in enumerate(names)}
        self._filled = dict.fromkeys(self.at.values(), 0)

    def link(self, source, *targets, into=0):
        for target in targets:
            at = self.at[source]
            self.put(at + self._filled[at], self.at[target] + into)
            self._filled[at] += self.abi.pointer_size

    def groups(self):
        """What became of each leaked block: its role, its leak root (None: several), what a leak root keeps."""
        reach = self.reach()
        groups = group_leaks(reach)
        name = {address: name for name, address in self.at.items()}
        names = [name[int(reach.address[row])] for row in groups.rows]
        kept = {
            names[root]: (blocks, size, cycle)
            for root, blocks, size, cycle in zip(
                groups.roots.tolist(), groups.kept_blocks.tolist(), groups.kept_bytes.tolist(), groups.cycle.tolist()
            )
        }
        leaders = [None if at == NO_LEADER else names[at] for at in groups.leader.tolist()]
        roles = [ROLE_NAMES[role] for role in groups.role.tolist()]
        return {one: (role, leader) for one, role, leader in zip(names, roles, leaders)}, kept


@pytest.fixture(params=[X86_64, I386], ids=["64", "32"])
def leaky(request):
    return lambda names: Leaky(names, request.param)


def test_nothing_leaked(leaky):
    world = leaky("a")
    world.put(DATA, world.at["a"])
    assert world.groups() == ({}, {})


def test_leak_roots_alone(leaky):
    assert leaky("ab").groups() == (
        {"a": ("leak root", "a"), "b": ("leak root", "b")},
        {"a": (1, 32, 0), "b": (1, 32, 0)},
    )


def test_a_chain_is_kept_by_its_first_block_wherever_it_lies(leaky):
    world = leaky("cab")
    world.link("a", "b")
    world.link("b", "c")
    roles, kept = world.groups()
    assert roles == {"a": ("leak root", "a"), "b": ("indirect", "a"), "c": ("indirect", "a")}
    assert kept == {"a": (3, 96, 0)}


def test_a_cycle_is_counted_once_by_its_lowest_block(leaky):
    world = leaky("abc")
    world.link("a", "c")
    world.link("c", "b")
    world.link("b", "a")
    roles, kept = world.groups()
    assert roles == {"a": ("leak root", "a"), "b": ("cycle", "a"), "c": ("cycle", "a")}
    assert kept == {"a": (3, 96, 3)}


def test_what_leads_into_a_cycle_is_its_leak_root(leaky):
    world = leaky("abt")
    world.link("a", "b")
    world.link("b", "a")
    world.link("t", "b")
    roles, kept = world.groups()
    assert roles == {"a": ("indirect", "t"), "b": ("indirect", "t"), "t": ("leak root", "t")}
    assert kept == {"t": (3, 96, 0)}


def test_what_hangs_from_a_cycle_is_indirect(leaky):
    world = leaky("xab")
    world.link("a", "b")
    world.link("b", "a", "x")
    roles, kept = world.groups()
    assert roles == {"x": ("indirect", "a"), "a": ("leak root", "a"), "b": ("cycle", "a")}
    assert kept == {"a": (3, 96, 2)}


def test_a_block_that_points_at_itself_is_a_leak_root(leaky):
    world = leaky("a")
    world.link("a", "a")
    assert world.groups() == ({"a": ("leak root", "a")}, {"a": (1, 32, 0)})


def test_what_two_leak_roots_lead_to_is_kept_by_neither(leaky):
    world = leaky("abst")
    world.link("a", "s")
    world.link("b", "s")
    world.link("s", "t")
    roles, kept = world.groups()
    assert roles["s"] == roles["t"] == ("indirect", None)
    assert kept == {"a": (1, 32, 0), "b": (1, 32, 0)}


def test_pointers_into_the_middle_of_leaked_blocks_count(leaky):
    world = leaky("ab")
    world.link("a", "b", into=8)
    roles, kept = world.groups()
    assert roles == {"a": ("leak root", "a"), "b": ("indirect", "a")}
    assert kept == {"a": (2, 64, 0)}


def test_possibly_leaked_blocks_are_no_leaks_and_lead_to_none(leaky):
    world = leaky("abc")
    world.put(DATA, world.at["a"] + 8)
    world.link("a", "b")
    assert world.groups() == ({"c": ("leak root", "c")}, {"c": (1, 32, 0)})


def test_reached_blocks_between_leaked_ones_do_not_shift_anything(leaky):
    world = leaky("arbqc")
    world.put(DATA, world.at["r"], world.at["q"])
    world.link("r", "q")
    world.link("c", "b", "q")
    roles, kept = world.groups()
    assert roles == {"a": ("leak root", "a"), "b": ("indirect", "c"), "c": ("leak root", "c")}
    assert kept == {"a": (1, 32, 0), "c": (2, 64, 0)}


def test_two_cycles_that_meet_are_one_and_two_apart_are_two(leaky):
    world = leaky("abcdef")
    for one, other in ("ab", "ba", "bc", "cb", "de", "ed"):
        world.link(one, other)
    roles, kept = world.groups()
    assert kept == {"a": (3, 96, 3), "d": (2, 64, 2), "f": (1, 32, 0)}
    assert roles["c"] == ("cycle", "a")


def test_those_that_keep_most_come_first_and_the_lowest_of_equals():
    world = Leaky("abcd")
    world.link("c", "d")
    groups = group_leaks(world.reach())
    assert groups.rows[groups.roots[groups.by_kept]].tolist() == [2, 0, 1]
    assert int(groups.kept_bytes.sum()) == 4 * 32
    assert not groups.shared.any()


def naive(edges, size):
    """Leak roots and what each keeps, by asking of each what is lost without it."""
    count = len(size)

    def from_(starts, without=None):
        seen, open_ = set(), [one for one in starts if one != without]
        while open_:
            one = open_.pop()
            if one not in seen:
                seen.add(one)
                open_ += [to for to in edges[one] if to != without]
        return seen

    reaches = [from_([one]) for one in range(count)]
    roots = [
        one
        for one in range(count)
        if all(other in reaches[one] and one <= other for other in range(count) if one in reaches[other])
    ]
    kept = {}
    for root in roots:
        lost = set(range(count)) - from_([one for one in roots if one != root], root)
        kept[root] = (len(lost), int(sum(size[one] for one in lost)))
    return roots, kept


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_against_removal(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 25))
    world = ReachWorld()
    size = random.integers(9, 24, count) * 8
    for one in range(count):
        world.block(HEAP + 0x100 * (1 + one), int(size[one]))
    edges = [set() for _ in range(count)]
    for _ in range(int(random.integers(0, 2 * count))):
        source, to = (int(one) for one in random.integers(0, count, 2))
        place = HEAP + 0x100 * (1 + source) + 8 * len(edges[source])
        world.put(place, HEAP + 0x100 * (1 + to) + int(random.integers(2)))
        edges[source].add(to)
    groups = group_leaks(world.reach())
    roots, kept = naive(edges, size)
    assert groups.roots.tolist() == roots
    found = zip(groups.kept_blocks.tolist(), groups.kept_bytes.tolist())
    assert dict(zip(roots, found)) == kept
    owned = np.bincount(groups.leader[~groups.shared], minlength=count)
    assert [int(owned[root]) for root in roots] == [kept[root][0] for root in roots]
