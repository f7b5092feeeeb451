"""Declared types: the offsets that a C compiler gives, by hand."""

import pytest

from gdbext.abi import I386, X86_64
from gdbext.errors import ShapeError
from gdbext.layout.declared import declare_types
from gdbext.layout.types import Code
from gdbext.structures.shapes.shape import StructPart

NODE = StructPart("struct node", ("u32 lock", "struct node *next", "u8 tags[3]", "i64 value", "struct node **slots"))
PAIR = StructPart("pair", ("struct node one", "char *text", "u16 grid[2][3]", "ptr any", "struct node rest[]"))


def fields(abi, name, *rows):
    return {field.name: (field.offset, field.type.size) for field in declare_types(rows, abi).find_type(name).fields}


def test_layout_follows_the_abi():
    assert fields(X86_64, "struct node", NODE) == {
        "lock": (0, 4), "next": (8, 8), "tags": (16, 3), "value": (24, 8), "slots": (32, 8)}  # fmt: skip
    assert fields(I386, "node", NODE) == {
        "lock": (0, 4), "next": (4, 4), "tags": (8, 3), "value": (12, 8), "slots": (20, 4)}  # fmt: skip


def test_structures_in_structures_and_arrays():
    assert fields(X86_64, "struct pair", NODE, PAIR) == {
        "one": (0, 40), "text": (40, 8), "grid": (48, 12), "any": (64, 8), "rest": (72, 0)}  # fmt: skip
    pair = declare_types((NODE, PAIR), X86_64).find_type("pair")
    assert pair.size == 72
    assert pair.find_field("rest").type.length is None
    assert pair.find_field("grid").type.target.length == 3
    assert pair.find_field("text").type.target.code is Code.INTEGER
    assert pair.find_field("any").type.target is None


def test_a_structure_may_point_to_itself_and_to_the_unknown():
    node = declare_types((NODE,), X86_64).find_type("node")
    assert node.find_field("next").type.target is node
    assert node.find_field("slots").type.target.target is node
    lonely = declare_types((StructPart("struct a", ("struct b *other",)),), X86_64).find_type("a")
    assert lonely.find_field("other").type.target is None


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (("u32",), "not a member's declaration"),
        (("struct other in",), "'struct other' is not declared"),
        (("struct a self",), "'struct a' is not declared"),
        (("float x",), "'float' is not declared"),
    ],
)
def test_mistakes_are_named(members, message):
    with pytest.raises(ShapeError, match=message):
        declare_types((StructPart("struct a", members),), X86_64).find_type("struct a")
