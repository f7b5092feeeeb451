"""Containers of libstdc++, laid out by hand after GCC 12's headers, and their types as debug info has them."""

from __future__ import annotations

import pytest

from gdbext.abi import I386, X86_64
from gdbext.layout.types import Code, Field, Type
from tests.unit.analysis.types.world import World

HIGH = ("container", "high")
STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"


class Library:
    """The types that a test's containers have."""

    def __init__(self, world):
        self.world = world
        self.word = world.abi.pointer_size
        self.char = Type("char", Code.INTEGER, 1)
        self.number = Type("long", Code.INTEGER, self.word)
        self.types = {}
        world.types = self

    def find_type(self, name):
        return self.types.get(name)

    def record(self, name, *members):
        """Make a structure of members, each (name, type), laid out in words."""
        fields, offset = [], 0
        for member, type in members:
            fields.append(Field(member, offset, type, is_base=not member))
            offset += type.size
        self.types[name] = Type(name, Code.STRUCT, max(offset, 1), fields=lambda: fields)
        return self.types[name]

    def pointer(self, type):
        return Type(f"{type.name} *", Code.POINTER, self.word, target=lambda: type)

    def vector(self, element):
        to = self.pointer(element)
        names = ("_M_start", "_M_finish", "_M_end_of_storage")
        inner = self.record(f"impl<{element.name}>", *((name, to) for name in names))
        return self.record(f"std::vector<{element.name}, std::allocator<{element.name}> >", ("_M_impl", inner))

    def string(self):
        numbers = [(name, self.number) for name in ("length", "capacity", "more")]
        return self.record(STRING, ("_M_p", self.pointer(self.char)), *numbers)

    def list_of(self, value):
        base = Type("std::__detail::_List_node_base", Code.STRUCT, 2 * self.word)
        links = [Field("_M_next", 0, self.pointer(base)), Field("_M_prev", self.word, self.pointer(base))]
        base._fields = lambda: links
        storage = self.buffer(value)
        node = self.record(f"std::_List_node<{value.name}>", ("", base), ("_M_storage", storage))
        allocator = Type(f"std::allocator<{node.name} >", Code.STRUCT, 1)
        head = self.record("impl", ("_M_node", base), ("_M_size", self.number))
        name = f"std::__cxx11::list<{value.name}, std::allocator<{value.name}> >"
        fields = [Field("", 0, allocator, is_base=True), Field("_M_impl", 0, head)]
        self.types[name] = Type(name, Code.STRUCT, head.size, fields=lambda: fields)
        return self.types[name]

    def buffer(self, value):
        self.types[value.name] = value
        bytes_ = Type("unsigned char []", Code.ARRAY, value.size, length=value.size, target=lambda: self.char)
        return self.record(f"__gnu_cxx::__aligned_membuf<{value.name}>", ("_M_storage", bytes_))

    def map_of(self, key, value):
        base = Type("std::_Rb_tree_node_base", Code.STRUCT, 4 * self.word)
        names = ("_M_parent", "_M_left", "_M_right")
        links = [Field(name, (at + 1) * self.word, self.pointer(base)) for at, name in enumerate(names)]
        base._fields = lambda: links
        pair = self.record(f"std::pair<{key.name} const, {value.name}>", ("first", key), ("second", value))
        node = self.record(f"std::_Rb_tree_node<{pair.name} >", ("", base), ("_M_storage", self.buffer(pair)))
        allocator = Type(f"std::allocator<{node.name} >", Code.STRUCT, 1)
        fields = [
            Field("", 0, allocator, is_base=True),
            Field("_M_header", self.word, base),
            Field("_M_node_count", 5 * self.word, self.number),
        ]
        tree = Type("std::_Rb_tree<…>", Code.STRUCT, 6 * self.word, fields=lambda: fields)
        return self.record(f"std::map<{key.name}, {value.name}, std::less<{key.name}> >", ("_M_t", tree))


ABIS = pytest.mark.parametrize("abi", [X86_64, I386], ids=lambda abi: abi.machine)


@ABIS
def test_a_vector_of_pointers_leads_to_what_is_in_use_of_it(abi):
    world = World(abi)
    library = Library(world)
    item = library.record("item", ("key", library.number), ("value", library.number))
    used, spare = world.block(world.words(1, 2)), world.block(b"\x91" * 2 * library.word)
    buffer = world.block(world.words(0, used, spare, 0))
    word = library.word
    world.variable(library.vector(library.pointer(item)), world.words(buffer, buffer + 2 * word, buffer + 4 * word))
    answers = world.answers()
    assert answers[buffer] == ("std::vector<item *> buffer", *HIGH)
    assert answers[used] == ("item", "debug info", "high")
    assert answers[spare][0] == "unknown"


def bad_ranges(at):
    yield "ends before it begins", (at, at - 8, at + 32)
    yield "capacity before the end", (at, at + 32, at + 16)
    yield "larger than its block", (at, at + 8, at + 0x1000)
    yield "no whole elements", (at, at + 12, at + 32)
    yield "inside a block", (at + 8, at + 16, at + 32)
    yield "nothing", (0, 0, 0)
    yield "endless", (at, (1 << 64) - 8, (1 << 64) - 8)


@pytest.mark.parametrize("number", range(7))
def test_what_is_no_buffer_of_a_vector(number):
    world = World()
    library = Library(world)
    item = library.record("item", ("key", library.number), ("value", library.number))
    at = world.block(b"\x91" * 40)
    world.variable(library.vector(item), world.words(*list(bad_ranges(at))[number][1]))
    assert world.answers()[at][1] == "unknown"


def test_a_buffer_of_objects_with_virtual_tables_is_no_single_object():
    world = World()
    library = Library(world)
    table = world.table("6Circle")
    circle = library.record("Circle", ("_vptr.Circle", library.pointer(library.number)), ("radius", library.number))
    buffer = world.block(world.words(table, 1) + bytes(64))
    world.variable(library.vector(circle), world.words(buffer, buffer + 16, buffer + 80))
    assert world.answers()[buffer] == ("std::vector<Circle> buffer", *HIGH)


@ABIS
def test_strings(abi):
    world = World(abi)
    library = Library(world)
    string, word = library.string(), library.word
    text = world.block(b"long text of a string" + bytes(19))
    world.variable(string, world.words(text, 21, 38, 0))
    short = world.variable(string, world.words(0, 3) + b"abc\0")
    world.write(short, world.words(short + 2 * word))
    wrong = world.block(b"\x91" * 40)
    for length, room in ((50, 38), (21, 4000), (21, 38), ((1 << 63), (1 << 63))):
        world.variable(string, world.words(wrong, length, room, 0))
    answers = world.answers()
    assert answers[text] == ("std::string text", *HIGH)
    assert answers[wrong][0] == "unknown"


@ABIS
def test_lists_and_their_values(abi):
    world = World(abi)
    library = Library(world)
    item = library.record("item", ("key", library.number), ("value", library.number))
    kind = library.list_of(library.pointer(item))
    values = [world.block(world.words(5, 5)) for _ in range(3)]
    nodes = [world.block(bytes(3 * library.word)) for _ in range(3)]
    head = world.variable(kind, world.words(nodes[0], nodes[2], 3))
    ring = [head, *nodes, head]
    for at, node in enumerate(nodes):
        world.write(node, world.words(ring[at + 2], ring[at], values[at]))
    answers = world.answers()
    assert {answers[node] for node in nodes} == {("std::list<item *> node", *HIGH)}
    assert {answers[value] for value in values} == {("item", "debug info", "high")}


def test_a_list_in_a_block_is_no_node_of_its_own():
    world = World()
    library = Library(world)
    kind = library.list_of(library.number)
    node, head = world.block(bytes(24)), world.block(bytes(24))
    world.write(head, world.words(node, node, 1))
    world.write(node, world.words(head, head, 7))
    world.variable(library.pointer(kind), world.words(head))
    assert world.answers() == {
        head: ("std::list<long>", "debug info", "high"),
        node: ("std::list<long> node", *HIGH),
    }


@ABIS
def test_trees(abi):
    world = World(abi)
    library = Library(world)
    item = library.record("item", ("key", library.number), ("value", library.number))
    kind = library.map_of(library.number, library.pointer(item))
    value = world.block(world.words(1, 2))
    root, left, right = (world.block(bytes(6 * library.word)) for _ in range(3))
    head = world.variable(kind, world.words(0, 0, root, left, right, 3)) + library.word
    world.write(root, world.words(1, head, left, right, 10, value))
    world.write(left, world.words(0, root, 0, 0, 5, 0))
    world.write(right, world.words(0, root, 0, 0x13, 20, 0))  # damaged: a link that leads nowhere
    answers = world.answers()
    assert answers[root] == answers[left] == ("std::map<long, item *> node", *HIGH)
    assert answers[right][0] == "std::map<long, item *> node"
    assert answers[value] == ("item", "debug info", "high")


def test_a_container_without_its_node_type_leads_nowhere():
    world = World()
    library = Library(world)
    kind = library.list_of(library.number)
    library.types = {name: type for name, type in library.types.items() if "_List_node<" not in name}
    node = world.block(b"\x91" * 24)
    world.variable(kind, world.words(node, node, 1))
    assert world.answers()[node][0] == "unknown"


def test_the_end_of_a_queue_is_no_pointer_to_the_next_block():
    world = World(family="jemalloc")
    library = Library(world)
    to = library.pointer(library.number)
    names = ("_M_cur", "_M_first", "_M_last")
    iterator = library.record("std::_Deque_iterator<long, long&, long*>", *((name, to) for name in names))
    chunk = world.block(b"\x91" * 16, usable=24)
    behind = world.block(b"\x92" * 16, usable=24)
    world.variable(iterator, world.words(chunk, chunk, behind))
    answers = world.answers()
    assert answers[chunk] == ("long[]", "debug info", "medium")
    assert answers[behind][0] == "unknown"
