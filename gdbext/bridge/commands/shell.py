"""The shell program's question: one report gives the text or the JSON, and the exit status.

A process is stopped as late as can be, when gdb has its symbols and Python its modules, and goes on before anything is
printed: the rows of tables are made while it stands still, up to :data:`KEPT` of each. Only a longer table whose rows
read memory keeps it until they are written.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
from typing import Any, Iterable, Optional, TextIO, Union

from gdbext.bridge.commands.command import attempt, find_function, make_report, working, write_beside
from gdbext.bridge.commands.context import Context
from gdbext.bridge.stops.holding import Held, Hold
from gdbext.errors import GdbextError, UsageError
from gdbext.grammar import catalogue
from gdbext.grammar.arguments import Arguments
from gdbext.grammar.exchange import Question, answer_path, open_answer, read_question, write_trailer
from gdbext.render import printing
from gdbext.report import Report, Rows, rendered, rows_of
from gdbext.starting import dependencies
from gdbext.starting.descriptors import leave
from gdbext.starting.failures import put
from gdbext.starting.parent import end_with_parent

KEPT = 10_000  # rows of each table
_COLLECTED = 10_000  # objects more than before; by Python's own 700 a twentieth of a short command is for garbage

# Imported when something is found that needs them: not while a process stands still for it.
_LATE = (
    "bridge.ports.processes",
    "analysis.leaks.findings",
    "analysis.tables.skew",
    "heap.jemalloc.find.structural",
    "heap.jemalloc.read.build",
    "heap.jemalloc.check.check",
    "heap.jemalloc.report.explain",
    "heap.jemalloc.report.findings",
    "render",
    "render.textual",
    "render.envelope",
)


def answer(folder: str) -> None:
    """Answer the question of a folder. The trailer comes last, so that it ends nothing that is cut short."""
    end_with_parent(signal.SIGKILL)  # where a script that wraps gdb is between the program and us
    gc.set_threshold(_COLLECTED)
    question = read_question(folder)
    with open_answer(folder, question) as stream:
        shell = _Shell(question, stream)
        fault = shell.run()
    if fault is not None:
        with open_answer(folder, question) as stream:
            stream.write(printing.error_text(question, shell.context.known_target, fault))
    write_trailer(folder, printing.make_trailer(shell.report, fault, os.path.getsize(answer_path(folder))))
    if question.pid is None:
        leave(0)  # a process that gdb holds is let go of by gdb itself


class _Shell:
    def __init__(self, question: Question, stream: TextIO) -> None:
        self.question = question
        self.stream = stream
        self.hold: Union[Hold, Held] = Hold(question.pid) if question.copied is None else Held(question.copied)
        self.context = Context()
        self.report: Optional[Report] = None

    def run(self) -> Optional[GdbextError]:
        """Write the answer; return why there is none."""
        fault = attempt(self.context, self._answer)
        return attempt(self.context, self._end) or fault

    def _end(self) -> None:
        self.hold.let_go()
        put(self.stream.close)

    def _put(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            put(self.stream.write, piece)

    def _answer(self) -> None:
        question = self.question
        spec = catalogue.find_command(question.command)
        if spec is None:
            raise UsageError(f"there is no command {question.command}")
        known = {option.name: option for option in spec.all_options}
        arguments = Arguments(known, question.options, question.expression, question.words)
        _prepare(spec, self.hold.pid is not None)
        self.hold.attach()
        with working(spec, self.context):
            self.context.session.core = question.core
            self.context.session.copy_of = question.pid if question.copied is not None else None
            self._write(spec, arguments, make_report(spec, arguments, self.context))

    def _write(self, spec: Any, arguments: Arguments, report: Report) -> None:
        stop = printing.Stop()
        limit = printing.find_limit(self.question, spec, arguments, report)
        wanted = [_keep(rows, limit) for rows in rows_of(report.data) if self.hold.pid is not None]
        signal.signal(signal.SIGINT, stop.note)
        stop.heed(report)
        if not any(wanted):
            self.hold.let_go()
        self.context.progress.clear()
        if self.question.json:
            self._write_json(spec, arguments, report)
        else:
            self._write_text(arguments, report, limit)
        self.report = rendered(report)

    def _write_json(self, spec: Any, arguments: Arguments, report: Report) -> None:
        self._put(printing.json_pieces(spec, arguments, report, self.context.known_target, self.hold.let_go))

    def _write_text(self, arguments: Arguments, report: Report, limit: Optional[int]) -> None:
        self._put(printing.text_pieces(self.question, arguments, report, limit))
        held = self.hold.let_go()
        if report.bare:
            from gdbext import render

            write_beside("".join(render.remarks(report, self.question.width)))
        elif held is not None:
            self._put([f"\nThe process was stopped for {held:.3f} s.\n"])


def _keep(rows: Rows[Any], limit: Optional[int]) -> bool:
    """Make rows now that read the target; return whether others may have to be made while it is stopped.

    :param limit: how many are printed at most, None for all.
    """
    reading = [number for number in (rows.reads, None if limit is None else limit + 1) if number is not None]
    needed = min(reading, default=KEPT + 1)
    if not needed:
        return False
    return rows.keep(min(needed, KEPT)) and needed > KEPT


def _prepare(spec: Any, live: bool) -> None:
    """Load what a command needs, all of it before a process is stopped for it."""
    dependencies.load(*dependencies.NEEDED[: None if live else 2])
    find_function(spec.run)
    for module in _LATE if live else ():
        importlib.import_module(f"gdbext.{module}")
