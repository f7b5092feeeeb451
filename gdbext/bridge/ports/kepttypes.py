"""Types as rows that JSON can hold, and back. A structure that gdb's side has made already stays the one that it is."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Hashable, List, Optional, Sequence

from gdbext.bridge.ports.typemaker import known_records
from gdbext.layout.types import Code, Field, Type

_MOST = 100_000


class TypeTable:
    """Types, with all that they lead to, by number."""

    def __init__(self) -> None:
        self._rows: List[Any] = []
        self._records: Dict[Type, int] = {}
        self._others: Dict[Hashable, int] = {}  # equal ones are one
        self._open: List[Type] = []

    def add(self, type: Type) -> int:
        """Return a type's number."""
        if type.is_record:
            return self._add_record(type)
        target = None if type.target is None else self.add(type.target)
        row = (*_head(type), target, (), None)
        return self._others[row] if row in self._others else self._append(self._others, row, row)

    def _add_record(self, type: Type) -> int:
        if type not in self._records:
            self._open.append(type)
            return self._append(self._records, type, None)
        return self._records[type]

    def _append(self, numbers: Dict[Any, int], key: Any, row: Any) -> int:
        numbers[key] = len(self._rows)
        self._rows.append(row)
        return numbers[key]

    def rows(self) -> Optional[Sequence[Any]]:
        """Return a row for each, or None where they are too many."""
        fields: Dict[Type, Any] = {}
        while self._open and len(self._rows) <= _MOST:
            record = self._open.pop()
            fields[record] = [
                (one.name, one.offset, self.add(one.type), one.bits, one.is_base) for one in record.fields
            ]
        keys = {type: key for key, type in known_records().items()}
        for record, rows in fields.items():
            self._rows[self._records[record]] = (*_head(record), None, rows, keys.get(record))
        return None if self._open else self._rows


def _head(type: Type) -> "tuple[Any, ...]":
    return type.name, type.code.value, type.size, type.tag, type.signed, type.length


def read_types(rows: Sequence[Any]) -> Sequence[Type]:
    """Return the types of rows.

    :raises ValueError: they are none; or another error of data that is not as it should be.
    """
    types: List[Type] = []
    known = known_records()
    fresh: Dict[Hashable, Type] = {}
    for name, code, size, tag, signed, length, target, fields, key in rows:
        for number in ([] if target is None else [target]) + [field[2] for field in fields]:
            if type(number) is not int or not 0 <= number < len(rows):
                raise ValueError(number)
        made = Type(
            str(name), Code(code), size + 0, tag=str(tag), signed=bool(signed), length=length,
            target=None if target is None else partial(types.__getitem__, target),
            fields=partial(_fields, fields, types),
        )  # fmt: skip
        identity = _tuple(key)
        if identity is not None:
            made = fresh.setdefault(identity, known.get(identity, made))
        types.append(made)
    known.update(fresh)
    return types


def _fields(rows: Sequence[Any], types: Sequence[Type]) -> Sequence[Field]:
    return [
        Field(name, offset, types[number], None if bits is None else (bits[0], bits[1]), is_base)
        for name, offset, number, bits, is_base in rows
    ]


def _tuple(value: Any) -> Hashable:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
