"""What roots keep alive as a tree: small graphs laid out by hand, and what must hold of any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.analysis.pins.retained import find_keepers, sum_up
from gdbext.analysis.pins.retainedtree import folded, retained_tree
from gdbext.analysis.types.model import HIGH, BlockTypes, TypeName
from tests.support.examples import examples
from tests.support.reachworld import DATA, HEAP, ReachWorld
from tests.unit.analysis.reach.names import SaidNames, variables

NAMES = ("unknown", "List", "Node", "Text")


def tree_of(world, codes=None, names=None):
    """Return the nodes as name, bytes, blocks and the path of names above; types by address."""
    reach = world.reach()
    types = None
    if codes is not None:
        code = np.array([codes.get(address, 0) for address in reach.address.tolist()], np.uint32)
        types = BlockTypes([TypeName(name, "debug info") for name in NAMES], code, np.full(len(code), HIGH, np.uint8))
    kept = sum_up(reach, find_keepers(reach, names or SaidNames()))
    return retained_tree(reach, kept, types), kept


def paths_of(rows):
    found = {}
    for at, row in enumerate(rows):
        path, above = [row.name], row.above
        while above is not None:
            assert above < at
            path, above = [rows[above].name, *path], rows[above].above
        found["/".join(path)] = (row.bytes, row.blocks)
    return found


def planted():
    """A global with a list of ten nodes, a text at each; a block that it shares with another global."""
    world = ReachWorld()
    head = world.block(HEAP + 0x400, 1000)
    nodes = [world.block(HEAP + 0x1000 + 0x100 * at, 200) for at in range(10)]
    texts = [world.block(HEAP + 0x3000 + 0x100 * at, 50) for at in range(10)]
    shared = world.block(HEAP + 0x5000, 300)
    world.put(DATA, head)
    world.put(DATA + 8, shared)
    world.put(head, nodes[0], shared)
    for node, behind, text in zip(nodes, [*nodes[1:], None], texts):
        world.put(node, *([text] if behind is None else [behind, text]))
    codes = {head: 1, shared: 3, **dict.fromkeys(nodes, 2), **dict.fromkeys(texts, 3)}
    return world, codes


def test_roots_types_and_what_they_keep():
    world, codes = planted()
    rows, _ = tree_of(world, codes, SaidNames(variables([("a", DATA, 8), ("b", DATA + 8, 8)])))
    assert paths_of(rows) == {
        "global a of app": (3500, 21),
        "global a of app/List": (3500, 21),
        "global a of app/List/Node": (2500, 20),  # the whole list is one node
        "global a of app/List/Node/Text": (500, 10),
        "several roots": (300, 1),
        "several roots/Text": (300, 1),
    }
    assert [row.kind for row in rows if row.above is None] == ["global", "several"]


def test_blocks_without_a_type_are_called_by_their_size():
    world, _ = planted()
    rows, _ = tree_of(world, None, SaidNames(variables([("a", DATA, 8)])))
    assert "global a of app/1 000 bytes/200 bytes/50 bytes" in paths_of(rows)


def test_folded_lines_add_up():
    world, codes = planted()
    rows, kept = tree_of(world, codes)
    lines = [line.rstrip("\n").rpartition(" ") for line in folded(rows)]
    assert sum(int(own) for _, _, own in lines) == int(kept.bytes[kept.rows :].sum()) == 3800
    assert {path.rpartition(";")[2]: int(own) for path, _, own in lines}["Node"] == 2000


def test_names_cannot_break_a_folded_line():
    rows, _ = tree_of(planted()[0])
    (line,) = folded([replace(rows[0], name="a;b\nc 7")])
    assert line == f"a,b c 7 {rows[0].bytes}\n"


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60),
    st.lists(st.integers(0, 3), max_size=31),
)
def test_what_hangs_below_a_node_is_no_more_than_the_node(edges, codes):
    world = ReachWorld()
    blocks = [world.block(HEAP + 0x400 * (at + 1), 16 * (at + 2)) for at in range(31)]
    pointed = {}
    for source, to in edges:
        pointed.setdefault(source, []).append(blocks[to])
    for source, targets in pointed.items():
        if source:
            world.put(blocks[source], *targets[: 2 * (source + 2)])
    world.put(DATA, *pointed.get(0, [])[:8])
    rows, kept = tree_of(world, dict(zip(blocks, codes)))
    below = [0] * len(rows)
    for row in rows:
        if row.above is not None:
            below[row.above] += row.bytes
    assert all(inner <= row.bytes for inner, row in zip(below, rows))
    roots = [row for row in rows if row.above is None]
    reached = int(kept.bytes[kept.rows :].sum()) + sum(row.bytes for row in roots if row.name == "several roots")
    assert sum(row.bytes for row in roots) == reached
