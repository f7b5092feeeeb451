"""One core examined: its rows. It runs in a process of its own, whose limits bound it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import gdbext
from gdbext.analysis.leaks.findings import LEAK
from gdbext.analysis.leaks.tables import TypeRow as LeakGroupRow
from gdbext.analysis.missing import with_target
from gdbext.analysis.page import Triage
from gdbext.analysis.tables.counts import table_row
from gdbext.analysis.tables.search import Looked
from gdbext.analysis.triage import Seen, triage
from gdbext.cli.unpack import find_packing, unpack
from gdbext.errors import DebuggerError, GdbextError, NoHeapError
from gdbext.fleet.causes import Known, find_causes
from gdbext.fleet.kinds import (
    KINDS,
    MEASURED,
    AnswerRow,
    CoreRow,
    FindingRow,
    HashTableRow,
    ProblemRow,
    RowKind,
    find_kind,
)
from gdbext.fleet.layout import SCHEMA
from gdbext.fleet.sources import Source
from gdbext.process import Identity
from gdbext.render.arrow import cell_of
from gdbext.report import Finding, Problem, Report, Status, exit_status
from gdbext.session import Session
from gdbext.starting.corefile import read_core
from gdbext.starting.executable import is_unknown_here
from gdbext.starting.lockedfolder import LockedFolder
from gdbext.structures.locks.frames import name_of
from gdbext.version import __version__

Rows = Dict[str, List[List[Any]]]  # by kind, without the core's id
Document = Dict[str, Any]

_GROUPS = find_kind("leak_groups")
_TRIES = 3  # of a borrowed gdb


@dataclass(frozen=True)
class How:
    """How cores are examined.

    :param commands: whose answers are wanted; ``triage`` is among them.
    :param gdb: a program to borrow where it knows names, or None.
    :param cache: a folder for what is read of files, or None.
    :param debug_dir: where separate debug info is, or None for gdb's own place.
    :param debuginfod: a server to be asked for files that are not here, or None.
    """

    commands: Sequence[str]
    gdb: Optional[str] = None
    sysroot: Optional[str] = None
    cache: Optional[str] = None
    debug_dir: Optional[str] = None
    debuginfod: Optional[str] = None


@dataclass
class Answers:
    """What commands answered of one core.

    :ivar page: of ``triage``, or None.
    :ivar rows: of tables, by kind.
    :ivar functions: in which threads wait, by number.
    :ivar leaked: types of leaked blocks, where there is a finding about them.
    """

    identity: Identity = Identity()
    threads: Optional[int] = None
    debugger: bool = False
    page: Optional[Triage] = None
    answers: List[AnswerRow] = field(default_factory=list)
    problems: List[ProblemRow] = field(default_factory=list)
    rows: Dict[str, Sequence[Any]] = field(default_factory=dict)
    functions: Mapping[int, str] = field(default_factory=dict)
    leaked: Optional[Sequence[LeakGroupRow]] = None


def examine(source: Source, how: How) -> Document:
    """Return the rows of a core, whatever it is."""
    try:
        answers = _answer(source, how)
    except GdbextError as error:
        return failed(source, error.kind, str(error))
    if answers.page is None:
        first = answers.answers[0]
        return failed(source, first.error_kind or "", first.error or "")
    return document(source, _rows(source, answers, answers.page))


def failed(source: Source, kind: str, message: str) -> Document:
    """Return the rows of a core without an answer."""
    row = replace(_core_row(source), error_kind=kind, error=message)
    return document(source, {"cores": _cells("cores", [row])})


def document(source: Source, rows: Rows) -> Document:
    """Return rows as they are kept until they are in a part: what JSON can hold."""
    return {"schema": SCHEMA, "version": __version__, "core": source.core, "rows": rows}


def measured(found: Document, seconds: float, cpu: float, peak: int) -> Document:
    """Return the same with what the core cost.

    :param seconds: that passed.
    :param cpu: seconds of processors.
    :param peak: bytes of memory.
    """
    names = [name for name, _ in _COLUMNS["cores"]]
    (row,) = found["rows"]["cores"]
    figures = dict(zip(MEASURED, (round(seconds, 3), round(cpu, 3), peak)))
    made = [figures.get(name, value) for name, value in zip(names, row)]
    return {**found, "rows": {**found["rows"], "cores": [made]}}


def _core_row(source: Source) -> CoreRow:
    path = source.path.encode("utf-8", "backslashreplace").decode()
    return CoreRow(path, source.size, source.host, source.time, version=__version__)


# ---- asking ----


def _answer(source: Source, how: How) -> Answers:
    """Return what commands answer.

    :raises GdbextError: it is no core that can be read.
    """
    with _unpacked(source.path) as path:
        elsewhere = how.debug_dir is not None or how.debuginfod is not None
        known = how.gdb is not None and (elsewhere or not is_unknown_here(read_core(path)))
        return _ask_with_gdb(path, how) if known else _ask(path, how, None)


def _ask_with_gdb(path: str, how: How) -> Answers:
    """Return what commands answer with names and types, or without where gdb fails again and again."""
    for _ in range(_TRIES):  # somebody may have killed it
        try:
            return _ask(path, how, how.gdb)
        except DebuggerError as error:
            fault = error
    answers = _ask(path, how, None)
    problem = Problem("debugger", None, f"names and types were not had: {fault.message}")
    return replace(answers, problems=[*answers.problems, _problem_row("triage", problem)])


@contextmanager
def _unpacked(path: str) -> Iterator[str]:
    packing = find_packing(path)
    if packing is None:
        yield path
        return
    folder = LockedFolder()
    try:
        target = os.path.join(folder.path, "core")
        unpack(path, packing, target, None)
        yield target
    except GdbextError as error:
        error.message = error.message.replace(target, path)  # as the user has named it
        raise
    finally:
        folder.remove()


def _ask(path: str, how: How, gdb: Optional[str]) -> Answers:
    answers = Answers(debugger=gdb is not None)
    limits = {"threads": 1}  # the pool has one child for each processor
    with gdbext.open_core(
        path,
        sysroot=how.sysroot,
        settings=limits,
        debugger=gdb,
        cache=how.cache,
        debug_dir=how.debug_dir,
        debuginfod=how.debuginfod,
    ) as session:
        answers.identity, answers.threads = session.target.identity, len(session.target.threads)
        for command in how.commands:
            _take(answers, session, command)
        answers.leaked = _find_leaked(answers, session)
    return answers


def _find_leaked(answers: Answers, session: Session) -> Optional[Sequence[LeakGroupRow]]:
    """Return the types of leaked blocks, those too that blocks are only similar to, which the page does without."""
    if answers.page is None or not any(finding.kind == LEAK for finding in answers.page.findings):
        return None
    if _GROUPS.name not in answers.rows:
        try:
            return list(_table(session.run(_GROUPS.command).report.data, _GROUPS) or ())
        except DebuggerError:
            raise
        except GdbextError:  # it has said so where somebody has asked for it
            return None
    return answers.rows[_GROUPS.name]


def _take(answers: Answers, session: Session, command: str) -> None:
    """Ask one command, and make its rows while the session is open.

    :raises DebuggerError: as the command: all is asked again without a debugger.
    """
    try:
        report = _triage(answers, session) if command == "triage" else session.run(command).report
    except DebuggerError:
        raise
    except GdbextError as error:
        answers.answers.append(AnswerRow(command, 2, isinstance(error, NoHeapError), error.kind, error.message))
        return
    for kind in KINDS:
        if kind.command == command:
            answers.rows[kind.name] = list(_table(report.data, kind) or ())
    answers.answers.append(AnswerRow(command, int(exit_status(report)), report.complete, None, None))
    known = {(row.kind, row.address, row.message) for row in answers.problems}
    new = [one for one in report.problems if (one.kind, one.address, one.message) not in known]
    answers.problems += [_problem_row(command, problem) for problem in new]


def _triage(answers: Answers, session: Session) -> Report:
    """Return the page, and keep the hash tables and waits that it found."""
    tables: List[HashTableRow] = []
    seen = Seen(lambda looked: tables.extend(_table_rows(looked)))
    report = with_target(triage(session, seen=seen), session.target)
    answers.page, answers.rows["tables"] = report.data, tables
    if seen.known is not None:
        answers.functions = {number: name_of(frame) for number, frame in seen.known.frames.items()}
    return report


def _table_rows(looked: Looked) -> Iterator[HashTableRow]:
    for each in looked.walked:
        row = table_row(each)
        yield HashTableRow(**{one.name: getattr(row, one.name) for one in fields(row)}, name=looked.name)


def _table(data: Any, kind: RowKind) -> Any:
    for name in kind.table.split("."):
        data = None if data is None else getattr(data, name)
    return data


def _problem_row(command: str, problem: Problem) -> ProblemRow:
    return ProblemRow(problem.kind, problem.address, problem.message, problem.corruption, command=command)


# ---- rows ----


def _rows(source: Source, answers: Answers, page: Triage) -> Rows:
    identity = answers.identity
    causes = list(find_causes(identity, page.died, page.findings, Known(answers.functions.get, answers.leaked)))
    first = causes[0] if causes else None
    row = replace(
        _core_row(source),
        program=None if identity.exe is None else os.path.basename(identity.exe),
        exe=identity.exe,
        build_id=identity.build_id,
        pid=identity.pid,
        threads=answers.threads,
        status=_status(answers),
        died=None if page.died is None else page.died.summary,
        signal=None if page.died is None else page.died.signal,
        signature=None if first is None else first.signature,
        cause=None if first is None else first.cause,
        debugger=answers.debugger,
    )
    made: Dict[str, Sequence[Any]] = {
        **answers.rows,
        "cores": [row],
        "answers": answers.answers,
        "findings": [_finding_row(number, finding) for number, finding in enumerate(page.findings)],
        "causes": causes,
        "problems": answers.problems,
    }
    return {name: _cells(name, rows) for name, rows in made.items() if rows}


def _status(answers: Answers) -> int:
    """Return the page's status where there are findings; else whether all commands have examined all."""
    if answers.answers[0].status == Status.FINDINGS:
        return Status.FINDINGS
    return Status.CLEAN if all(row.complete for row in answers.answers) else Status.PARTIAL


def _finding_row(number: int, finding: Finding) -> FindingRow:
    return FindingRow(**{one.name: getattr(finding, one.name) for one in fields(finding)}, number=number)


def _cells(name: str, rows: Sequence[Any]) -> List[List[Any]]:
    columns = [(column, cell_of(kind)) for column, kind in _COLUMNS[name]]
    return [[cell(getattr(row, column)) for column, cell in columns] for row in rows]


_COLUMNS: Mapping[str, Sequence[Tuple[str, Any]]] = {kind.name: kind.columns[1:] for kind in KINDS}
