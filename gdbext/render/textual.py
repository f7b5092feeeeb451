"""Reports as text for a terminal: verdict, figures, tables, findings; then problems, evidence, and what leads on."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, islice
from typing import Any, Iterator, Optional

from gdbext.render.style import Style, unbroken, wrapped_back
from gdbext.render.tables import RUN_LENGTH, Column, Run, columns_of, find_runs, table_lines
from gdbext.render.values import object_text, shown_fields, value_text
from gdbext.report import Confidence, Evidence, Finding, Kind, Labels, Mosaic, Problem, Report, Rows, Severity, Show
from gdbext.wording import count_text, grouped, printable, size_text

DEFAULT_LIMIT = 100
_PROBLEM_LINES = 20
_ALIKE = 3  # problems of one kind that are told each, where there are many
_EVIDENCE_LINES = 2  # of a finding, unless all are asked for
_NOT_COMPLETE = "not complete: "
# Kinds of problems that make an answer incomplete; others may stand beside them.
_REASONS = frozenset(
    (
        "interrupted", "not-examined", "not-searched", "time-limit", "unknown-allocator", "absent-memory",
        "swapped-memory", "truncated-core", "filtered-core", "damaged-core", "no-mappings", "no-main-arena",
        "not-copied", "not-dumped",
    )
)  # fmt: skip
_SEVERITIES = list(Severity)


def text(
    report: Report,
    *,
    exact: bool,
    limit: Optional[int],
    width: int = 100,
    color: bool = False,
    evidence: bool = False,
    plain: Optional[bool] = None,
) -> Iterator[str]:
    """Iterate over a report's text: whole lines, each with its newline.

    :param exact: sizes as plain digits (``--bytes``).
    :param limit: rows of each table at most; None is 100 (of a bare report all), 0 all, and none of them joined.
    :param width: characters of a line; only a table of numbers alone may need more.
    :param color: whether escapes may be written; what is left without them is the same.
    :param evidence: all of it, instead of a line that says how much there is.
    :param plain: only ASCII of our own; None asks the locale.
    """
    if report.bare:
        yield from _bare(report, exact, limit or None)
        return
    style = Style(color, plain)
    writer = _Writer(exact, DEFAULT_LIMIT if limit is None else limit, width, style, evidence, report.labels)
    for line in _separated(writer.report(report)):
        yield style.finish(line) + "\n"


def remarks(report: Report, width: int = 100) -> Iterator[str]:
    """Iterate over what a bare report has to say besides its rows, for standard error."""
    writer = _Writer(False, DEFAULT_LIMIT, width)
    incomplete = [] if report.complete else writer.not_complete(report)
    for line in chain(incomplete, report.notes, writer.problems(report.problems)):
        yield line + "\n"


def _bare(report: Report, exact: bool, limit: Optional[int]) -> Iterator[str]:
    # An interrupt is passed on: nothing here could say that rows are missing.
    for name, _ in shown_fields(type(report.data), report.labels):
        rows = getattr(report.data, name)
        columns = columns_of(rows.row_type, report.labels)
        for row in islice(rows, limit):
            yield " ".join(_bare_cell(getattr(row, at.name), at.kind, exact) for at in columns) + "\n"


def _bare_cell(value: Any, kind: Kind, exact: bool) -> str:
    if kind is Kind.COUNT:
        kind = Kind.NUMBER  # in a pipe a number is one word
    if kind is not Kind.TEXT or not isinstance(value, str):
        return value_text(value, kind, exact=exact)
    return printable(value, "\n\t")


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
    style: Style = dataclasses.field(default_factory=lambda: Style(plain=False))
    evidence: bool = False
    labels: Labels = dataclasses.field(default_factory=dict)

    def report(self, report: Report) -> Iterator[Iterable[str]]:
        begun = False
        if report.data is not None:
            for role, section in self.record(report.data, _role_of(report)):
                if not begun and role != "headline" and not report.complete:
                    yield self.not_complete(report)
                begun = begun or role != "headline"
                yield section
        if not begun and not report.complete:
            yield self.not_complete(report)
        yield (self.style.sentence(line) for note in report.notes for line in self.wrapped(note))
        yield self.problems(report.problems)
        yield self.last_lines(report)

    def not_complete(self, report: Report) -> list[str]:
        """Return the line that no reader may miss: figures hold for a part only, and why."""
        reasons = [problem for problem in report.problems if problem.kind in _REASONS]
        if not reasons:
            told = "not everything was read; figures hold for what was"
        else:
            more = f", and {count_text(len(reasons) - 1, 'more reason')} below" if len(reasons) > 1 else ""
            told = f"{reasons[0].message}{more}; figures hold for what was read"
        lines = self.wrapped(told, _NOT_COMPLETE, " " * len(_NOT_COMPLETE))
        return [self.style.paint(line, Severity.WARNING) for line in lines]

    def record(self, record: Any, verdict: object = "title") -> Iterator[tuple[str, Iterable[str]]]:
        """Iterate over the sections of a dataclass with their roles: headlines, runs of figures, passages, tables."""
        shown = [(show, getattr(record, name)) for name, show in shown_fields(type(record), self.labels)]
        for role, group in groupby(shown, key=lambda item: _role(item[0], item[1], self.labels)):
            run = list(group)
            if role == "headline":
                yield role, self.headlines([value for _, value in run if value], verdict)
            elif role == "figures":
                yield role, self.figures(run)
            else:
                for show, value in run:
                    sections = self.table(show, value) if role == "table" else [self.passage(str(show.label), value)]
                    yield from ((role, section) for section in sections)

    def headlines(self, sentences: Sequence[str], verdict: object) -> Iterator[str]:
        """Iterate over the lines that stand alone; the last is the verdict."""
        for at, sentence in enumerate(sentences, 1):
            role = verdict if at == len(sentences) else "title"
            yield from (self.style.paint(line, role) for line in self.wrapped(sentence, "", "  "))

    def passage(self, label: str, lines: Sequence[str]) -> Iterator[str]:
        """Iterate over lines behind a label."""
        indent = len(label) + 2
        for at, line in enumerate(lines or ()):
            made = self.wrapped(line, " " * indent, " " * (indent + 2))
            if not at:
                made[0] = self.style.paint(label, "title") + made[0][len(label) :]
            yield from made

    def figures(self, figures: Sequence[tuple[Show, Any]]) -> Iterator[str]:
        """Iterate over aligned ``label: value`` lines."""
        indent = max(len(str(show.label)) for show, _ in figures) + 2
        for show, value in figures:
            label = f"{show.label}:".ljust(indent)
            shown = value_text(value, show.kind, exact=self.exact)
            first, *more = self.wrapped(shown, label, " " * indent)
            yield self.style.paint(label, "dim") + self.value(first[indent:], show.kind)
            yield from (self.value(line, show.kind) for line in more)

    def value(self, shown: str, kind: Kind) -> str:
        if kind is Kind.ADDRESS:
            return self.style.paint(shown, "dim")
        return self.style.paint(shown, "number") if kind is Kind.BYTES else self.style.sentence(shown)

    def table(self, show: Show, value: Any) -> Iterator[Iterable[str]]:
        title = str(show.label)
        if value is None:
            yield [f"{title}: ?"]
        elif isinstance(value, Mosaic):
            from gdbext.render.mosaic import mosaic_lines  # most pages have no map

            yield mosaic_lines(value, self.width, self.style)
        elif _is_record(value):
            inner = self.record(value)
            yield chain(self.title(title), next(inner, ("", ()))[1])
            yield from (section for _, section in inner)
        elif isinstance(value, Rows):
            yield self.rows(show, value, value.row_type, value.total)
        elif not value:
            yield [f"{title}: none"] if title else []
        elif isinstance(value[0], Finding):
            yield self.findings(title, value)
        else:
            yield self.rows(show, value, type(value[0]), len(value))

    def title(self, title: str) -> list[str]:
        return [self.style.paint(f"{title}:", "title")] if title else []

    def rows(self, show: Show, rows: Iterable[Any], row_type: type, total: Optional[int]) -> Iterator[str]:
        columns = columns_of(row_type, self.labels) if dataclasses.is_dataclass(row_type) else []
        runs = find_runs(rows, columns, show.equal_but, self.exact) if show.equal_but and self.limit else None
        source = _Stoppable(rows if runs is None else runs)
        first = list(islice(source, 1))
        if not first:
            yield from [f"{show.label}: none"] if show.label else []
        else:
            yield from self.title(str(show.label))
            shown = chain(first, islice(source, self.limit - 1) if self.limit else source)
            if columns:
                placed = columns if runs is None else [columns[0], RUN_LENGTH, *columns[1:]]
                yield from table_lines(shown, placed, exact=self.exact, width=self.width, style=self.style)
            elif show.whole:
                yield from (f"  {row}".rstrip() for row in shown)
            else:
                texts = (line for row in shown for line in self.wrapped(object_text(row), "  ", "    "))
                yield from map(self.style.sentence, texts)
        yield from self.rest(source, total)
        if runs is not None and first:
            yield from self.said_of_runs(columns, show.equal_but)

    def said_of_runs(self, columns: Sequence[Column], equal_but: Sequence[str]) -> Iterator[str]:
        """Iterate over the lines that say what a row with a number represents."""
        labels = [column.label for column in columns if column.name in equal_but and column.kind is not Kind.THREADS]
        apart = [", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels
        said = f"×: rows equal but for {' and '.join(apart)}; the first is shown (--limit 0: each)"
        yield from (self.style.paint(line, "dim") for line in self.wrapped(said))

    def rest(self, source: "_Stoppable", total: Optional[int]) -> Iterator[str]:
        """Say how many rows were left out, or that the user stopped."""
        left = total - source.rows if total is not None else sum(1 for _ in islice(source, 1))
        if source.stopped:
            yield self.style.paint(f"{_NOT_COMPLETE}stopped after {grouped(source.rows)} rows", Severity.WARNING)
        elif self.limit and source.taken >= self.limit and left > 0:
            number = f"{grouped(left)} " if total is not None else ""
            yield self.style.paint(f"… {number}more (--limit 0 shows all)", "dim")

    def findings(self, title: str, findings: Sequence[Finding]) -> Iterator[str]:
        yield from self.title(title)
        for number, finding in enumerate(findings, 1):
            if number > 1:
                yield ""
            yield from self.finding(number, finding)

    def finding(self, number: int, finding: Finding) -> Iterator[str]:
        severity = finding.severity.value.upper()
        head = [
            self.style.paint(str(number), "number"),
            f"{self.style.paint(severity, finding.severity)}{' ' * (8 - len(severity))}",
            self.style.paint(finding.kind, finding.severity),
        ]
        if finding.bytes is not None:
            amount = str(finding.bytes) if self.exact else size_text(finding.bytes)
            head.append(self.style.paint(amount, "number"))
        if finding.waiters is not None:
            head.append(self.style.paint(count_text(finding.waiters, "waiter"), "number"))
        if finding.confidence is not Confidence.HIGH:
            head.append(self.style.paint(f"(confidence {finding.confidence.value})", "dim"))
        indent = " " * (len(str(number)) + 2)
        yield "  ".join(head)
        lines = self.wrapped(finding.summary, indent, indent)
        most = len(finding.evidence) if self.evidence else _EVIDENCE_LINES
        for line in finding.evidence[:most]:
            lines += self.wrapped(line, indent + "· ", indent + "  ")
        if len(finding.evidence) > most:
            lines.append(f"{indent}  … {len(finding.evidence) - most} more (--evidence)")
        if finding.remedy:
            lines += self.wrapped(finding.remedy, indent + "→ ", indent + "  ")
        yield from map(self.style.sentence, lines)

    def problems(self, problems: Sequence[Problem]) -> Iterator[str]:
        if not problems:
            return
        yield self.style.paint(f"Problems ({grouped(len(problems))}):", Severity.WARNING)
        told = 0
        for line, covers in islice(_problem_lines(problems), _PROBLEM_LINES):
            told += covers
            yield from map(self.style.sentence, self.wrapped(line, "  ", "    "))
        if told < len(problems):
            yield f"  … {grouped(len(problems) - told)} more problems, see --json"

    def last_lines(self, report: Report) -> Iterator[str]:
        """Iterate over the lines that end a page: evidence, and what leads on."""
        if self.evidence:
            yield from self.all_evidence(report.evidence)
        elif report.evidence:
            held = f"evidence: {count_text(len(report.evidence), 'check')} held (--evidence shows them)"
            yield self.style.paint(held, "dim")
        if report.next:
            commands = " · ".join(self.style.paint(command, "command") for command in report.next)
            yield f"{self.style.paint('next:', 'title')} {commands}"

    def all_evidence(self, evidence: Sequence[Evidence]) -> Iterator[str]:
        lead = "evidence: "
        for item in evidence:
            named = item.message.startswith(item.subject)
            text = item.message if named else f"{item.subject}: {item.message}"
            yield from map(self.style.sentence, self.wrapped(text, lead, " " * 12))
            lead = " " * 10

    def wrapped(self, line: str, lead: str = "", rest: str = "") -> list[str]:
        wrapped = textwrap.wrap(
            unbroken(printable(line)),
            max(self.width, len(lead) + 20),
            initial_indent=lead,
            subsequent_indent=rest,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return [wrapped_back(each) for each in wrapped] or [lead.rstrip()]


class _Stoppable:
    """An iterator that counts, and that ends where the user interrupts it.

    ``taken`` counts what it gave, ``rows`` what that represents.
    """

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = iter(rows)
        self.taken = self.rows = 0
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
        self.rows += row.run_length if isinstance(row, Run) else 1
        return row


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _role_of(report: Report) -> object:
    """Return the colour of the verdict: that of the worst finding, else whether all was examined."""
    found = getattr(report.data, "findings", None)
    if report.findings:
        severities = [one.severity for one in found or () if isinstance(one, Finding)]
        return min(severities, key=_SEVERITIES.index, default=Severity.WARNING)
    return "good" if report.complete else Severity.WARNING


def _role(show: Show, value: Any, labels: Labels) -> str:
    if show.role in ("headline", "passage"):
        return show.role
    return "figures" if _is_figure(show, value, labels) else "table"


def _is_figure(show: Show, value: Any, labels: Labels) -> bool:
    """Return whether a field is shown as one line; a nested report with tables is not."""
    if show.role == "table" or isinstance(value, Rows):
        return False
    if show.kind is not Kind.OBJECT or not _is_record(value):
        return True
    shown = shown_fields(type(value), labels)
    return all(_is_figure(inner, getattr(value, name), labels) for name, inner in shown)


def _problem_lines(problems: Sequence[Problem]) -> Iterator[tuple[str, int]]:
    """Iterate over lines and how many problems each represents; where many, alike ones share one."""
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
