"""``blocks path`` in memory laid out by hand."""

import json

import pytest

from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.path import paths
from gdbext.errors import GdbextError
from gdbext.heap.model import State
from gdbext.render import json_pieces, text
from tests.support.reachworld import DATA, HEAP, STACK, ReachWorld
from tests.unit.analysis.reach.names import SaidNames, variables


def ask(world, address, several=1, clear=0, names=None, mangled=False):
    reach = world.reach(clear, mangled)
    report = paths(reach, Places(reach, names or SaidNames()), address, several)
    document = json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=None)))
    return document["data"], " ".join("".join(text(report, exact=False, limit=None)).split())


def pointers(data):
    return [(row["address"], row["to"], row["into"]) for row in data["steps"]]


def blocks(world, count, size=64):
    return [world.block(HEAP + 0x100 * (at + 1), size) for at in range(count)]


def test_the_shortest_of_several_ways():
    world = ReachWorld()
    first, second, third, other = blocks(world, 4)
    world.put(DATA + 0x18, first)
    world.put(first + 8, second)
    world.put(second + 16, third)
    world.put(first + 24, other)
    world.put(other + 24, second)
    names = SaidNames(variables([("cache", DATA, 32)]))
    data, shown = ask(world, third + 3, names=names)
    assert pointers(data) == [
        (hex(DATA + 0x18), hex(first), 0), (hex(first + 8), hex(second), 0), (hex(second + 16), hex(third), 0)
    ]  # fmt: skip
    assert data["depth"] == 3 and data["from_root"] and data["reach"] == "reached"
    assert "kept by: global cache +0x18 of app, by 3 pointers" in shown
    assert "3 bytes into block 0x10300 (64 bytes), in use, reached" in shown


@pytest.mark.parametrize("passing", ["stack", "register"])
def test_a_root_that_lasts_before_a_shorter_way_from_what_is_left_over(passing):
    world = ReachWorld()
    first, second, only = blocks(world, 3)
    world.put(DATA, first)
    world.put(first, second)
    if passing == "stack":
        world.put(STACK + 0x3000, second, only)
    else:
        world.thread(registers={"rax": second, "rbx": only})
    data, _ = ask(world, second)
    assert pointers(data) == [(hex(DATA), hex(first), 0), (hex(first), hex(second), 0)]
    data, _ = ask(world, only)
    assert [row["kind"] for row in data["steps"]] == [passing]


def test_a_beginning_on_a_stack_before_a_middle_in_a_variable():
    world = ReachWorld()
    (block,) = blocks(world, 1)
    world.put(DATA, block + 8)
    world.put(STACK + 0x3000, block)
    data, _ = ask(world, block)
    assert [(row["kind"], row["interior"]) for row in data["steps"]] == [("stack", False)]
    world = ReachWorld()
    first, second = blocks(world, 2)
    world.put(DATA, first)
    world.put(first, second + 8)
    world.put(STACK + 0x3000, second)
    data, _ = ask(world, second)
    assert [(row["kind"], row["interior"]) for row in data["steps"]] == [("stack", False)]


def test_a_long_way_by_beginnings_before_a_short_one_into_the_middle():
    world = ReachWorld()
    first, second, third = blocks(world, 3)
    world.put(DATA, first)
    world.put(first, second)
    world.put(second, third)
    world.put(DATA + 8, third + 8)
    data, _ = ask(world, third)
    assert len(data["steps"]) == 3
    world = ReachWorld()
    first, second = blocks(world, 2)
    world.put(DATA, first + 16)
    world.put(first, second + 8)
    data, _ = ask(world, second)
    assert [(row["into"], row["interior"]) for row in data["steps"]] == [(16, True), (8, True)]
    assert data["reach"] == "possibly leaked"


def test_which_root_is_told():
    world = ReachWorld()
    (block,) = blocks(world, 1)
    world.put(DATA + 0x80, block, block)
    world.put(STACK + 0x3000, block)
    world.thread(registers={"rbx": block})
    assert pointers(ask(world, block)[0]) == [(hex(DATA + 0x80), hex(block), 0)]
    world.put(DATA + 0x80, block + 8, 0)
    assert ask(world, block)[0]["steps"][0]["kind"] == "stack"
    world.put(STACK + 0x3000, 0)
    data, shown = ask(world, block)
    assert pointers(data) == [(None, hex(block), 0)] and "kept by: rbx of thread 1, by 1 pointer" in shown
    world.thread(registers={"rbx": block + 5})
    world.put(DATA + 0x80, 0)
    assert pointers(ask(world, block)[0]) == [(None, hex(block), 5)]


def test_chains_from_several_roots():
    world = ReachWorld()
    left, right, middle, end = blocks(world, 4)
    world.put(DATA, left, right)
    world.put(left, middle)
    world.put(right, end)
    world.put(middle, end)
    world.put(STACK + 0x3000, left)  # the same way as from the global
    data, shown = ask(world, end, several=10)
    assert data["chains"] == 2 and "and 1 more root" in shown
    assert [(row["chain"], row["to"]) for row in data["steps"]] == [
        (1, hex(right)), (1, hex(end)), (2, hex(left)), (2, hex(middle)), (2, hex(end))
    ]  # fmt: skip
    assert ask(world, end, several=2)[0]["chains"] == 2
    world.put(STACK + 0x3000, end)
    assert [row["to"] for row in ask(world, end, several=10)[0]["steps"]][0] == hex(end)


def test_a_leaked_block_is_kept_by_a_leaked_block():
    world = ReachWorld()
    head, middle, end, alone = blocks(world, 4)
    world.put(head, middle)
    world.put(middle + 8, end)
    data, shown = ask(world, end)
    assert pointers(data) == [(hex(head), hex(middle), 0), (hex(middle + 8), hex(end), 0)]
    assert not data["from_root"] and data["depth"] == 2
    assert f"no root leads to it: it is kept by the leaked block {head:#x}" in shown
    for lonely in (head, alone):
        data, shown = ask(world, lonely)
        assert data["steps"] == [] and "no root leads to it, and no other block points at it" in shown


def test_a_leaked_cycle():
    world = ReachWorld()
    one, other = blocks(world, 2)
    world.put(one, other)
    world.put(other, one)
    data, shown = ask(world, other)
    assert pointers(data) == [(hex(one), hex(other), 0)] and "kept by the leaked block" in shown


def test_a_free_block_and_no_block():
    world = ReachWorld()
    freed = world.block(HEAP + 0x100, 64, State.TCACHE)
    world.put(DATA, freed)
    data, shown = ask(world, freed)
    assert data["steps"] == [] and data["depth"] is None and "nothing: it is not in use" in shown
    with pytest.raises(GdbextError, match="0x5 is in no block"):
        ask(world, 5)


def test_tags_on_the_way():
    world = ReachWorld()
    first, second = blocks(world, 2)
    world.put(DATA, first | 1)
    world.put(first, second | 7)
    data, _ = ask(world, second, clear=7)
    assert [row["into"] for row in data["steps"]] == [0, 0] and data["reach"] == "reached"


def test_mangled_pointers_on_the_way():
    world = ReachWorld()
    made = [world.block(HEAP + 0x200 * at, 16) for at in range(1, 20)]
    world.put(DATA, made[0] ^ DATA >> 12)
    for one, following in zip(made, made[1:]):
        world.put(one + 8, following ^ one + 8 >> 12)
    world.put(made[9] + 8, made[10])  # one that is not
    assert ask(world, made[-1])[0]["reach"] == "leaked"
    data, shown = ask(world, made[-1], mangled=True)
    assert [row["mangled"] for row in data["steps"]] == [at != 10 for at in range(19)]
    assert [row["into"] for row in data["steps"]] == [0] * 19 and data["reach"] == "reached"
    assert "kept by: data of app +0x0, mangled, by 19 pointers" in shown
    assert "… 7 more like this" in shown and "… 6 more like this" in shown


def test_a_list_of_many_nodes():
    world = ReachWorld()
    nodes = [world.block(HEAP + 0x20 * at, 24) for at in range(1, 500)]
    world.put(DATA, nodes[0])
    for one, following in zip(nodes, nodes[1:]):
        world.put(one, following)
    data, _ = ask(world, nodes[-1])
    assert data["depth"] == len(nodes) and [row["to"] for row in data["steps"]] == [hex(node) for node in nodes]


def chained(world, count, sizes=(64,), at=8):
    """Blocks that each point at the next, the first held by the data; sizes in turn."""
    made = [world.block(HEAP + 0x100 * (number + 1), sizes[number % len(sizes)]) for number in range(count)]
    world.put(DATA, made[0])
    for one, other in zip(made, made[1:]):
        world.put(one + at, other)
    return made


@pytest.mark.parametrize("count", [2, 4, 5, 6, 18, 60])
def test_long_runs_are_folded_for_people(count):
    world = ReachWorld()
    made = chained(world, count)
    data, shown = ask(world, made[-1])
    assert pointers(data)[1:] == [(hex(one + 8), hex(other), 0) for one, other in zip(made, made[1:])]
    places = [f"block {one:#x} (64 bytes) +0x8" for one in made[:-1]]
    if count <= 5:  # four pointers are no long run
        assert all(place in shown for place in places) and "more like this" not in shown
        return
    folded = f"{made[-2]:#x} 0 … {count - 3} more like this (--json has all) {made[-1]:#x} 0 {places[-1]}"
    assert f"{made[1]:#x} 0 {places[0]} {folded}" in shown
    assert not any(place in shown for place in places[1:-1])


def test_what_differs_is_not_folded():
    world = ReachWorld()
    made = chained(world, 12, sizes=(64, 80))
    assert "more like this" not in ask(world, made[-1])[1]
    world = ReachWorld()
    made = chained(world, 12)
    world.put(made[6] + 8, 0)
    world.put(made[6] + 16, made[7])
    shown = ask(world, made[-1])[1]
    assert f"block {made[6]:#x} (64 bytes) +0x10" in shown and "… 4 more like this" in shown
    assert "… 2 more like this" not in shown and f"block {made[8]:#x} (64 bytes) +0x8" in shown


def test_runs_of_pointers_into_the_middle_are_folded():
    world = ReachWorld()
    made = [world.block(HEAP + 0x100 * (number + 1), 64) for number in range(20)]
    world.put(DATA, made[0])
    for one, other in zip(made, made[1:]):
        world.put(one + 8, other + 16)
    shown = ask(world, made[-1])[1]
    assert f"{made[-2]:#x} 16 … 17 more like this" in shown
