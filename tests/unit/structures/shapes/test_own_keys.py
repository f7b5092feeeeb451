"""Nodes that say how long their key is, and nodes that stand inside elements of an unknown type."""

import pytest

from gdbext.errors import ShapeError
from gdbext.structures.shapes.bind import bind
from gdbext.structures.shapes.opening import open_shape
from gdbext.structures.shapes.saving import save_raw
from gdbext.structures.shapes.shape import parse_shape
from gdbext.structures.walk.model import Scalar
from tests.support.worlds import World, library

SHAPE = """
name = "table"
kind = "bins"
types = ["struct table"]
[[bins]]
array = "bins"
count = "size"
[node]
next = "next"
key = "key"
key_is = "bytes"
key_length = "length"
element = "place"
"""


def opened(text):
    node = "struct node *next; ptr key; u32 length"
    world = World(table="struct node **bins; size_t size; size_t place", node=node)
    address = world.new("table", bins=world.base, size=2, place=24)
    shape = bind(parse_shape(text, "test.toml"), world.type("table"), world, library(text), world.abi)
    return shape, open_shape(shape, world.target, address, world)


def test_a_key_s_length_is_found_in_the_node():
    _, table = opened(SHAPE)
    assert (table.node.key.at, table.node.key.length) == (Scalar(8, 8), Scalar(16, 4))


def test_offsets_keep_it():
    shape, table = opened(SHAPE)
    text = save_raw(shape, "table")
    assert 'key_length = "+0x10:4"' in text
    assert opened(text)[1].node.key == table.node.key


def test_elements_around_the_node_have_no_type_of_their_own():
    _, table = opened(SHAPE)
    assert (table.node.element, table.node.type) == (24, None)
    assert opened(SHAPE.replace('element = "place"\n', ""))[1].node.type == "struct node"


@pytest.mark.parametrize("kind", ("pointer", "string", "value"))
def test_only_bytes_have_a_length(kind):
    with pytest.raises(ShapeError, match=f"node.key_length means nothing for key_is = '{kind}'"):
        parse_shape(SHAPE.replace('"bytes"', f'"{kind}"'), "test.toml")
