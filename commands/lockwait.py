"""``lockwait``: which thread waits for what, held by whom, and what the holder is doing."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from typing import Any, Iterable, Iterator

from gdbext.analysis.locks.findings import check_locks, find_lock_findings
from gdbext.analysis.locks.knowledge import read_knowledge
from gdbext.analysis.locks.report import Knowledge, lockwait_report
from gdbext.analysis.locks.stackgroups import fold, group_stacks
from gdbext.analysis.locks.waitchanges import check_program, compare, read_earlier
from gdbext.analysis.locks.waitdot import dot_lines
from gdbext.analysis.tables.counts import walk_structure
from gdbext.analysis.tables.search import Looked
from gdbext.debuginfo import Stacks
from gdbext.errors import UsageError
from gdbext.files import replacing
from gdbext.grammar.arguments import refuse_input
from gdbext.report import Report
from gdbext.structures.locks.census import take_census
from gdbext.structures.locks.model import Census
from gdbext.structures.shapes.overrides import Overrides
from gdbext.structures.shapes.resolve import open_located

_DRAWING = 60  # seconds that graphviz may take


def examine(session: Any, arguments: Any) -> Report:
    """Return the census of the threads and their locks."""
    earlier = arguments.value("compare")
    _refuse_inputs(session, arguments)
    before = None if earlier is None else read_earlier(os.path.expanduser(earlier))
    if before is not None:
        check_program(before, session.target.identity)
    more = list(_named_tables(session, arguments))
    stacks = session.stacks
    census = take_census(session.target, stacks, session.progress)
    known = read_knowledge(session, census, stacks, more=more, heap=arguments.flag("heap"))
    _write_files(arguments, census, known, stacks)
    if arguments.flag("stacks"):
        return group_stacks(census, stacks)
    findings = find_lock_findings(census, known, session.settings)
    report = lockwait_report(census, known, findings, check_locks(census, known.name_of))
    if before is None:
        return report
    return dataclasses.replace(report, data=compare(before, report.data, session.target.identity.time))


def _refuse_inputs(session: Any, arguments: Any) -> None:
    for name in ("dot", "flame"):
        path = os.path.expanduser(arguments.value(name) or "")
        if path:
            refuse_input(f"--{name}", path, session.target.identity.core, "core")
            refuse_input(f"--{name}", path, session.target.identity.exe, "executable")


def _named_tables(session: Any, arguments: Any) -> Iterator[Looked]:
    """Iterate over the lists and tables that the user has named."""
    overrides = Overrides(shape=arguments.value("shape"))
    for expression in arguments.value("in") or ():
        located = session.locate(expression)
        opened = open_located(session.target, session.types, session.shapes, located, overrides)
        yield Looked(expression, opened, walk_structure(session.target, opened.structure, None, session.progress))


def _write_files(arguments: Any, census: Census, known: Knowledge, stacks: Stacks) -> None:
    if arguments.value("dot") is not None:
        _draw(arguments.value("dot"), dot_lines(census, known))
    if arguments.value("flame") is not None:
        _write(arguments.value("flame"), fold(census, stacks))


def _draw(path: str, lines: Iterable[str]) -> None:
    """Write a graph; where the file's name ends in .svg, its picture.

    :raises UsageError: when it cannot be written, or drawn.
    """
    if not path.lower().endswith(".svg"):
        _write(path, lines)
        return
    program = shutil.which("dot")
    if program is None:
        hint = "install graphviz, or name a file that ends in .dot for the graph as text"
        raise UsageError(f"cannot draw {path}: there is no program dot here", hint)
    try:
        made = subprocess.run(
            [program, "-Tsvg"], input="".join(lines), capture_output=True, encoding="utf-8", timeout=_DRAWING
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"cannot draw {path}: {error}", "name a file that ends in .dot") from None
    if made.returncode:
        reason = (made.stderr.strip().splitlines() or [f"dot ended with {made.returncode}"])[-1]
        raise UsageError(f"cannot draw {path}: {reason}", "name a file that ends in .dot")
    _write(path, [made.stdout])


def _write(path: str, pieces: Iterable[str]) -> None:
    try:
        with replacing(os.path.expanduser(path)) as stream:
            stream.writelines(map(str.encode, pieces))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from None
