"""Guessing: what is proposed for types whose truth the test knows, and that it can be used as it stands."""

import pytest

from gdbext.errors import UsageError
from gdbext.layout.types import Code, Field, Type
from gdbext.structures.shapes.bind import bind
from gdbext.structures.shapes.guessing import Link, find_heads, find_links, guess
from gdbext.structures.shapes.opening import open_links, open_shape
from gdbext.structures.shapes.shape import parse_shape
from gdbext.structures.walk.model import ListHead
from tests.support.worlds import ABIS, World, library

STRUCTS = {
    "lruhash": "u32 lock; ptr sizefunc; size_t size; i32 size_mask; struct lruhash_bin *array;"
    "struct lruhash_entry *lru_start; struct lruhash_entry *lru_end; size_t num; size_t space_used",
    "lruhash_bin": "u32 lock; struct lruhash_entry *overflow_list",
    "lruhash_entry": "u32 lock[14]; struct lruhash_entry *overflow_next; struct lruhash_entry *lru_next;"
    "struct lruhash_entry *lru_prev; u32 hash; ptr key; ptr data",
    "slabhash": "size_t size; u32 mask; u32 shift; struct lruhash **array",
    "dict": "ptr type; struct dictEntry **ht_table[2]; ulong ht_used[2]; long rehashidx; i8 ht_size_exp[2]",
    "dictEntry": "ptr key; u64 value; struct dictEntry *next",
    "registry": "struct item *buckets[64]; u32 count",
    "item": "char *name; struct item *prev; struct item *next; u64 hash",
    "queue": "struct item *tail; struct item *head; u32 len",
    "list_head": "struct list_head *next; struct list_head *prev",
    "task": "u64 id; struct list_head children; struct list_head link",
    "masked": "u32 mask; struct item **slots",
    "plain": "u32 a; struct other *b; ptr c",
    "other": "u32 x",
    "loop": "u32 count; struct pool **all",
    "pool": "u32 count; struct loop **all",
    "nameless": "struct nameless *a; u32 b",
    "thing": "u64 count; struct kind *ob_type; u32 used",
    "kind": "struct kind *ob_type; char *name; struct kind *tp_base",
}


@pytest.fixture(params=ABIS)
def world(request):
    return World(ABIS[request.param], **STRUCTS)


def shaped(world, name, *more):
    """Return the guess, read and bound as any shape is."""
    found = guess(world.type(name))
    shape = parse_shape(found.text, "guessed")
    assert (shape.name, shape.kind, shape.types) == (found.name, found.kind, (f"struct {name}",))
    assert found.reasons
    known = library(found.text, *(guess(world.type(each)).text for each in more))
    return found, bind(shape, world.type(name), world, known, world.abi)


def test_the_incidents_table(world):
    _, bound = shaped(world, "lruhash")
    entry, table = world.type("lruhash_entry"), world.type("lruhash")
    raw, (array,) = bound.raw, bound.raw.bins
    offset = {field.name: field.offset for field in (*entry.fields, *table.fields)}
    assert array.array.offsets == (offset["array"],)
    assert array.count.offsets == (offset["size"],)
    assert array.bin_of.text == "hash & mask"
    assert array.head.offset == world.abi.pointer_size
    assert raw.node.next.offset == offset["overflow_next"]
    assert raw.node.prev is None, "lru_prev belongs to lru_next"
    assert raw.node.hash.offset == offset["hash"]
    assert raw.node.key.offset == offset["key"]
    assert raw.table.entries.offsets == (offset["num"],)
    assert (raw.table.lock.offsets, raw.table.bin_lock.offset) == ((0,), 0)
    assert raw.lru.first.offsets == (offset["lru_start"],)
    assert raw.lru.last.offsets == (offset["lru_end"],)
    assert (raw.lru.next.offset, raw.lru.prev.offset) == (offset["lru_next"], offset["lru_prev"])


def test_a_group_of_tables(world):
    found, bound = shaped(world, "slabhash", "lruhash")
    assert bound.raw.group.indirect
    assert bound.raw.group.count.offsets == (0,)
    assert bound.member.name == "lruhash"
    assert "gx shapes guess struct lruhash" in found.text


def test_a_table_whose_members_come_in_twos(world):
    found, bound = shaped(world, "dict")
    (array,) = bound.raw.bins
    assert array.count.text == "1 << bits"
    assert bound.raw.lets["bits"].offsets == (world.type("dict").find_field("ht_size_exp").offset,)
    assert bound.raw.table.entries.offsets == (world.type("dict").find_field("ht_used").offset,)
    assert "second [[bins]]" in found.text


def test_an_array_in_the_object(world):
    _, bound = shaped(world, "registry")
    (array,) = bound.raw.bins
    assert (array.count, array.array.address, array.head.offset) == (64, True, 0)
    assert bound.raw.node.key_is == "string"
    assert bound.raw.node.prev.offset == world.abi.pointer_size
    assert bound.raw.table.entries.offsets == (64 * world.abi.pointer_size,)


def test_a_table_with_nothing_but_a_mask(world):
    _, bound = shaped(world, "masked")
    assert bound.raw.bins[0].count.text == "mask + 1"
    assert bound.raw.bins[0].bin_of.text == "hash & mask"


def test_the_head_of_a_list(world):
    _, bound = shaped(world, "queue")
    word = world.abi.pointer_size
    assert bound.raw.list.first.offsets == (word,)
    assert bound.raw.list.last.offsets == (0,)
    assert bound.raw.list.entries.offsets == (2 * word,)
    assert bound.raw.node.next.offset == 2 * word


def test_a_node(world):
    found, bound = shaped(world, "item")
    assert bound.raw.list.first is None
    assert bound.raw.node.hash.offset == world.type("item").find_field("hash").offset
    assert 'first = "next", end = "head"' in found.text
    assert shaped(world, "nameless")[1].raw.node.next.offset == 0


def test_a_node_with_links_inside_it(world):
    _, bound = shaped(world, "task")
    inner = world.type("task").find_field("link").offset
    links = open_links(bound.raw)
    assert (links.next, links.relative) in ((inner, -inner), (8, -8))
    first = open_shape(bound, world.target, 0x10100, world)
    assert isinstance(first, ListHead) and first.first == 0x10100


def test_a_guess_can_be_used(world):
    _, bound = shaped(world, "lruhash")
    address = world.new("lruhash", size=4, size_mask=3, array=world.new("lruhash_bin", 4), num=9)
    table = open_shape(bound, world.target, address, world)
    assert (table.bins, table.entries) == (4, 9)


def test_a_pointer_is_taken_for_what_it_points_to(world):
    assert guess(world.pointer(world.type("queue"))).name == "queue"


@pytest.mark.parametrize("name", ["plain", "other", "loop", "thing", "kind"])
def test_nothing_is_made_up(world, name):
    with pytest.raises(UsageError, match=f"nothing in struct {name} looks like a list or a table; a link is a pointer"):
        guess(world.type(name))


def test_a_number_is_no_container(world):
    with pytest.raises(UsageError, match="nothing in u32 looks like"):
        guess(world.type("other").fields[0].type)


def test_links_and_heads_of_a_type(world):
    paths = [link.path for link in find_links(world.type("lruhash_entry"))]
    assert paths == ["overflow_next", "lru_next", "lru_prev"]
    assert find_links(world.type("list_head"))[0] == Link("next")
    assert Link("link.next", "link") in find_links(world.type("task"))
    assert find_heads(world.type("lruhash_bin")) == [("overflow_list", "overflow_next")]
    assert find_heads(world.type("plain")) == []


def test_links_in_an_anonymous_union_lead_to_the_whole_node():
    link = Type("struct item *", Code.POINTER, 8, target=lambda: node)
    union = Type("union {...}", Code.UNION, 8, fields=lambda: [Field("next", 0, link)])
    node = Type("struct item", Code.STRUCT, 16, fields=lambda: [Field("", 8, union)])
    found = guess(node)
    assert 'next = "next"' in found.text and "relative" not in found.text
