"""Tables of a fixed greatest width, by ``tabulate``.

Widths are settled by the first rows, so that a table of any length is printed while it is made.
Numbers are never shortened: headers are broken into lines, text gives way (in the last column it is
wrapped), and what still does not fit goes below with the first column repeated. Columns that are ``whole``, and rows
whose class says ``whole_cells``, have text that does not give way either: it goes below, and is wrapped where a line is
too short for it. Of threads at least one is named.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Iterable, Iterator, Sequence

from gdbext.render.values import (
    is_numeric,
    shorten,
    show_of,
    threads_width,
    threads_within,
    value_text,
)
from gdbext.report import Kind

_GAP = 2  # what tabulate's plain style puts between columns
_LEAST = 8  # no text column is shortened below that
_WRAPPED = 40  # in a last column as narrow as that, text that must not be cut still can be read
_THREADS = 40  # no list of threads needs more
_BATCH = 500  # rows that settle the widths, and that are formatted at once

# Characters that a column gets when only its first rows are known.
_ROOM = {
    Kind.ADDRESS: 14,
    Kind.BYTES: 10,
    Kind.COUNT: 8,
    Kind.SHARE: 6,
    Kind.TEXT: 12,
    Kind.THREADS: 20,
    Kind.FLAG: 3,
    Kind.OBJECT: 20,
}


@dataclass(frozen=True)
class Column:
    """One column of a text table: the row's field, its header, its kind, and whether text in it must not be cut."""

    name: str
    label: str
    kind: Kind
    whole: bool = False

    def cell(self, row: Any, width: int, exact: bool) -> str:
        """Return the row's value in at most ``width`` characters, numbers excepted."""
        value = getattr(row, self.name)
        if self.kind is Kind.THREADS and value is not None:
            return threads_within(value, min(width, _THREADS)) or "-"
        shown = value_text(value, self.kind, exact=exact)
        return shown if is_numeric(self.kind) else shorten(shown, width)

    def least(self, rows: Sequence[Any]) -> int:
        """Return the characters without which a cell would say nothing: one thread and how many more there are."""
        if self.kind is not Kind.THREADS:
            return 0
        lists = (getattr(row, self.name) or () for row in rows)
        return min(max(threads_width(threads) for threads in lists), _THREADS)

    def wrapped_cell(self, row: Any, width: int, exact: bool) -> str:
        """Return the same, sentences on as many lines as they need: the last column has the room."""
        if self.kind is not Kind.TEXT:
            return self.cell(row, width, exact)
        shown = value_text(getattr(row, self.name), self.kind, exact=exact)
        if len(shown) <= width or " " not in shown.strip():
            return shorten(shown, width)
        return "\n".join(textwrap.wrap(shown, width, break_on_hyphens=False))


def columns_of(row_type: Any) -> list[Column]:
    """Return the columns that a row dataclass shows in text."""
    shown = []
    for field in fields(row_type):
        show = show_of(field)
        if show is not None and show.label is not None:
            whole = show.whole or getattr(row_type, "whole_cells", False)
            shown.append(Column(field.name, show.label, show.kind, whole))
    return shown


def table_lines(
    rows: Iterable[Any], columns: Sequence[Column], *, exact: bool, width: int
) -> Iterator[str]:
    """Iterate over the lines of a table, without newlines; nothing for no rows.

    :param rows: row dataclasses; taken a batch at a time.
    :param exact: sizes as plain digits.
    :param width: characters that no line exceeds unless a number alone does.
    """
    stream = iter(rows)
    batch = list(islice(stream, _BATCH))
    if not batch or not columns:
        return
    parts = _parts(columns, batch, exact, width)
    if len(batch) == _BATCH:
        parts = _with_room(parts, width)
    yield from _headed(parts, batch, exact)
    while batch := list(islice(stream, _BATCH)):
        if len(parts) > 1:
            yield ""
            yield from _headed(parts, batch, exact)
        else:
            yield from parts[0].more(batch, exact)


def _headed(parts: Sequence["_Part"], batch: Sequence[Any], exact: bool) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield from part.lines(batch, exact)


@dataclass(frozen=True)
class _Part:
    """Columns that stand side by side, with their widths and their headers, broken or not."""

    columns: Sequence[Column]
    widths: Sequence[int]
    headers: Sequence[Sequence[str]]
    spare: int = 0  # how much longer than its width a last column of text may be

    def lines(self, batch: Sequence[Any], exact: bool) -> list[str]:
        """Return the rows under their headers."""
        import tabulate  # here, so that help and errors can be shown where it is missing

        rule = ["-" * width for width in self.widths]
        lines = [*self.headers, rule, *self._cells(batch, exact)]
        align = ["right" if is_numeric(column.kind) else "left" for column in self.columns]
        made = tabulate.tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=align)
        return [line.rstrip() for line in made.split("\n")]

    def more(self, batch: Sequence[Any], exact: bool) -> Iterator[str]:
        """Iterate over further rows, laid out as before; ``tabulate`` takes ten times as long."""
        right = [is_numeric(column.kind) for column in self.columns]
        indent = " " * (_total(self.widths) - self.widths[-1])
        for cells in self._cells(batch, exact):
            padded = [
                cell.strip().rjust(width) if number else cell.strip().ljust(width)  # tabulate strips them too
                for cell, width, number in zip(cells, self.widths, right)
            ]
            yield from (" " * _GAP).join(padded).rstrip().replace("\n", "\n" + indent).split("\n")

    def _cells(self, batch: Sequence[Any], exact: bool) -> list[list[str]]:
        places = list(zip(self.columns[:-1], self.widths))
        last, room = self.columns[-1], self.widths[-1] + self.spare
        cells = [[column.cell(row, width, exact) for column, width in places] for row in batch]
        for row, line in zip(batch, cells):
            line.append(last.wrapped_cell(row, room, exact))
        return cells


def _parts(columns: Sequence[Column], batch: Sequence[Any], exact: bool, width: int) -> list[_Part]:
    natural = [max(len(column.cell(row, width, exact)) for row in batch) for column in columns]
    least = [column.least(batch) for column in columns]
    part = _fit(columns, natural, least, width)
    if _total(part.widths) <= width or len(columns) < 3:
        return [part]
    return [
        _fit([columns[at] for at in group], [natural[at] for at in group], [least[at] for at in group], width)
        for group in _groups(part.widths, width)
    ]


def _with_room(parts: Sequence[_Part], width: int) -> list[_Part]:
    """Return the parts with room for what later rows may hold, where the width allows it."""
    roomy = []
    for part in parts:
        widths = [max(size, _ROOM[column.kind]) for column, size in zip(part.columns, part.widths)]
        if _total(widths) > width:
            widths = list(part.widths)
        spare = max(width - _total(widths), 0)
        roomy.append(_Part(part.columns, widths, part.headers, spare))
    return roomy


def _groups(widths: Sequence[int], width: int) -> list[list[int]]:
    """Return indices of columns that fit side by side, the first in every group."""
    groups: list[list[int]] = [[0]]
    for at in range(1, len(widths)):
        if len(groups[-1]) > 1 and _total([widths[i] for i in [*groups[-1], at]]) > width:
            groups.append([0])
        groups[-1].append(at)
    return groups


def _fit(columns: Sequence[Column], natural: Sequence[int], least: Sequence[int], width: int) -> _Part:
    headers = [[column.label] for column in columns]
    widths = _widths(natural, headers)
    if _total(widths) > width:
        headers = [_broken(column.label, size) for column, size in zip(columns, natural)]
        widths = _widths(natural, headers)
    widths = _shrunk(columns, widths, _widths(least, headers), width)
    return _Part(columns, widths, _header_rows(headers))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _widths(natural: Sequence[int], headers: Sequence[Sequence[str]]) -> list[int]:
    return [max(size, *map(len, lines)) for size, lines in zip(natural, headers)]


def _broken(label: str, size: int) -> list[str]:
    """Return a header on as many lines as keep it within its column, words whole."""
    lines = [""]
    for word in label.split():
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) <= size or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def _header_rows(headers: Sequence[Sequence[str]]) -> list[list[str]]:
    depth = max(map(len, headers))
    return [
        [lines[row - depth + len(lines)] if row >= depth - len(lines) else "" for lines in headers]
        for row in range(depth)
    ]


def _shrunk(
    columns: Sequence[Column], widths: Sequence[int], headers: Sequence[int], width: int
) -> list[int]:
    """Return the widths with text columns narrowed, the widest first, until all fit or none can.

    :param headers: what each column needs for its header, and more where a narrower cell would say nothing.
    """
    result = list(widths)
    beside = max(width - _GAP - (widths[0] if len(widths) > 1 else 0), _LEAST)
    least = [max(header, beside if column.whole else _LEAST) for column, header in zip(columns, headers)]
    if columns[-1].whole:
        least[-1] = max(headers[-1], _WRAPPED)
    floors = [
        size if is_numeric(column.kind) else min(size, narrow)
        for column, size, narrow in zip(columns, widths, least)
    ]
    while _total(result) > width:
        room = [(size, at) for at, size in enumerate(result) if size > floors[at]]
        if not room:
            break
        result[max(room)[1]] -= 1
    return result
