"""``lockwait``: which thread waits for what, held by whom, and what the holder is doing."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Iterator

from gdbext.commands.drawing import draw, find_output, write

from gdbext.analysis.locks.findings import check_locks, find_lock_findings
from gdbext.analysis.locks.knowledge import read_knowledge, with_python
from gdbext.analysis.locks.report import Knowledge, lockwait_report
from gdbext.analysis.locks.stackgroups import fold, group_stacks
from gdbext.analysis.locks.waitchanges import check_program, compare, read_earlier
from gdbext.analysis.locks.waitdot import dot_lines
from gdbext.analysis.tables.counts import walk_structure
from gdbext.analysis.tables.search import Looked
from gdbext.debuginfo import Stacks
from gdbext.report import Report
from gdbext.structures.locks.census import take_census
from gdbext.structures.locks.model import Census
from gdbext.structures.shapes.overrides import Overrides
from gdbext.structures.shapes.resolve import open_located


def examine(session: Any, arguments: Any) -> Report:
    """Return the census of the threads and their locks."""
    earlier = arguments.value("compare")
    for name in ("dot", "flame"):
        find_output(session, arguments, name)
    before = None if earlier is None else read_earlier(os.path.expanduser(earlier))
    if before is not None:
        check_program(before, session.target.identity)
    more = list(_named_tables(session, arguments))
    stacks = session.stacks
    census = take_census(session.target, stacks, session.progress)
    known = read_knowledge(session, census, stacks, more=more, heap=arguments.flag("heap"))
    known = with_python(known, session.target, census)
    _write_files(session, arguments, census, known, stacks)
    if arguments.flag("stacks"):
        return group_stacks(census, stacks)
    findings = find_lock_findings(census, known, session.settings)
    report = lockwait_report(census, known, findings, check_locks(census, known.name_of))
    if before is None:
        return report
    return dataclasses.replace(report, data=compare(before, report.data, session.target.identity.time))


def _named_tables(session: Any, arguments: Any) -> Iterator[Looked]:
    """Iterate over the lists and tables that the user has named."""
    overrides = Overrides(shape=arguments.value("shape"))
    for expression in arguments.value("in") or ():
        located = session.locate(expression)
        opened = open_located(session.target, session.types, session.shapes, located, overrides)
        yield Looked(expression, opened, walk_structure(session.target, opened.structure, None, session.progress))


def _write_files(session: Any, arguments: Any, census: Census, known: Knowledge, stacks: Stacks) -> None:
    dot, flame = (find_output(session, arguments, name) for name in ("dot", "flame"))
    if dot is not None:
        draw(dot, dot_lines(census, known))
    if flame is not None:
        write(flame, fold(census, stacks))
