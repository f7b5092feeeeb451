"""``triage``: the findings and the ledger on one page."""

from __future__ import annotations

from typing import Any

from gdbext.analysis import triage
from gdbext.analysis.residency import residency_of
from gdbext.report import Evidence, Report


def examine(context: Any, arguments: Any) -> Report:
    """Return what is wrong with the target's memory, and where it is."""
    known = residency_of(context.target, context.progress)  # before the heaps: reading brings pages in
    heaps = context.heaps()
    beyond = triage.joined(look_at_tables(context), look_at_locks(context))
    return triage.triage(context.target, heaps, context.settings, known, beyond)


def look_at_locks(context: Any) -> triage.Beyond:
    """Return what is wrong with the locks that threads wait for."""
    from gdbext.analysis.lockfindings import find_lock_findings
    from gdbext.bridge.lockplaces import read_knowledge
    from gdbext.bridge.stacks import GdbStacks
    from gdbext.structures.locks.census import take_census

    stacks = GdbStacks()
    try:
        census = take_census(context.target, stacks, context.progress)
        known = read_knowledge(context, census, stacks)
    except KeyboardInterrupt:
        return triage.Beyond(complete=False)
    return triage.Beyond(find_lock_findings(census, known, context.settings))


def look_at_tables(context: Any) -> triage.Beyond:
    """Return what is wrong with the hash tables that the program's variables lead to."""
    from gdbext.analysis import tablesearch

    seconds = context.settings.get(tablesearch.SETTING, 0)
    if not seconds:
        return triage.NOTHING
    shapes = tablesearch.table_shapes(context.shapes)
    if not tablesearch.may_have_tables(context.types, shapes):
        return triage.NOTHING
    try:
        discovery = context.find_variables(tablesearch.matcher(shapes), tablesearch.MOST, seconds)
        variables = list(discovery)
    except KeyboardInterrupt:
        return triage.Beyond(complete=False)
    found = tablesearch.search(
        context.target, context.types, context.shapes, variables, context.settings, context.progress
    )
    if discovery.complete:
        return found
    text = f"not every variable was looked at in {seconds} s; set gx {tablesearch.SETTING} N gives it more"
    return triage.Beyond(found.findings, [*found.evidence, Evidence("tables", text)], found.complete)
