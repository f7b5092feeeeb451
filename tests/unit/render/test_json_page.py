"""docs/json.md: made from the declarations, complete, and never less than schema 2 promises."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest

from gdbext.report import Kind, Rows, column, line, table

ROOT = Path(__file__).resolve().parents[3]

spec = importlib.util.spec_from_file_location("make_json", ROOT / "docs" / "make_json.py")
make_json = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_json)


FIELDS = list(make_json.for_each_field(make_json.page()))


def test_the_page_is_what_the_declarations_give():
    assert make_json.PAGE.read_text(encoding="utf-8") == make_json.page(), "run python3 docs/make_json.py"


def test_every_field_has_a_meaning():
    assert [f"{command}: {path}" for command, (path, _, meaning) in FIELDS if not meaning] == []


def test_every_command_has_its_fields():
    from gdbext.grammar import catalogue

    assert {spec.name for spec in catalogue.COMMANDS if not spec.raw} == {command for command, _ in FIELDS}


def test_schema_2_is_kept():
    """To what is kept may be added, as make_json.py does; nothing is taken away."""
    now = {(command, field.path): (field.kind, make_json.words_of(field)) for command, field in FIELDS}
    for text in make_json.KEPT.read_text(encoding="utf-8").splitlines():
        command, path, kind, words = text.split("\t")
        found, known = now.pop((command, path), (None, ()))
        assert found == kind, f"{command}: {path}"
        assert {*filter(None, words.split(","))} <= set(known), f"{command}: {path}"
    assert sorted(now) == [], "run python3 docs/make_json.py"


@dataclass(frozen=True)
class Row:
    """A row.

    :param state: ``one``, ``two``; None where ``None`` is in
        the text.
    :type state: word
    """

    address: int = column("address", Kind.ADDRESS)
    state: Optional[str] = column("state")
    shown: str = column("shown", json=False)


@dataclass(frozen=True)
class LongRow(Row):
    """A row with more.

    :param address: of a thing.
    """

    sizes: tuple[int, ...] = column(None, Kind.OBJECT)


@dataclass(frozen=True)
class Answer:
    """An answer.

    :param count: rows
    """

    count: Optional[int] = line("count", Kind.COUNT)
    rows: Optional[Rows[LongRow]] = table("Rows")


def lines(*source):
    return list(make_json._lines(source))


HERE = f"{{{{fields {__name__}:Answer}}}}"
TABLE = [
    *make_json.HEAD,
    "| `count` | count or null | rows |",
    "| `rows[].address` | address | of a thing |",
    "| `rows[].state` | word or null | `one`, `two`; null where `None` is in the text |",
    "| `rows[].sizes[]` | count | |",
]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or importlib.import_module(__name__))


def test_a_table_is_made_of_declarations_and_docstrings():
    assert lines("before", HERE, "after") == ["before", *TABLE, "after"]


def test_own_lines_replace():
    own = "| `rows[].address` | address | of another |"
    assert lines(HERE, own) == [*TABLE[:3], own, *TABLE[4:]]


def test_a_line_of_no_field_is_an_error():
    with pytest.raises(SystemExit, match="no such field: rows"):
        lines(HERE, "| `rows[].adress` | address | |")


def test_only_some_fields_are_wanted():
    assert lines(HERE.replace("}}", " only=count}}")) == TABLE[:3]
