"""What of a report is data: the fields of its dataclasses, and their values without anything of Python or numpy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Optional

from gdbext.render.values import show_of
from gdbext.report import Kind, Show

UNDECLARED = Show("line", None, Kind.OBJECT)


def _address(value: Optional[int]) -> Optional[str]:
    return None if value is None else f"{int(value):#x}"


def is_record(value: Any) -> bool:
    """Return whether a value is a dataclass's instance."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


_MEMBERS: dict[type, Sequence[tuple[str, Show]]] = {}


def members_of(record_type: type) -> Sequence[tuple[str, Show]]:
    """Return the JSON keys of a dataclass; one without declarations shows all its fields."""
    if record_type not in _MEMBERS:
        shows = [(field.name, show_of(field)) for field in dataclasses.fields(record_type)]
        declared = [(name, show) for name, show in shows if show]
        chosen = [(name, show) for name, show in declared if show.json]
        _MEMBERS[record_type] = chosen if declared else [(name, UNDECLARED) for name, _ in shows]
    return _MEMBERS[record_type]


def plain(value: Any, kind: Kind) -> Any:
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
    if is_record(value):
        return {name: plain(getattr(value, name), show.kind) for name, show in members_of(type(value))}
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain_object(value.tolist())
    if isinstance(value, Mapping):
        return {str(_plain_object(key)): _plain_object(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [_plain_object(item) for item in value]
    return str(value)


def _finite(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None
