"""Opening: what an object says, read back as numbers that the test put there; and what cannot be believed."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbext.debuginfo import NoDebugInfo, Symbol
from gdbext.errors import FaultError, ShapeError
from gdbext.layout.types import Located
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module
from gdbext.structures.shapes.bind import bind
from gdbext.structures.shapes.opening import check_valid, open_shape
from gdbext.structures.walk.model import Links, Scalar, Table
from gdbext.target import Target
from tests.support.examples import examples
from tests.support.worlds import ABIS, World, library

STRUCTS = {
    "entry": "u32 hash; struct entry *next; struct entry *older; struct entry *newer",
    "bin": "u32 lock; struct entry *first; u16 used",
    "table": "u32 lock; u32 size; i32 mask; struct bin *bins; struct bin *old; struct entry *oldest;"
    "struct entry *newest; i32 num; i32 moving",
    "group": "u64 count; u32 shift; struct table **all",
}
TABLE = """
name = "table"
kind = "bins"
types = ["struct table"]
valid = "size <= 1024"
[let]
mask = "mask"
moving = "moving"
size = "size"
[[bins]]
array = "bins"
count = "size"
head = "first"
length = "used"
bin_of = "hash & mask"
[[bins]]
array = "old"
count = "size / 2"
head = "first"
bin_of = "hash % bins"
when = "moving != -1"
[node]
next = "next"
hash = "hash"
[link]
mask = 3
[table]
entries = "num"
rehashing = "moving != -1"
lock = "lock"
bin_lock = "lock"
[lru]
first = "oldest"
last = "newest"
next = "newer"
prev = "older"
"""
GROUP = """
name = "group"
kind = "group"
types = ["struct group"]
[let]
shift = "shift"
[group]
array = "all"
count = "count"
indirect = true
of = "table"
slab_of = "hash >> shift"
"""


def opened(world, text, address, *more, type="table", **how):
    known = library(text, *more)
    shape = next(iter(known.shapes.values()))
    bound = bind(shape, world.type(type) if type else None, world, known, world.abi)
    return open_shape(bound, world.target, address, world, **how)


def a_table(world, **members):
    values = {"size": 8, "mask": 7, "bins": world.new("bin", 8), "num": 5, "moving": -1, **members}
    return world.new("table", **values)


@pytest.mark.parametrize("name", ABIS)
def test_a_table_as_it_says_itself(name):
    world = World(ABIS[name], **STRUCTS)
    entry = world.new("entry", 2)
    bins = world.new("bin", 8)
    address = a_table(world, bins=bins, oldest=entry | 1, newest=entry + 0x40)
    table = opened(world, TABLE, address)
    word = world.abi.pointer_size
    (array,) = table.arrays
    assert (array.address, array.count, array.stride, array.head) == (bins, 8, 3 * word, word)
    assert array.length == Scalar(2 * word, 2)
    assert table.node.links == Links(word, None, mask=3, alignment=word)
    assert (table.entries, table.rehashing, table.lock, table.bin_lock) == (5, False, address, 0)
    assert (table.lru.first, table.lru.last) == (entry, entry + 0x40)
    assert (table.lru.node.links.next, table.lru.node.links.prev) == (3 * word, 2 * word)
    hashes = np.array([0, 7, 8, 0xFFFFFFFF], np.uint64)
    assert array.bin_of(hashes).tolist() == [0, 7, 0, 7]
    assert table.shape == "table"


def test_a_second_array_while_the_table_is_rehashed():
    world = World(**STRUCTS)
    table = opened(world, TABLE, a_table(world, old=world.new("bin", 4), moving=2))
    assert [array.count for array in table.arrays] == [8, 4]
    assert table.rehashing and table.bins == 12
    assert table.arrays[1].bin_of(np.array([6], np.uint64)).tolist() == [2]


def test_an_array_that_is_not_there_is_not_read():
    world = World(**STRUCTS)
    assert len(opened(world, TABLE, a_table(world, old=0xDEAD0000)).arrays) == 1


HOSTILE = [
    (
        {"size": 1 << 30},
        "1073741824 bins of 24 bytes from 0x[0-9a-f]+ on cannot be: only [0-9]+ bytes are mapped there",
    ),
    ({"size": 8, "bins": 0xDEAD0000}, "8 bins of 24 bytes from 0xdead0000 on cannot be: nothing is mapped there"),
    ({"bins": 0}, "its array is null, yet it has 8 bins"),
    ({"size": 0, "bins": 0, "moving": 1, "old": 0}, None),
]


@pytest.mark.parametrize(("members", "message"), HOSTILE)
def test_counts_must_fit_into_memory(members, message):
    world = World(**STRUCTS)
    address = a_table(world, **members)
    if message is None:
        assert opened(world, TABLE, address).bins == 0
        return
    with pytest.raises(ShapeError, match=f"struct table at {address:#x}: {message}; it is no such object") as caught:
        opened(world, TABLE, address)
    assert "\n" not in str(caught.value)


def test_a_negative_count_cannot_be():
    world = World(**STRUCTS)
    text = TABLE.replace('count = "size"\nhead', 'count = "num"\nhead')
    with pytest.raises(ShapeError, match="it cannot have -5 bins"):
        opened(world, text, a_table(world, num=-5))
    text = TABLE.replace('count = "size"\nhead', 'count = "size - 9"\nhead')
    with pytest.raises(ShapeError, match="it cannot have 18446744073709551615 bins"):
        opened(world, text, a_table(world))


def test_a_division_by_zero_is_found_at_once():
    world = World(**STRUCTS)
    with pytest.raises(ShapeError, match="'hash % mask' divides by zero"):
        opened(world, TABLE.replace('"hash & mask"', '"hash % mask"'), a_table(world, mask=0))


def test_an_array_may_span_adjacent_mappings_and_lie_in_absent_ones():
    world = World(**STRUCTS)
    address = a_table(world, bins=world.base + 0xFF80)
    regions = [
        Region(world.base, world.base + 0x10000),
        Region(world.base + 0x10000, world.base + 0x11000, source="absent"),
    ]
    memory = FakeMemory([(world.base, bytes(world.bytes))], regions)
    known = library(TABLE)
    bound = bind(known.shapes["table"], world.type("table"), world, known, world.abi)
    assert open_shape(bound, Target(memory, world.abi), address, world).bins == 8
    far = Target(FakeMemory([(world.base, bytes(world.bytes))]), world.abi)
    with pytest.raises(ShapeError, match="only 128 bytes are mapped there"):
        open_shape(bound, far, address, world)


def test_what_cannot_be_read_is_named():
    world = World(**STRUCTS)
    with pytest.raises(FaultError, match=r"cannot read 8 bytes of struct table \(bins.array\) at 0x10000010"):
        opened(world, TABLE, 0x10000000)


def test_valid_says_whether_an_object_is_one():
    world = World(**STRUCTS)
    known = library(TABLE)
    bound = bind(known.shapes["table"], world.type("table"), world, known, world.abi)
    good, bad = a_table(world), a_table(world, size=1025)
    assert check_valid(bound, world.target, good, world)
    assert not check_valid(bound, world.target, bad, world)
    with pytest.raises(FaultError):
        check_valid(bound, world.target, 8, world)


# ---- groups ----


def test_a_group_and_its_tables():
    world = World(ABIS["ppc"], **STRUCTS)
    tables = [a_table(world, num=at) for at in range(4)]
    group = opened(world, GROUP, world.new("group", count=4, shift=30, all=world.words(*tables)), TABLE, type="group")
    assert [(table.address, table.entries) for table in group.tables] == list(zip(tables, range(4)))
    assert group.slab_of(np.array([0xC0000000, 0x3FFFFFFF], np.uint64)).tolist() == [3, 0]
    assert group.problems == ()


def test_a_table_that_cannot_be_opened_is_left_out_alone():
    world = World(**STRUCTS)
    good, huge, last = a_table(world), a_table(world, size=1 << 31), a_table(world)
    pointers = world.words(good, huge, 0, 0xDEAD0000, last)
    group = opened(world, GROUP, world.new("group", count=5, all=pointers), TABLE, type="group")
    assert [len(table.arrays) for table in group.tables] == [1, 0, 0, 0, 1]
    assert [table.address for table in group.tables] == [good, huge, 0, 0xDEAD0000, last]
    assert all(isinstance(table, Table) and table.shape == "table" for table in group.tables)
    messages = [problem.message for problem in group.problems]
    assert messages[0].startswith(f"table 1 is left out: struct table at {huge:#x}: 2147483648 bins")
    assert messages[1] == f"table 2 is left out: its address at {pointers + 16:#x} is null"
    assert messages[2].startswith("table 3 is left out: cannot read 8 bytes of struct table")
    assert len(messages) == 3


def test_a_wrecked_group_tells_a_bounded_number_of_tables():
    world = World(**STRUCTS)
    group = opened(world, GROUP, world.new("group", count=100, all=world.words(*[0] * 100)), TABLE, type="group")
    assert len(group.tables) == 100
    assert len(group.problems) == 21
    assert group.problems[-1].message == "80 more tables of the group are left out"


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (1 << 40, "1099511627776 tables of 8 bytes from .* cannot be"),
        (-1, "it cannot have 18446744073709551615 tables"),
        (1 << 17, "131072 tables are more than any group has"),
    ],
)
def test_a_group_counts_its_tables_in_reason(count, message):
    world = World(ABIS["x86-64"], 0x10000, 1 << 21, **STRUCTS)
    address = world.new("group", count=count, all=world.base)
    with pytest.raises(ShapeError, match=f"struct group at {address:#x}: {message}"):
        opened(world, GROUP, address, TABLE, type="group")


# ---- lists ----

LIST = """
name = "list"
kind = "list"
[list]
first = "next"
end = "head"
last = "prev"
entries = "count"
[node]
next = "next"
prev = "prev"
element = {}
"""
RING = {"ring": "struct ring *next; struct ring *prev; i16 count"}


def test_a_ring_ends_at_its_head():
    world = World(ABIS["i386"], **RING)
    head, node = world.new("ring"), world.new("ring")
    world.set("ring", head, next=node, prev=node, count=-1)
    ring = opened(world, LIST.format(0), head, type="ring")
    assert (ring.first, ring.stop, ring.last, ring.entries) == (node, head, node, -1)


def test_the_place_in_the_element_may_be_read():
    world = World(**RING)
    head = world.new("ring", count=24)
    assert opened(world, LIST.format('"count"'), head, type="ring").node.element == 24
    world.set("ring", head, count=-24)
    with pytest.raises(ShapeError, match="node.element is -24, which no element has"):
        opened(world, LIST.format('"count"'), head, type="ring")


def test_the_object_may_be_the_first_node():
    world = World(**RING)
    text = 'name="x"\nkind="list"\n[list]\nfirst="self"\n[node]\nnext="next"'
    node = world.new("ring")
    first = opened(world, text, node, type="ring")
    assert (first.first, first.stop) == (node, None)


def test_a_ring_may_close_at_a_part_or_where_that_points():
    world = World(thing="u64 id; struct node end; struct node *mark", node="struct node *next")
    text = 'name="x"\nkind="list"\n[list]\nfirst="end.next"\nend="head"\nstop="{}"\n[node]\nnext="next"'
    mark = world.new("node")
    thing = world.new("thing", end__next=mark, mark=mark)
    assert opened(world, text.format("end"), thing, type="thing").stop == thing + 8
    assert opened(world, text.format("mark"), thing, type="thing").stop == mark


def test_links_into_nodes_are_moved_to_their_start():
    world = World(item="u64 id; struct link link", link="struct link *next", head="struct link *first; struct link end")
    text = (
        'name="x"\nkind="list"\n[list]\nfirst="first"\n{}\n'
        '[node]\ntype="struct item"\nnext="link.next"\n[link]\nrelative=-8'
    )
    item = world.new("item")
    head = world.new("head", first=item + 8)
    assert opened(world, text.format(""), head, type="head").first == item
    assert opened(world, text.format('end="head"\nstop="end"'), head, type="head").stop == head + 8 - 8
    empty = world.new("head")
    assert opened(world, text.format(""), empty, type="head").first == 0


@pytest.mark.parametrize(
    ("stored", "link", "first"),
    [
        (0x1003, "mask=7", 0x1000),
        (0x7, "mask=7", 0),
        (0x1001, "end_bits=1", 0x1001),  # the walk tells that it is the end
        (0x5000, "sentinels=[0x5000]", 0x5000),
        (0xFFFFFFFFFFFFFFFF, "mask=7\nforbidden=[-1]", 0xFFFFFFFFFFFFFFFF),
        (0x1001, "mask=7\nleaf_bits=1", 0x1001),
        (0x1010, "relative=-16", 0x1000),
        (0x8, "relative=-16", 0xFFFFFFFFFFFFFFF8),
        (0x1000, "mangled=true", 0x1000),
    ],
)
def test_links_of_heads(stored, link, first):
    world = World(**RING)
    head = world.new("ring", next=stored)
    assert opened(world, f"{LIST.format(0)}[link]\n{link}", head, type="ring").first == first


def test_mangled_links_are_an_alternative():
    world = World(**RING)
    text = LIST.format(0) + "[link]\nmangled = [true, false]"
    head = world.new("ring", next=0x10100)
    assert opened(world, text, head, type="ring").node.links.mangled is True
    assert opened(world, text, head, type="ring", mangled=False).node.links.mangled is False
    assert opened(world, LIST.format(0), head, type="ring", mangled=True).node.links.mangled is False


# ---- where paths begin ----

ROOTED = 'name="x"\nkind="bins"\n[[bins]]\narray="{}"\ncount=2\nstride=8\n[node]\nnext="+0"'


class Symbols:
    def find_symbols(self, name):
        return [Symbol(name, 0x10020, None)] if name == "buckets" else []


def test_variables_and_places_in_files():
    world = World(**STRUCTS)
    bins = world.words(0, 0)
    world.put(0x10020, bins)
    world.modules.append(Module("/usr/bin/server", 0x10000, 0x20000, None))
    assert opened(world, ROOTED.format("@server+0x20"), 0, type=None).arrays[0].address == bins
    world.globals["buckets"] = Located("buckets", None, 0x10020, None)
    assert opened(world, ROOTED.format("@buckets"), 0, type=None).arrays[0].address == bins
    known = library(ROOTED.format("@buckets"))
    bound = bind(known.shapes["x"], None, NoDebugInfo(), known, world.abi)
    target = Target(FakeMemory([(world.base, bytes(world.bytes))]), world.abi, symbols=Symbols())
    assert open_shape(bound, target, 0, NoDebugInfo()).arrays[0].address == bins


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("@buckets", "no variable buckets in this program; a stripped one needs @MODULE.OFFSET"),
        ("@server+0x20", "no file server is mapped; it is named as in `info proc mappings`"),
    ],
)
def test_roots_that_are_not_there(path, message):
    with pytest.raises(ShapeError, match=message):
        opened(World(**STRUCTS), ROOTED.format(path), 0, type=None)


def test_segments_are_counted():
    world = World(**STRUCTS)
    text = 'name="x"\nkind="bins"\n[[bins]]\narray="+0"\ncount={}\nsegment=4\nstride=8\n[node]\nnext="+0"'
    directory = world.words(0x10100, 0x10200)
    table = opened(world, text.format(8), world.words(directory), type=None)
    assert (table.arrays[0].address, table.arrays[0].segment) == (directory, 4)
    with pytest.raises(ShapeError, match="250000 segments of 8 bytes from"):
        opened(world, text.format(1000000), world.words(directory), type=None)


# ---- open addressing, trees ----

PROBE = """
name = "open"
kind = "probe"
[let]
bits = "bits"
keys = "keys"
[probe]
slots = "1 << bits"
occupied = "not ((flags >> (2 * (index % 16))) & 3)"
home = "hash % slots"
key = "key"
hash = "hash"
entries = "used"
[probe.fields.flags]
array = "flags"
per = 16
[probe.fields.hash]
array = "hashes"
[probe.fields.key]
array = "keys + 16"
stride = 8
size = 8
"""
SET = {"set": "u8 bits; u32 used; u32 *flags; u32 hashes[32]; ptr keys"}


def test_open_addressing():
    world = World(ABIS["s390x"], **SET)
    flags, keys = world.space(8), world.space(16 + 32 * 8)
    address = world.new("set", bits=5, used=3, flags=flags, keys=keys)
    table = opened(world, PROBE, address, type="set")
    fields = table.fields
    assert (table.slots, table.entries, table.hash, table.key) == (32, 3, "hash", "key")
    assert (fields["flags"].address, fields["flags"].stride, fields["flags"].per) == (flags, 4, 16)
    assert (fields["hash"].address, fields["hash"].at) == (address + 16, Scalar(0, 4))
    assert (fields["key"].address, fields["key"].stride) == (keys + 16, 8)
    columns = {"index": [0, 1, 17], "flags": [0b1000, 0b1000, 0b1000], "hash": [33, 64, 5], "key": [0, 0, 0]}
    columns = {name: np.array(values, np.uint64) for name, values in columns.items()}
    assert table.occupied(columns).tolist() == [1, 0, 0]
    assert table.home(columns).tolist() == [1, 0, 5]


@pytest.mark.parametrize(
    ("text", "members", "message"),
    [
        (PROBE, {"bits": 40}, "68719476736 items of 4 bytes from .* cannot be"),
        (PROBE, {"bits": 255}, None),
        (PROBE.replace("size = 8", "size = 3"), {}, "probe.fields.key cannot be: 3 bytes at 0, 1 slots an item"),
        (PROBE.replace("per = 16", 'per = "used"'), {"used": 0}, "probe.fields.flags cannot be: 4 bytes at 0, 0 slots"),
        (PROBE.replace("stride = 8", "stride = -8"), {}, "-8 bytes from one of its slots to the next cannot be"),
    ],
)
def test_open_addressing_that_cannot_be(text, members, message):
    world = World(**SET)
    address = world.new("set", **{"bits": 5, "used": 3, "flags": world.space(8), "keys": world.space(512), **members})
    if message is None:
        assert opened(world, text, address, type="set").slots == 0
        return
    with pytest.raises(ShapeError, match=message):
        opened(world, text, address, type="set")


TREE = """
name = "tree"
kind = "tree"
[tree]
root = "root"
header = "header"
leftmost = "first"
sentinel = "end"
left = "left"
right = "right"
mask = 1
entries = "count"
"""


def test_trees():
    world = World(
        ABIS["i386"],
        map="struct node *root; struct node header; struct node *first; struct node *end; u16 count",
        node="struct node *left; struct node *right",
    )
    node, end = world.new("node"), world.new("node")
    address = world.new("map", root=node | 1, first=node, end=end, count=1)
    tree = opened(world, TREE, address, type="map")
    assert (tree.root, tree.header, tree.leftmost, tree.sentinel) == (node, address + 4, node, end)
    assert (tree.left, tree.right, tree.parent, tree.entries, tree.mask) == (0, 4, None, 1, 1)
    assert tree.element_type == "struct node"
    empty = world.new("map", root=end, end=end)
    assert opened(world, TREE, empty, type="map").root == 0


@given(st.binary(min_size=64, max_size=512), st.integers(0, 255))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_garbage_is_opened_or_refused_but_nothing_else(data, filler):
    world = World(ABIS["x86-64"], 0x10000, 1 << 12, **{**STRUCTS, **SET, **RING})
    world.bytes[:] = bytes([filler]) * len(world.bytes)
    world.bytes[: len(data)] = data
    either = LIST.format('"count"') + "[link]\nmask = 7\nrelative = -8\n"
    for text, type, more in (
        (TABLE, "table", ()),
        (GROUP, "group", (TABLE,)),
        (PROBE, "set", ()),
        (either, "ring", ()),
    ):
        try:
            opened(world, text, world.base, *more, type=type)
        except (ShapeError, FaultError) as error:
            assert "\n" not in str(error)
