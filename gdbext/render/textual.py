"""Reports as text for a terminal: figures, tables, findings, then what speaks for and against them."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, islice
from typing import Any, Iterator, Optional

from gdbext.render.tables import columns_of, table_lines
from gdbext.render.values import human_size, object_text, printable, show_of, value_text
from gdbext.report import Evidence, Finding, Kind, Problem, Report, Rows, Show
from gdbext.wording import grouped

DEFAULT_LIMIT = 100
_PROBLEM_LINES = 20
_ALIKE = 3  # problems of one kind that are told each, where there are many
_INCOMPLETE = "INCOMPLETE: not everything was read; figures hold for what was"


def text(
    report: Report, *, exact: bool, limit: Optional[int], width: int = 100, color: bool = False
) -> Iterator[str]:
    """Iterate over a report's text: whole lines, each with its newline.

    :param exact: sizes as plain digits (``--bytes``).
    :param limit: rows of each table at most; None is 100 (of a bare report all), 0 all.
    :param width: characters of a line; only a table of numbers alone may need more.
    :param color: whether the terminal shows colours.
    """
    if report.bare:
        yield from _bare(report, exact, limit or None)
        return
    writer = _Writer(exact, DEFAULT_LIMIT if limit is None else limit, width)
    for line in _separated(writer.report(report)):
        yield line + "\n"


def remarks(report: Report, width: int = 100) -> Iterator[str]:
    """Iterate over what a bare report has to say besides its rows, for standard error."""
    writer = _Writer(False, DEFAULT_LIMIT, width)
    incomplete = [] if report.complete else writer.wrapped(_INCOMPLETE)
    for line in chain(incomplete, report.notes, writer.problems(report.problems)):
        yield line + "\n"


def _bare(report: Report, exact: bool, limit: Optional[int]) -> Iterator[str]:
    # An interrupt is passed on: nothing here could say that rows are missing.
    for field, _ in _shown_fields(report.data):
        rows = getattr(report.data, field.name)
        columns = columns_of(rows.row_type)
        for row in islice(rows, limit):
            yield " ".join(_bare_cell(getattr(row, at.name), at.kind, exact) for at in columns) + "\n"


def _bare_cell(value: Any, kind: Kind, exact: bool) -> str:
    if kind is not Kind.TEXT or not isinstance(value, str):
        return value_text(value, kind, exact=exact)
    return "".join(char if char in "\n\t" else printable(char) for char in value)


def _separated(sections: Iterable[Iterable[str]]) -> Iterator[str]:
    """Iterate over the lines of all sections that have any, a blank line between them."""
    begun = False
    for section in sections:
        blank = begun
        for line in section:
            if blank:
                yield ""
            begun, blank = True, False
            yield line


@dataclasses.dataclass
class _Writer:
    exact: bool
    limit: int
    width: int

    def report(self, report: Report) -> Iterator[Iterable[str]]:
        if not report.complete:
            yield self.wrapped(_INCOMPLETE)
        if report.data is not None:
            yield from self.record(report.data)
        yield (line for note in report.notes for line in self.wrapped(note))
        yield self.problems(report.problems)
        yield self.evidence(report.evidence)

    def record(self, record: Any) -> Iterator[Iterable[str]]:
        """Iterate over the sections of a dataclass: runs of figures, and tables."""
        shown = [(show, getattr(record, field.name)) for field, show in _shown_fields(record)]
        for plain, run in groupby(shown, key=lambda item: _is_figure(*item)):
            if plain:
                yield self.figures(list(run))
                continue
            for show, value in run:
                yield from self.table(show, value)

    def figures(self, figures: Sequence[tuple[Show, Any]]) -> Iterator[str]:
        """Iterate over aligned ``label: value`` lines."""
        indent = max(len(str(show.label)) for show, _ in figures) + 2
        for show, value in figures:
            label = f"{show.label}:".ljust(indent)
            shown = value_text(value, show.kind, exact=self.exact)
            yield from self.wrapped(shown, label, " " * indent)

    def table(self, show: Show, value: Any) -> Iterator[Iterable[str]]:
        title = str(show.label)
        if value is None:
            yield [f"{title}: ?"]
        elif _is_record(value):
            inner = self.record(value)
            yield chain([f"{title}:"], next(inner, ()))
            yield from inner
        elif isinstance(value, Rows):
            yield self.rows(title, value, value.row_type, value)
        elif not value:
            yield [f"{title}: none"]
        elif isinstance(value[0], Finding):
            yield self.findings(title, value)
        else:
            yield self.rows(title, value, type(value[0]), None)

    def rows(
        self, title: str, rows: Iterable[Any], row_type: type, streamed: Optional[Rows]
    ) -> Iterator[str]:
        source = _Stoppable(rows)
        columns = columns_of(row_type) if dataclasses.is_dataclass(row_type) else []
        first = list(islice(source, 1))
        if not first:
            yield f"{title}: none"
        else:
            yield f"{title}:"
            shown = chain(first, islice(source, self.limit - 1) if self.limit else source)
            if columns:
                yield from table_lines(shown, columns, exact=self.exact, width=self.width)
            else:
                yield from (line for row in shown for line in self.wrapped(object_text(row), "  ", "    "))
        total = streamed.total if streamed else len(rows)  # type: ignore[arg-type]
        yield from self.rest(source, total)

    def rest(self, source: "_Stoppable", total: Optional[int]) -> Iterator[str]:
        """Tell how many rows were left out, or that the user stopped."""
        shown = source.taken
        left = total - shown if total is not None else sum(1 for _ in islice(source, 1))
        if source.stopped:
            yield f"INCOMPLETE: stopped after {grouped(shown)} rows"
        elif self.limit and shown >= self.limit and left > 0:
            number = f"{grouped(left)} " if total is not None else ""
            yield f"… {number}more (--limit 0 shows all)"

    def findings(self, title: str, findings: Sequence[Finding]) -> Iterator[str]:
        yield f"{title}:"
        for number, finding in enumerate(findings, 1):
            if number > 1:
                yield ""
            yield from self.finding(number, finding)

    def finding(self, number: int, finding: Finding) -> Iterator[str]:
        head = [f"{number}. [{finding.severity.value}] {finding.kind}"]
        if finding.bytes is not None:
            head.append(str(finding.bytes) if self.exact else human_size(finding.bytes))
        if finding.waiters is not None:
            head.append(f"{finding.waiters} waiter{'' if finding.waiters == 1 else 's'}")
        head.append(f"(confidence {finding.confidence.value})")
        indent = " " * (len(str(number)) + 2)
        yield "  ".join(head)
        yield from self.wrapped(finding.summary, indent, indent)
        for line in finding.evidence:
            yield from self.wrapped(line, indent + "  - ", indent + "    ")
        if finding.remedy:
            yield from self.wrapped(finding.remedy, indent + "Remedy: ", indent + "  ")

    def problems(self, problems: Sequence[Problem]) -> Iterator[str]:
        if not problems:
            return
        yield f"Problems ({grouped(len(problems))}):"
        told = 0
        for line, covers in islice(_problem_lines(problems), _PROBLEM_LINES):
            told += covers
            yield from self.wrapped(line, "  ", "    ")
        if told < len(problems):
            yield f"  … {grouped(len(problems) - told)} more problems, see --json"

    def evidence(self, evidence: Sequence[Evidence]) -> Iterator[str]:
        lead = "Evidence: "
        for item in evidence:
            named = item.message.startswith(item.subject)
            text = item.message if named else f"{item.subject}: {item.message}"
            yield from self.wrapped(text, lead, " " * 12)
            lead = " " * 10

    def wrapped(self, line: str, lead: str = "", rest: str = "") -> list[str]:
        wrapped = textwrap.wrap(
            printable(line),
            max(self.width, len(lead) + 20),
            initial_indent=lead,
            subsequent_indent=rest,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return wrapped or [lead.rstrip()]


class _Stoppable:
    """An iterator that counts, and that ends where the user interrupts it."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = iter(rows)
        self.taken = 0
        self.stopped = False

    def __iter__(self) -> "_Stoppable":
        return self

    def __next__(self) -> Any:
        try:
            row = next(self._rows)
        except KeyboardInterrupt:
            self.stopped = True
            raise StopIteration from None
        self.taken += 1
        return row


def _shown_fields(record: Any) -> list[tuple["dataclasses.Field[Any]", Show]]:
    fields = [(field, show_of(field)) for field in dataclasses.fields(record)]
    return [(field, show) for field, show in fields if show and show.label is not None]


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_figure(show: Show, value: Any) -> bool:
    """Return whether a field is shown as one line; a nested report with tables is not."""
    if show.role == "table" or isinstance(value, Rows):
        return False
    if show.kind is not Kind.OBJECT or not _is_record(value):
        return True
    return all(_is_figure(inner, getattr(value, field.name)) for field, inner in _shown_fields(value))


def _problem_lines(problems: Sequence[Problem]) -> Iterator[tuple[str, int]]:
    """Iterate over lines and how many problems each stands for; where many, alike ones share one."""
    many = len(problems) > _PROBLEM_LINES
    counts = Counter(problem.kind for problem in problems)
    told: Counter[str] = Counter()
    for problem in problems:
        told[problem.kind] += 1
        alike = counts[problem.kind] - _ALIKE
        if not many or alike <= 1 or told[problem.kind] <= _ALIKE:
            place = f" at {problem.address:#x}" if problem.address is not None else ""
            yield f"{problem.kind}{place}: {problem.message}", 1
        elif told[problem.kind] == _ALIKE + 1:
            yield f"{problem.kind}: {grouped(alike)} more of this kind", alike
