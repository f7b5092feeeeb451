"""Maps in a terminal: characters, halves in colour, ASCII; within the width."""

from __future__ import annotations

import re

import pytest

from gdbext.render.mosaic import mosaic_lines
from gdbext.render.style import Style
from gdbext.report import Memory, Mosaic

U, F, C, R, N = Memory.USED, Memory.FREE, Memory.CACHED, Memory.RETURNED, Memory.UNTOUCHED
PATTERN = Mosaic([("main", [U, F] * 20), ("thread", [U, C, R, N])])


def lines_of(mosaic, width=40, **style):
    return list(mosaic_lines(mosaic, width, Style(**{"plain": False, **style})))


def test_a_character_for_each_cell():
    assert lines_of(PATTERN) == [
        "main    " + "█░" * 16, "        " + "█░" * 4, "thread  █▓·",
        "█ used  ▓ cached  ░ free  · returned", "  untouched",
    ]  # fmt: skip


def test_ascii():
    lines = lines_of(PATTERN, plain=True)
    assert lines[:3] == ["main    " + "#o" * 16, "        " + "#o" * 4, "thread  #+."]
    assert all(line.isascii() for line in lines)


def test_two_rows_share_a_line_in_colour():
    """40 cells in rows of 32: the second row's 8 cells are the lower halves of the first 8."""
    first, second, *_ = lines_of(PATTERN, color=True)
    cells = re.findall(r"\x1b\[([\d;]+)m(▀+)\x1b", first)
    assert [(code, len(run)) for code, run in cells] == [("34;44", 1), ("32;42", 1)] * 4 + [("34", 1), ("32", 1)] * 12
    assert "main" in first and "thread" in second


def test_equal_neighbours_are_painted_at_once():
    (line, _) = lines_of(Mosaic([("x", [U] * 30)]), color=True)
    assert line.count("▀" * 30) == 1


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_page(width, color):
    names = ["glibc main brk 0x555555555000", "<b>\u202e\x1b[1m" + "n" * 500]
    for line in lines_of(Mosaic([(name, [U, F, N] * 200) for name in names]), width, color=color):
        plain = re.sub(r"\x1b\[[\d;]*m", "", line)
        assert len(plain) <= max(width, 24) and plain.isprintable()


def test_nothing():
    assert lines_of(Mosaic([])) == [""]
