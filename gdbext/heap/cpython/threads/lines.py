"""Which line an instruction is of: CPython's three tables of lines (Objects/lnotab_notes.txt, locations.md)."""

from __future__ import annotations

from typing import Callable, Iterator, Mapping, Tuple

from gdbext.heap.cpython.threads.layouts import LNOTAB, LOCATIONS, RANGES

Run = Tuple[int, int]  # bytes of code, line; a line of 0 or less: none
_NONE, _LONG, _NO_COLUMNS = 15, 14, 13
_FIRST_SHORT = 10


def find_line(kind: str, table: bytes, first: int, offset: int) -> int:
    """Return the line of an instruction.

    :param kind: how the table is written.
    :param first: line of the function's beginning, which is also that of what is before the first instruction.
    :param offset: of the instruction, bytes.
    :return: 0: of no line.
    """
    at = 0
    for size, line in _RUNS[kind](table, first):
        at += size
        if offset < at:
            return line
    return first


def _of_changes(table: bytes, line: int) -> Iterator[Run]:
    for size, change in zip(table[::2], table[1::2]):
        yield size, line
        line += change - 256 if change > 127 else change
    yield 1 << 30, line


def _of_ranges(table: bytes, line: int) -> Iterator[Run]:
    for size, change in zip(table[::2], table[1::2]):
        if change == 128:
            yield size, 0
            continue
        line += change - 256 if change > 127 else change
        yield size, line


def _of_locations(table: bytes, line: int) -> Iterator[Run]:
    data = iter(table)
    for head in data:
        code = head >> 3 & 15
        if code in (_LONG, _NO_COLUMNS):
            change = _varint(data)
            line += -(change >> 1) if change & 1 else change >> 1
            for _ in range(3 if code == _LONG else 0):
                _varint(data)
        elif code != _NONE:
            line += max(code - _FIRST_SHORT, 0)
            for _ in range(1 if code < _FIRST_SHORT else 2):
                next(data, 0)
        yield 2 * ((head & 7) + 1), 0 if code == _NONE else line


def _varint(data: Iterator[int]) -> int:
    value, shift = 0, 0
    for byte in data:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return value


_RUNS: Mapping[str, Callable[[bytes, int], Iterator[Run]]] = {
    LNOTAB: _of_changes,
    RANGES: _of_ranges,
    LOCATIONS: _of_locations,
}
