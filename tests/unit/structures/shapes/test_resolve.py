"""From an expression to a structure: what its type decides, what options change, what is refused and how."""

import pytest

from gdbext.errors import FaultError, ShapeError, UsageError
from gdbext.layout.types import Code, Located, Type
from gdbext.structures.shapes.resolve import Overrides, bind_fitting, open_located
from gdbext.structures.shapes.shape import parse_shape
from gdbext.structures.walk.bins import walk_bins
from gdbext.structures.walk.lists import walk_list
from gdbext.structures.walk.model import End, Group, ListHead, Table, TreeRoot
from tests.support.worlds import ABIS, World, library

STRUCTS = {
    "cache": "u64 limit; struct table entries",
    "server": "struct table *sessions; struct table users; struct table hosts",
    "item": "u32 id; struct item *next; struct item *back; u32 hash; struct ring ring",
    "ring": "struct ring *next; struct ring *prev",
    "job": "u64 id; struct ring links; u32 hash; char name[8]",
    "queue": "struct item *first; u32 count",
    "bin": "u32 lock; struct item *first",
    "table": "u32 size; struct bin *bins; u32 kind",
    "pair": "struct table *both[2]; struct table one",
    "plain": "u32 a; u32 b",
    "tree": "struct leaf *root",
    "leaf": "struct leaf *left; struct leaf *right",
    "bsdhead": "struct bsditem *lh_first",
    "bsditem": "u32 id; struct entry a; struct entry b",
    "entry": "struct bsditem *le_next; struct bsditem **le_prev",
}
RING = """
name = "ring"
kind = "list"
types = ["struct ring"]
[list]
first = "next"
end = "head"
last = "prev"
[node]
next = "next"
prev = "prev"
"""
ITEMS = 'name="items"\nkind="list"\ntypes=["struct item"]\n[list]\nfirst="self"\n[node]\nnext="next"\nprev="back"\n'
QUEUE = (
    'name="queue"\nkind="list"\ntypes=["struct queue"]\n[list]\nfirst="first"\nentries="count"\n[node]\nnext="next"\n'
)
TABLE = """
name = "table"
kind = "bins"
types = ["struct table"]
[[bins]]
array = "bins"
count = "size"
head = "first"
[node]
next = "next"
hash = "hash"
"""
PAIR = 'name="pair"\nkind="group"\ntypes=["struct pair"]\n[group]\narray="both"\ncount=2\nindirect=true\nof="table"\n'
BSD = (
    'name="bsd"\nkind="list"\nneeds=["lh_first"]\n'
    '[list]\nfirst="lh_first"\n[node]\nfind=["le_next"]\nfind_prev=["le_prev"]\n'
)
LEAVES = 'name="leaves"\nkind="tree"\ntypes=["struct tree"]\n[tree]\nroot="root"\nleft="left"\nright="right"\n'
SHAPES = (RING, QUEUE, TABLE, PAIR, BSD, LEAVES)


@pytest.fixture
def world():
    return World(**STRUCTS)


def chain(world, *, ids, name="item"):
    nodes = [world.new(name, id=at) for at in ids]
    for one, following in zip(nodes, nodes[1:]):
        world.set(name, one, next=following)
    return nodes


def ring_of(world, *jobs):
    """Make a circular list of jobs, and return its head."""
    links = [world.new("ring"), *(job + 8 for job in jobs)]
    for one, following in zip(links, [*links[1:], links[0]]):
        world.set("ring", one, next=following)
        world.set("ring", following, prev=one)
    return links[0]


def a_table(world, *nodes, size=4, **members):
    bins = world.new("bin", size)
    if nodes:
        world.put(bins + 16 + 8, nodes[0])
    return world.new("table", size=size, bins=bins, **members)


def opened(world, type, *, at=None, value=None, shapes=SHAPES, text="it", found=None, **how):
    located = Located(text, world.type(type) if isinstance(type, str) else type, at, value, found)
    return open_located(world.target, world, library(*shapes), located, Overrides(**how))


def nodes_of(world, result):
    structure = result.structure
    if isinstance(structure, ListHead):
        walk = walk_list(world.target, structure, 1000)
        return walk.nodes.tolist(), walk.end.reason
    return walk_bins(world.target, structure, 1000).nodes.tolist()


# ---- what the type decides ----


def test_a_structure_is_taken_by_its_shape(world):
    nodes = chain(world, ids=(1, 2, 3))
    head = world.new("queue", first=nodes[0], count=3)
    result = opened(world, "queue", at=head)
    assert nodes_of(world, result) == (nodes, End.NULL)
    assert result.structure.entries == 3
    assert [line.message for line in result.evidence] == ["queue (1.toml), members from debug info"]
    assert result.described == f"struct queue at {head:#x}: a list (queue)"
    assert result.problems == ()


def test_a_pointer_is_followed(world):
    nodes = chain(world, ids=(1, 2))
    head = world.new("queue", first=nodes[0])
    result = opened(world, world.pointer(world.type("queue")), at=0x99, value=head)
    assert nodes_of(world, result) == (nodes, End.NULL)


@pytest.mark.parametrize(
    ("type", "kind"), [("queue", ListHead), ("table", Table), ("pair", Group), ("plain", ListHead)]
)
def test_a_null_pointer_is_an_empty_structure(world, type, kind):
    result = opened(world, world.pointer(world.type(type)), value=0)
    assert isinstance(result.structure, kind)
    assert result.structure.address == 0
    assert result.evidence[-1].message == "it is null: there is nothing"
    assert result.described == "it: null"


def test_a_group(world):
    tables = [a_table(world), a_table(world, size=8)]
    address = world.new("pair")
    world.put(address, tables[0])
    world.put(address + 8, tables[1])
    result = opened(world, "pair", at=address)
    assert [table.bins for table in result.structure.tables] == [4, 8]
    assert "its tables are table (2.toml)" in result.evidence[-1].message
    world.put(address + 8, 0)
    result = opened(world, "pair", at=address)
    assert [problem.message for problem in result.problems] == [
        f"table 1 is left out: its address at {address + 8:#x} is null"
    ]


def test_a_tree(world):
    leaf = world.new("leaf")
    result = opened(world, "tree", at=world.new("tree", root=leaf))
    assert isinstance(result.structure, TreeRoot) and result.structure.root == leaf


def test_how_the_expression_was_found_is_evidence(world):
    result = opened(world, "queue", at=world.new("queue"), found="a variable of frame 3")
    assert result.evidence[0].message == "it is a variable of frame 3"


# ---- arrays ----


def test_an_array_of_heads_is_a_table(world):
    jobs = [world.new("job", id=at) for at in range(3)]
    heads = world.new("ring", 4)
    for at in range(4):
        world.set("ring", heads + 16 * at, next=heads + 16 * at, prev=heads + 16 * at)
    for at, job in ((1, jobs[0]), (3, jobs[1])):
        world.set("ring", heads + 16 * at, next=job + 8, prev=job + 8)
        world.set("ring", job + 8, next=heads + 16 * at, prev=heads + 16 * at)
    result = opened(world, world.array(world.type("ring"), 4), at=heads, container=("struct job", "links"))
    table = result.structure
    assert isinstance(table, Table) and table.end == "head"
    walk = walk_bins(world.target, table, 100)
    assert walk.lengths.tolist() == [0, 1, 0, 1]
    assert set(walk.reasons.tolist()) == {End.HEAD}
    assert [node - table.node.element for node in walk.nodes.tolist()] == jobs[:2]
    assert table.node.type == "struct job"


def test_an_array_of_pointers_to_nodes_is_a_table(world):
    nodes = chain(world, ids=(1, 2))
    bins = world.words(0, nodes[0], 0)
    item = world.pointer(world.type("item"))
    result = opened(world, world.array(item, 3), at=bins, next="next", hash="hash")
    assert nodes_of(world, result) == nodes
    assert result.structure.node.hash.offset == 24
    result = opened(world, world.array(item, 3), at=bins, shapes=(ITEMS,))
    assert nodes_of(world, result) == nodes
    assert result.structure.node.links.prev == 16
    result = opened(world, world.pointer(item), value=bins, bins=3, next="next")
    assert nodes_of(world, result) == nodes
    result = opened(world, world.pointer(world.array(item, 3)), value=bins, next="next")
    assert nodes_of(world, result) == nodes


def test_an_array_of_structures_with_the_head_in_them(world):
    nodes = chain(world, ids=(1, 2))
    bins = world.new("bin", 4)
    world.put(bins + 3 * 16 + 8, nodes[0])
    result = opened(world, world.pointer(world.type("bin")), value=bins, bins=4, head="first", next="next")
    assert walk_bins(world.target, result.structure, 100).lengths.tolist() == [0, 0, 0, 2]
    assert result.structure.arrays[0].stride == 16
    every_other = opened(world, "bin", at=bins + 16, bins=2, stride=32, head="first", next="next")
    assert walk_bins(world.target, every_other.structure, 100).lengths.tolist() == [0, 2]


def test_an_array_of_tables_is_a_group(world):
    tables = [a_table(world), a_table(world, size=8)]
    pointers = world.words(*tables)
    pointed = world.pointer(world.type("table"))
    result = opened(world, world.array(pointed, 2), at=pointers)
    assert [table.bins for table in result.structure.tables] == [4, 8]
    result = opened(world, world.pointer(pointed), value=pointers, bins=2)
    assert [table.bins for table in result.structure.tables] == [4, 8]
    pair = world.new("table", 2, size=4, bins=world.new("bin", 4))
    result = opened(world, world.array(world.type("table"), 2), at=pair)
    assert [table.bins for table in result.structure.tables] == [4, 0]


def test_too_many_bins_are_told_in_one_line(world):
    item = world.pointer(world.type("item"))
    with pytest.raises(ShapeError, match=r"struct item \* at 0x10100: 1099511627776 bins of 8 bytes from 0x10100"):
        opened(world, world.pointer(item), value=0x10100, bins=1 << 40, next="next")


# ---- options ----


def test_next_follows_nodes(world):
    nodes = chain(world, ids=(1, 2, 3))
    pointer = world.pointer(world.type("item"))
    result = opened(world, pointer, value=nodes[0], next="next", prev="back", hash="hash", key="id")
    assert nodes_of(world, result) == (nodes, End.NULL)
    assert result.structure.shape == "options"
    assert result.structure.node.links.prev == 16
    assert result.structure.node.key.at.offset == 0
    assert result.evidence[-1].message == "as the options say; members from debug info"
    assert nodes_of(world, opened(world, "item", at=nodes[1], next="+8"))[0] == nodes[1:]
    assert nodes_of(world, opened(world, pointer, value=nodes[0], next="8", end=hex(nodes[2]))) == (
        nodes[:2],
        End.SENTINEL,
    )


def test_links_that_lead_to_links_are_moved_to_the_nodes(world):
    jobs = [world.new("job", id=at) for at in range(3)]
    for one, following in zip(jobs, jobs[1:]):
        world.set("job", one, links__next=following + 8)
    result = opened(world, "job", at=jobs[0], next="links.next")
    assert nodes_of(world, result) == (jobs, End.NULL)


def test_a_ring_from_its_head(world):
    jobs = [world.new("job", id=at) for at in range(3)]
    head = ring_of(world, *jobs)
    result = opened(world, "ring", at=head, container=("struct job", "links"), hash="hash", key="name")
    assert nodes_of(world, result) == ([job + 8 for job in jobs], End.HEAD)
    node = result.structure.node
    assert (node.element, node.type) == (8, "struct job")
    assert node.hash.offset == 24 - 8
    assert nodes_of(world, opened(world, "ring", at=head, shapes=(), next="next", end="head"))[1] is End.HEAD


def test_a_ring_whose_head_is_of_the_nodes_own_type(world):
    head, *jobs = (world.new("job", id=at) for at in range(4))
    links = [job + 8 for job in (head, *jobs)]
    for one, following in zip(links, [*links[1:], links[0]]):
        world.set("ring", one, next=following, prev=0)
    result = opened(world, "job", at=head, next="links.next", end="head")
    assert nodes_of(world, result) == (jobs, End.HEAD)


def test_a_head_in_an_object(world):
    nodes = chain(world, ids=(1, 2))
    head = world.new("bin", first=nodes[0])
    assert nodes_of(world, opened(world, "bin", at=head, head="first", next="next")) == (nodes, End.NULL)


def test_a_shape_that_lacks_only_the_link(world):
    nodes = [world.new("bsditem", id=at) for at in range(3)]
    for one, following in zip(nodes, nodes[1:]):
        world.set("bsditem", one, b__le_next=following)
    head = world.new("bsdhead", lh_first=nodes[0])
    result = opened(world, "bsdhead", at=head, next="b.le_next")
    assert nodes_of(world, result) == (nodes, End.NULL)
    assert result.structure.node.links.prev == 32
    heads = opened(world, world.array(world.type("bsdhead"), 1), at=head, next="b.le_next")
    assert nodes_of(world, heads) == nodes
    with pytest.raises(ShapeError, match="struct bsditem has several members le_next: a.le_next, b.le_next; --next"):
        opened(world, "bsdhead", at=head)


@pytest.mark.parametrize("name", ABIS)
def test_raw_needs_no_types(name):
    world = World(ABIS[name], **STRUCTS)
    word = world.abi.pointer_size
    nodes = chain(world, ids=(1, 2))
    bins = world.new("bin", 3)
    world.put(bins + 4 * word + word, nodes[0])
    number = Type("long", Code.INTEGER, word, signed=True)
    result = opened(world, number, value=nodes[0], raw=True, next=str(word), hash=f"{3 * word}:4", shapes=())
    assert nodes_of(world, result) == (nodes, End.NULL)
    assert (result.structure.node.hash.offset, result.structure.node.hash.size) == (3 * word, 4)
    assert result.evidence[-1].message == "as the options say; members from offsets"
    result = opened(
        world, None, value=bins, raw=True, bins=3, stride=2 * word, head=str(word), next=f"+{word:#x}", shapes=()
    )
    assert walk_bins(world.target, result.structure, 100).lengths.tolist() == [0, 0, 2]
    typed = opened(
        world, world.pointer(world.type("plain")), value=bins, raw=True, bins=3, stride=2 * word, head=str(word),
        next=str(word), shapes=(),
    )  # fmt: skip
    assert typed.structure.arrays == result.structure.arrays


def test_marked_links(world):
    nodes = chain(world, ids=(1, 2))
    world.set("item", nodes[0], next=nodes[1] | 1)
    assert nodes_of(world, opened(world, "item", at=nodes[0], next="next"))[1] is End.DECODE_ERROR
    assert nodes_of(world, opened(world, "item", at=nodes[0], next="next", mask=7)) == (nodes, End.NULL)


def mangled_chain(world, *ids):
    nodes = [world.new("item", id=at) for at in ids]
    for one, following in zip(nodes, [*nodes[1:], 0]):
        world.set("item", one, next=((one + 8) >> 12) ^ following)
    return nodes


def test_mangled_links_are_told_or_found_out():
    world = World(ABIS["x86-64"], 0x7F5500000000, **STRUCTS)
    nodes = mangled_chain(world, 1, 2, 3)
    assert nodes_of(world, opened(world, "item", at=nodes[0], next="next", mangled=True)) == (nodes, End.NULL)
    either = QUEUE + "[link]\nmangled = [true, false]"
    for chained, word in ((nodes, True), (chain(world, ids=(1, 2, 3)), False)):
        result = opened(world, "queue", at=world.new("queue", first=chained[0], count=3), shapes=(either,))
        assert nodes_of(world, result) == (chained, End.NULL)
        assert result.structure.node.links.mangled is word
        counts = "mangled: 0, plain: 1" if word else "mangled: 1, plain: 0"
        assert result.evidence[0].message == f"chains that end badly when links are read as {counts}"
    result = opened(world, "queue", at=world.new("queue"), shapes=(either,), mangled=False)
    assert result.structure.node.links.mangled is False
    bins = TABLE + "[link]\nmangled = [false, true]"
    table = opened(world, "table", at=a_table(world, nodes[0]), shapes=(bins,))
    assert table.structure.node.links.mangled is True


# ---- which shape ----


def test_a_shape_by_name_serves_plain_addresses_and_unknown_types(world):
    nodes = chain(world, ids=(1, 2))
    head = world.new("queue", first=nodes[0])
    number = Type("unsigned long", Code.INTEGER, 8)
    assert nodes_of(world, opened(world, number, value=head, shape="queue"))[0] == nodes
    assert nodes_of(world, opened(world, world.pointer(None), value=head, shape="queue"))[0] == nodes
    incomplete = Type("struct unknown", Code.STRUCT, 0)
    assert nodes_of(world, opened(world, world.pointer(incomplete), value=head, shape="queue"))[0] == nodes
    with pytest.raises(
        ShapeError, match="shape queue: list.first: struct plain has no member first; .void .. before it"
    ):
        opened(world, "plain", at=head, shape="queue")


def test_exact_names_win_over_patterns_and_members(world):
    others = [QUEUE.replace('"queue"', f'"{name}"', 1).replace('types=["struct queue"]', rule) for name, rule in (
        ("any", 'needs=["first"]'), ("pattern", 'types=["struct que*"]'))]  # fmt: skip
    head = world.new("queue")
    assert opened(world, "queue", at=head, shapes=(*others, QUEUE)).structure.shape == "queue"
    assert opened(world, "queue", at=head, shapes=others).structure.shape == "pattern"
    assert opened(world, "queue", at=head, shapes=others[:1]).structure.shape == "any"


def test_the_shape_that_asks_for_more_wins_and_the_other_is_told(world):
    more = QUEUE.replace('"queue"', '"more"', 1).replace('next="next"', 'next="next"\nhash="hash"\nkey="id"')
    other = QUEUE.replace('"queue"', '"other"', 1).replace('next="next"', 'next="next"\nprev="back"')
    result = opened(world, "queue", at=world.new("queue"), shapes=(other, more))
    assert result.structure.shape == "more"
    assert result.evidence[0].message == "other fits too, but asks for less; --shape other takes it"


def test_a_plainer_variant_of_the_shape_that_was_taken_is_not_told(world):
    more = QUEUE.replace('"queue"', '"more"', 1).replace('next="next"', 'next="next"\nhash="hash"')
    result = opened(world, "queue", at=world.new("queue"), shapes=(QUEUE, more))
    assert result.structure.shape == "more"
    assert [row.subject for row in result.evidence] == ["shape"] and "fits too" not in result.evidence[0].message


def test_equal_shapes_are_ambiguous(world):
    other = QUEUE.replace('"queue"', '"other"', 1)
    with pytest.raises(ShapeError, match="struct queue fits several shapes: (queue, other|other, queue); --shape"):
        opened(world, "queue", at=world.new("queue"), shapes=(QUEUE, other))
    assert (
        opened(world, "queue", at=world.new("queue"), shapes=(QUEUE, other), shape="other").structure.shape == "other"
    )


def test_a_structure_around_one_table_stands_for_it(world):
    nodes = chain(world, ids=(1, 2))
    cache = world.new("cache", entries__size=4, entries__bins=world.new("bin", 4))
    world.put(cache + 8 + 8, a_bin := world.new("bin", 4))
    world.put(a_bin + 8, nodes[0])
    result = opened(world, "cache", at=cache)
    assert nodes_of(world, result) == nodes
    assert result.structure.address == cache + 8
    assert result.evidence[0].message == "it has one table in it, its member entries"


def test_a_structure_with_several_tables_names_them(world):
    server = world.new("server")
    expected = "no shape fits struct server; of its members, sessions, users, hosts may be meant"
    refused(world, "server", expected, at=server)


def test_an_object_that_is_not_valid_is_left_to_the_next_shape(world):
    new = TABLE.replace('"table"', '"new"', 1).replace("[[bins]]", '[let]\nkind = "kind"\n[[bins]]', 1)
    new = new.replace('kind = "bins"', 'kind = "bins"\nvalid = "kind == 7"', 1)
    shapes = (TABLE, new)
    assert opened(world, "table", at=a_table(world, kind=7), shapes=shapes).structure.shape == "new"
    assert opened(world, "table", at=a_table(world, kind=1), shapes=shapes).structure.shape == "table"
    forced = opened(world, "table", at=a_table(world, kind=1), shapes=shapes, shape="new")
    assert [problem.message for problem in forced.problems] == ["new: 'kind == 7' does not hold, so this may be none"]
    with pytest.raises(
        ShapeError, match="struct table at .* is not as new says: 'kind == 7' does not hold; .* --shape new"
    ):
        opened(world, "table", at=a_table(world, kind=1), shapes=(new,))


def test_a_shape_that_does_not_bind_is_left_to_the_next(world):
    old = QUEUE.replace('"queue"', '"old"', 1).replace('first="first"', 'first="start"')
    assert opened(world, "queue", at=world.new("queue"), shapes=(old, QUEUE)).structure.shape == "queue"
    with pytest.raises(ShapeError, match="shape old: list.first: struct queue has no member start"):
        opened(world, "queue", at=world.new("queue"), shapes=(old,))


def test_declarations_stand_in_for_types():
    members = {name: [text.strip() for text in STRUCTS[name].split(";")] for name in ("table", "bin", "item", "ring")}
    rows = "".join(
        f'[[struct]]\nname = "struct {name}"\nsince = "1.0"\nmembers = {texts}\n' for name, texts in members.items()
    )
    world = World(**STRUCTS)
    nodes = chain(world, ids=(1, 2))
    address = a_table(world, nodes[0])
    bare = World()
    bare.bytes[:] = world.bytes
    result = opened(bare, None, value=address, shapes=(TABLE + rows,), shape="table")
    assert nodes_of(bare, result) == nodes
    assert result.evidence[-1].message == "table (0.toml), members from the shape's own declarations (1.0)"


def test_a_shape_for_a_type_alone(world):
    bound = bind_fitting(world.target, world, library(*SHAPES), world.type("table"))
    assert bound.name == "table"
    with pytest.raises(UsageError, match="no shape fits struct plain"):
        bind_fitting(world.target, world, library(*SHAPES), world.type("plain"))


# ---- what is refused ----


def refused(world, type, message, error=UsageError, **how):
    with pytest.raises(error, match=message) as caught:
        opened(world, type, **how)
    assert "\n" not in str(caught.value)


def test_types_that_no_shape_fits_name_what_is_nearest(world):
    refused(world, "plain", "no shape fits struct plain; gx shapes guess struct plain", at=0x10100)
    refused(
        world, "item", r"no shape fits struct item; --next next \(or ring.next, back.*\) follows", at=0x10100, shapes=()
    )
    refused(world, "bin", "no shape fits struct bin; --head first --next next may follow its list", at=0x10100)


def test_a_bin_in_place_of_its_link_names_the_link(world):
    message = "--next: next: struct bin has no member next; --head first --next next may follow its list"
    refused(world, "bin", message, at=world.new("bin"), next="next")


def test_expressions_that_cannot_be_opened(world):
    pointer = world.pointer(world.pointer(world.type("item")))
    unbounded = Type("struct ring []", Code.ARRAY, 0, target=lambda: world.type("ring"))
    numbers = world.array(Type("int", Code.INTEGER, 4), 3)
    refused(world, pointer, r"it points to a pointer, struct item \*; --bins N takes it as an array", value=0x10100)
    refused(world, "queue", "it is in no memory; it is computed, or in registers")
    refused(world, None, "it is a plain address; --shape NAME or --next BYTES says what is there", value=0x10100)
    refused(world, None, "it has no value that is an address")
    refused(world, Type("double", Code.FLOAT, 8), "it is a double; name a structure", at=0x10100)
    refused(world, unbounded, "it is an array of unknown length; --bins N says how many", at=0x10100)
    refused(world, numbers, "it consists of int; bins are pointers or structures", at=0x10100)
    refused(world, "queue", r"cannot read 8 bytes of struct queue \(list.first\) at 0x8", FaultError, at=8)


def test_options_that_cannot_be_heeded(world):
    item = world.pointer(world.type("item"))
    here = {"value": 0x10100}
    refused(world, item, "no shape qeue; did you mean queue?", shape="qeue", **here)
    refused(world, item, "no shape zzz; gx shapes list", shape="zzz", **here)
    refused(world, item, "--next: nxt: struct item has no member nxt; --next next", next="nxt", **here)
    refused(
        world, "plain", "--next: nxt: struct plain has no member nxt; gx shapes guess struct plain", at=1, next="nxt"
    )
    refused(world, item, "node.next: u32 is no pointer", next="id", **here)
    refused(world, item, "'a b' is not a path.*; write a member's name, or bytes as .0x8", next="a b", **here)
    refused(world, item, "--end: 'tail' is no end; null, head, or a number", next="next", end="tail", **here)
    refused(world, item, "--container: no type struct nope", next="next", container=("struct nope", "x"), **here)
    refused(
        world, item, "--container: x: struct job has no member x", next="next", container=("struct job", "x"), **here
    )
    refused(world, item, "node.hash: struct item has no member nope", next="next", hash="nope", **here)
    refused(world, "queue", "--head says where a chain begins, not how it goes on; --next", at=0x10100, head="first")
    refused(world, None, "nothing says how the nodes of it are linked; --next MEMBER does", bins=2, stride=8, **here)
    refused(world, None, "bins.stride is missing; without types", bins=2, next="8", **here)
    refused(world, world.pointer(world.type("bin")), "no shape fits struct bin; --head first", bins=2, **here)
    bins = world.pointer(world.type("bin"))
    refused(world, bins, "no shape fits struct bin; --head MEMBER says where in it", bins=2, next="next", **here)


def test_the_shapes_used_here_are_shapes():
    assert [parse_shape(text, "x").kind for text in SHAPES] == ["list", "list", "bins", "group", "list", "tree"]
