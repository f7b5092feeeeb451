"""``jemalloc arenas|bins|extents|large|tcache|decay|check``: the jemalloc heap, part by part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

from gdbext.analysis.page import ranked
from gdbext.analysis.thresholds import thresholds
from gdbext.errors import UsageError
from gdbext.heap.jemalloc.report.arenas import arenas as report_arenas
from gdbext.heap.jemalloc.report.bins import bins as report_bins
from gdbext.heap.jemalloc.report.check import check as report_check
from gdbext.heap.jemalloc.report.decay import decay as report_decay
from gdbext.heap.jemalloc.report.extents import extents as report_extents
from gdbext.heap.jemalloc.report.extents import states_named
from gdbext.heap.jemalloc.report.large import large as report_large
from gdbext.heap.jemalloc.report.tcache import tcache as report_tcache
from gdbext.heap.reading import problems_of
from gdbext.report import Finding, Report


def arenas(session: Any, arguments: Any) -> Report:
    """Return every arena with exact sums."""
    return _with_unread(session, arguments, report_arenas(_heaps(session, arguments)))


def bins(session: Any, arguments: Any) -> Report:
    """Return the small size classes, of all arenas or of one."""
    heaps = _heaps(session, arguments)
    arena = session.evaluate(arguments.expression) if arguments.expression else None
    return _with_unread(session, arguments, report_bins(heaps, arena))


def extents(session: Any, arguments: Any) -> Report:
    """Return the extents that pass the filters."""
    states = arguments.value("state")
    chosen = None if states is None else states_named(states)
    report = report_extents(_heaps(session, arguments), chosen, arguments.value("arena"))
    return _with_unread(session, arguments, report)


def large(session: Any, arguments: Any) -> Report:
    """Return the large allocations."""
    return _with_unread(session, arguments, report_large(_heaps(session, arguments)))


def tcache(session: Any, arguments: Any) -> Report:
    """Return every thread's cache, or one."""
    number = arguments.value("thread")
    if number is not None and session.target.find_thread(number) is None:
        raise UsageError(f"no thread {number}", "`info threads` lists them")
    return _with_unread(session, arguments, report_tcache(_heaps(session, arguments), number))


def decay(session: Any, arguments: Any) -> Report:
    """Return how unused pages decay, and what is wrong with that."""
    heaps = _heaps(session, arguments)
    floor = thresholds(session.settings, session.target).floor
    findings = ranked([one for heap in heaps for one in heap.findings if _is_told(one, floor)])
    return _with_unread(session, arguments, report_decay(heaps, findings))


def _is_told(finding: Finding, floor: int) -> bool:
    """Whether a finding is about decay; only the floor counts for who asks about nothing else."""
    return finding.kind.startswith("decay-") and (finding.bytes is None or finding.bytes >= floor)


def check(session: Any, arguments: Any) -> Report:
    """Return every violated invariant."""
    return _with_unread(session, arguments, report_check(_heaps(session, arguments)))


def _heaps(session: Any, arguments: Any) -> Sequence[Any]:
    """Return the jemallocs that are asked for."""
    heaps: Sequence[Any] = session.heaps_of("jemalloc", arguments.value("heap"))
    return heaps


def _with_unread(session: Any, arguments: Any, report: Report) -> Report:
    """Return a report with the problems of jemallocs that are there and could not be read, unless one was named."""
    unread = [] if arguments.value("heap") else session.unread("jemalloc")
    if not unread:
        return report
    return replace(report, problems=[*report.problems, *problems_of(unread)], complete=False)
