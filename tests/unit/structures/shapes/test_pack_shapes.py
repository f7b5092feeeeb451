"""The shape files of the pack, one by one: readable, said where they are from, and sound without any types."""

from __future__ import annotations

import os

import pytest

from gdbext.abi import I386, X86_64
from gdbext.debuginfo import NoDebugInfo
from gdbext.structures.shapes.bind import bind
from gdbext.structures.shapes.library import read_library

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "..", "..", "shapes")
LIBRARY = read_library([FOLDER])
DECLARED = [name for name, shape in LIBRARY.shapes.items() if shape.structs]


def test_every_file_is_a_shape():
    files = {name for name in os.listdir(FOLDER) if name.endswith(".toml")}
    assert LIBRARY.problems == ()
    assert files == {f"{name}.toml" for name in LIBRARY.shapes}


@pytest.mark.parametrize("name", LIBRARY.shapes)
def test_a_shape_says_what_it_is_and_where_it_was_read(name):
    shape = LIBRARY.shapes[name]
    assert shape.source and 0 < len(shape.summary) <= 120
    assert shape.group is None or LIBRARY.find_shape(shape.group.of)


@pytest.mark.parametrize("abi", (X86_64, I386), ids=("64", "32"))
@pytest.mark.parametrize("name", DECLARED)
def test_what_a_shape_declares_is_enough_for_it(name, abi):
    shape = LIBRARY.shapes[name]
    assert bind(shape, None, NoDebugInfo(), LIBRARY, abi).types_from == "declarations"
