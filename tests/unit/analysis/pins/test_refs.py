"""``blocks refs`` in memory laid out by hand."""

import json

import pytest

from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.refs import DEEPEST, WIDE, refs
from gdbext.heap.model import State
from gdbext.memory import Region
from gdbext.render import json_pieces, text
from tests.support.reachworld import DATA, HEAP, STACK, ReachWorld
from tests.unit.analysis.reach.names import SaidNames


def ask(world, address, clear=0, mangled=False, **how):
    reach = world.reach(clear, mangled)
    report = refs(reach, Places(reach, SaidNames()), address, **how)
    document = json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=None)))
    return document["data"], "".join(text(report, exact=False, limit=None))


def words(rows):
    return [(row["kind"], row["address"], row["into"]) for row in rows]


def test_roots_blocks_and_freed_memory_point_at_a_block():
    world = ReachWorld()
    block, other = world.block(HEAP + 0x100, 64), world.block(HEAP + 0x200, 64)
    freed = world.block(HEAP + 0x300, 64, State.FREE)
    world.put(DATA + 8, block)
    world.put(STACK + 0x3000, block)
    world.thread(registers={"rbx": block})
    world.put(other + 16, block)
    world.put(freed + 32, block)
    world.put(HEAP + 0x180, block)  # between blocks
    world.put(DATA + 0x20, block + 8, block + 1)
    data, shown = ask(world, block + 5)
    assert words(data["references"]) == [
        ("register", None, 0), ("global", hex(DATA + 8), 0), ("stack", hex(STACK + 0x3000), 0),
        ("block", hex(other + 16), 0),
    ]  # fmt: skip
    assert words(data["stale_references"]) == [
        ("allocator", hex(HEAP + 0x180), 0), ("free block", hex(freed + 32), 0)
    ]  # fmt: skip
    assert (data["pointers"], data["interior"], data["stale"]) == (4, 2, 2)
    assert (data["block"], data["size"], data["state"], data["reach"]) == (hex(block), 64, "in use", "reached")
    assert "5 bytes into block 0x10100 (64 bytes), in use, reached" in shown
    assert "rbx of thread 1" in shown and "free block 0x10300 (64 bytes) +0x20, stale" in shown
    assert all(row["depth"] == 1 and row["target"] == hex(block) for row in data["references"])


def test_pointers_into_the_middle_when_asked():
    world = ReachWorld()
    block = world.block(HEAP + 0x100, 64)
    world.put(DATA, block + 24)
    world.thread(registers={"rbx": block + 9})
    data, shown = ask(world, block)
    assert data["references"] == [] and data["interior"] == 2
    assert "no start pointer, 2 interior pointers: see --interior" in shown
    data, shown = ask(world, block, interior=True)
    assert [row["into"] for row in data["references"]] == [9, 24] and "see --interior" not in shown


def test_a_freed_block_has_dangling_pointers():
    world = ReachWorld()
    freed, holder = world.block(HEAP + 0x100, 64, State.TCACHE), world.block(HEAP + 0x200, 64)
    world.put(DATA, freed)
    world.put(holder + 8, freed)
    data, shown = ask(world, freed + 8)
    assert [row["kind"] for row in data["references"]] == ["global", "block"]
    assert (data["state"], data["reach"], data["block"]) == ("tcache", None, hex(freed))
    assert "not in use: free (tcache). These are dangling pointers" in " ".join(shown.split())


def test_the_allocator_s_own_lists_keep_nothing():
    world = ReachWorld()
    freed, cache = world.block(HEAP + 0x100, 64, State.TCACHE), world.block(HEAP + 0x200, 64)
    world.extra["metadata"] = [(cache, cache + 64)]
    world.put(cache + 8, freed)
    data, _ = ask(world, freed)
    assert data["references"] == [] and [row["kind"] for row in data["stale_references"]] == ["allocator"]


def test_an_address_in_no_block_stands_for_itself():
    world = ReachWorld()
    holder = world.block(HEAP + 0x100, 64)
    world.put(holder, DATA + 0x500, DATA + 0x508)
    data, shown = ask(world, DATA + 0x508)
    assert words(data["references"]) == [("block", hex(holder + 8), 0)]
    assert data["block"] is None and data["state"] is None and "is in no block: words of exactly this value" in shown


def test_an_address_that_is_not_mapped_is_a_number_that_words_may_have():
    world = ReachWorld()
    holder = world.block(HEAP + 0x100, 64)
    world.put(holder, 0xDEAD000)
    data, shown = ask(world, 0xDEAD000)
    assert words(data["references"]) == [("block", hex(holder), 0)]
    assert "0xdead000 is not mapped: words of exactly this value" in shown


def test_free_memory_far_from_live_blocks_is_looked_through():
    world = ReachWorld()
    world.map(Region(0x800000, 0x804000, name="[heap]"))
    block = world.block(HEAP + 0x100, 64)
    far = world.block(0x800100, 0x1000, State.TOP)
    world.put(far + 0x800, block)
    data, _ = ask(world, block)
    # In this world nobody says that the second mapping is the allocator's, so it is root memory.
    assert [row["address"] for row in data["references"]] == [hex(far + 0x800)]
    world.extra["metadata"] = [(0x800000, 0x804000)]
    data, _ = ask(world, block)
    assert data["references"] == [] and [row["address"] for row in data["stale_references"]] == [hex(far + 0x800)]


def test_upwards_with_a_cycle():
    world = ReachWorld()
    first, second, third = (world.block(HEAP + 0x100 * at, 64) for at in (1, 2, 3))
    world.put(DATA, first)
    world.put(first, second)
    world.put(second, third)
    world.put(third, third, first)  # to itself, and back
    data, shown = ask(world, third, depth=9)
    rows = [(row["depth"], row["address"], row["target"], row["again"], row["pointers"]) for row in data["references"]]
    assert rows == [
        (1, hex(second), hex(third), False, 1),
        (2, hex(first), hex(second), False, 2),
        (3, hex(DATA), hex(first), False, None),
        (3, hex(third + 8), hex(first), True, None),
        (1, hex(third), hex(third), True, None),
    ]
    assert "· · data of app +0x0" in shown and "(shown elsewhere)" in shown and "(itself)" in shown
    shallow, _ = ask(world, third, depth=2)
    assert [row["depth"] for row in shallow["references"]] == [1, 2, 1]


def test_the_width_of_a_tree_is_bounded():
    world = ReachWorld()
    block, holder = world.block(HEAP + 0x100, 64), world.block(HEAP + 0x200, 64)
    world.put(holder, block)
    world.put(DATA, *[holder] * 50)
    data, shown = ask(world, block, depth=3)
    assert len(data["references"]) == 1 + WIDE and data["references"][0]["pointers"] == 50
    assert f"at most {WIDE} pointers" in shown
    world.put(STACK + 0x3000, *[block] * 50)
    data, _ = ask(world, block, depth=2)
    assert data["pointers"] == 51 and sum(row["depth"] == 1 for row in data["references"]) == WIDE


def test_tags_are_cleared():
    world = ReachWorld()
    block = world.block(HEAP + 0x100, 64)
    world.put(DATA, block | 3)
    world.thread(registers={"rbx": block | 5})
    assert ask(world, block)[0]["pointers"] == 0
    data, _ = ask(world, block, clear=7)
    assert [row["into"] for row in data["references"]] == [0, 0]


def test_mangled_pointers_say_so():
    world = ReachWorld()
    block, other = world.block(HEAP + 0x100, 16), world.block(HEAP + 0x200, 16)
    freed = world.block(HEAP + 0x300, 16, State.FREE)
    for place in (DATA, other + 8, freed + 8):
        world.put(place, block ^ place >> 12)
    world.put(STACK + 0x3000, block, (block + 3) ^ STACK + 0x3008 >> 12)
    data, _ = ask(world, block, interior=True)
    assert [(row["address"], row["mangled"]) for row in data["references"]] == [(hex(STACK + 0x3000), False)]
    data, shown = ask(world, block, mangled=True, interior=True)
    assert [(row["address"], row["into"], row["mangled"]) for row in data["references"]] == [
        (hex(DATA), 0, True), (hex(STACK + 0x3000), 0, False), (hex(STACK + 0x3008), 3, True),
        (hex(other + 8), 0, True),
    ]  # fmt: skip
    assert data["stale_references"][0]["mangled"] and "data of app +0x0, mangled" in shown
    assert f"free block {freed:#x} (16 bytes) +0x8, stale, mangled" in shown


def test_who_points_by_mangled_pointers_at_those():
    world = ReachWorld()
    block, other = world.block(HEAP + 0x100, 16), world.block(HEAP + 0x200, 16)
    world.put(DATA, other ^ DATA >> 12)
    world.put(other + 8, block ^ other + 8 >> 12)
    data, _ = ask(world, block, mangled=True, depth=0)
    assert [(row["address"], row["mangled"]) for row in data["references"]] == [
        (hex(other + 8), True), (hex(DATA), True)
    ]  # fmt: skip


def test_what_leads_to_another_block_as_it_stands_is_no_mangled_pointer():
    world = ReachWorld()
    other = world.block(HEAP + 0x200 ^ HEAP >> 12, 16)
    freed, held = world.block(HEAP + 0x200, 16, State.FREE), world.block(HEAP + 0x400, 16)
    world.put(held, other)
    assert ask(world, freed, mangled=True)[0]["pointers"] == 0
    assert ask(world, other, mangled=True)[0]["references"][0]["mangled"] is False


def test_words_of_one_value_mangled_or_not():
    world = ReachWorld()
    world.block(HEAP + 0x100, 16)
    world.put(DATA, 0x5005, 0x5005 ^ DATA + 8 >> 12, 0x5006)
    data, shown = ask(world, 0x5005, mangled=True)
    assert [row["mangled"] for row in data["references"]] == [False, True]
    assert "words of exactly this value, or mangled so" in " ".join(shown.split())


def test_what_is_missing_is_told():
    world = ReachWorld()
    block, held = world.block(HEAP + 0x100, 64), world.block(HEAP + 0x200, 64)
    world.put(DATA, held)
    world.thread(stack_pointer=None)
    reach = world.reach()
    report = refs(reach, Places(reach, SaidNames()), block)
    assert not report.complete
    said = "leaked (INCONCLUSIVE, since registers and stack of thread 1 could not be examined)"
    assert said in " ".join("".join(text(report, exact=False, limit=None)).split())
    assert "INCONCLUSIVE" not in ask(world, held)[1]


@pytest.mark.parametrize("depth", [1, 3])
def test_nothing_points_there(depth):
    world = ReachWorld()
    block = world.block(HEAP + 0x100, 64)
    data, shown = ask(world, block, depth=depth)
    assert data["references"] == [] and data["reach"] == "leaked" and "Pointers: none" in shown


def chained(world, count):
    made = [world.block(HEAP + 0x80 * (number + 1), 64) for number in range(count)]
    world.put(DATA, made[0])
    for one, other in zip(made, made[1:]):
        world.put(one + 8, other)
    return made


def test_long_runs_of_levels_are_folded_for_people():
    world = ReachWorld()
    made = chained(world, 41)
    data, shown = ask(world, made[-1], depth=0)
    assert [row["depth"] for row in data["references"]] == list(range(1, 42))
    table = [line.split(None, 2) for line in shown.partition("Pointers:")[2].splitlines()[2:6]]
    assert table == [
        [f"{made[-2] + 8:#x}", "0", f"block {made[-2]:#x} (64 bytes) +0x8"],
        [f"{made[1] + 8:#x}", "0", "… 38 more levels like this (--json has all)"],
        [f"{made[0] + 8:#x}", "0", f"·39· block {made[0]:#x} (64 bytes) +0x8"],
        [f"{DATA:#x}", "0", "·40· data of app +0x0"],
    ]
    _, short = ask(world, made[-1], depth=4)
    assert "more levels" not in short and f"· · · block {made[-5]:#x} (64 bytes) +0x8" in short


def test_levels_that_others_point_at_too_are_not_folded():
    world = ReachWorld()
    made = chained(world, 20)
    for number, one in enumerate(made[1::2]):
        world.put(DATA + 8 * (number + 1), one)
    _, shown = ask(world, made[-1], depth=0)
    assert "more levels" not in shown and all(f"block {one:#x}" in shown for one in made)


def test_levels_end_somewhere():
    world = ReachWorld()
    made = chained(world, DEEPEST + 20)
    assert len(ask(world, made[-1], depth=0)[0]["references"]) == DEEPEST
    assert len(ask(world, made[-1], depth=1000)[0]["references"]) == DEEPEST


def test_a_block_that_alone_points_into_itself():
    world = ReachWorld()
    block, other = world.block(HEAP + 0x100, 64), world.block(HEAP + 0x200, 64)
    world.put(block + 8, block + 24)
    _, shown = ask(world, block)
    assert "nothing but the block itself points there" in shown and "--interior" not in shown
    world.put(other, block + 16)
    _, shown = ask(world, block)
    assert "no start pointer, 2 interior pointers: see --interior" in shown and "itself" not in shown
    _, shown = ask(ReachWorld(), HEAP + 0x100)
    assert "itself" not in shown
