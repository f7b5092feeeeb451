"""Types of pointers followed from variables into blocks."""

from __future__ import annotations

from random import Random

import pytest

from gdbext.abi import I386, X86_64, Abi
from gdbext.analysis.types import propagate
from gdbext.debuginfo import TypedPlace
from gdbext.layout.types import Code, Field, Type
from tests.unit.analysis.types.world import DATA, HEAP, World

BIG = Abi(8, "big", "s390x")
HIGH, MEDIUM, LOW = (("debug info", level) for level in ("high", "medium", "low"))


@pytest.fixture(autouse=True, params=[1 << 16, 1], ids=["all", "one"])
def at_once(request, monkeypatch):
    """How many pointers are followed at once: objects all together, or each by itself."""
    monkeypatch.setattr(propagate, "_AT_ONCE", request.param)


def pointer(world, target):
    return Type(f"{target.name} *", Code.POINTER, world.abi.pointer_size, target=lambda: target)


def known(world, **structs):
    types = world.declare(**structs)
    return [types.find_type(name) for name in structs]


@pytest.mark.parametrize("abi", [X86_64, I386, BIG], ids=lambda abi: abi.machine)
def test_a_list_and_what_hangs_on_it(abi):
    world = World(abi)
    item, _ = known(
        world,
        item=("struct item *next", "struct owner *owner", "void *data", "char *name"),
        owner=("u64 id", "u64 more"),
    )
    text, data = world.block(b"a name of an item\0"), world.block(b"\x91" * 40)
    owner = world.block(b"\x05" * 16)
    last = world.block(world.words(0, owner, data, text))
    first = world.block(world.words(last, 0, 0, 0))
    world.variable(pointer(world, item), world.words(first))
    assert world.answers() == {
        first: ("struct item", *HIGH),
        last: ("struct item", *HIGH),
        owner: ("struct owner", *HIGH),
        text: ("C string", "text", "medium"),
        data: ("unknown", "unknown", ""),
    }


def test_an_embedded_structure_and_an_array_of_pointers():
    world = World()
    item, pair, table = known(
        world,
        item=("u64 key", "u64 value"),
        pair=("u64 kind", "struct item *one"),
        table=("struct pair pairs[3]", "struct item *many[4]"),
    )
    items = [world.block(world.words(5, 5)) for _ in range(4)]
    world.variable(table, world.words(0, items[0], 0, 0, 0, items[1], 0, items[2], 0, items[3]))
    assert set(world.answers().values()) == {("struct item", *HIGH)}


def test_a_long_list_is_followed_to_its_end_in_few_rounds():
    world = World()
    (item,) = known(world, item=("struct item *next", "u64 key"))
    at = 0
    for _ in range(1500):
        at = world.block(world.words(at, 1))
    world.variable(pointer(world, item), world.words(at))
    found = world.found()
    assert [found.name(row) for row in range(1500)] == ["struct item"] * 1500


def linked(count, seed):
    """Lists and rings of nodes of all sizes, some with text where a pointer should be; where they begin."""
    world, draw = World(), Random(seed)
    (item,) = known(world, item=("struct item *next", "struct item *other", "u64 key"))
    nodes = [world.block(bytes(24) + bytes(draw.choice((0, 0, 16, 24, 48)))) for _ in range(count)]
    for at, node in enumerate(nodes):
        after = nodes[at + 1 : at + 2] or [draw.choice((0, nodes[0], nodes[at // 2]))]
        other = draw.choice((0, 0, draw.choice(nodes), 0x4141414141414141 if at % 40 == 39 else 0))
        world.write(node, world.words(after[0], other, 5))
        if draw.random() < 0.1:
            world.write(node + 24, world.words(draw.choice(nodes)) if draw.random() < 0.5 else b"")
    for node in (nodes[0], nodes[count // 3]):
        world.variable(pointer(world, item), world.words(node))
    return world


@pytest.mark.parametrize("seed", range(20))
def test_lists_at_once_are_what_they_are_node_by_node(seed, monkeypatch):
    answers = []
    for long in (1, 4, 10**9):
        monkeypatch.setattr(propagate, "_LONG_CHAIN", long)
        answers.append(linked(120, seed).answers())
    assert answers[0] == answers[1] == answers[2]


def test_nodes_with_room_for_more_take_few_rounds(monkeypatch):
    rounds = []
    visit = propagate.Propagation._visit
    monkeypatch.setattr(propagate.Propagation, "_visit", lambda *given: rounds.append(1) or visit(*given))
    world = World()
    (item,) = known(world, item=("struct item *next", "u64 key"))
    at = 0
    for number in range(1000):
        at = world.block(world.words(at, 1) + bytes(8 * (number % 5)))
    world.variable(pointer(world, item), world.words(at))
    found = world.found()
    assert {found.name(row) for row in range(1000)} == {"struct item"}
    assert len(rounds) < 60


@pytest.mark.parametrize("asked", [True, False])
def test_mangled_links_are_followed_where_they_count(asked):
    world = World()
    world.mangled = asked
    (item,) = known(world, item=("struct item *next", "u64 key"))
    blocks = [world.block(bytes(16)) for _ in range(3)]
    for at, to in zip(blocks, [*blocks[1:], 0]):
        world.write(at, world.words(to ^ at >> 12, 5))
    world.variable(pointer(world, item), world.words(blocks[0]))
    found = world.answers()
    assert [found[at][0] == "struct item" for at in blocks] == [True, asked, asked]
    assert (found[blocks[2]][1:] == HIGH) == asked


def test_a_ring_ends():
    world = World()
    (item,) = known(world, item=("struct item *next", "struct item *prev", "u64 key"))
    blocks = [world.block(bytes(24)) for _ in range(200)]
    for at, block in enumerate(blocks):
        world.write(block, world.words(blocks[at - 199], blocks[at - 1], 1))
    world.variable(pointer(world, item), world.words(blocks[7]))
    assert set(world.answers().values()) == {("struct item", *HIGH)}


def test_a_block_that_is_too_small_is_not_of_the_type():
    world = World()
    (item,) = known(world, item=("u64 words[8]",))
    small = world.block(b"\x91" * 24)
    inside = world.block(b"\x92" * 100)
    for value in (small, inside + 8, 0, 1, (1 << 64) - 1, HEAP - 16, DATA):
        world.variable(pointer(world, item), world.words(value))
    assert {answer[0] for answer in world.answers().values()} == {"unknown"}


def test_a_larger_block_may_be_something_that_begins_so():
    world = World()
    (item,) = known(world, item=("u64 key", "struct item *next"))
    larger = world.block(world.words(1, 0) + b"\x91" * 200)
    exact = world.block(world.words(1, larger))
    world.variable(pointer(world, item), world.words(exact))
    assert world.answers() == {larger: ("struct item", *MEDIUM), exact: ("struct item", *MEDIUM)}


def test_an_array_is_told_by_the_pointers_in_its_elements():
    world = World()
    item, _ = known(world, item=("u64 key", "struct leaf *leaf"), leaf=("u64 a", "u64 b"))
    leaf = world.block(world.words(1, 2))
    array = world.block(world.words(1, 0, 2, leaf, 3, 0, 4, 0))
    world.variable(pointer(world, item), world.words(array))
    assert world.answers() == {array: ("struct item[]", *MEDIUM), leaf: ("struct leaf", *MEDIUM)}


def test_an_array_with_its_count_before_it():
    world = World()
    item, _ = known(world, item=("u64 key", "struct leaf *leaf"), leaf=("u64 a", "u64 b"))
    leaf = world.block(world.words(1, 2))
    array = world.block(world.words(3, 1, 0, 2, leaf, 3, 0))
    lying = world.block(world.words(1 << 61, 1, 0, 2, leaf, 3, 0))
    for at in (array, lying):
        world.variable(pointer(world, item), world.words(at + 8))
    answers = world.answers()
    assert answers[array] == ("struct item[]", *HIGH) and answers[leaf] == ("struct leaf", *HIGH)
    assert answers[lying][1] != "debug info"


def test_tables_of_pointers():
    world = World()
    (item,) = known(world, item=("u64 key", "u64 value"))
    items = [world.block(world.words(1, 2)) for _ in range(3)]
    table = world.block(world.words(items[0], 0, items[1], 0, items[2], 0))
    empty = world.block(bytes(64))
    garbage = world.block(b"\x91" * 64)
    for at in (table, empty, garbage):
        world.variable(pointer(world, pointer(world, item)), world.words(at))
    answers = world.answers()
    assert answers[table] == ("struct item *[]", *HIGH)
    assert answers[empty] == ("struct item *[]", *MEDIUM)
    assert answers[garbage] == ("struct item *[]", *LOW)
    assert {answers[at] for at in items} == {("struct item", *MEDIUM)}


def test_numbers_are_arrays_and_never_sure():
    world = World()
    number = Type("int", Code.INTEGER, 4)
    at = world.block(b"\1\0\0\0" * 20)
    world.variable(pointer(world, number), world.words(at))
    assert world.answers()[at] == ("int[]", *MEDIUM)


def test_a_member_that_points_nowhere_makes_doubt_and_leads_nowhere():
    world = World()
    item, _ = known(world, item=("struct leaf *leaf", "struct leaf *other"), leaf=("u64 a", "u64 b"))
    leaf = world.block(world.words(1, 2))
    wrong = world.block(world.words(leaf, 0x9191919191))
    world.variable(pointer(world, item), world.words(wrong))
    assert world.answers() == {wrong: ("struct item", *LOW), leaf: ("unknown", "unknown", "")}


def test_a_pointer_to_what_nobody_knows_makes_doubt():
    world = World()
    (item,) = known(world, item=("char *text", "u64 number"))
    blocks = [world.block(world.words(0x9191919191, 1)) for _ in range(3)]
    for at in blocks:
        world.variable(pointer(world, item), world.words(at))
    assert world.answers() == dict.fromkeys(blocks, ("struct item", *LOW))


def test_pointers_that_disagree_make_doubt():
    world = World()
    one, other = known(world, one=("u64 a", "u64 b"), other=("u64 c", "u64 d"))
    at = world.block(world.words(1, 2))
    world.variable(pointer(world, one), world.words(at))
    world.variable(pointer(world, other), world.words(at))
    assert world.answers()[at] == ("struct one", *LOW)


def test_what_begins_with_the_other_type_is_it():
    for order in (1, -1):
        world = World()
        base, whole = known(world, base=("u64 a", "u64 b"), whole=("struct base base", "u64 c"))
        at = world.block(world.words(1, 2, 3))
        for type in (base, whole)[::order]:
            world.variable(pointer(world, type), world.words(at))
        assert world.answers()[at] == ("struct whole", *HIGH)


def test_bare_links_say_little():
    world = World()
    (link,) = known(world, link=("struct link *next", "struct link *prev"))
    at = world.block(bytes(24))
    world.write(at, world.words(at, at, 77))
    world.variable(pointer(world, link), world.words(at))
    assert world.answers()[at] == ("struct link", *LOW)


def test_a_union_says_little():
    world = World()
    item, _ = known(world, item=("u64 a", "u64 b"), other=("u64 c", "u64 d", "u64 e"))
    union = Type("union any", Code.UNION, 8, fields=lambda: [Field("item", 0, pointer(world, item))])
    at = world.block(world.words(1, 2))
    world.variable(union, world.words(at))
    number = world.variable(union, world.words(0x1234567))
    assert world.answers() == {at: ("struct item", *LOW)} and number


def test_a_type_with_an_open_end():
    world = World()
    (item,) = known(world, item=("u64 length", "struct item *next", "char bytes[]"))
    at = world.block(world.words(100, 0) + b"\x91" * 100)
    world.variable(pointer(world, item), world.words(at))
    assert world.answers()[at] == ("struct item", *MEDIUM)


def test_a_pointer_in_a_register():
    world = World()
    (item,) = known(world, item=("u64 a", "struct item *next"))
    last = world.block(world.words(1, 0))
    first = world.block(world.words(1, last))
    world.places.append(TypedPlace(first, item, True))
    assert set(world.answers().values()) == {("struct item", *HIGH)}


def test_hostile_types_end(monkeypatch):
    monkeypatch.setattr(propagate, "_MOST_OBJECTS", 1 << 10)
    world = World()
    huge = Type("struct huge", Code.STRUCT, 1 << 60, fields=lambda: [Field("p", 1 << 59, pointer(world, huge))])
    deep = Type("struct deep", Code.STRUCT, 8, fields=lambda: [Field("inner", 0, deep)])
    long = Type("p[]", Code.ARRAY, 1 << 40, length=1 << 37, target=lambda: pointer(world, huge))
    holder = Type("struct holder", Code.STRUCT, 1 << 40, fields=lambda: [Field("p", 0, long)])
    empty = Type("struct empty", Code.STRUCT, 0, fields=lambda: [Field("p", 0, pointer(world, huge))])
    at = world.block(b"\x91" * 64)
    for type in (huge, deep, empty, long, holder):
        world.variable(type, world.words(at))
        world.variable(pointer(world, type), world.words(at))
    world.variable(Type("u[]", Code.ARRAY, 0, length=None, target=lambda: pointer(world, huge)), world.words(at))
    assert world.answers()[at][2] != "high"


def test_a_block_of_jemalloc_may_have_more_room():
    world = World(family="jemalloc")
    (item,) = known(world, item=("u64 words[33]", "struct item *next"))
    at = world.block(world.words(*range(33), 0), usable=320)
    world.variable(pointer(world, item), world.words(at))
    assert world.answers()[at] == ("struct item", *HIGH)


def test_a_counted_array_of_jemalloc_may_have_more_room():
    world = World(family="jemalloc")
    (item,) = known(world, item=("u64 key", "u64 value", "u64 more"))
    array = world.block(world.words(5, *range(15)), usable=160)
    roomy = world.block(world.words(5, *range(15)), usable=200)
    for at in (array, roomy):
        world.variable(pointer(world, item), world.words(at + 8))
    answers = world.answers()
    assert answers[array] == ("struct item[]", *HIGH)
    assert answers[roomy][1] != "debug info"


def test_what_often_stands_behind_an_object_makes_it_less_sure():
    """As in C, where a larger structure begins with a smaller one, and the allocator's rounding hides it."""
    answers = []
    for behind in (0, 0x77):
        world = World()
        link, _ = known(world, link=("struct link *next", "u64 number"), user=("u64 id",))
        last = world.block(world.words(0, 5, behind))
        first = world.block(world.words(last, 6, 0))
        world.variable(pointer(world, link), world.words(first))
        answers.append({world.answers()[at] for at in (first, last)})
    assert answers == [{("struct link", *HIGH)}, {("struct link", *MEDIUM)}]
