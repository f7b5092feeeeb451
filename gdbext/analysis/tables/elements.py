"""``listprint``, ``walklist -a``, ``--where`` and ``--each``: elements one by one, by the debugger's own means."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import islice
from typing import Any, Iterator, List, Optional, Protocol, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.analysis.tables.counts import Walked, is_complete, notes_of, problems_of
from gdbext.columns import ROWS_AT_ONCE, Batch, Column
from gdbext.memory.intervals import slices
from gdbext.progress import Progress
from gdbext.report import Kind, Problem, Report, Rows, column, line, table
from gdbext.structures.shapes.resolve import Opened
from gdbext.structures.walk.model import U64
from gdbext.wording import count_text, grouped

Rows64 = npt.NDArray[np.int64]

DEFAULT_LIMIT = 100  # elements that a command is run for, unless --limit says otherwise
_STEP = 256  # elements between two looks at the clock
_PATIENCE = 16  # elements without a value before the reason is asked


class ElementPort(Protocol):
    """What the debugger does with an element: ``gdbext.bridge.commands.elements``."""

    def show(self, address: int, type_name: Optional[str], fields: Sequence[str]) -> Sequence[str]:
        """Return some members as text; of no members the whole element, as one text."""

    def run(self, command: str, address: int, type_name: Optional[str]) -> str:
        """Run a command with ``$elem`` set; return what it wrote."""

    def test(self, expression: str, address: int, type_name: Optional[str]) -> Optional[bool]:
        """Return whether an expression over ``$elem`` is nonzero; None when it has no value there."""

    def check(self, expression: str, address: int, type_name: Optional[str]) -> None:
        """Raise :class:`UsageError` with the reason why an expression has no value for an element."""


@dataclass(frozen=True)
class Element:
    """One element.

    :param index: its place among all that were walked, from 0.
    :param table: of its group.
    """

    index: int
    table: int
    address: int
    type: Optional[str]


@dataclass(frozen=True)
class ElementRow:
    """One element; each field has a column of its own besides.

    :param index: place among all elements that were walked (not with ``-a``).
    :param table: as ``index`` of ``tables``.
    :param address: of the element, not of the node in it.
    :param fields: with ``--where`` alone: ``element``, as gdb's printers show it.
    :type fields: named texts
    """

    index: int = column("index", Kind.NUMBER)
    table: int = column(None, Kind.COUNT)
    address: int = column("address", Kind.ADDRESS)
    fields: Any = column(None, Kind.OBJECT)


@dataclass(frozen=True)
class OutputRow:
    """What a command wrote for one element.

    :param output: with ``--each``: what the command wrote.
    """

    index: int = column(None, Kind.COUNT)
    table: int = column(None, Kind.COUNT)
    address: int = column(None, Kind.ADDRESS)
    output: str = column("output")


@dataclass(frozen=True)
class ElementReport:
    """What ``listprint`` and ``walklist --where`` answer.

    :param walked: with ``--where`` alone: elements that were walked.
    :param matching: with ``--where`` alone: those for which it holds; None without a filter.
    """

    elements: Rows[ElementRow] = table("Elements")
    walked: int = line("walked", Kind.COUNT)
    matching: Optional[int] = line("matching", Kind.COUNT)


@dataclass(frozen=True)
class PlainReport(ElementReport):
    """As :class:`ElementReport`, without a filter."""

    matching: Optional[int] = line(None, Kind.COUNT)


@dataclass(frozen=True)
class OutputReport:
    """What ``walklist --each`` answers."""

    elements: Rows[OutputRow] = table("Outputs")


@dataclass(frozen=True)
class AddressRow:
    """One element's address."""

    address: int = column("address", Kind.ADDRESS)


@dataclass(frozen=True)
class AddressReport:
    """What ``walklist -a`` answers."""

    elements: Rows[AddressRow] = table("Elements")


@dataclass(frozen=True)
class Selection:
    """The elements that are meant.

    :param addresses: of each table of the walk, those chosen, in order.
    :param problems: elements that could not be judged.
    :param stopped: the user stopped the judging.
    """

    walked: Sequence[Walked]
    rows: Sequence[Rows64]
    problems: Sequence[Problem] = ()
    stopped: bool = False
    filtered: bool = False

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(len(rows) for rows in self.rows)

    @property
    def addresses(self) -> Sequence[U64]:
        """Their addresses, by table."""
        return [each.elements[rows] for each, rows in zip(self.walked, self.rows)]

    def __iter__(self) -> Iterator[Element]:
        first = 0
        for each, rows, addresses in zip(self.walked, self.rows, self.addresses):
            for row, address in zip(rows.tolist(), addresses.tolist()):
                yield Element(first + row, each.index, address, each.element_type)
            first += len(each.nodes)


def every(walked: Sequence[Walked]) -> Selection:
    """Return all elements of a walk."""
    return Selection(walked, [np.arange(len(each.nodes)) for each in walked])


def choose(walked: Sequence[Walked], condition: str, port: ElementPort, progress: Progress) -> Selection:
    """Return the elements for which a condition holds; an interrupt leaves the rest out.

    :param condition: an expression over ``$elem``.
    :raises UsageError: when it has no value for any element.
    """
    choosing = _Choosing(walked, condition, port, progress)
    try:
        choosing.run()
    except KeyboardInterrupt:
        choosing.stopped = True
    return choosing.selection()


class _Choosing:
    def __init__(self, walked: Sequence[Walked], condition: str, port: ElementPort, progress: Progress) -> None:
        self.walked, self.condition, self.port, self.progress = walked, condition, port, progress
        self.total = sum(len(each.nodes) for each in walked)
        self.chosen: List[List[int]] = [[] for _ in walked]
        self.unread: List[int] = []
        self.done, self.stopped = 0, False

    def run(self) -> None:
        """Test every element."""
        for number, each in enumerate(self.walked):
            for row, address in enumerate(each.elements.tolist()):
                if self.done % _STEP == 0:
                    self.progress.at("elements", self.done, self.total)
                self.done += 1
                answer = self.port.test(self.condition, address, each.element_type)
                if answer is None:
                    self._note_unread(address, each.element_type)
                elif answer:
                    self.chosen[number].append(row)
        if self.unread and len(self.unread) == self.done:
            first = next((each.element_type for each in self.walked if len(each.nodes)), None)
            self.port.check(self.condition, self.unread[0], first)

    def _note_unread(self, address: int, element_type: Optional[str]) -> None:
        self.unread.append(address)
        if len(self.unread) == self.done == _PATIENCE:  # none so far: it is the expression, not the elements
            self.port.check(self.condition, address, element_type)

    def selection(self) -> Selection:
        """Return the elements that were chosen."""
        rows = [np.array(rows, np.int64) for rows in self.chosen]
        return Selection(self.walked, rows, list(self._problems()), self.stopped, True)

    def _problems(self) -> Iterator[Problem]:
        if self.unread:
            text = f"{self.condition!r} has no value for {count_text(len(self.unread), 'element')}, this is the first"
            yield Problem("unread-element", self.unread[0], text)
        if self.stopped:
            text = f"stopped after {grouped(self.done)} of {grouped(self.total)} elements"
            yield Problem("interrupted", None, text)


def element_report(opened: Opened, chosen: Selection, names: Sequence[str], port: ElementPort) -> Report:
    """Return elements with their members.

    :param names: paths of members; none of them shows whole elements.
    """
    row_type = _row_type(names)
    rows = Rows(lambda: _element_rows(chosen, names, port, row_type), row_type, chosen.count)
    walked = sum(len(each.nodes) for each in chosen.walked)
    data = (ElementReport if chosen.filtered else PlainReport)(rows, walked, chosen.count)
    return _report(opened, data, chosen)


def output_report(opened: Opened, chosen: Selection, command: str, limit: int, port: ElementPort) -> Report:
    """Return what a command writes for each element, as it wrote it.

    :param limit: elements that it is run for; 0 is all.
    """
    wanted = min(limit or chosen.count, chosen.count)

    def make() -> Iterator[OutputRow]:
        for each in islice(chosen, wanted):
            output = port.run(command, each.address, each.type)
            yield OutputRow(each.index, each.table, each.address, output.rstrip("\n"))

    rest = chosen.count - wanted
    notes = [f"… {grouped(rest)} more (--limit 0 takes all)"] if rest else []
    report = _report(opened, OutputReport(Rows(make, OutputRow, wanted)), chosen)
    return dataclasses.replace(report, bare=True, notes=notes)


def address_report(opened: Opened, chosen: Selection) -> Report:
    """Return the elements' addresses and nothing else, one a line."""

    rows = Rows.of_columns(lambda _: _address_columns(chosen), AddressRow, chosen.count, reads=0)
    return dataclasses.replace(_report(opened, AddressReport(rows), chosen), bare=True)


def _address_columns(chosen: Selection) -> Iterator[Batch]:
    for addresses in chosen.addresses:
        for part in slices(len(addresses), ROWS_AT_ONCE):
            yield {"address": Column(addresses[part])}


def _report(opened: Opened, data: Any, chosen: Selection) -> Report:
    return Report(
        data,
        evidence=opened.evidence,
        problems=problems_of(opened, chosen.walked, chosen.problems),
        complete=is_complete(opened, chosen.walked) and not chosen.stopped,
        notes=notes_of(chosen.walked),
    )


def _element_rows(
    chosen: Selection, names: Sequence[str], port: ElementPort, row_type: Any
) -> Iterator[Any]:
    labels = names or [_WHOLE]
    for each in chosen:
        texts = list(port.show(each.address, each.type, names))
        yield row_type(each.index, each.table, each.address, dict(zip(labels, texts)), *texts)


def _row_type(names: Sequence[str]) -> Any:
    """Return the class of the rows: the common columns, then one for each member in text."""
    fields = [
        (f"text{at}", Optional[str], column(name, json=False)) for at, name in enumerate(names or [_WHOLE])
    ]
    own = {"whole_cells": True}  # what a member holds is what was asked for
    return dataclasses.make_dataclass("ElementTextRow", fields, bases=(ElementRow,), namespace=own, frozen=True)


_WHOLE = "element"
