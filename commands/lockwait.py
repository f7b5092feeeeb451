"""``lockwait``: which thread waits for what, held by whom, and what the holder is doing."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Iterable

from gdbext.analysis.lockfindings import check_locks, find_lock_findings
from gdbext.analysis.lockwait import Knowledge, lockwait_report
from gdbext.analysis.stackgroups import fold, group_stacks
from gdbext.analysis.waitchanges import compare, read_earlier
from gdbext.analysis.waitdot import dot_lines
from gdbext.bridge.lockplaces import read_knowledge
from gdbext.bridge.stacks import GdbStacks
from gdbext.errors import UsageError
from gdbext.report import Report
from gdbext.structures.locks.census import take_census
from gdbext.structures.locks.model import Census


def examine(context: Any, arguments: Any) -> Report:
    """Return the census of the threads and their locks."""
    earlier = arguments.value("compare")
    before = None if earlier is None else read_earlier(os.path.expanduser(earlier))
    stacks = GdbStacks()
    census = take_census(context.target, stacks, context.progress)
    known = read_knowledge(context, census, stacks)
    _write_files(arguments, census, known, stacks)
    if arguments.flag("stacks"):
        return group_stacks(census, stacks)
    findings = find_lock_findings(census, known, context.settings)
    report = lockwait_report(census, known, findings, check_locks(census))
    if before is None:
        return report
    return dataclasses.replace(report, data=compare(before, report.data))


def _write_files(arguments: Any, census: Census, known: Knowledge, stacks: GdbStacks) -> None:
    if arguments.value("dot") is not None:
        _write(arguments.value("dot"), dot_lines(census, known))
    if arguments.value("flame") is not None:
        _write(arguments.value("flame"), fold(census, stacks))


def _write(path: str, pieces: Iterable[str]) -> None:
    try:
        with open(os.path.expanduser(path), "w", encoding="utf-8") as stream:
            stream.writelines(pieces)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from None
