"""The document of a page: bounded, whatever a target holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from gdbext.render.page.document import make_document
from gdbext.report import Kind, Problem, Report, Rows, column, line, table


@dataclass(frozen=True)
class Row:
    name: str = column("name")
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class Data:
    rows: Any = table("rows")
    numbers: Any = line(None, Kind.OBJECT, default=())
    text: str = line("text", default="")


def made(data, problems=(), rows=200):
    return make_document(Report(data, problems=problems), None, rows)


def test_what_fits_is_whole():
    found = made(Data([Row("a", 1)], [1, 2, None], "t"))
    assert found["data"] == {"rows": [{"name": "a", "bytes": 1}], "numbers": [1, 2, None], "text": "t"}
    assert found["cut"] == {} and found["status"] == 0 and found["schema"] == "gdbext/report/2"


def test_long_lists_say_how_long_they_are():
    found = made(Data([Row(str(at), at) for at in range(1000)]), [Problem("x", at, "m") for at in range(5000)])
    assert len(found["data"]["rows"]) == len(found["problems"]) == 200
    assert found["cut"] == {"data.rows": 1000, "problems": 5000}


def test_what_others_refer_to_by_position_is_whole():
    @dataclass(frozen=True)
    class Map:
        parts: Any = table("parts")

    found = made(Data([], Map([Row("p", at) for at in range(1024)])))
    assert len(found["data"]["numbers"]["parts"]) == 1024 and found["cut"] == {}


def test_rows_that_are_made_while_they_are_written_are_not_all_made():
    taken = []

    def rows():
        for at in range(10**9):
            taken.append(at)
            yield Row("r", at)

    assert len(made(Data(Rows(rows, Row, None)), rows=50)["data"]["rows"]) == 50
    assert len(taken) <= 20_001


@pytest.mark.parametrize(
    "data",
    [
        Data([Row("n" * 1_000_000, at) for at in range(20)]),
        Data([Row("\u202e<" * 1000, at) for at in range(5000)]),
        Data([Row("a", 1)], ["t" * 1_000_000] * 3, "u" * 1_000_000),
    ],
    ids=["names", "many", "texts"],
)
def test_a_hostile_report_stays_small(data):
    found = made(data)
    assert len(json.dumps(found)) <= 2_000_000
    names = [row["name"] for row in found["data"]["rows"]]
    assert max(map(len, [*names, found["data"]["text"]])) < 2100
