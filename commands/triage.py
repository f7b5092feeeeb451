"""``triage``: the findings and the ledger on one page."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from gdbext.analysis import triage
from gdbext.analysis.crash.death import Death, find_death
from gdbext.analysis.footprint.residency import residency_of
from gdbext.analysis.footprint.unattributed import find_unattributed
from gdbext.analysis.leaks import search
from gdbext.analysis.locks.findings import find_lock_findings, find_notable_waits
from gdbext.analysis.missing import Unexamined
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import PLAIN
from gdbext.analysis.tables.search import Looked
from gdbext.analysis.thresholds import thresholds
from gdbext.bridge.commands.lockplaces import read_knowledge, wants_tables
from gdbext.bridge.commands.tables import judge_tables
from gdbext.heap.model import Heap
from gdbext.report import Report
from gdbext.structures.locks.census import take_census


def examine(context: Any, arguments: Any) -> Report:
    """Return what is wrong with the target's memory, and where it is."""
    known = residency_of(context.target)
    heaps = context.heaps()
    leaks = look_for_leaks(context, heaps, arguments.flag("leaks"))
    limits = thresholds(context.settings, context.target)
    rest = find_unattributed(context.target, heaps, limits, known.residency)
    beyond = triage.joined(look_beyond(context), leaks, rest)
    return triage.triage(context.target, heaps, context.settings, known, beyond, look_at_death(context, heaps))


def look_at_death(context: Any, heaps: Sequence[Heap]) -> Optional[Death]:
    """Return why the process of a crash core died, or None."""
    return find_death(context.target, heaps, context.stacks)


def look_for_leaks(context: Any, heaps: Sequence[Heap], asked: bool) -> triage.Beyond:
    """Return what leaked, where it is worth a finding.

    :param asked: whether the user wants it in any case.
    """
    ports = search.Ports(
        lambda progress, most: context.session.reach(PLAIN, progress, most),
        lambda reading, progress: read_reach(context.target, heaps, reading, progress),
        lambda reach, progress: context.session.leaked_types(reach, progress),
    )
    return search.search(context.target, heaps, context.settings, ports, context.progress, asked)


def look_beyond(context: Any) -> triage.Beyond:
    """Return what is wrong with locks, and with the hash tables that the program's variables lead to."""
    stacks = context.stacks
    try:
        census = take_census(context.target, stacks, context.progress)
    except KeyboardInterrupt:
        return triage.Beyond(unexamined=[Unexamined("locks and hash tables", "interrupted", "lockwait")])
    # The holders of locks are looked for in these tables, so each is walked once.
    kept: "list[Looked]" = []
    tables = judge_tables(context, kept.append if wants_tables(context, census) else _forget)
    known = read_knowledge(context, census, stacks, tables=kept)
    found = find_lock_findings(census, known, context.settings)
    locks = triage.Beyond(found, waits=find_notable_waits(known, context.settings))
    return triage.joined(tables, locks)


def _forget(looked: Looked) -> None:
    """Let go of a table: the walks of all may be large."""
