"""Tables of a fixed greatest width, by ``tabulate``.

Widths are settled by the first rows, so that a table of any length is printed while it is made.
Numbers are never shortened: headers are broken into lines, text gives way (in the last column it is
wrapped), and what still does not fit goes below with the first column repeated. Columns that are ``whole``, and rows
whose class says ``whole_cells``, have text that does not give way either: it goes below, and is wrapped where a line is
too short for it. Of threads at least one is named. Equal rows can share one (:func:`find_runs`).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import islice
from typing import Any, Iterable, Iterator, Optional, Sequence

from gdbext.render.style import Style, bar_text, unbroken, wrapped_back
from gdbext.render.values import (
    UNKNOWN,
    is_numeric,
    shorten,
    shown_fields,
    threads_width,
    threads_within,
    value_text,
)
from gdbext.report import Bar, Kind, Labels, Rows

_GAP = 2  # between columns
_LEAST = 12  # no text column is shortened below that
_WORD = 24  # a last column has room for words of so many
_WRAPPED = 40  # in a last column as narrow as that, text that must not be cut still can be read
_THREADS = 40  # no list of threads needs more
_BATCH = 500  # rows that settle the widths, and that are formatted at once
_BAR = 18  # characters of a bar of all
_WIDE = 100  # characters of a line, from which there is room for columns that are spare
_RUN = 3  # equal rows that are worth one line

# Characters that a column gets when only its first rows are known.
_ROOM = {
    Kind.ADDRESS: 14,
    Kind.BYTES: 10,
    Kind.COUNT: 8,
    Kind.NUMBER: 5,
    Kind.SHARE: 6,
    Kind.TEXT: 12,
    Kind.THREADS: 20,
    Kind.FLAG: 3,
    Kind.OBJECT: 20,
    Kind.BAR: _BAR,
}
_PLAIN = Style(plain=False)


@dataclass(frozen=True)
class Column:
    """One column of a text table.

    :param name: the row's field.
    :param label: header.
    :param whole: whether text in it must not be cut.
    :param strong: whether its figures are what the table is about.
    :param spare: whether it is left out of short lines, and where the table would need more of them; it stays beside
        the one before.
    """

    name: str
    label: str
    kind: Kind
    whole: bool = False
    strong: bool = False
    spare: bool = False

    def cell(self, row: Any, width: int, exact: bool) -> str:
        """Return the row's value in at most ``width`` characters, numbers excepted."""
        value = getattr(row, self.name)
        if self.kind is Kind.THREADS and value is not None:
            return threads_within(value, min(width, _THREADS)) or "-"
        if isinstance(value, Bar):
            return bar_text(value, _BAR)
        shown = value_text(value, self.kind, exact=exact)
        return shown if is_numeric(self.kind) else shorten(shown, width)

    def aligned(self, cell: str, width: int) -> str:
        """Return a cell or a line of the header, padded."""
        return cell.strip().rjust(width) if is_numeric(self.kind) else cell.strip().ljust(width)

    def natural(self, rows: Sequence[Any], width: int, exact: bool) -> int:
        """Return the characters that the cells would like to have."""
        return max(len(self.cell(row, width, exact)) for row in rows)

    def least(self, rows: Sequence[Any], last: bool) -> int:
        """Return the characters without which a cell would say nothing: a thread and how many more there are; a word.

        :param last: whether it is the last column, in which text is wrapped.
        """
        if self.kind is Kind.TEXT and last:
            texts = (value_text(getattr(row, self.name), self.kind) for row in rows)
            return min(max((len(word) for text in texts for word in text.split()), default=0), _WORD)
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
        if not self.whole:
            shown = " ".join(shorten(word, width) for word in shown.split(" "))
        return wrapped_back("\n".join(textwrap.wrap(unbroken(shown), width, break_on_hyphens=False)))

    def painted(self, cell: str, row: Any, style: Style) -> str:
        """Return a cell, padded already, in its colour."""
        if cell.strip() == UNKNOWN or self.kind is Kind.ADDRESS:
            return style.paint(cell, "dim")
        if self.kind is Kind.BAR:
            return style.paint(cell, getattr(row, self.name).memory)
        if self.strong:
            return style.paint(cell, "number")
        return style.sentence(cell) if self.kind is Kind.TEXT else cell


def columns_of(row_type: Any, labels: Optional[Labels] = None) -> list[Column]:
    """Return the columns that a row dataclass shows in text."""
    shown = []
    strong = True
    for name, show in shown_fields(row_type, labels or {}):
        whole = show.whole or getattr(row_type, "whole_cells", False)
        shown.append(Column(name, str(show.label), show.kind, whole, strong and show.kind is Kind.BYTES, show.spare))
        strong = strong and show.kind is not Kind.BYTES
    return shown


class Run:
    """A row that represents several: what differs among them is its own, threads are those of all."""

    def __init__(self, row: Any, run_length: int = 0) -> None:
        self._row = row
        self.run_length = run_length
        self._joined: dict[str, list[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return self._joined.get(name) or getattr(self._row, name)

    def add(self, row: Any, fields_of_threads: Iterable[str]) -> None:
        """Count a row in."""
        self.run_length += 1
        for name in fields_of_threads:
            self._joined.setdefault(name, []).extend(getattr(row, name) or ())


RUN_LENGTH = Column("run_length", "×", Kind.COUNT)


def find_runs(
    rows: Iterable[Any], columns: Sequence[Column], equal_but: Sequence[str], exact: bool
) -> Optional[Iterable[Run]]:
    """Return the rows with equal ones as one, in the order of their first; None where too few are.

    :param rows: a sequence, or :class:`Rows` that know their runs: others are too long to be compared.
    :param equal_but: fields that may differ.
    """
    if isinstance(rows, Rows):
        known = rows.runs()
        return None if known is None else (Run(row, length) for row, length in known)
    kept = [column for column in columns if column.name not in equal_but]
    threads = [column.name for column in columns if column.name in equal_but and column.kind is Kind.THREADS]
    runs: dict[tuple[str, ...], Run] = {}
    for row in rows:
        key = tuple(value_text(getattr(row, column.name), column.kind, exact=exact) for column in kept)
        runs.setdefault(key, Run(row)).add(row, threads)
    return list(runs.values()) if any(run.run_length >= _RUN for run in runs.values()) else None


def table_lines(
    rows: Iterable[Any], columns: Sequence[Column], *, exact: bool, width: int, style: Style = _PLAIN
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
    yield from _headed(parts, batch, exact, style)
    while batch := list(islice(stream, _BATCH)):
        if len(parts) > 1:
            yield ""
            yield from _headed(parts, batch, exact, style)
        else:
            yield from parts[0].lines(batch, exact, style)


def _headed(parts: Sequence["_Part"], batch: Sequence[Any], exact: bool, style: Style) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield from part.headed_lines(batch, exact, style)


@dataclass(frozen=True)
class _Part:
    """Columns that stand side by side, with their widths and their headers, broken or not."""

    columns: Sequence[Column]
    widths: Sequence[int]
    headers: Sequence[Sequence[str]]
    spare: int = 0  # how much longer than its width a last column of text may be

    def headed_lines(self, batch: Sequence[Any], exact: bool, style: Style) -> list[str]:
        """Return the lines of rows under their headers."""
        import tabulate  # here, so that help and errors can be shown where it is missing

        headers = [[style.paint(cell, "header") for cell in header] for header in self.headers]
        widest = ["-" * width for width in self.widths]  # for rows that follow: taken out again
        cells = [["\n".join(lines) for lines in self._cells(row, exact, style)] for row in batch]
        align = ["right" if is_numeric(column.kind) else "left" for column in self.columns]
        table = tabulate.tabulate(
            [*headers, widest, *cells], tablefmt="plain", disable_numparse=True, colalign=align
        )
        lines = [line.rstrip() for line in table.split("\n")]
        return lines[: len(headers)] + lines[len(headers) + 1 :]

    def lines(self, batch: Sequence[Any], exact: bool, style: Style) -> Iterator[str]:
        """Iterate over the lines of further rows, laid out as before; ``tabulate`` takes several times as long."""
        indent = " " * (_total(self.widths) - self.widths[-1])
        for row in batch:
            *cells, (last, *more) = self._cells(row, exact, style)
            placed = [*(cell for cell, *_ in cells), last]
            yield (" " * _GAP).join(placed).rstrip()
            yield from ((indent + line).rstrip() for line in more)

    def _cells(self, row: Any, exact: bool, style: Style) -> Iterator[list[str]]:
        """Iterate over a row's cells, padded and painted, each as its lines: only a last one may have several."""
        last = self.columns[-1].wrapped_cell(row, self.widths[-1] + self.spare, exact)
        cells = [column.cell(row, width, exact) for column, width in zip(self.columns[:-1], self.widths)]
        for column, width, cell in zip(self.columns, self.widths, [*cells, last]):
            yield [column.painted(column.aligned(line, width), row, style) for line in cell.split("\n")]


def _parts(columns: Sequence[Column], batch: Sequence[Any], exact: bool, width: int) -> list[_Part]:
    """Return the columns as they stand, those that are spare where lines are long and no part more is needed."""
    needed = [column for column in columns if not column.spare]
    parts = _placed(needed, batch, exact, width)
    if len(needed) == len(columns) or width < _WIDE:
        return parts
    every = _placed(columns, batch, exact, width)
    return every if len(every) == len(parts) else parts


def _placed(columns: Sequence[Column], batch: Sequence[Any], exact: bool, width: int) -> list[_Part]:
    natural = [column.natural(batch, width, exact) for column in columns]
    least = [column.least(batch, column is columns[-1]) for column in columns]
    part = _fit(columns, natural, least, width)
    if _total(part.widths) <= width or len(columns) < 3:
        return [part]
    return [
        _fit([columns[at] for at in group], [natural[at] for at in group], [least[at] for at in group], width)
        for group in _groups(part.widths, width, [column.spare for column in columns])
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


def _groups(widths: Sequence[int], width: int, beside: Sequence[bool]) -> list[list[int]]:
    """Return indices of columns that fit side by side, the first in every group.

    :param beside: which columns stay beside the one before them.
    """
    groups: list[list[int]] = [[0]]
    for at in range(1, len(widths)):
        if len(groups[-1]) > 1 and _total([widths[i] for i in [*groups[-1], at]]) > width:
            moved = [groups[-1].pop()] if beside[at] and len(groups[-1]) > 2 else []
            groups.append([0, *moved])
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
        size if is_numeric(column.kind) or column.kind is Kind.BAR else min(size, narrow)
        for column, size, narrow in zip(columns, widths, least)
    ]
    while _total(result) > width:
        room = [(size, at) for at, size in enumerate(result) if size > floors[at]]
        if not room:
            break
        result[max(room)[1]] -= 1
    return result
