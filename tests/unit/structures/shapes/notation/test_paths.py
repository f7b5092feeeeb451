"""Paths: offsets computed by hand, for both word sizes."""

import struct

import pytest

from gdbext.abi import I386, X86_64
from gdbext.errors import FaultError, ShapeError
from gdbext.layout.declared import declare_types
from gdbext.layout.types import Code, Field, Type
from gdbext.memory import Reader
from gdbext.memory.fake import FakeMemory
from gdbext.structures.shapes.notation.paths import (
    Form,
    GlobalRoot,
    ModuleRoot,
    for_each_ending,
    parse_path,
)
from gdbext.structures.shapes.shape import StructPart

ROWS = (
    StructPart("struct inner", ("u8 flag", "i32 level", "struct outer *up")),
    StructPart("struct outer", ("u32 size", "struct inner in", "struct inner many[3]", "struct outer *next")),
)


def outer(abi=X86_64):
    return declare_types(ROWS, abi).find_type("struct outer")


def no_roots(root):
    raise AssertionError("no root was asked for")


@pytest.mark.parametrize(
    ("text", "abi", "offsets", "form"),
    [
        ("size", X86_64, (0,), Form(4)),
        ("in.level", X86_64, (12,), Form(4, True)),
        ("in.level", I386, (8,), Form(4, True)),
        ("many[2].flag", X86_64, (8 + 16 + 32,), Form(1)),
        ("next->in.up", X86_64, (72, 16), Form(8)),
        ("next->next->size", I386, (52, 52, 0), Form(4)),
        ("in", X86_64, (8,), None),
        ("self", X86_64, (0,), None),
        ("next->+0x10:4s", X86_64, (72, 16), Form(4, True)),
        ("+8->+0x10:2@3.2", X86_64, (8, 16), Form(2, False, (3, 2))),
        ("size:2", X86_64, (0,), Form(2)),
    ],
)
def test_binding(text, abi, offsets, form):
    bound = parse_path(text).bind(outer(abi))
    assert (bound.offsets, bound.form) == (offsets, form)


@pytest.mark.parametrize("text", ["+0x38", "+0x38->+0x10:4s", "+0x0->+0x8->+0x10:4@3.2", "+0x0:1"])
def test_the_raw_form_is_written_as_it_is_read(text):
    bound = parse_path(text).bind(None)
    assert bound.text == text
    assert parse_path(bound.text).bind(None) == bound


def test_roots_survive_the_raw_form():
    for text, root in (("@table->size", GlobalRoot("table")), ("@prog+0x40->+0x8:4", ModuleRoot("prog", 0x40))):
        pointer = Type("struct outer *", Code.POINTER, 8, target=outer)
        bound = parse_path(text).bind(None, pointer)
        assert bound.root == root
        assert parse_path(bound.text).bind(None) == bound


def test_reading_follows_pointers():
    data = bytearray(256)
    struct.pack_into("<I", data, 0, 7)
    struct.pack_into("<Q", data, 72, 0x1080)
    struct.pack_into("<i", data, 0x80 + 12, -3)
    reader = Reader(FakeMemory([(0x1000, bytes(data))]), X86_64)
    assert parse_path("size").bind(outer()).read(reader, 0x1000, no_roots) == 7
    assert parse_path("next->in.level").bind(outer()).read(reader, 0x1000, no_roots) == -3
    assert parse_path("next->in").bind(outer()).locate(reader, 0x1000, no_roots) == 0x1088
    rooted = parse_path("@table.in.level").bind(None, outer())
    assert rooted.read(reader, 0, lambda root: {"table": 0x1080}[root.name]) == -3


def test_a_bit_field_is_cut_out():
    reader = Reader(FakeMemory([(0x1000, b"\x6c\0\0\0")]), X86_64)
    assert parse_path("+0:1@2.3").bind(None).read(reader, 0x1000, no_roots) == (0x6C >> 2) & 7
    packed = Type("struct s", Code.STRUCT, 4, fields=lambda: [Field("kind", 0, Type("u32", Code.INTEGER, 4), (5, 2))])
    assert parse_path("kind").bind(packed).read(reader, 0x1000, no_roots) == 3


def test_a_bad_pointer_on_the_way_is_a_fault():
    reader = Reader(FakeMemory([(0x1000, bytes(256))]), X86_64)
    with pytest.raises(FaultError):
        parse_path("next->size").bind(outer()).read(reader, 0x1000, no_roots)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bogus", "struct outer has no member bogus"),
        ("size.low", "size has no members|u32 has no members"),
        ("in[0]", "is no array"),
        ("many[3].flag", "has 3 elements"),
        ("size->next", "is no pointer but u32"),
    ],
)
def test_what_does_not_bind_is_named(text, message):
    with pytest.raises(ShapeError, match=message):
        parse_path(text).bind(outer())


@pytest.mark.parametrize("text", ["", "a b", "a..b", ".a", "a->-b", "[x]", "a[-1]", "@", "a:3", "a:8@1", "+0xg", "1"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ShapeError):
        parse_path(text)


def test_members_are_found_by_how_their_path_ends():
    assert list(for_each_ending(outer(), "flag")) == ["in.flag"]
    assert list(for_each_ending(outer(), "size")) == ["size"]
    assert list(for_each_ending(outer(), "nothing")) == []


def test_anonymous_members_and_bases_are_looked_into():
    base = Type("Base", Code.STRUCT, 8, fields=lambda: [Field("id", 4, Type("int", Code.INTEGER, 4))])
    union = Type("union {…}", Code.UNION, 8, fields=lambda: [Field("link", 0, Type("void *", Code.POINTER, 8))])
    whole = Type("Derived", Code.STRUCT, 24, fields=lambda: [Field("Base", 0, base, None, True), Field("", 16, union)])
    assert parse_path("id").bind(whole).offsets == (4,)
    assert parse_path("link").bind(whole).offsets == (16,)
    assert list(for_each_ending(whole, "link")) == ["link"]
    assert list(for_each_ending(whole, "id")) == ["id"]


def test_a_number_behind_a_pointer_is_none_of_the_object():
    assert parse_path("size").bind(outer()).find_scalar(8).size == 4
    assert parse_path("next->size").bind(outer()).find_scalar(8) is None
