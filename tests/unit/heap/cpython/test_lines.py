"""Lines of instructions, held against what the Python that runs the tests says of its own code."""

import dis
import json
import sys
import types

import pytest

from gdbext.heap.cpython.threads.layouts import LNOTAB, LOCATIONS, RANGES
from gdbext.heap.cpython.threads.lines import find_line


def codes(code):
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from codes(one)


def all_codes():
    for module in (json.decoder, dis, pytest):
        with open(module.__file__, encoding="utf-8") as source:
            yield from codes(compile(source.read(), module.__file__, "exec"))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="its tables are of another form")
def test_locations():
    for code in all_codes():
        for start, end, line in code.co_lines():
            assert find_line(LOCATIONS, code.co_linetable, code.co_firstlineno, start) == (line or 0)
            assert find_line(LOCATIONS, code.co_linetable, code.co_firstlineno, end - 2) == (line or 0)


def test_ranges_as_pep_626_has_them():
    table = bytes([6, 1, 50, 1, 4, 128, 2, 254])
    lines = [find_line(RANGES, table, 10, at) for at in (0, 4, 6, 54, 56, 60)]
    assert lines == [11, 11, 12, 12, 0, 10]


def test_changes_as_lnotab_notes_has_them():
    table = bytes([0, 1, 6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 2, 254])
    lines = [find_line(LNOTAB, table, 1, at) for at in (0, 5, 6, 49, 50, 349, 350, 352)]
    assert lines == [2, 2, 3, 3, 8, 8, 208, 206]
