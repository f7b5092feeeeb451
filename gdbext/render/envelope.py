"""The JSON envelope around every answer, as ``docs/json.md`` describes it.

It is made in pieces. Rows may be walked while they are written, so ``data`` comes before what is
only known afterwards: ``evidence``, ``problems``, ``complete``, ``findings`` and ``status``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import Any, Callable, Iterator, Optional

from gdbext import __version__
from gdbext.errors import GdbextError
from gdbext.process import Identity
from gdbext.render.values import show_of
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

_UNDECLARED = Show("line", None, Kind.OBJECT)


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
    yield from _pieces(report.data, _UNDECLARED, state)
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
        "address": _address(problem.address),
        "message": problem.message,
        "corruption": problem.corruption,
    }


def _address(value: Optional[int]) -> Optional[str]:
    return None if value is None else f"{int(value):#x}"


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _pieces(value: Any, show: Show, state: _Streaming) -> Iterator[str]:
    # Tables and rows are taken apart; all that is small is written at once.
    if isinstance(value, Rows):
        yield from _rows_pieces(value, state)
    elif show.role == "table" and isinstance(value, (list, tuple)):
        yield from _rows_pieces(_all_if_findings(value, state), state)
    elif _has_tables(value):
        yield from _object_pieces(value, state)
    else:
        yield _dumps(_plain(value, show.kind))


def _all_if_findings(rows: Sequence[Any], state: _Streaming) -> Sequence[Any]:
    # No limit hides a finding.
    return rows if rows and isinstance(rows[0], Finding) else rows[: state.limit]


def _has_tables(value: Any) -> bool:
    if not _is_record(value):
        return False
    members = ((show, getattr(value, name)) for name, show in _members(type(value)))
    return any(show.role == "table" or _has_tables(member) for show, member in members)


def _object_pieces(value: Any, state: _Streaming) -> Iterator[str]:
    lead = "{"
    for name, show in _members(type(value)):
        yield f"{lead}{_dumps(name)}: "
        yield from _pieces(getattr(value, name), show, state)
        lead = ", "
    yield "{}" if lead == "{" else "}"


def _rows_pieces(rows: Iterable[Any], state: _Streaming) -> Iterator[str]:
    limit = state.limit if isinstance(rows, Rows) else None
    yield "["
    lead = "\n"
    try:
        for row in islice(rows, limit):
            yield lead + _row_text(row)
            lead = ",\n"
    except KeyboardInterrupt:
        state.interrupted = True
    yield "]"


def _row_text(row: Any) -> str:
    """Return a row as JSON. A table may have millions of rows, so what a row type needs is worked out once."""
    if not _is_record(row):
        return _dumps(_plain(row, Kind.OBJECT))
    fields = _FIELDS.get(type(row))
    if fields is None:
        members = _members(type(row))
        fields = _FIELDS[type(row)] = [(name, f"{_dumps(name)}: ", _writer(show.kind)) for name, show in members]
    return "{" + ", ".join([key + write(getattr(row, name)) for name, key, write in fields]) + "}"


def _writer(kind: Kind) -> Callable[[Any], str]:
    if kind is Kind.ADDRESS:
        return lambda value: "null" if value is None else f'"{int(value):#x}"'
    if kind in (Kind.BYTES, Kind.COUNT, Kind.NUMBER):
        return lambda value: "null" if value is None else str(int(value))
    if kind is Kind.TEXT:
        return lambda value: encode_basestring_ascii(value) if type(value) is str else _dumps(_plain(value, kind))
    return lambda value: _dumps(_plain(value, kind))


_FIELDS: dict[type, Sequence[tuple[str, str, Callable[[Any], str]]]] = {}


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


_MEMBERS: dict[type, Sequence[tuple[str, Show]]] = {}


def _members(record_type: type) -> Sequence[tuple[str, Show]]:
    """Return the JSON keys of a dataclass; one without declarations shows all its fields."""
    if record_type not in _MEMBERS:
        shows = [(field.name, show_of(field)) for field in dataclasses.fields(record_type)]
        declared = [(name, show) for name, show in shows if show]
        chosen = [(name, show) for name, show in declared if show.json]
        _MEMBERS[record_type] = chosen if declared else [(name, _UNDECLARED) for name, _ in shows]
    return _MEMBERS[record_type]


def _plain(value: Any, kind: Kind) -> Any:
    """Return a value as what ``json`` writes: no dataclass, no enum, no numpy, no NaN."""
    if value is None:
        return None
    if kind is Kind.ADDRESS:
        return _address(value)
    if kind in (Kind.BYTES, Kind.COUNT, Kind.NUMBER):
        return int(value)
    if kind is Kind.SHARE:
        return _finite(float(value))
    if kind is Kind.FLAG:
        return bool(value)
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return _finite(value)
    if _is_record(value):
        return {name: _plain(getattr(value, name), show.kind) for name, show in _members(type(value))}
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain_object(value.tolist())
    if isinstance(value, Mapping):
        return {str(_plain_object(key)): _plain_object(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [_plain_object(item) for item in value]
    return str(value)


def _finite(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None
