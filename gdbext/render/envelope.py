"""The JSON envelope around every answer, as ``docs/json.md`` describes it.

It is made in pieces. Rows may be walked while they are written, so ``data`` comes before what is
only known afterwards: ``evidence``, ``problems``, ``complete``, ``findings`` and ``status``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import Any, Callable, Iterator, Optional

from gdbext.columns import Batch, Column, first_rows
from gdbext.errors import GdbextError
from gdbext.process import Identity
from gdbext.render.plain import UNDECLARED, is_record, members_of, plain
from gdbext.report import (
    Evidence,
    Finding,
    Kind,
    Problem,
    Report,
    Rows,
    Show,
    Status,
    exit_status,
    rendered,
)
from gdbext.target import Target
from gdbext.version import __version__
from gdbext.wording import unicode_text


def json_pieces(
    report: Report,
    *,
    schema: str,
    target: Optional[Target],
    limit: Optional[int],
    let_go: Callable[[], Optional[float]] = lambda: None,
) -> Iterator[str]:
    """Iterate over the pieces of a report's JSON document, a newline at its end.

    :param schema: name and version, such as ``"gdbext/glibc-arenas/2"``.
    :param limit: rows of each ``Rows`` and table at most; None and 0 mean all.
    :param let_go: called when no row is made any more; returns the seconds for which we have kept the target
        stopped, None where we have not stopped it.
    """
    state = _Streaming(limit or None)
    yield f'{{"schema": {_dumps(schema)}, "tool": {_dumps(_tool())}, "target": {_dumps(_target(target))}'
    yield ', "data": '
    yield from _pieces(report.data, UNDECLARED, state)
    report = rendered(report, state.interrupted)
    tail = {
        "evidence": [_evidence(evidence) for evidence in report.evidence],
        "problems": [_problem(problem) for problem in report.problems],
        "held_seconds": let_go(),
        "complete": bool(report.complete),
        "findings": bool(report.findings),
        "status": int(exit_status(report)),
    }
    yield ", " + _dumps(tail)[1:] + "\n"


def error_json(schema: str, target: Optional[Target], error: GdbextError) -> str:
    """Return the document for a command that could not answer: no data, and the error."""
    document = {
        "schema": schema,
        "tool": _tool(),
        "target": _target(target),
        "data": None,
        "error": {"kind": error.kind, "message": error.message, "hint": error.hint},
        "evidence": [],
        "problems": [_problem(problem) for problem in target.problems] if target else [],
        "held_seconds": None,
        "complete": False,
        "findings": False,
        "status": int(Status.FAILED),
    }
    return _dumps(document) + "\n"


@dataclasses.dataclass
class _Streaming:
    """What one rendering remembers: the limit, and whether the user has stopped it."""

    limit: Optional[int]
    interrupted: bool = False


def _tool() -> dict[str, Any]:
    return {"version": __version__}


def _target(target: Optional[Target]) -> dict[str, Any]:
    return dataclasses.asdict(target.identity if target else Identity())


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {"subject": evidence.subject, "message": evidence.message}


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "address": plain(problem.address, Kind.ADDRESS),
        "message": problem.message,
        "corruption": problem.corruption,
    }


def _dumps(value: Any) -> str:
    text = json.dumps(value, allow_nan=False)
    if "\\ud" in text:
        text = json.dumps(_unicode(value), allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _unicode(value: Any) -> Any:
    """Return a value without halves of surrogates: they are no characters, and others refuse a document for one."""
    if isinstance(value, str):
        return unicode_text(value)
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, (list, tuple)) else value


def _text(value: str) -> str:
    """Return a string as JSON, as :func:`_dumps` does."""
    encoded = encode_basestring_ascii(value)
    return _dumps(value) if "\x7f" in encoded or "\\ud" in encoded else encoded


def _pieces(value: Any, show: Show, state: _Streaming) -> Iterator[str]:
    # Tables and rows are taken apart; all that is small is written at once.
    if isinstance(value, Rows):
        yield from _rows_pieces(value, state)
    elif show.role == "table" and isinstance(value, (list, tuple)):
        yield from _rows_pieces(_all_if_findings(value, state), state)
    elif _has_tables(value):
        yield from _object_pieces(value, state)
    else:
        yield _dumps(plain(value, show.kind))


def _all_if_findings(rows: Sequence[Any], state: _Streaming) -> Sequence[Any]:
    # No limit hides a finding.
    return rows if rows and isinstance(rows[0], Finding) else rows[: state.limit]


def _has_tables(value: Any) -> bool:
    if not is_record(value):
        return False
    members = ((show, getattr(value, name)) for name, show in members_of(type(value)))
    return any(show.role == "table" or _has_tables(member) for show, member in members)


def _object_pieces(value: Any, state: _Streaming) -> Iterator[str]:
    lead = "{"
    for name, show in members_of(type(value)):
        yield f"{lead}{_dumps(name)}: "
        yield from _pieces(getattr(value, name), show, state)
        lead = ", "
    yield "{}" if lead == "{" else "}"


def _rows_pieces(rows: Iterable[Any], state: _Streaming) -> Iterator[str]:
    limit = state.limit if isinstance(rows, Rows) else None
    yield "["
    lead = "\n"
    try:
        for text in _row_texts(rows, limit):
            yield lead + text
            lead = ",\n"
    except KeyboardInterrupt:
        state.interrupted = True
    yield "]"


def _row_texts(rows: Iterable[Any], limit: Optional[int]) -> Iterator[str]:
    # One text may be many rows.
    if isinstance(rows, Rows) and rows.in_columns:
        members = members_of(rows.row_type)
        batches = first_rows(rows.batches([name for name, _ in members]), limit)
        yield from map(_Columns(members).text, batches)
    else:
        yield from map(_row_text, islice(rows, limit))


class _Columns:
    """Writes the rows of one table from columns."""

    def __init__(self, members: Sequence[tuple[str, Show]]) -> None:
        self._members = members
        self._words: dict[str, tuple[Sequence[Any], Sequence[str]]] = {}

    def text(self, batch: Batch) -> str:
        """Return the rows of a batch, one a line."""
        written = [(name, *self._written(name, batch[name], show.kind)) for name, show in self._members]
        row = ", ".join(_dumps(name).replace("%", "%%") + f": {directive}" for name, directive, _ in written)
        return ",\n".join(map(f"{{{row}}}".__mod__, zip(*(cells for _, _, cells in written))))

    def _written(self, name: str, column: Column, kind: Kind) -> tuple[str, Iterable[Any]]:
        """Return how the cells of a column are formatted, and what is formatted so."""
        if column.words is not None:
            texts = replace(column, words=self._texts(name, column.words, kind)).cells()
            return "%s", texts if column.known is None else (text or "null" for text in texts)
        if column.known is None and not isinstance(column.values, list) and kind in _NUMBERS:
            return _NUMBERS[kind], column.cells()
        return "%s", map(_writer(kind), column.cells())

    def _texts(self, name: str, words: Sequence[Any], kind: Kind) -> Sequence[str]:
        known, texts = self._words.get(name, (None, ()))
        if known is not words:
            texts = list(map(_writer(kind), words))
            self._words[name] = words, texts
        return texts


_NUMBERS = {Kind.ADDRESS: '"%#x"', Kind.BYTES: "%d", Kind.COUNT: "%d", Kind.NUMBER: "%d"}


def _row_text(row: Any) -> str:
    """Return a row as JSON. A table may have millions of rows, so what a row type needs is worked out once."""
    if not is_record(row):
        return _dumps(plain(row, Kind.OBJECT))
    fields = _FIELDS.get(type(row))
    if fields is None:
        members = members_of(type(row))
        fields = _FIELDS[type(row)] = [(name, f"{_dumps(name)}: ", _writer(show.kind)) for name, show in members]
    return "{" + ", ".join([key + write(getattr(row, name)) for name, key, write in fields]) + "}"


def _writer(kind: Kind) -> Callable[[Any], str]:
    if kind is Kind.ADDRESS:
        return lambda value: "null" if value is None else f'"{int(value):#x}"'
    if kind in (Kind.BYTES, Kind.COUNT, Kind.NUMBER):
        return lambda value: "null" if value is None else str(int(value))
    if kind is Kind.TEXT:
        return lambda value: _text(value) if type(value) is str else _dumps(plain(value, kind))
    if kind is Kind.FLAG:
        return lambda value: "null" if value is None else "true" if value else "false"
    return lambda value: _dumps(plain(value, kind))


_FIELDS: dict[type, Sequence[tuple[str, str, Callable[[Any], str]]]] = {}
