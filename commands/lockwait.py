"""``lockwait``: which thread waits for what, held by whom, and what the holder is doing."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.lockfindings import check_locks, find_lock_findings
from gdbext.analysis.lockwait import Knowledge, lockwait_report
from gdbext.bridge.stacks import GdbStacks
from gdbext.report import Report
from gdbext.structures.locks.census import take_census


def examine(context: Any, arguments: Any) -> Report:
    """Return the census of the threads and their locks."""
    target, stacks = context.target, GdbStacks()
    census = take_census(target, stacks, context.progress)
    known = Knowledge(target.symbols.find_name)
    findings = find_lock_findings(census, known, context.settings)
    return lockwait_report(census, known, findings, check_locks(census))
