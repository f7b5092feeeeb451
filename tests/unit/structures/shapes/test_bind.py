"""Binding: offsets worked out by hand for each ABI, and every way in which a shape may not fit."""

from dataclasses import replace

import pytest

from gdbext.debuginfo import NoDebugInfo
from gdbext.errors import ShapeError
from gdbext.layout.declared import declare_types
from gdbext.layout.types import Code, Located, Type
from gdbext.structures.shapes.bind import Layered, bind
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.notation.expressions import Expression
from gdbext.structures.shapes.opening import open_links
from gdbext.structures.shapes.shape import StructPart, parse_shape
from gdbext.structures.walk.model import Scalar
from tests.support.worlds import ABIS, World, library

STRUCTS = {
    "entry": "u32 state; struct entry *next; struct entry *lru_next; u32 hash; char *name; char label[12]",
    "bin": "u32 lock; struct entry *first; u16 used",
    "table": "u32 lock; size_t size; i32 mask; struct bin *bins; struct entry *lru; struct bin few[3]; u64 num;"
    "struct entry **slots",
}
TABLE = """
name = "table"
kind = "bins"
types = ["struct table"]
[let]
mask = "mask"
[[bins]]
array = "bins"
count = "size"
head = "first"
length = "used"
bin_of = "hash & mask"
[node]
next = "next"
hash = "hash"
key = "name"
key_is = "string"
[table]
entries = "num"
lock = "lock"
bin_lock = "lock"
[lru]
first = "lru"
next = "lru_next"
"""
# size, mask, bins, lru, num; the bin's size, first and used; the entry's next, lru_next, hash, name
OFFSETS = {
    "x86-64": ((8, 16, 24, 32, 112), (24, 8, 16), (8, 16, 24, 32)),
    "i386": ((4, 8, 12, 16, 56), (12, 4, 8), (4, 8, 12, 16)),
}
OFFSETS["s390x"], OFFSETS["ppc"] = OFFSETS["x86-64"], OFFSETS["i386"]


def bound(text, type="table", *more, world=None, **structs):
    world = world or World(**{**STRUCTS, **structs})
    shape = parse_shape(text, "test.toml")
    return bind(shape, world.type(type) if type else None, world, library(text, *more), world.abi)


@pytest.mark.parametrize("name", ABIS)
def test_names_become_offsets(name):
    table, row, entry = OFFSETS[name]
    word = ABIS[name].pointer_size
    shape = bound(TABLE, world=World(ABIS[name], **STRUCTS))
    raw, (array,) = shape.raw, shape.raw.bins
    assert array.array.offsets == (table[2],) and not array.array.address
    assert (array.count.offsets, array.count.form.size) == ((table[0],), word)
    assert (array.stride, array.head.offset, array.length.find_scalar(word)) == (row[0], row[1], Scalar(row[2], 2))
    assert raw.lets["mask"].find_scalar(word) == Scalar(table[1], 4, True)
    assert (raw.node.next.offset, raw.node.prev, raw.link.alignment) == (entry[0], None, word)
    assert raw.node.hash.find_scalar(word) == Scalar(entry[2], 4)
    assert (raw.node.key.find_scalar(word), raw.node.key_is) == (Scalar(entry[3], word), "string")
    assert raw.node.element_type == "struct entry"
    assert (raw.table.lock.offsets, raw.table.bin_lock.offset, raw.table.entries.offsets) == ((0,), 0, (table[4],))
    assert raw.lru.first.offsets == (table[3],)
    assert raw.lru.next.offset == entry[1]
    assert shape.types_from == "debug info"


def test_types_that_the_program_lacks_are_declared_by_the_shape():
    rows = "".join(
        f'[[struct]]\nname = "struct {name}"\nmembers = {[text.strip() for text in members.split(";")]}\n'
        for name, members in STRUCTS.items()
    )
    shape = parse_shape(TABLE + rows, "test.toml")
    declared = bind(shape, None, NoDebugInfo(), library(TABLE), ABIS["x86-64"])
    assert declared.types_from == "declarations"
    assert declared.raw == bound(TABLE).raw
    world = World(**{**STRUCTS, "entry": "u64 more; " + STRUCTS["entry"]})
    from_program = bind(shape, None, world, library(TABLE), world.abi)
    assert from_program.types_from == "debug info"
    assert from_program.raw.node.next.offset == 16


def test_an_incomplete_type_is_completed_by_name():
    world = World(**STRUCTS)
    forward = Type("struct table", Code.STRUCT, 0)
    shape = bind(parse_shape(TABLE, "test.toml"), forward, world, library(TABLE), world.abi)
    assert shape.raw == bound(TABLE).raw


def test_a_shape_in_offsets_needs_no_type():
    text = """
name = "raw"
kind = "bins"
[[bins]]
array = "+0x18"
count = "+0x8"
stride = 24
head = "+0x8"
[node]
next = "+0x8"
hash = "+0x18:4"
"""
    shape = bind(parse_shape(text, "raw.toml"), None, NoDebugInfo(), Library({}), ABIS["x86-64"])
    assert shape.types_from == "offsets"
    assert shape.raw.bins[0].array.offsets == (24,)
    assert shape.raw.link.alignment == 1
    assert shape.raw.node.element_type is None


@pytest.mark.parametrize(
    ("array", "count", "embedded", "stride", "wanted"),
    [
        ("few", None, True, 24, 3),
        ("few", "1 + 1", True, 24, "1 + 1"),
        ("bins", "1 << mask", False, 24, "1 << mask"),
        ("slots", "7", False, 8, 7),
    ],
)
def test_arrays_are_embedded_or_pointed_to(array, count, embedded, stride, wanted):
    count = "" if count is None else f"count = {count if count.isdigit() else repr(count)}"
    head = 'head = "first"' if "slots" not in array and "&" not in array else ""
    text = f'name="x"\nkind="bins"\n[let]\nmask="mask"\n[[bins]]\narray="{array}"\n{count}\n{head}\n[node]\nnext="next"'
    part = bound(text).raw.bins[0]
    assert (part.array.address, part.stride) == (embedded, stride)
    found = part.count.text if isinstance(part.count, Expression) else part.count
    assert found == wanted


def test_the_object_itself_may_be_the_array():
    text = 'name="x"\nkind="bins"\n[[bins]]\narray="&self"\ncount=1\nhead="lru"\n[node]\nnext="next"'
    array = bound(text).raw.bins[0]
    assert (array.array.offsets, array.array.address, array.head.offset) == ((0,), True, 32)


def test_segments_are_arrays_behind_pointers():
    text = 'name="x"\nkind="bins"\n[[bins]]\narray="slots"\ncount=4\nsegment=2\nhead="first"\n[node]\nnext="next"'
    array = bound(text, table="struct bin **slots").raw.bins[0]
    assert (array.stride, array.head.offset, array.segment) == (24, 8, 2)


def test_variables_have_types_of_their_own():
    world = World(**STRUCTS)
    world.globals["buckets"] = Located("buckets", world.pointer(world.pointer(world.type("entry"))), 0x10100, 0)
    text = 'name="x"\nkind="bins"\n[[bins]]\narray="@buckets"\ncount=4\n[node]\nnext="next"'
    shape = bound(text, None, world=world)
    assert shape.raw.bins[0].stride == 8
    assert shape.raw.node.next.offset == 8
    assert shape.types_from == "debug info"


def test_the_link_may_be_searched_for_in_a_node_of_any_name():
    text = (
        'name="x"\nkind="list"\n[list]\nfirst="head"\n'
        '[node]\nfind=["le_next"]\nfind_prev=["le_prev"]\nprev_is="link"\n[link]\nforbidden=[-1]'
    )
    structs = {
        "link": "struct item *le_next; struct item **le_prev",
        "item": "u64 id; struct link links",
        "two": "struct link a; struct link b",
        "holder": "struct item *head",
        "twice": "struct two *head",
        "none": "struct bin *head",
    }
    world = World(ABIS["i386"], **structs, bin="u32 x")
    links = open_links(bound(text, "holder", world=world).raw)
    assert (links.next, links.prev, links.prev_is_link, links.forbidden) == (8, 12, True, (0xFFFFFFFF,))
    with pytest.raises(
        ShapeError, match="struct two has several members le_next: a.le_next, b.le_next; --next a.le_next"
    ):
        bound(text, "twice", world=world)
    with pytest.raises(ShapeError, match="node.find: struct bin has no member le_next"):
        bound(text, "none", world=world)
    with pytest.raises(ShapeError, match="node.find: the node's type is not known"):
        bind(parse_shape(text.replace('"head"', '"+0"'), "x"), None, NoDebugInfo(), Library({}), ABIS["i386"])


def test_the_element_is_a_member_of_its_type_or_a_number_of_the_object():
    text = 'name="x"\nkind="list"\n[list]\nfirst="lru"\n[node]\nnext="next"\nelement={}\n{}'
    part = bound(text.format('"inner"', 'element_type="struct outer"'), outer="u64 a[2]; struct entry inner").raw
    assert (part.node.element, part.node.element_type) == (16, "struct outer")
    part = bound(text.format('"num"', 'element_type="struct entry"')).raw
    assert part.node.element.offsets == (112,)
    assert bound(text.format("24", "")).raw.node.element == 24
    assert bound(text.format('"mask"', "")).raw.node.element.offsets == (16,)
    content = bound(text.replace("element={}", "content={}").format('"label"', ""))
    assert content.raw.node.content == 40


def test_names_of_types_may_hold_the_objects_own():
    text = (
        'name="x"\nkind="list"\n[list]\nfirst="lru"\n'
        '[node]\ntype="{type}_node"\nnext="link"\nelement_type="{type}::value"'
    )
    part = bound(text, table_node="u32 a; struct table_node *link").raw
    assert part.node.next.offset == 8
    assert part.node.element_type == "struct table::value"
    part = bound(text.replace("{type}_node", "{lru}x").replace('"link"', '"next"')).raw
    assert part.node.next.offset == 8, "an unknown name leaves what the head points to"


def test_inline_keys_have_the_size_of_their_member():
    text = 'name="x"\nkind="list"\n[list]\nfirst="lru"\n[node]\nnext="next"\nkey="label"\nkey_is="inline"'
    node = bound(text).raw.node
    assert (node.key.offset, node.key_size) == (40, 12)


PROBE = """
name = "open"
kind = "probe"
[let]
keys = "keys"
[probe]
slots = "n"
occupied = "hash > 1"
home = "hash % slots"
hash = "hash"
key = "key"
[probe.fields.hash]
array = "hashes"
[probe.fields.key]
array = "keys + 8"
stride = "word"
[probe.fields.rank]
array = "items"
at = "rank"
"""


def test_open_addressing():
    structs = {"item": "u64 id; i16 rank", "set": "u32 n; u32 *hashes; ptr keys; struct item *items"}
    world = World(**structs)
    part = bound(PROBE, "set", world=world).raw.probe
    hashes, keys, rank = (part.fields[name] for name in ("hash", "key", "rank"))
    assert (hashes.array.offsets, hashes.stride, hashes.size, hashes.per) == ((8,), 4, 4, 1)
    assert keys.array.text == "keys + 8" and keys.stride.text == "word" and keys.size == 8
    assert (rank.at, rank.size, rank.signed, rank.stride) == (8, 2, True, 16)


TREE = """
name = "tree"
kind = "tree"
[tree]
root = "top.parent"
header = "top"
left = "left"
right = "right"
parent = "parent"
node_type = "struct node"
entries = "count"
content = "value"
"""


def test_trees():
    structs = {
        "base": "u32 colour; struct base *parent; struct base *left; struct base *right",
        "node": "struct base links; u64 value; struct base *parent; struct base *left; struct base *right",
        "map": "u64 count; struct base top",
    }
    part = bound(TREE, "map", world=World(ABIS["s390x"], **structs)).raw.tree
    assert part.root.offsets == (16,)
    assert (part.header.offsets, part.header.address) == ((8,), True)
    assert (part.left.offset, part.right.offset, part.parent.offset, part.content) == (48, 56, 40, 32)
    assert part.element_type == "struct node"


GROUP = 'name="group"\nkind="group"\n[group]\narray="{}"\ncount=2\nof="table"\n{}'


def test_groups_bind_their_tables():
    structs = {"set": "struct table **all; struct table two[2]"}
    indirect = bound(GROUP.format("all", "indirect=true"), "set", TABLE, **structs)
    group = indirect.raw.group
    assert (group.indirect, group.stride, group.array.address) == (True, 8, False)
    direct = bound(GROUP.format("two", ""), "set", TABLE, **structs)
    group = direct.raw.group
    assert (group.indirect, group.stride, group.array.address) == (False, 128, True)
    assert direct.member.raw == indirect.member.raw == replace(bound(TABLE).raw, origin="1.toml")
    raw = bound(GROUP.format("&+8", "stride=128"), "set", TABLE, **structs).raw.group
    assert (raw.array.offsets, raw.array.address, raw.stride) == ((8,), True, 128)


LIST = 'name="x"\nkind="list"\n[list]\n{}\n[node]\n{}'
WRONG = [
    (
        TABLE.replace('head = "first"', 'head = "overflow_list"'),
        "shape table: bins.head: struct bin has no member overflow_list",
    ),
    (
        TABLE.replace('array = "bins"', 'array = ["bans", "bens"]'),
        "shape table: bins.array: struct table has no member bans",
    ),
    (
        TABLE.replace('head = "first"', 'head = "used"'),
        "bins.head: u16 is no pointer; name the link that holds the first node",
    ),
    (
        TABLE.replace('head = "first"', 'head = "first->next"'),
        "bins.head must be in the bin itself",
    ),
    (
        TABLE.replace('array = "bins"', 'array = "size"'),
        "bins.array: size_t leads nowhere; a pointer, an array or a structure",
    ),
    (
        TABLE.replace('count = "size"', ""),
        "bins.count is missing; only an array of known length counts itself",
    ),
    (
        TABLE.replace('count = "size"', 'count = "few"'),
        r"bins.count: struct bin \[3\] is no number",
    ),
    (
        TABLE.replace('array = "bins"', 'array = "+0x18"').replace('head = "first"', ""),
        "bins.stride is missing; without types",
    ),
    (
        TABLE.replace('length = "used"', 'length = "first->hash"'),
        "bins.length: .* is not in the structure itself",
    ),
    (
        TABLE.replace('mask = "mask"', 'mask = "few"'),
        r"let.mask: struct bin \[3\] is no number",
    ),
    (
        TABLE.replace('next = "next"', 'next = "nxt"', 1),
        "node.next: struct entry has no member nxt",
    ),
    (
        TABLE.replace('next = "next"', 'next = "state"', 1),
        "node.next: u32 is no pointer",
    ),
    (
        TABLE.replace('next = "next"', 'next = "next->next"', 1),
        "node.next must be in the node itself",
    ),
    (
        TABLE.replace('hash = "hash"', 'hash = "label"'),
        r"node.hash: char \[12\] is no number",
    ),
    (
        TABLE.replace('key = "name"', 'key = "label"'),
        'node.key: .* is no number; key_is = "inline" compares its bytes',
    ),
    (
        TABLE.replace('key = "name"', 'key = "next->name"'),
        "node.key must be in the node itself",
    ),
    (
        TABLE.replace('lock = "lock"\nbin_', 'lock = "mutex"\nbin_'),
        "table.lock: struct table has no member mutex",
    ),
    (
        TABLE.replace('next = "lru_next"', 'next = "lru_prev"'),
        "lru.next: struct entry has no member lru_prev",
    ),
    (
        LIST.format('first="self"\nend="head"', 'next="next"'),
        "list.first is self, so end cannot be head",
    ),
    (
        LIST.format('first="size"', 'next="next"'),
        "list.first: size_t is no pointer",
    ),
    (
        GROUP.format("bins", ""),
        "group.of: no shape table; gx shapes list",
    ),
    (
        GROUP.format("bins", "").replace('of="table"', 'of="group"'),
        "group.of: group is a group itself",
    ),
    (
        PROBE.replace('array = "hashes"', "array = 3").replace('"keys"', '"bins"').replace('"n"', '"size"'),
        "probe.fields.hash.array must be a path or an expression",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_what_does_not_fit_is_told_with_shape_key_and_member(text, message):
    with pytest.raises(ShapeError, match=message) as caught:
        bound(text)
    assert str(caught.value).startswith("shape ")
    assert "\n" not in str(caught.value)


def test_without_types_names_cannot_be():
    with pytest.raises(ShapeError, match="shape table: let.mask: an untyped object has no members, so no mask"):
        bind(parse_shape(TABLE, "t"), None, NoDebugInfo(), library(TABLE), ABIS["x86-64"])


ROWS = (StructPart("struct node", ("u64 next",)), StructPart("pair", ("u64 grid[9]",)))


class Debugger(NoDebugInfo):
    def find_type(self, name):
        sizes = {"struct node": 96, "struct pair": 0}
        return Type(name, Code.STRUCT, sizes[name]) if name in sizes else None


def test_declarations_stand_in_for_what_is_missing_or_incomplete():
    both = Layered(Debugger(), declare_types(ROWS, ABIS["x86-64"]))
    assert both.find_type("struct node").size == 96
    assert both.find_type("struct pair").size == 72
    assert both.find_type("struct nothing") is None
    assert both.find_global("x") is None
