"""Questions over a dataset, in SQL: DuckDB in memory, with a view for each kind of row. Imports duckdb."""

from __future__ import annotations

import os.path
from typing import Any, Iterator, NamedTuple, Sequence, Tuple

from gdbext.errors import UsageError
from gdbext.fleet.layout import LAST, Layout, copied
from gdbext.starting import dependencies
from gdbext.starting.lockedfolder import LockedFolder

_AT_ONCE = 1000
# `taken` is a time to reckon with.
_TIMED = "make_timestamp(CAST(time * 1000000 AS BIGINT)) AS taken"


class Result(NamedTuple):
    """What a question came to."""

    columns: Sequence[str]
    rows: Iterator[Tuple[Any, ...]]


class Dataset:
    """A dataset that is asked: the parts that count now.

    :param folder: its path, or a URL: then it is copied first, for as long as it is asked.
    :raises DatasetError: the folder is none.
    :raises StoreError: what is at the URL cannot be read.
    :raises MissingDependencyError: duckdb is not there.
    """

    def __init__(self, folder: str) -> None:
        self._layout = Layout(folder)
        self._layout.check()
        if self._layout.stored:
            self._copy = LockedFolder()
            self._layout = copied(self._layout, self._copy.path)
        dependencies.load("duckdb")
        import duckdb

        self._engine = duckdb
        self._connection = duckdb.connect(":memory:", config=_offline())
        self._parts = self._layout.parts()
        for kind in self._layout.kinds():
            self._make_view(kind)

    def ask(self, text: str, values: Sequence[Any] = ()) -> Result:
        """Return the rows that a query gives.

        :param values: of its parameters.
        :raises UsageError: it is wrong.
        """
        try:
            cursor = self._connection.execute(text, list(values))
        except self._engine.Error as error:
            raise UsageError(" ".join(str(error).split())) from None
        return Result([column[0] for column in cursor.description or ()], _rows(cursor))

    def _make_view(self, kind: str) -> None:
        paths = [self._layout.path(kind, part) for part in self._parts]
        files = [self._layout.empty_path(kind), *filter(os.path.exists, paths)]
        more = f", {_TIMED}" if kind == LAST else ""
        listed = ", ".join(_quoted(path) for path in files)
        source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        self._connection.execute(f"CREATE VIEW {kind} AS SELECT *{more} FROM {source}")


def _offline() -> "dict[str, Any]":
    """Return settings with which nothing is fetched: extensions are those that are built in."""
    return {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _rows(cursor: Any) -> Iterator[Tuple[Any, ...]]:
    while rows := cursor.fetchmany(_AT_ONCE):
        yield from rows
