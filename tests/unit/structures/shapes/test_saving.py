"""Saving: what is written binds without any type to the same numbers."""

import dataclasses
from collections.abc import Mapping

import pytest

from gdbext.debuginfo import NoDebugInfo
from gdbext.layout.types import Located
from gdbext.structures.shapes.bind import BoundShape, bind
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.notation.paths import BoundPath, ModuleRoot
from gdbext.structures.shapes.opening import open_shape
from gdbext.structures.shapes.saving import save_all, save_raw
from gdbext.structures.shapes.shape import SECTIONS, parse_shape
from tests.support.worlds import ABIS, World, library

STRUCTS = {
    "inner": "u16 id; struct node *next; struct node **back",
    "node": "u64 hash; struct inner link; char key[6]; struct node *older; struct node *newer; i32 score",
    "bin": "u32 lock; struct node *head; i16 used",
    "table": "u32 lock; size_t size; i32 mask; struct bin *bins; struct bin few[4]; struct node *lru; struct node *end;"
    "struct node ***dir; u8 place; u32 num; struct tree *more",
    "tree": "u64 n; struct node top; struct node *root",
    "group": "u32 shift; struct table **all; struct table two[2]",
    "slot": "u64 key; i32 rank",
    "open": "u8 bits; u32 *flags; ptr keys; struct slot slots[8]; u32 used",
}
LIST = """
name = "list"
kind = "list"
summary = "A \\"list\\" with everything"
[list]
first = "lru"
end = "head"
stop = "few"
last = "end"
last_is = "link"
entries = "num"
[node]
next = "link.next"
prev = "link.back"
prev_is = "link"
hash = "hash"
key = "key"
key_is = "inline"
key_length = "score"
element = "place"
[link]
mask = 3
xor = true
relative = -8
end_bits = 1
leaf_bits = 4
sentinels = [16, 32]
forbidden = [-1, 0x122]
mangled = [true, false]
"""
BINS = """
name = "bins"
kind = "bins"
valid = "mask != 0"
[let]
mask = "mask"
more = "more->n"
[[bins]]
array = "bins"
count = "size"
head = "head"
length = "used"
bin_of = "hash & mask"
[[bins]]
array = "few"
head = "head"
when = "more == 1"
[[bins]]
array = "dir"
count = "1 << mask"
segment = 4
when = "more == 2"
[node]
type = "struct node"
next = "link.next"
key = "score"
key_is = "value"
content = "key"
element_type = "struct inner"
[table]
entries = "mask + 1"
rehashing = "more"
lock = "lock"
bin_lock = "lock"
[lru]
first = "lru"
last = "end"
next = "newer"
prev = "older"
"""
NEXT_BIN = """
name = "chained"
kind = "bins"
[[bins]]
array = "few"
count = 4
head = "head"
[node]
next = "link.next"
[table]
end = "next-bin"
list_first = "lru"
"""
GROUP = 'name="group"\nkind="group"\n[let]\nshift="shift"\n[group]\narray="all"\ncount=2\nindirect=true\nof="bins"\n'
GROUP += 'slab_of="hash >> shift"\n'
TWO = 'name="two"\nkind="group"\n[group]\narray="two"\ncount="shift"\nof="bins"\n'
PROBE = """
name = "probe"
kind = "probe"
[let]
bits = "bits"
keys = "keys"
[probe]
slots = "1 << bits"
occupied = "key and flags"
home = "key % slots"
distance = "rank"
step = "triangular"
hash = "key"
entries = "used"
[probe.fields.flags]
array = "flags"
per = 16
[probe.fields.key]
array = "keys + word"
stride = 16
size = 8
[probe.fields.rank]
array = "slots"
at = "rank"
[probe.fields.low]
array = "slots"
at = "+0x8:4@3.2"
"""
TREE = """
name = "tree"
kind = "tree"
[tree]
root = "root"
header = "top"
leftmost = "top.older"
left = "older"
right = "newer"
parent = "link.next"
sentinel = "top.newer"
mask = 1
entries = "n"
content = "2 * word"
element_type = "{type}_value"
"""
CASES = {
    "list": ("table", LIST),
    "bins": ("table", BINS),
    "chained": ("table", NEXT_BIN),
    "group": ("group", GROUP),
    "two": ("group", TWO),
    "probe": ("open", PROBE),
    "tree": ("tree", TREE),
}


def bound_in(world, name):
    type, text = CASES[name]
    return bind(parse_shape(text, "x"), world.type(type), world, library(BINS), world.abi)


def plain(part):
    """Return every field of a bound part but types, and how a part is read that is not read."""
    if isinstance(part, BoundShape):
        sections = {name: getattr(part.raw, name) for name in (*SECTIONS[part.raw.kind], "lets", "valid")}
        return {**plain(sections), "member": plain(part.member)}
    if isinstance(part, BoundPath):
        return part.offsets, part.root, part.address, part.form
    if isinstance(part, Mapping):
        return {name: plain(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return [plain(each) for each in part]
    if dataclasses.is_dataclass(part):
        names = {field.name for field in dataclasses.fields(part)} - {"type", "of"}
        return {name: plain(getattr(part, name)) for name in names}
    return part


def rebound(bound, name="again", **how):
    """Return a shape that was saved and read again, bound without types."""
    known = library(*(text for _, text in save_all(bound, name, **how)))
    assert not any(shape.types or shape.structs for shape in known.shapes.values())
    return bind(known.shapes[name], None, NoDebugInfo(), known, bound.abi)


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize("name", CASES)
def test_offsets_bind_to_the_same_numbers(name, abi):
    world = World(ABIS[abi], **STRUCTS)
    bound = bound_in(world, name)
    again = rebound(bound)
    assert again.types_from == "offsets"
    assert plain(again) == plain(bound)
    assert save_raw(again, "again") == save_raw(bound, "again").replace(f"# {name} in", "# again in")


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize("name", ["list", "bins", "chained", "group", "probe", "tree"])
def test_offsets_open_to_the_same_structure(name, abi):
    world = World(ABIS[abi], **STRUCTS)
    keys, flags, bins = world.space(512), world.space(64), world.new("bin", 8)
    more = world.new("tree", n=1, top__older=0x10100, top__newer=0x10200, root=0x10301)
    members = {"size": 8, "mask": 3, "bins": bins, "place": 24, "num": 5, "more": more, "lru": 0x10400}
    table = world.new("table", **members)
    objects = {
        "group": world.new("group", shift=1, all=world.words(table, table)),
        "probe": world.new("open", bits=3, flags=flags, keys=keys, used=2),
        "tree": more,
    }
    bound = bound_in(world, name)
    here = objects.get(name, table)
    one = open_shape(bound, world.target, here, world)
    two = open_shape(rebound(bound), world.target, here, NoDebugInfo())
    assert str(two).replace("again-table", "bins").replace("again", name) == str(one).replace(" at 0x", " at 0x")


def test_variables_become_places_in_files():
    world = World(**STRUCTS)
    world.globals["heads"] = Located("heads", world.pointer(world.pointer(world.type("node"))), 0x10020, None)
    text = 'name="x"\nkind="bins"\n[[bins]]\narray="@heads"\ncount=4\n[node]\nnext="link.next"'
    bound = bind(parse_shape(text, "x"), None, world, Library({}), world.abi)
    assert rebound(bound).raw.bins[0].array.root == bound.raw.bins[0].array.root
    placed = rebound(bound, rooted=lambda root: ModuleRoot("server", 0x20))
    assert placed.raw.bins[0].array.root == ModuleRoot("server", 0x20)
    assert 'array = "@server+0x20.+0x0:8"' in save_raw(bound, "y", lambda root: ModuleRoot("server", 0x20))


def test_a_group_is_two_files():
    files = save_all(bound_in(World(**STRUCTS), "group"), "mine")
    assert [name for name, _ in files] == ["mine", "mine-table"]
    assert parse_shape(files[0][1], "mine").group.of == "mine-table"


def test_the_file_says_for_what_it_is():
    text = save_raw(bound_in(World(ABIS["ppc"], **STRUCTS), "list"), "mine")
    assert text.startswith("# list in offsets, for 32-bit big-endian programs without type information.\n")
    assert parse_shape(text, "mine").summary == 'A "list" with everything'
