"""Reports on shapes, over declared types; the files that they lead to are tested in tests/gdb."""

import pytest

from gdbext.analysis.tables.shapes import find_saving, guess_report, list_report, save_report, shape_name, show_report
from gdbext.debuginfo import NoDebugInfo
from gdbext.errors import ShapeError, UsageError
from gdbext.layout.types import Located
from gdbext.process import Module
from gdbext.report import Problem
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.shape import parse_shape
from tests.support.worlds import ABIS, World, library

STRUCTS = {
    "item": "u32 id; struct item *next",
    "queue": "struct item *first; u32 count",
    "other": "struct item *start",
    "set": "struct queue *all[2]; u32 n",
}
QUEUE = 'name="queue"\nkind="list"\ntypes=["struct queue", "struct other", "struct absent", "queue<*"]\n'
QUEUE += '[list]\nfirst="first"\n[node]\nnext="next"\n'
SET = 'name="set"\nkind="group"\ntypes=["struct set"]\n[group]\narray="all"\ncount=2\nindirect=true\nof="queue"\n'
NEEDS = 'name="needs"\nkind="list"\nneeds=["first"]\n[list]\nfirst="first"\n[node]\nnext="next"\n'
RAW = 'name="raw"\nkind="list"\n[list]\nfirst="+0"\n[node]\nnext="+8"\n'


@pytest.fixture
def world():
    return World(**STRUCTS)


def test_every_shape_says_how_it_is_chosen():
    known = library(QUEUE, NEEDS, RAW)
    broken = Problem("shape-file", None, "broken.toml: …")
    report = list_report(Library(known.shapes, (broken,)))
    assert [(row.name, row.types, row.file) for row in report.data.shapes] == [
        ("queue", "struct queue, struct other, struct absent, queue<*", "0.toml"),
        ("needs", "any with first", "1.toml"),
        ("raw", "by --shape raw", "2.toml"),
    ]
    assert report.problems == (broken,)


def test_a_shape_is_held_against_the_types_of_the_program(world):
    known = library(QUEUE, RAW)
    fits = show_report(known, "queue", world, world.abi).data.fits
    assert [(row.type, row.members, row.reason) for row in fits] == [
        ("struct queue", "debug info", ""),
        ("struct other", "none", "list.first: struct other has no member first"),
    ]
    assert [row.members for row in show_report(known, "raw", world, world.abi).data.fits] == ["offsets"]
    assert show_report(known, "raw", NoDebugInfo(), None).data.fits is None
    with pytest.raises(UsageError, match="no shape quee; did you mean queue?"):
        show_report(known, "quee", world, world.abi)


def test_a_guess_is_bare_text_that_is_a_shape(world):
    report = guess_report(library(QUEUE), world.type("queue"))
    text = "\n".join(row.text for row in report.data.lines) + "\n"
    assert report.bare and text == report.data.text
    assert parse_shape(text, "x").name == report.data.name == "queue"
    assert list(report.notes) == ["queue fits struct queue already"]


@pytest.mark.parametrize(
    ("what", "kind"), [("struct queue", "list"), ("queue", "list"), ("struct item", "list"), ("set", "group")]
)
def test_what_can_be_saved(world, what, kind):
    saving = find_saving(world.target, world, library(QUEUE, SET), what, "mine")
    assert saving.bound.shape.kind == kind
    report = save_report(saving, [f"{name}.toml" for name, _ in saving.files])
    assert [row.shape for row in report.data.files] == (["mine", "mine-table"] if kind == "group" else ["mine"])
    assert report.notes == ["used by --shape mine"]


def test_variables_are_saved_as_places_in_their_files(world):
    world.globals["heads"] = Located("heads", world.pointer(world.pointer(world.type("item"))), 0x10120, None)
    text = 'name="x"\nkind="bins"\n[[bins]]\narray="@heads"\ncount=4\n[node]\nnext="next"'
    world.modules.append(Module("/usr/bin/server", 0x10000, 0x11000, None))
    saved = find_saving(world.target, world, library(text), "x", "mine").files[0][1]
    assert 'array = "@server+0x120.+0x0:8"' in saved
    world.modules.clear()
    assert 'array = "@heads.+0x0:8"' in find_saving(world.target, world, library(text), "x", "mine").files[0][1]


def test_what_cannot_be_saved(world):
    known = library(QUEUE, SET, RAW)
    with pytest.raises(UsageError, match="neither a shape nor a type struct nope; structures are written with struct"):
        find_saving(world.target, world, known, "struct nope", "mine")
    with pytest.raises(UsageError, match="a shape raw exists already; it would be hidden: choose another file name"):
        find_saving(world.target, world, known, "struct queue", "raw")
    with pytest.raises(ShapeError, match="shape queue: list.first: struct other has no member first"):
        find_saving(world.target, world, known, "struct other", "mine")
    with pytest.raises(ShapeError, match="shape needs: list.first: an untyped object has no members"):
        find_saving(world.target, world, library(NEEDS), "needs", "mine")


def test_files_of_shapes():
    assert shape_name("/a/my-table.toml") == shape_name("my-table.toml") == "my-table"
    for wrong in ("table", "Table.toml", "my_table.toml", ".toml", "a.b.toml", "x.json"):
        with pytest.raises(UsageError, match="cannot hold a shape; lower case, digits and dashes, then .toml"):
            shape_name(wrong)


def test_abis_differ():
    files = {name: find_saving(w.target, w, library(QUEUE), "queue", "mine").files[0][1] for name, w in (
        (name, World(abi, **STRUCTS)) for name, abi in ABIS.items())}  # fmt: skip
    assert 'next = "+0x8"' in files["s390x"] and 'next = "+0x4"' in files["ppc"]
