"""What an analysis returns: frozen dataclasses whose fields say how they are shown.

A field declared with :func:`column` is one column of a table and one key of the JSON object; one
declared with :func:`table` holds rows; one declared with :func:`line` is a single figure; :func:`headline` and
:func:`passage` are for people alone. The renderer (``gdbext.render``) reads these declarations and knows nothing else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from itertools import chain, islice
from typing import Any, Callable, Generic, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, TypeVar

from gdbext.columns import Batch, batches_of, length_of

_T = TypeVar("_T")
_Row = TypeVar("_Row")


class Kind(Enum):
    """How a value is written. ``None`` is "unknown" in every kind: "?" in text, null in JSON."""

    ADDRESS = "address"  # int; 0x… in both
    BYTES = "bytes"  # int; human in text, exact with --bytes and in JSON
    COUNT = "count"  # int; thousands set apart in text
    NUMBER = "number"  # int that names something (a thread, an index, a size class): its digits as they are
    SHARE = "share"  # float 0..1; per cent in text
    TEXT = "text"  # str
    FLAG = "flag"  # bool; yes/no in text
    THREADS = "threads"  # tuple of ThreadRef
    OBJECT = "object"  # nested report dataclass, or a list of plain values; JSON as it is
    BAR = "bar"  # Bar; text only


class Memory(Enum):
    """What memory is for: decides the colour of its bar."""

    USED = "used"
    FREE = "free"
    OVERHEAD = "overhead"
    STACK = "stack"
    FILE = "file"
    ANONYMOUS = "anonymous"
    RESERVED = "reserved"
    CACHED = "cached"
    RETURNED = "returned"
    UNTOUCHED = "untouched"
    MISSING = "missing"
    MIXED = "used and free"


@dataclass(frozen=True)
class Bar:
    """A share as a bar.

    :param share: 0 to 1; None draws nothing.
    """

    share: Optional[float]
    memory: Memory = Memory.USED


@dataclass(frozen=True)
class Mosaic:
    """A map of memory, for people alone: stretches of cells, each wrapped at the end of a line.

    :param stretches: each with what it is called.
    """

    stretches: Sequence[tuple[str, Sequence[Memory]]]


class Show(NamedTuple):
    """How one field is shown.

    :param label: header in text; None keeps it out of the text.
    :param json: False keeps it out of the JSON.
    :param whole: whether text of a column never gives way to others: names that only their ends tell apart; of a
        table: lines of text are not wrapped.
    :param equal_but: of a table: fields in which rows may differ that are equal otherwise, and share a line of text.
    :param spare: of a column: left out of lines of less than 100 characters, and where the table would need more lines
        for it; else it stands beside the one before, and may have no label of its own.
    """

    role: str  # "column", "table", "line", "headline", "passage"
    label: Optional[str]
    kind: Kind = Kind.TEXT
    json: bool = True
    whole: bool = False
    equal_but: tuple[str, ...] = ()
    spare: bool = False


def _show(show: Show, default: Any) -> Any:
    if default is dataclasses.MISSING:
        return field(metadata={"show": show})
    return field(default=default, metadata={"show": show})


def column(
    label: Optional[str],
    kind: Kind = Kind.TEXT,
    *,
    json: bool = True,
    whole: bool = False,
    spare: bool = False,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a dataclass field as a column: text header ``label``, JSON key the field's name."""
    return _show(Show("column", label, kind, json, whole, spare=spare), default)


def line(
    label: Optional[str],
    kind: Kind = Kind.TEXT,
    *,
    json: bool = True,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a dataclass field as a single figure, shown as ``label: value``."""
    return _show(Show("line", label, kind, json), default)


def table(
    title: Optional[str],
    *,
    json: bool = True,
    whole: bool = False,
    equal_but: Sequence[str] = (),
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a dataclass field that holds rows: a sequence of row dataclasses, or :class:`Rows`.

    :param title: "" for a table that speaks for itself.
    :param whole: whether lines of text stay as they are, however long.
    :param equal_but: fields that do not keep rows apart: where other cells are equal, the text shows one row for all.
    """
    return _show(Show("table", title, Kind.OBJECT, json, whole, equal_but=tuple(equal_but)), default)


def headline(*, default: Any = dataclasses.MISSING) -> Any:
    """Declare a dataclass field with a sentence that stands alone: what is examined, or the verdict. Not in JSON."""
    return _show(Show("headline", "", json=False), default)


def passage(label: str, *, default: Any = dataclasses.MISSING) -> Any:
    """Declare a dataclass field with lines of text behind a label; nothing is shown of none. Not in JSON."""
    return _show(Show("passage", label, json=False), default)


@dataclass(frozen=True)
class ThreadRef:
    """A thread as reports name it."""

    number: Optional[int]
    lwp: Optional[int]
    name: Optional[str]


@dataclass(frozen=True)
class Problem:
    """Something that was not as it should be, with the place.

    :param kind: a word of the closed lists in ``docs/json.md`` ("chunk-size", "absent-memory", …).
    :param address: where in the target, or None.
    :param message: one line: what was read, what was expected, what was done about it.
    :param corruption: whether the target's heap is damaged (against: we could not know).
    """

    kind: str
    address: Optional[int]
    message: str
    corruption: bool = False


@dataclass(frozen=True)
class Evidence:
    """Why an answer can be believed: which layout, found how, with which checks.

    :param subject: what it is about ("libc", "main_arena", "tcache").
    :param message: one line.
    """

    subject: str
    message: str


class Severity(Enum):
    """How bad a finding is, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Confidence(Enum):
    """How sure a finding is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True)
class Finding:
    """A cause that has been recognised.

    :param kind: one of the [kinds of findings](#kinds-of-findings).
    :type kind: word
    :param severity: ``critical``, ``warning``, ``info``.
    :type severity: word
    :param confidence: ``high``, ``medium``, ``low``.
    :type confidence: word
    :param summary: one sentence with the numbers.
    :param bytes: memory that it costs; None where bytes are not its measure.
    :type bytes: bytes
    :param waiters: threads that it holds up; None where threads are not its measure.
    :param evidence: lines by which a reader can check it.
    :param remedy: what to do, naming the tunable.
    :param threads: threads that cause it; empty where they are gone, None where threads are not its cause or not known.
    :param details: the evidence as fields, by kind: see [Details of findings](#details-of-findings). It is for programs
        alone, so addresses are texts ("0x…").
    :type details: details
    """

    kind: str
    severity: Severity
    confidence: Confidence
    summary: str
    bytes: Optional[int] = None
    waiters: Optional[int] = None
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    threads: Optional[tuple[ThreadRef, ...]] = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Rows(Generic[_Row]):
    """Rows that are made while they are printed, with their number known beforehand or not.

    :param make: returns a fresh iterator of row dataclasses; called once per rendering.
    :param row_type: the row's dataclass.
    :param total: how many there are, or None where only walking tells.
    :param runs: the same rows as pairs of a row and how many are equal, itself included, for a source that knows
        without making them all; returns None where too few are.
    :param reads: how many of the first may read the target while they are made, None for all; 0 where what they are
        made of is at hand.
    """

    def __init__(
        self,
        make: Callable[[], Iterable[_Row]],
        row_type: type[_Row],
        total: Optional[int],
        runs: Callable[[], Optional[Iterable[tuple[_Row, int]]]] = lambda: None,
        *,
        reads: Optional[int] = None,
    ) -> None:
        self._make = make
        self._columns: Optional[Callable[[Sequence[str]], Iterable[Batch]]] = None
        self.row_type = row_type
        self.total = total
        self.runs = runs
        self.reads = reads
        self.interrupted = False  # whether some are missing because the user has stopped it
        self.check: Callable[[], None] = lambda: None  # called before each row; what it raises ends them

    @classmethod
    def of_columns(
        cls,
        columns: Callable[[Sequence[str]], Iterable[Batch]],
        row_type: type[_Row],
        total: Optional[int],
        runs: Callable[[], Optional[Iterable[tuple[_Row, int]]]] = lambda: None,
        *,
        reads: Optional[int] = None,
    ) -> Rows[_Row]:
        """Return rows that are made many at a time, for tables that may have millions.

        :param columns: given names of fields, returns a fresh iterator of batches that have at least these.
        """
        rows = cls(lambda: rows_of_batches(columns(rows.names), row_type), row_type, total, runs, reads=reads)
        rows._columns = columns
        return rows

    @property
    def names(self) -> Sequence[str]:
        """The fields of a row."""
        return [member.name for member in dataclasses.fields(self.row_type)]  # type: ignore[arg-type]

    @property
    def in_columns(self) -> bool:
        """Whether the rows come as columns at no more cost than one by one, and in no smaller steps."""
        return self._columns is not None

    def __iter__(self) -> Iterator[_Row]:
        return self._checked(self._make())

    def batches(self, names: Optional[Sequence[str]] = None) -> Iterator[Batch]:
        """Iterate over the rows as columns, many rows at a time.

        :param names: the fields that are wanted, at least; None: all.
        """
        wanted = self.names if names is None else names
        if self._columns is None:
            return batches_of(self, wanted)
        return self._checked(self._columns(wanted))

    def _checked(self, made: Iterable[_T]) -> Iterator[_T]:
        try:
            for one in made:
                self.check()
                yield one
            if self.interrupted:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    def keep(self, most: int) -> bool:
        """Make the first ``most`` rows now, for one rendering; return whether there may be more."""
        known = self.runs()
        runs, kept_runs, made = None if known is None else iter(known), [], 0
        try:
            made = self._keep_rows(most) if self._columns is None else self._keep_batches(self._columns, most)
            for run in islice(runs or (), most):
                kept_runs.append(run)
        except KeyboardInterrupt:
            self.interrupted = True
        self.runs = lambda: None if runs is None else chain(kept_runs, runs)
        return not self.interrupted and made >= most and made != self.total

    def _keep_rows(self, most: int) -> int:
        rows: Iterator[_Row] = iter(self._make())
        kept: list[_Row] = []
        self._make = lambda: chain(kept, rows)
        for row in islice(rows, most):
            kept.append(row)
        return len(kept)

    def _keep_batches(self, columns: Callable[[Sequence[str]], Iterable[Batch]], most: int) -> int:
        batches, made = iter(columns(self.names)), 0
        kept: list[Batch] = []
        self._columns = lambda names: chain(kept, batches)
        self._make = lambda: rows_of_batches(chain(kept, batches), self.row_type)
        while made < most:
            batch = next(batches, None)
            if batch is None:
                break
            kept.append(batch)
            made += length_of(batch)
        return made


def rows_of_batches(batches: Iterable[Batch], row_type: type[_Row]) -> Iterator[_Row]:
    """Iterate over the rows of batches as objects."""
    names = [member.name for member in dataclasses.fields(row_type)]  # type: ignore[arg-type]
    for batch in batches:
        yield from map(row_type, *(batch[name].cells() for name in names))


Labels = Mapping[tuple[type, str], Optional[str]]  # by a dataclass and its field


def hidden(record: type, names: Iterable[str]) -> Labels:
    """Return labels that keep fields of a dataclass out of the text."""
    return {(record, name): None for name in names}


@dataclass(frozen=True)
class Report:
    """One command's answer.

    :param data: a dataclass declared with :func:`column`, :func:`line` and :func:`table`.
    :param complete: False when the walk was interrupted, out of time or met absent memory.
    :param notes: lines for the text rendering only.
    :param bare: the text is the cells of its tables' rows and nothing else, for pipes; all of them without a limit.
    :param next: commands that lead on, as they are typed; text only.
    :param labels: the view, where it is another than the fields declare: headers and titles, None for what the text
        leaves out. The JSON is the same with any.
    """

    data: Any
    evidence: Sequence[Evidence] = ()
    problems: Sequence[Problem] = ()
    complete: bool = True
    notes: Sequence[str] = ()
    findings: bool = False
    bare: bool = False
    next: Sequence[str] = ()
    labels: Labels = field(default_factory=dict)


class Status(IntEnum):
    """What an answer amounts to: the shell program's exit status, and ``status`` in JSON."""

    CLEAN = 0  # all was examined, and nothing was found
    FINDINGS = 1
    FAILED = 2  # there is no answer
    PARTIAL = 3  # nothing was found, but not all was examined


def exit_status(report: Report) -> Status:
    """Return what a report amounts to. Findings beat what was not examined."""
    if report.findings:
        return Status.FINDINGS
    return Status.CLEAN if report.complete else Status.PARTIAL


def rows_of(data: Any) -> Iterator[Rows[Any]]:
    """Iterate over the rows that a report makes while it is printed."""
    if isinstance(data, Rows):
        yield data
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        for member in dataclasses.fields(data):
            yield from rows_of(getattr(data, member.name))


_INTERRUPTED = Problem("interrupted", None, "stopped while the rows were written; the rest is missing")


def rendered(report: Report, interrupted: bool = False) -> Report:
    """Return a report as it stands once it was printed: incomplete where rows are missing.

    :param interrupted: whether the printing was stopped, besides what rows themselves say.
    """
    if not interrupted and not any(rows.interrupted for rows in rows_of(report.data)):
        return report
    return dataclasses.replace(report, complete=False, problems=[*report.problems, _INTERRUPTED])


Settings = Mapping[str, int]
