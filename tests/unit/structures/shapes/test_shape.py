"""Shape files: every key arrives, every mistake is one line that names file and key."""

from pathlib import Path

import pytest

from gdbext.errors import ShapeError
from gdbext.layout.types import Code, Field, Type
from gdbext.structures.shapes.library import read_library
from gdbext.structures.shapes.shape import parse_shape

SHAPES = Path(__file__).resolve().parents[4] / "shapes"

BINS = """
name = "t"
kind = "bins"
types = ["struct t"]
[let]
mask = "size_mask"
exp = "ht_size_exp[0]"
[[bins]]
array = ["array", "ht_table[0]"]
count = "1 << exp"
head = "list"
bin_of = "hash & mask"
[[bins]]
array = "array2"
count = "size"
when = "exp != -1"
[node]
next = "next"
hash = "hash"
key = "key"
key_is = "bytes"
key_size = 16
element = "+0x8"
[link]
mask = 7
mangled = [true, false]
forbidden = [-1, 1]
[table]
entries = "num"
[lru]
first = "lru_start"
next = "lru_next"
"""


def refused(text, *changes):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(ShapeError) as caught:
        parse_shape(text, "mine.toml")
    assert str(caught.value).startswith("mine.toml: ") and "\n" not in str(caught.value)
    return str(caught.value)


def test_every_key_arrives():
    shape = parse_shape(BINS, "mine.toml")
    first, second = shape.bins
    assert [path.text for path in first.array] == ["array", "ht_table[0]"]
    assert first.count.number({"exp": 4, "mask": 0}) == 16
    assert second.count[0].text == "size"
    assert second.when.names == {"exp"}
    assert (shape.node.key_is, shape.node.key_size, shape.node.element[0].text) == ("bytes", 16, "+0x8")
    assert (shape.link.mask, shape.link.mangled, shape.link.forbidden) == (7, (True, False), (-1, 1))
    assert shape.lru.first[0].text == "lru_start"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('kind = "bins"', 'kind = "heap"', "kind: 'heap' is not one of list, bins"),
        ('kind = "bins"', "", "kind is missing"),
        ('name = "t"', 'name = "T x"', "name: 'T x' is not lower case"),
        ('next = "next"', "", "node.next is missing"),
        ('next = "next"', 'nxet = "next"', "node"),
        ("mask = 7", 'mask = "7"', "link.mask must be a number, not '7'"),
        ("mask = 7", "mask = true", "link.mask must be a number, not True"),
        ("mask = 7", "maks = 7", "link.maks means nothing here"),
        ('bin_of = "hash & mask"', 'bin_of = "hash & size"', "bins.bin_of: 'hash & size' uses 'size'"),
        ('bin_of = "hash & mask"', 'bin_of = "hash &"', "bins.bin_of: 'hash &' is not an expression"),
        ('head = "list"', 'head = "a..b"', "bins.head: 'a..b' is not a path"),
        ("[lru]", "[lru]\ncolour = 1", "lru.colour means nothing here"),
        ('mask = "size_mask"', 'hash = "size_mask"', "let.hash cannot be a name"),
        ("[[bins]]", "[bins]", "not TOML|bins"),
        ('types = ["struct t"]', "types = [3]", "types must hold texts only"),
        ('key_is = "bytes"', 'key_is = "rope"', "node.key_is: 'rope' is not one of"),
    ],
)
def test_mistakes(old, new, expected):
    import re

    assert re.search(expected, refused(BINS, (old, new)))


def test_what_is_no_toml_is_told():
    assert "not TOML" in refused("name = ")


def test_next_bin_needs_the_list():
    assert "table.list_first is missing" in refused(BINS, ('entries = "num"', 'end = "next-bin"'))


def test_the_packs_own_shapes_are_sound():
    library = read_library([str(SHAPES)])
    assert not library.problems
    assert set(library.shapes) == {path.stem for path in SHAPES.glob("*.toml")}
    for shape in library.shapes.values():
        assert shape.summary and shape.source, shape.name
        if shape.group:
            assert library.find_shape(shape.group.of)


def test_the_packs_own_shapes_are_parsed_when_they_are_asked_for():
    checked, later = read_library([str(SHAPES)]), read_library([str(SHAPES)], [str(SHAPES)])
    assert list(later.known) == list(checked.known)
    for name, shape in later.known.items():
        assert (shape.types, shape.needs) == (checked.known[name].types, checked.known[name].needs)
        assert "whole" not in vars(shape) and later.find_shape(name) == checked.find_shape(name)


def test_a_pack_that_somebody_has_broken_is_reported(tmp_path):
    for number, text in enumerate(("kind = [", "kind = 3", 'name = "x"\ntypes = 3')):
        (tmp_path / f"{number}.toml").write_text(text)
    broken = read_library([str(tmp_path)], [str(tmp_path)]).problems
    assert len(broken) == 3 and broken == read_library([str(tmp_path)]).problems


def record(name, *members, tag=None):
    fields = [Field(member, 8 * at, Type("void *", Code.POINTER, 8)) for at, member in enumerate(members)]
    return Type(name, Code.STRUCT, 8 * len(members), tag=tag, fields=lambda: fields)


def library(tmp_path, **texts):
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return read_library([str(tmp_path), str(tmp_path / "nowhere")])


def listed(name, rest):
    return f'name = "{name}"\nkind = "list"\n{rest}\n[list]\nfirst = "self"\n[node]\nnext = "+0"\n'


def test_shapes_fit_by_name_then_pattern_then_members(tmp_path):
    shapes = library(
        tmp_path,
        a=listed("a-members", 'needs = ["lh_first"]'),
        b=listed("b-pattern", 'types = ["std::list<*>"]'),
        c=listed("c-name", 'types = ["struct head", "GList"]'),
    )

    def fitting(type):
        return [shape.name for shape in shapes.for_each_fitting(type)]

    assert fitting(record("struct head", "lh_first")) == ["c-name", "a-members"]
    assert fitting(record("head", "x")) == ["c-name"]
    assert fitting(record("GList", "x", tag="struct _GList")) == ["c-name"]
    assert fitting(record("std::list<int, std::allocator<int> >", "x")) == ["b-pattern"]
    assert fitting(record("struct other", "x")) == []
    assert set(shapes.type_names()) == {"struct head", "GList"}


def test_a_bad_file_is_a_problem_and_the_users_own_rules(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.toml").write_text(listed("same", 'summary = "mine"'))
    (tmp_path / "same.toml").write_text(listed("same", 'summary = "theirs"'))
    (tmp_path / "bad.toml").write_text("kind = 3")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xff'")
    found = read_library([str(tmp_path), str(tmp_path / "mine")])
    assert found.find_shape("same").summary == "mine"
    assert found.find_shape("other") is None
    assert [problem.kind for problem in found.problems] == ["shape-file"] * 2
    assert "latin.toml: cannot be read: not UTF-8" in found.problems[1].message
