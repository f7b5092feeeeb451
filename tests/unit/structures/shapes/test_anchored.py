"""Shapes that need no object: recognised, and opened without an expression or by their variable's name."""

import pytest

from gdbext.layout.types import Located
from gdbext.structures.shapes.anchored import anchors, find_anchored, is_anchored
from gdbext.structures.shapes.resolve import Overrides, open_located
from gdbext.structures.shapes.shape import parse_shape
from gdbext.structures.walk.bins import walk_bins
from gdbext.structures.walk.lists import walk_list
from tests.support.worlds import World, library

BINS = (
    'name="bins"\nkind="bins"\n[let]\nbits="@bits"\n'
    '[[bins]]\narray="@heads"\ncount="1 << bits"\n[node]\nnext="next"\n'
)
LIST = 'name="list"\nkind="list"\n[list]\nfirst="@queue"\n[node]\nnext="next"\n'
RAW = 'name="raw"\nkind="bins"\n[[bins]]\narray="@server+0x40"\ncount=4\nstride=8\n[node]\nnext="+0x8"\n'
GROUP = 'name="group"\nkind="group"\n[group]\narray="@tables"\ncount=2\nof="bins"\n'


def shape(text):
    return parse_shape(text, "it.toml")


@pytest.mark.parametrize("text", [BINS, LIST, RAW, GROUP, LIST.replace("[node]", 'end="head"\nstop="@queue"\n[node]')])
def test_those_that_start_at_variables_or_in_files(text):
    assert is_anchored(shape(text))


@pytest.mark.parametrize(
    "text",
    [
        BINS.replace("@heads", "heads"),
        BINS.replace("@bits", "bits"),
        BINS.replace('"1 << bits"', '"size"'),
        BINS + '[table]\nentries="used"\n',
        LIST.replace("@queue", "self"),
        LIST.replace("[node]", 'end="head"\n[node]'),
        LIST.replace("[node]", 'last="last"\n[node]'),
        'name="tree"\nkind="tree"\n[tree]\nroot="@root"\nleft="left"\nright="right"\n',
    ],
)
def test_those_that_need_an_object(text):
    assert not is_anchored(shape(text))


def test_by_their_variables():
    shapes = library(BINS, LIST, RAW, BINS.replace("bins", "other", 1).replace("@heads", "heads"))
    assert find_anchored(shapes, "heads").name == "bins"
    assert find_anchored(shapes, "queue").name == "list"
    assert find_anchored(shapes, "bits") is find_anchored(shapes, "server") is None
    assert anchors(shapes) == ["heads"]  # a list is no table


@pytest.fixture
def world():
    made = World(node="u64 id; struct node *next")
    node = made.type("node")
    nodes = [made.new("node", id=at) for at in range(3)]
    made.set("node", nodes[0], next=nodes[1])
    heads = made.words(nodes[0], 0, nodes[2], 0)
    pointers = made.pointer(made.pointer(node))
    for name, type, value in (
        ("heads", pointers, heads),
        ("bits", made.type("node").fields[0].type, 2),
        ("queue", made.pointer(node), nodes[0]),
    ):
        made.globals[name] = Located(name, type, made.words(value), value)
    made.nodes, made.heads = nodes, heads
    return made


def opened(world, located, **how):
    return open_located(world.target, world, library(BINS, LIST), located, Overrides(**how))


def test_a_table_without_an_expression(world):
    result = opened(world, Located("bins", None, None, 0), shape="bins")
    assert walk_bins(world.target, result.structure, 10).nodes.tolist() == world.nodes
    assert result.described == f"{world.heads:#x}: a table of bins (bins)"  # where it starts, for want of an object


def test_the_expression_does_not_matter_to_it(world):
    result = opened(world, Located("1", None, None, 1), shape="bins")
    assert result.structure.address == world.heads


@pytest.mark.parametrize("text", ["heads", "'table.c'::heads"])
def test_a_table_by_its_variable(world, text):
    located = world.globals["heads"]
    result = opened(world, Located(text, located.type, located.address, located.value))
    assert walk_bins(world.target, result.structure, 10).nodes.tolist() == world.nodes


def test_a_list_stands_where_its_first_link_is(world):
    result = opened(world, Located("list", None, None, 0), shape="list")
    assert walk_list(world.target, result.structure, 10).nodes.tolist() == world.nodes[:2]
    assert result.structure.address == world.globals["queue"].address
