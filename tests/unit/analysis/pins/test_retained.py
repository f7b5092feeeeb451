"""``blocks retained``: in memory laid out by hand, and held to its own meaning: what is lost without a node."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.retained import find_keepers, retained, sum_up
from gdbext.analysis.types.model import HIGH, BlockTypes, TypeName
from gdbext.memory import Region
from gdbext.render import json_pieces, text
from tests.support.examples import examples
from tests.support.reachworld import DATA, HEAP, STACK, ReachWorld
from tests.unit.analysis.reach.names import SaidNames, variables


def ask(world, top=20, names=None, types=None):
    reach = world.reach()
    known = None
    if types is not None:
        code = np.array([types.get(address, 0) for address in reach.address.tolist()], np.uint32)
        every = [TypeName(name, "debug info") for name in ("unknown", "one", "two", "three")]
        known = BlockTypes(every, code, np.full(len(code), HIGH, np.uint8))
    places = Places(reach, names or SaidNames(), lambda: known)
    report = retained(reach, sum_up(reach, find_keepers(reach, places.names)), places, top)
    document = json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=None)))
    return document["data"], " ".join("".join(text(report, exact=True, limit=None)).split())


def trees():
    """Globals a and b with a tree each, and a block that both share, with one of its own."""
    world = ReachWorld()
    sizes = (1000, 200, 300, 500, 70, 900, 400, 100)
    at = [world.block(HEAP + 0x400 * (number + 1), size) for number, size in enumerate(sizes)]
    world.put(DATA, at[0], at[3])
    world.put(at[0], at[1], at[2])
    world.put(at[3], at[4])
    world.put(at[2], at[5])
    world.put(at[4], at[5] + 8)  # into the middle: it counts
    world.put(at[5], at[6])
    return world, at


def test_each_root_and_block_and_the_sum():
    world, at = trees()
    names = SaidNames(variables([("a", DATA, 8), ("b", DATA + 8, 8)]))
    data, shown = ask(world, names=names)
    assert (data["reached"], data["kept_by_one"], data["shared"], data["leaked"]) == (3370, 2070, 1300, 100)
    assert (data["reached_blocks"], data["shared_blocks"], data["root_count"]) == (7, 2, 2)
    assert [(row["root"], row["retained"], row["blocks"], row["words"], row["address"]) for row in data["roots"]] == [
        ("global a of app", 1500, 3, 1, hex(DATA)), ("global b of app", 570, 2, 1, hex(DATA + 8))
    ]  # fmt: skip
    blocks = {row["address"]: (row["retained"], row["blocks"], row["by"]) for row in data["blocks"]}
    assert blocks[hex(at[0])] == (1500, 3, "global a of app")
    assert blocks[hex(at[5])] == (1300, 2, "several roots")
    assert blocks[hex(at[2])] == (300, 1, f"block {at[0]:#x}")
    assert hex(at[7]) not in blocks and data["types"] is None
    assert "shared by several roots: 1300" in shown


def test_owners_of_every_kind():
    world = ReachWorld()
    blocks = [world.block(HEAP + 0x100 * (at + 1), 16 * (at + 1)) for at in range(7)]
    world.map(Region(0x400000, 0x402000))
    world.map(Region(0x500000, 0x502000, name="/var/some"))
    world.thread(registers={"rbx": blocks[0], "rsi": blocks[0]}, tls=STACK + 0x3F00)
    world.put(STACK + 0x3000, blocks[1])
    world.put(STACK + 0x3F20, blocks[2])
    world.put(0x400008, blocks[3], blocks[3])
    world.put(0x500008, blocks[4])
    world.put(DATA, blocks[5])
    world.put(DATA + 0x50, blocks[6])
    data, _ = ask(world, names=SaidNames(variables([("known", DATA, 8)], static=["known"])))
    rows = {row["root"]: (row["kind"], row["retained"], row["words"], row["thread"]) for row in data["roots"]}
    assert rows == {
        "registers of thread 1": ("register", 16, 2, 1),
        "stack of thread 1": ("stack", 32, 1, 1),
        "thread-local storage of thread 1": ("tls", 48, 1, 1),
        "anonymous memory 0x400000-0x402000": ("anonymous", 64, 2, None),
        "/var/some": ("file", 80, 1, None),
        "static known of app": ("global", 96, 1, None),
        "data of app": ("global", 112, 1, None),
    }


def test_only_what_is_shown_is_named():
    world = ReachWorld()
    rows = []
    for at in range(50):
        world.put(DATA + 8 * at, world.block(HEAP + 0x40 * (at + 1), at + 8))
        rows.append((f"v{at}", DATA + 8 * at, 8))
    names = SaidNames(variables(rows))
    data, _ = ask(world, top=3, names=names)
    assert [row["root"] for row in data["roots"]] == [f"global v{at} of app" for at in (49, 48, 47)]
    assert data["root_count"] == 50 and len(data["blocks"]) == 3 and len(names.asked) <= 6


def test_of_a_list_the_first_node_is_shown():
    world = ReachWorld()
    nodes = [world.block(HEAP + 0x40 * at, 24) for at in range(1, 40)]
    world.put(DATA, nodes[0])
    for one, following in zip(nodes, nodes[1:]):
        world.put(one, following)
    data, _ = ask(world)
    rows = [(row["address"], row["retained"]) for row in data["blocks"]]
    assert rows == [(hex(nodes[0]), 39 * 24), (hex(nodes[-1]), 24)]


def test_types_count_nested_blocks_once():
    world, at = trees()
    types = {at[0]: 1, at[2]: 1, at[1]: 2, at[3]: 2, at[4]: 1, at[5]: 3, at[7]: 3}
    data, _ = ask(world, types=types)
    rows = {row["type"]: (row["retained"], row["own"], row["blocks"]) for row in data["types"]}
    assert rows == {
        "one": (1570, 1370, 3), "two": (770, 700, 2), "three": (1300, 900, 1), "unknown": (None, 400, 1)
    }  # fmt: skip


def test_nothing_is_reached():
    world = ReachWorld()
    world.block(HEAP + 0x100, 64)
    data, shown = ask(world, types={})
    assert (data["reached"], data["kept_by_one"], data["shared"], data["leaked"]) == (0, 0, 0, 64)
    assert data["roots"] == data["blocks"] == data["types"] == [] and "By root: none" in shown


NODES = 9
graphs = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=20)
roots = st.lists(st.tuples(st.integers(0, 3), st.integers(0, NODES - 1)), max_size=6)
typed = st.lists(st.integers(0, 3), min_size=NODES, max_size=NODES)


def lost(edges, entries, without_block=(), without_root=None):
    """Which blocks are reached, one or the other thing being gone."""
    open_ = [to for root, to in entries if root != without_root and to not in without_block]
    seen = set()
    while open_:
        at = open_.pop()
        if at not in seen:
            seen.add(at)
            open_ += [to for source, to in edges if source == at and to not in without_block]
    return seen


@settings(max_examples=examples(120), deadline=None)
@given(graphs, roots, typed)
def test_what_is_retained_is_what_is_lost(edges, entries, codes):
    world = ReachWorld()
    size = [8 * NODES + at for at in range(NODES)]
    at = [world.block(HEAP + 0x100 * (number + 1), size[number]) for number in range(NODES)]
    for number, (source, to) in enumerate(edges):
        offset = 8 * sum(1 for earlier in edges[:number] if earlier[0] == source)
        if offset + 8 <= size[source]:
            world.put(at[source] + offset, at[to])
        else:
            edges = [*edges[:number], (source, source), *edges[number + 1 :]]
    for number, (root, to) in enumerate(entries):
        world.put(DATA + 0x100 * root + 8 * number, at[to])
    names = SaidNames(variables([(f"v{root}", DATA + 0x100 * root, 0x100) for root in range(4)]))
    reached = lost(edges, entries)

    def cost(**without):
        return sum(size[one] for one in reached - lost(edges, entries, **without))

    reach = world.reach()
    kept = sum_up(reach, find_keepers(reach, names))
    assert {row for row in range(NODES) if kept.count[row]} == reached
    for row in reached:
        assert int(kept.bytes[row]) == cost(without_block={row})
    for number, owner in enumerate(kept.owned.owners):
        root = int(owner.name()[len("global v") :].split(" ")[0])
        assert int(kept.bytes[NODES + number]) == cost(without_root=root)
    data, _ = ask(world, names=names, types=dict(zip(at, codes)))
    assert data["kept_by_one"] + data["shared"] == data["reached"] == sum(size[one] for one in reached)
    for row in data["types"]:
        if row["type"] == "unknown":
            assert row["retained"] is row["share"] is None
            continue
        code = ("unknown", "one", "two", "three").index(row["type"])
        each = [reached - lost(edges, entries, {one}) for one in reached if codes[one] == code]
        assert row["retained"] == sum(size[one] for one in set().union(*each))
