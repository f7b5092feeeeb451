"""The kinds of rows, with their columns: those of reports' tables, as reports declare them, and a few of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbext.analysis.blocks.summary import ArenaRow, PowerRow
from gdbext.analysis.footprint.ledger import Entry
from gdbext.analysis.leaks.report import RootRow
from gdbext.analysis.leaks.tables import TypeRow as LeakGroupRow
from gdbext.analysis.locks.report import LockRow, ThreadRow
from gdbext.analysis.page import HeapRow
from gdbext.analysis.tables.counts import TableRow
from gdbext.analysis.types.report import TypeRow
from gdbext.render.plain import members_of
from gdbext.report import Confidence, Finding, Kind, Problem, Severity, ThreadRef, column


@dataclass(frozen=True)
class CoreRow:
    """One core, examined or not.

    :param path: absolute, links resolved.
    :param size: of the file.
    :param host: that it is from; None: nobody says.
    :param time: when the process died, as systemd-coredump has noted it, else of the core's last change; in seconds
        since the epoch, 0: there is no such file.
    :type time: number
    :param program: name of the executable, without its folder; None where there is no answer, or the core does not say.
    :param exe: its path as the target names it; None as before.
    :param build_id: hex; None where the core does not hold it.
    :param pid: process id; None where the core does not say.
    :param threads: how many; None where there is no answer.
    :param status: as the exit status of `triage`: 0 all was examined and nothing found, 1 findings, 2 no answer, 3 not
        all was examined.
    :param died: what it died of, in a line; None: it lived, or there is no answer.
    :param signal: "SIGSEGV"; None as before.
    :param signature: of its first cause; None: there is none.
    :param cause: the same for people.
    :param error_kind: why there is no answer, a word as in an error of JSON, or `killed`; None: there is one.
    :param error: the same in a line.
    :param debugger: whether gdb was borrowed for names and types.
    :param version: of gdbext.
    :param seconds: measured: that it took.
    :type seconds: number
    :param cpu_seconds: measured: of processors, those of a borrowed gdb too.
    :type cpu_seconds: number
    :param peak_bytes: measured: most memory that a process for it had at once.
    """

    path: str = column("core")
    size: int = column("size", Kind.BYTES)
    host: Optional[str] = column("host")
    time: float = column("time", Kind.SHARE)
    program: Optional[str] = column("program", default=None)
    exe: Optional[str] = column("exe", default=None)
    build_id: Optional[str] = column("build-id", default=None)
    pid: Optional[int] = column("pid", Kind.NUMBER, default=None)
    threads: Optional[int] = column("threads", Kind.COUNT, default=None)
    status: int = column("status", Kind.NUMBER, default=2)
    died: Optional[str] = column("died", default=None)
    signal: Optional[str] = column("signal", default=None)
    signature: Optional[str] = column("signature", default=None)
    cause: Optional[str] = column("cause", default=None)
    error_kind: Optional[str] = column("kind of error", default=None)
    error: Optional[str] = column("error", default=None)
    debugger: bool = column("gdb", Kind.FLAG, default=False)
    version: str = column("version", default="")
    seconds: Optional[float] = column("seconds", Kind.SHARE, default=None)
    cpu_seconds: Optional[float] = column("CPU seconds", Kind.SHARE, default=None)
    peak_bytes: Optional[int] = column("peak", Kind.BYTES, default=None)


MEASURED = ("seconds", "cpu_seconds", "peak_bytes")  # of a core: not the same in each run


@dataclass(frozen=True)
class AnswerRow:
    """What one command came to.

    :param command: its name.
    :param status: as its exit status: 0, 1, 3, or 2 for none.
    :param complete: whether all was examined.
    :param error_kind: why there is no answer; None: there is one.
    :param error: the same in a line.
    """

    command: str = column("command")
    status: int = column("status", Kind.NUMBER)
    complete: bool = column("whole", Kind.FLAG)
    error_kind: Optional[str] = column("kind of error")
    error: Optional[str] = column("error")


@dataclass(frozen=True)
class FindingRow(Finding):
    """One finding of `triage`, with ``number``, its place among the core's, worst first, from 0.

    :param number: place among the findings of the core.
    :param evidence: texts, as JSON.
    :type evidence: text
    :param threads: numbers, lwps and names; null as in JSON.
    :param details: as JSON: see [Details of findings](#details-of-findings).
    :type details: text
    """

    number: int = column("number", Kind.NUMBER, default=0)
    kind: str = column("kind")
    severity: Severity = column("severity")
    confidence: Confidence = column("confidence")
    summary: str = column("summary")
    bytes: Optional[int] = column("bytes", Kind.BYTES, default=None)
    waiters: Optional[int] = column("waiters", Kind.COUNT, default=None)
    evidence: Tuple[str, ...] = column("evidence", Kind.OBJECT, default=())
    remedy: str = column("remedy", default="")
    threads: Optional[Tuple[ThreadRef, ...]] = column("threads", Kind.THREADS, default=None)
    details: Mapping[str, Any] = column("details", Kind.OBJECT, default=None)


@dataclass(frozen=True)
class CauseRow:
    """One cause: of death, or of a finding. See [signatures](signatures.md).

    :param rank: 0 is the core's first cause.
    :param signature: equal for equal causes.
    :param kind: `crash`, or the kind of the finding.
    :param cause: in a line, for people.
    :param words: what the signature is made of, as JSON.
    :param finding: `number` of the finding; None of a crash.
    :param bytes: that it costs; None where bytes are not its measure.
    """

    rank: int = column("rank", Kind.NUMBER)
    signature: str = column("signature")
    kind: str = column("kind")
    cause: str = column("cause")
    words: Sequence[str] = column("words", Kind.OBJECT)
    finding: Optional[int] = column("finding", Kind.NUMBER)
    bytes: Optional[int] = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class ProblemRow(Problem):
    """One problem of an answer, as in the envelope.

    :param command: that met it; a problem of several is that of the first.
    :param kind: see [Kinds of problems](#kinds-of-problems).
    :param address: in the target; None: it has none.
    :param message: one line.
    :param corruption: whether it is damage.
    """

    command: str = column("command", default="")
    kind: str = column("kind")
    address: Optional[int] = column("address", Kind.ADDRESS)
    message: str = column("message")
    corruption: bool = column("damage", Kind.FLAG, default=False)


@dataclass(frozen=True)
class HashTableRow(TableRow):
    """One hash table that a variable leads to.

    :param name: the expression for it.
    """

    name: str = column("name", default="")


class RowKind(NamedTuple):
    """A kind of row.

    :param row: the dataclass that declares its columns, all but ``core``.
    :param command: whose answer has them as a table; "" for those that are made of several.
    :param table: its path in the answer's JSON.
    """

    name: str
    row: type
    command: str = ""
    table: str = ""

    @property
    def columns(self) -> Sequence[Tuple[str, Kind]]:
        """Names and kinds of the columns; the first is the core's id."""
        return [("core", Kind.TEXT), *((name, show.kind) for name, show in members_of(self.row))]


KINDS: Sequence[RowKind] = (
    RowKind("cores", CoreRow),
    RowKind("answers", AnswerRow),
    RowKind("findings", FindingRow),
    RowKind("causes", CauseRow),
    RowKind("problems", ProblemRow),
    RowKind("heaps", HeapRow, "triage", "heaps"),
    RowKind("mappings", Entry, "triage", "ledger.entries"),
    RowKind("tables", HashTableRow),
    RowKind("arenas", ArenaRow, "blocks summary", "arenas"),
    RowKind("sizes", PowerRow, "blocks summary", "by_power"),
    RowKind("leak_groups", LeakGroupRow, "blocks leaks", "by_type"),
    RowKind("roots", RootRow, "blocks leaks", "roots"),
    RowKind("types", TypeRow, "blocks types", "types"),
    RowKind("threads", ThreadRow, "lockwait", "threads"),
    RowKind("locks", LockRow, "lockwait", "locks"),
)
NAMES: Sequence[str] = tuple(kind.name for kind in KINDS)
COMMANDS: Sequence[str] = tuple(dict.fromkeys(kind.command for kind in KINDS if kind.command))


def find_kind(name: str) -> RowKind:
    """Return a kind by its name, which there is."""
    return next(kind for kind in KINDS if kind.name == name)
