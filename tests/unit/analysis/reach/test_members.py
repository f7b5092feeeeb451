import pytest

from gdbext.analysis.reach.members import member_path, member_text
from gdbext.layout.types import Code, Field, Type

LONG = Type("long", Code.INTEGER, 8)
POINTER = Type("void *", Code.POINTER, 8)
NODE = Type("struct node", Code.STRUCT, 24, fields=lambda: [Field("id", 0, LONG), Field("link", 8, PAIR)])
PAIR = Type("struct pair", Code.STRUCT, 16, fields=lambda: [Field("next", 0, POINTER), Field("prev", 8, POINTER)])
EITHER = Type("union u", Code.UNION, 8, fields=lambda: [Field("number", 0, LONG), Field("at", 0, POINTER)])
NODES = Type("struct node [4]", Code.ARRAY, 96, length=4, target=lambda: NODE)
OPEN = Type("void *[]", Code.ARRAY, 0, target=lambda: POINTER)
TABLE = Type(
    "struct table",
    Code.STRUCT,
    128,
    fields=lambda: [
        Field("size", 0, LONG),
        Field("", 8, PAIR),
        Field("base", 24, EITHER, is_base=True),
        Field("nodes", 32, NODES),
        Field("flags", 0, LONG, bits=(0, 3)),
        Field("rest", 128, OPEN),
    ],
)


@pytest.mark.parametrize(
    "offset, expected",
    [
        (0, (".size", 0)),
        (4, (".size", 4)),
        (8, (".next", 0)),
        (24, (".at", 0)),
        (28, (".number", 4)),
        (32, (".nodes[0].id", 0)),
        (32 + 24 + 16, (".nodes[1].link.prev", 0)),
        (128 + 24, (".rest[3]", 0)),
    ],
)
def test_the_member_at_an_offset(offset, expected):
    assert member_path(TABLE, offset) == expected


def test_what_has_no_members_and_holes():
    assert member_path(POINTER, 0) == ("", 0)
    assert member_path(LONG, 3) == ("", 3)
    empty = Type("struct hole", Code.STRUCT, 64, fields=lambda: [Field("a", 0, LONG)])
    assert member_path(empty, 40) == ("", 40)


def test_a_type_that_holds_itself_ends():
    loop = Type("struct loop", Code.STRUCT, 8, fields=lambda: [Field("again", 0, loop)])
    text, rest = member_path(loop, 4)
    assert text.startswith(".again.again") and rest == 4


@pytest.mark.parametrize(
    "size, offset, expected",
    [
        (24, 8, "link.next"),
        (40, 12, "link.next+0x4"),
        (72, 8, "link.next"),  # perhaps one of many, perhaps the only one
        (72, 24, "[1].id"),
        (72, 60, "[2].link.next+0x4"),
        (40, 32, ""),
    ],
)
def test_members_of_blocks(size, offset, expected):
    assert member_text(NODE, size, offset) == expected


def test_an_array_without_a_bound_goes_on_to_the_end_of_the_block():
    assert member_text(TABLE, 200, 152) == "rest[3]"
