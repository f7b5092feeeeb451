"""``triage``: the findings and the ledger on one page."""

from __future__ import annotations

from typing import Any

from gdbext.analysis import triage
from gdbext.analysis.lockfindings import find_lock_findings
from gdbext.analysis.residency import residency_of
from gdbext.analysis.tablesearch import Looked
from gdbext.bridge.lockplaces import read_knowledge, wants_tables
from gdbext.bridge.tables import judge_tables
from gdbext.report import Report
from gdbext.structures.locks.census import take_census


def examine(context: Any, arguments: Any) -> Report:
    """Return what is wrong with the target's memory, and where it is."""
    known = residency_of(context.target, context.progress)  # before the heaps: reading brings pages in
    heaps = context.heaps()
    return triage.triage(context.target, heaps, context.settings, known, look_beyond(context))


def look_beyond(context: Any) -> triage.Beyond:
    """Return what is wrong with locks, and with the hash tables that the program's variables lead to."""
    stacks = context.stacks
    try:
        census = take_census(context.target, stacks, context.progress)
    except KeyboardInterrupt:
        return triage.Beyond(complete=False)
    # The holders of locks are looked for in these tables, so each is walked once.
    kept: "list[Looked]" = []
    tables = judge_tables(context, kept.append if wants_tables(context, census) else _forget)
    known = read_knowledge(context, census, stacks, tables=kept)
    locks = triage.Beyond(find_lock_findings(census, known, context.settings))
    return triage.joined(tables, locks)


def _forget(looked: Looked) -> None:
    """Let go of a table: the walks of all may be large."""
