"""Tables of reports as Arrow tables."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from gdbext.errors import GdbextError, MissingDependencyError, UsageError
from gdbext.render import rows_to_arrow, to_arrow
from gdbext.report import Kind, Report, Rows, column, line, table
from tests.unit.test_columns import STATES, Data, columns, one_by_one

from . import samples


def test_one_line_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError) as failed:
        to_arrow(samples.chunks(1))
    assert str(failed.value) == "pyarrow is not installed; pip install 'gdbext[arrow]'"


CELLS = [[(2**64 - 1, None, 0, 0, 0.5), (16, 24, 2, 2, None)], [(32, 2**40, 1, 1, float("nan"))]]


@pytest.mark.parametrize("source", [columns, one_by_one])
def test_types_follow_from_the_declaration(source):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    made = to_arrow(Report(Data(source(CELLS))))
    thread = arrow.struct([("number", arrow.int64()), ("lwp", arrow.int64()), ("name", arrow.string())])
    types = [
        arrow.uint64(), arrow.int64(), arrow.string(), arrow.list_(thread), arrow.float64(), arrow.bool_(),
    ]  # fmt: skip
    assert made.schema.names == ["address", "size", "state", "threads", "share", "flag"]
    assert made.schema.types == types
    assert made.column("address").to_pylist() == [2**64 - 1, 16, 32]
    assert made.column("size").to_pylist() == [None, 24, 2**40]
    assert made.column("state").to_pylist() == [STATES[0], None, STATES[1]]
    assert made.column("threads").to_pylist() == [[{"number": 1, "lwp": 7, "name": "worker"}], None, []]
    assert made.column("share").to_pylist() == [0.5, None, None]
    assert made.column("flag").to_pylist() == [True, True, False]


def test_a_table_without_rows_has_its_columns():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    made = rows_to_arrow(columns([]))
    assert made.num_rows == 0 and made.schema.names[:2] == ["address", "size"]


@dataclass(frozen=True)
class Odd:
    name: Any = column("name")
    ends: Any = column("ends", Kind.OBJECT)


@dataclass(frozen=True)
class Several:
    odd: Any = table("Odd")
    ledger: Any = line("Ledger", Kind.OBJECT)
    none: Any = table("None", default=None)
    hidden: Any = table("Text alone", json=False, default=())


def several():
    return Report(Several((Odd("a\udcff", {"null": 3}), Odd(None, None)), samples.triage().data.ledger))


def test_tables_are_named_by_their_path():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert to_arrow(several(), "ledger.entries").column("owner").to_pylist()[0] == "glibc in use"
    odd = to_arrow(several(), "odd")
    assert odd.to_pylist() == [{"name": "a\\udcff", "ends": '{"null": 3}'}, {"name": None, "ends": None}]


@pytest.mark.parametrize("name", [None, "none", "hidden"])
def test_a_wrong_name_lists_the_tables(name):
    with pytest.raises(UsageError, match="the tables are odd, ledger.entries"):
        to_arrow(several(), name)


def test_rows_without_a_type_have_no_columns():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with pytest.raises(UsageError, match="no rows"):
        rows_to_arrow([])
    assert rows_to_arrow(Rows(lambda: (), samples.Chunk, 0)).num_rows == 0


@pytest.mark.parametrize("source", [columns, one_by_one])
def test_a_number_that_cannot_be_is_named(source):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with pytest.raises(GdbextError, match="size is no int64"):
        rows_to_arrow(source([[(1, 2**63, 0, 0, None)]]))
