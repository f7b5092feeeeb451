"""Tables of a report as Arrow tables. pyarrow is no part of what gdbext needs: it is imported when one is asked for.

A field's type follows from its declaration alone, so that the tables of many cores have one schema: addresses are
unsigned, bytes, counts and numbers signed 64-bit integers, shares doubles, and a field of any other form is JSON text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Sequence, Union

from gdbext.columns import Batch, Column, batches_of
from gdbext.errors import GdbextError, MissingDependencyError, UsageError
from gdbext.render.plain import is_record, members_of, plain
from gdbext.report import Kind, Report, Rows, Show

if TYPE_CHECKING:
    import pyarrow


def to_arrow(report: Report, table: Optional[str] = None) -> pyarrow.Table:
    """Return one table of a report, with the columns that its JSON has.

    :param table: its path in the JSON, such as ``"blocks"`` or ``"ledger.entries"``; None where there is only one.
    :raises UsageError: there is no such table, or several and none was named.
    :raises MissingDependencyError: pyarrow is not installed.
    """
    tables = dict(_tables(report.data))
    if table is None and len(tables) == 1:
        return rows_to_arrow(next(iter(tables.values())))
    if table not in tables:
        wrong = "name one of the tables" if table is None else f"no table {table!r}"
        raise UsageError(wrong, f"the tables are {', '.join(tables) or 'none'}")
    return rows_to_arrow(tables[table])


def rows_to_arrow(rows: Union[Rows[Any], Sequence[Any]]) -> pyarrow.Table:
    """Return rows as an Arrow table; a sequence must not be empty, since its first row says what the columns are.

    :raises MissingDependencyError: pyarrow is not installed.
    :raises UsageError: rows of an empty sequence.
    :raises GdbextError: a number is too large for its column, which only damage can make it.
    """
    arrow = _import()
    if not isinstance(rows, Rows) and not rows:
        raise UsageError("the table has no rows, nor columns without any")
    members = members_of(rows.row_type if isinstance(rows, Rows) else type(rows[0]))
    names = [name for name, _ in members]
    batches = rows.batches(names) if isinstance(rows, Rows) else batches_of(rows, names)
    table = _Table(arrow, members)
    return arrow.Table.from_batches(map(table.batch, batches), table.schema)


def _import() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingDependencyError("pyarrow is not installed", "pip install 'gdbext[arrow]'") from None
    return pyarrow


def _tables(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the tables of a report, by path."""
    for name, show in members_of(type(data)) if is_record(data) else ():
        value, inner = getattr(data, name), f"{path}{name}"
        if is_record(value):
            yield from _tables(value, f"{inner}.")
        elif isinstance(value, Rows) or (show.role == "table" and value is not None):
            yield inner, value


def type_of(arrow: Any, kind: Kind) -> Any:
    """Return the Arrow type of a column of that kind.

    :param arrow: the module pyarrow.
    """
    if kind is Kind.THREADS:
        thread = [("number", arrow.int64()), ("lwp", arrow.int64()), ("name", arrow.string())]
        return arrow.list_(arrow.struct(thread))
    types = {
        Kind.ADDRESS: arrow.uint64(),
        Kind.BYTES: arrow.int64(),
        Kind.COUNT: arrow.int64(),
        Kind.NUMBER: arrow.int64(),
        Kind.SHARE: arrow.float64(),
        Kind.FLAG: arrow.bool_(),
    }
    return types.get(kind, arrow.string())


class _Table:
    """Makes the batches of one table."""

    def __init__(self, arrow: Any, members: Sequence[tuple[str, Show]]) -> None:
        self.schema = arrow.schema([(name, type_of(arrow, show.kind)) for name, show in members])
        self._arrow = arrow
        self._cells = [cell_of(show.kind) for _, show in members]
        self._words: dict[str, tuple[Sequence[Any], Any]] = {}

    def batch(self, batch: Batch) -> Any:
        """Return a batch as Arrow has it."""
        arrays = [self._checked(field, batch[field.name], cell) for field, cell in zip(self.schema, self._cells)]
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _checked(self, field: Any, column: Column, cell: Callable[[Any], Any]) -> Any:
        try:
            return self._array(field, column, cell)
        except (OverflowError, self._arrow.ArrowInvalid):
            raise GdbextError(f"a value of {field.name} is no {field.type}: damage may have made it") from None

    def _array(self, field: Any, column: Column, cell: Callable[[Any], Any]) -> Any:
        unknown = None if column.known is None else ~column.known
        if column.words is not None:
            words = self._array_of_words(field, column.words, cell)
            return words.take(self._arrow.array(column.values, self._arrow.int64(), mask=unknown))
        if isinstance(column.values, list):
            return self._arrow.array(map(cell, column.values), field.type)
        return self._arrow.array(column.values, mask=unknown).cast(field.type)

    def _array_of_words(self, field: Any, words: Sequence[Any], cell: Callable[[Any], Any]) -> Any:
        known, array = self._words.get(field.name, (None, None))
        if known is not words:
            array = self._arrow.array(map(cell, words), field.type)
            self._words[field.name] = words, array
        return array


def cell_of(kind: Kind) -> Callable[[Any], Any]:
    """Return what makes a value of that kind one of the column's type; None stays what it is."""
    if kind in (Kind.ADDRESS, Kind.BYTES, Kind.COUNT, Kind.NUMBER):
        return lambda value: None if value is None else int(value)
    if kind is Kind.TEXT:
        return lambda value: None if value is None else _text(plain(value, kind))
    if kind in (Kind.SHARE, Kind.FLAG, Kind.THREADS):
        return lambda value: plain(value, kind)
    return lambda value: None if value is None else json.dumps(plain(value, kind))


def _text(value: Any) -> str:
    """Return text that can be encoded: bytes of a name that are none may be there as half of a character."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "backslashreplace").decode()
