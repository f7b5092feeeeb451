"""A sample as one line of JSON, and back. What is read back may come from anywhere: each value is checked."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, List, Mapping, Optional, Sequence, TypeVar

from gdbext.analysis.growth.sample import KINDS, LEAK_SIZE, OTHER, SIZE, Limit, ProcessId, Remark, Row, Sample
from gdbext.errors import UsageError
from gdbext.grammar.exchange import SAMPLE_START
from gdbext.wording import unicode_text

FORMAT = "gdbext/sample/1"
MOST_BYTES = 4 << 20  # of a line
_MOST_ROWS = 4096  # of a kind; what is written has far fewer
_MOST_TEXT = 4096
_MOST_DIGITS = 20
_MOST_REMARKS = 64
_LARGEST = (1 << 63) - 1
_LATEST = 250e9  # seconds since the epoch: what a calendar has

_Value = TypeVar("_Value")


def sample_text(sample: Sample) -> str:
    """Return a sample as one line of JSON, without its end."""
    document = {
        "format": FORMAT,
        "process": {name: _plain(value) for name, value in vars(sample.process).items()},
        "time": sample.time,
        "held_seconds": sample.held_seconds,
        "named": sample.named,
        "measure": sample.measure,
        "rows": {kind: [[_cut(row.key), row.count, row.bytes] for row in rows] for kind, rows in sample.rows.items()},
        "limits": [[limit.what, limit.bytes, limit.taken] for limit in sample.limits],
        "complete": sample.complete,
        "remarks": [[one.kind, _cut(one.message)] for one in sample.remarks[:_MOST_REMARKS]],
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str) -> str:
    """Return text as it is read back: C++ names may be of any length."""
    whole = unicode_text(text)
    return whole if len(whole) <= _MOST_TEXT else f"{whole[: _MOST_TEXT - 1]}…"


def is_sample(text: str) -> bool:
    """Return whether a line claims to be a sample, cheaply."""
    return text.startswith(SAMPLE_START)


def read_sample(text: str) -> Sample:
    """Read a sample back.

    :raises UsageError: it is none, or of another version, or damaged; the message names what is wrong.
    """
    document = _load(text)
    return Sample(
        _read_process(_member(document, "process", dict)),
        _number(document, "time"),
        _number(document, "held_seconds"),
        _member(document, "named", bool),
        _text(_member(document, "measure", str), "measure"),
        _read_rows(_member(document, "rows", dict)),
        _list(document, "limits", _read_limit, len(KINDS)),
        _member(document, "complete", bool),
        _list(document, "remarks", _read_remark, _MOST_REMARKS),
    )


def _load(text: str) -> Mapping[str, Any]:
    if len(text) > MOST_BYTES:
        raise _wrong("it is too long")
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise _wrong("it is not JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _wrong(f"it is not of the format {FORMAT}")
    return document


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _wrong(why: str) -> UsageError:
    return UsageError(f"this is no sample: {why}")


def _member(document: Mapping[str, Any], name: str, kind: type) -> Any:
    value = document.get(name)
    if not isinstance(value, kind):
        raise _wrong(f"{name} is missing or wrong")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or len(value) > _MOST_TEXT:
        raise _wrong(f"{name} is no text, or too long")
    return value


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise _wrong(f"{name} is no count")
    return value


def _optional(value: Any, name: str, read: Callable[[Any, str], _Value]) -> Optional[_Value]:
    return None if value is None else read(value, name)


def _number(document: Mapping[str, Any], name: str) -> Optional[float]:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LATEST:
        raise _wrong(f"{name} is no number of seconds")
    return float(value) if math.isfinite(value) else None


def _list(document: Mapping[str, Any], name: str, read: Callable[[Any], _Value], most: int) -> Sequence[_Value]:
    values: List[Any] = _member(document, name, list)
    if len(values) > most:
        raise _wrong(f"{name} is too long")
    return [read(value) for value in values]


def _read_process(document: Mapping[str, Any]) -> ProcessId:
    texts = {name: _optional(document.get(name), name, _text) for name in ("program", "build_id", "boot", "mark")}
    numbers = {name: _optional(document.get(name), name, _whole) for name in ("pid", "started")}
    return ProcessId(**texts, **numbers)  # type: ignore[arg-type]


def _read_rows(document: Mapping[str, Any]) -> Mapping[str, Sequence[Row]]:
    unknown = set(document) - set(KINDS)
    if unknown:
        raise _wrong("it has rows of a kind that is not known")
    found = {kind: _list(document, kind, _read_row, _MOST_ROWS) for kind in KINDS if kind in document}
    for kind in (SIZE, LEAK_SIZE):
        if not all(_is_size(row.key) for row in found.get(kind, ())):
            raise _wrong("a size is no number of bytes")
    return found


def _is_size(key: str) -> bool:
    return key == OTHER or (key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS)


def _parts(value: Any, count: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise _wrong("a row is wrong")
    return value


def _read_row(value: Any) -> Row:
    key, count, size = _parts(value, 3)
    return Row(_text(key, "key"), _optional(count, "count", _whole), _optional(size, "bytes", _whole))


def _read_limit(value: Any) -> Limit:
    what, most, taken = _parts(value, 3)
    return Limit(_text(what, "limit"), _whole(most, "limit"), _whole(taken, "limit"))


def _read_remark(value: Any) -> Remark:
    kind, message = _parts(value, 2)
    return Remark(_text(kind, "remark"), _text(message, "remark"))
