"""``report``: everything about one target as a page with pictures, in one file to attach to a ticket."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, List, Optional, Sequence

from gdbext.commands.compare import compare
from gdbext.commands.drawing import find_output, write
from gdbext.commands.reachability import find_types

from gdbext.analysis.blocks import summary
from gdbext.analysis.leaks import report as leaks
from gdbext.analysis.leaks.examples import leak_examples
from gdbext.analysis.locks.findings import check_locks, find_lock_findings
from gdbext.analysis.locks.report import LockWaits, lockwait_report
from gdbext.analysis.locks.stackgroups import StackGroups, group_stacks
from gdbext.analysis.map.cells import AddressMap, draw, map_all, map_heaps
from gdbext.analysis.missing import with_target
from gdbext.analysis.overview import (
    Gathering,
    NamedTable,
    Overview,
    completed,
    cost_rows,
    grown,
    only_grown,
    share_rows,
)
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.retained import Retained, find_keepers, retained, sum_up
from gdbext.analysis.pins.retainedtree import TreeRow, retained_tree
from gdbext.analysis.reach.model import PLAIN
from gdbext.analysis.tables.search import Looked
from gdbext.analysis.tables.skew import examine as examine_bins
from gdbext.analysis.tables.skew import skew_report
from gdbext.analysis.triage import Seen, triage
from gdbext.grammar.arguments import refuse_input
from gdbext.grammar.exchange import SAMPLES
from gdbext.report import Report
from gdbext.starting import dependencies
from gdbext.wording import size_text

_TOP = 50  # roots, blocks and types
_CELLS = 6000  # of the heaps; half as many of all that is mapped
_ROWS = 200  # of a table in the page
_NO_FILE = "-o FILE.html writes the page, --json all that it is made of"


def examine(session: Any, arguments: Any) -> Report:
    """Return everything that the page shows; with ``--output`` the page is written, too.

    Of several targets the program asks for one after the other: see :func:`gdbext.commands.compare.compare`.
    """
    output = _find_output(session, arguments)
    if output is not None:
        dependencies.load(*dependencies.DRAWING)  # before there is any work for it
    if "keep" in arguments.given:
        return compare(session, arguments)
    report = _answer(session, arguments)
    if output is None:
        return replace(report, notes=[_NO_FILE])
    from gdbext.render.page import page

    target = session.known_target
    report = report if target is None else with_target(report, target)
    how = page.How(arguments.flag("redact"), arguments.flag("with-contents"), arguments.value("limit") or _ROWS)
    written = write(output, [page.page(report, target, how)])
    return replace(report, data=replace(report.data, file=f"{output}, {size_text(written)}"))


def _find_output(session: Any, arguments: Any) -> Optional[str]:
    """Return the file for the page, or None.

    :raises UsageError: it is one of those that are examined.
    """
    output = os.path.expanduser(arguments.value("output") or "")
    for name in map(os.path.expanduser, _earlier(arguments)):
        refuse_input("--output", output, name, "core")
        refuse_input("--output", output, os.path.join(name, SAMPLES), "recording")
    if arguments.given.get("sampled"):  # there is no target
        return output or None
    return find_output(session, arguments, "output")


def _earlier(arguments: Any) -> Sequence[str]:
    found: Sequence[str] = arguments.given.get("earlier") or arguments.words
    return found


def _answer(session: Any, arguments: Any) -> Report:
    if not _earlier(arguments):
        return _Gatherer(session).gather()
    growth = compare(session, arguments)
    return only_grown(growth) if arguments.given.get("sampled") else grown(_Gatherer(session).gather(), growth)


class _Gatherer:
    """Asks what several commands ask, and makes one report of their answers."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._gathered = Gathering()

    def gather(self) -> Report:
        """Return the report on everything."""
        session, take, find = self._session, self._gathered.take, self._gathered.find
        tables: List[NamedTable] = []
        seen = Seen(lambda looked: tables.append(self._table(looked)))
        report = triage(session, seen=seen)
        page = take(report)
        self._gathered.notes += report.notes
        heaps = session.heaps()
        data = Overview(
            target=page.target,
            verdict=page.verdict,
            death=page.death,
            triage=page,
            memory=list(cost_rows(page)),
            shares=share_rows(page),
            address_space=find(lambda: draw(session.target, heaps, map_all(session.target), _CELLS // 2)),
            heap_map=find(self._heap_map),
            summary=find(lambda: take(summary.summary(heaps))),
            locks=self._locks(seen),
            stacks=self._stacks(seen),
            tables=tables,
        )
        return completed(report, self._gathered, find(lambda: self._with_reach(data)) or data)

    def _heap_map(self) -> Optional[AddressMap]:
        heaps = self._session.heaps()
        wanted = map_heaps(heaps)
        return draw(self._session.target, heaps, wanted, _CELLS) if wanted else None

    def _table(self, looked: Looked) -> NamedTable:
        session = self._session
        examined = examine_bins(session.target, looked.opened.structure, looked.walked, session.settings)
        return NamedTable(looked.name, skew_report(looked.opened, examined).data)

    def _locks(self, seen: Seen) -> Optional[LockWaits]:
        census, known = seen.census, seen.known
        if census is None or known is None:
            return None
        findings = find_lock_findings(census, known, self._session.settings)
        waits: LockWaits = self._gathered.take(
            lockwait_report(census, known, findings, check_locks(census, known.name_of))
        )
        return waits

    def _stacks(self, seen: Seen) -> Optional[StackGroups]:
        if seen.census is None:
            return None
        groups: StackGroups = group_stacks(seen.census, self._session.stacks).data
        return groups

    def _with_reach(self, data: Overview) -> Overview:
        """Return the same with what reachability says.

        :raises NoHeapError: there is no heap.
        """
        session, take = self._session, self._gathered.take
        reach = session.reach(PLAIN)
        keepers = find_keepers(reach, session.root_names)
        types, problems = find_types(session, reach)
        if any(problem.kind == "interrupted" for problem in problems):
            types = None
        places = Places(reach, session.root_names, lambda: types)
        kept = sum_up(reach, keepers)
        held: Retained = take(retained(reach, kept, places, _TOP, problems))
        tree: List[TreeRow] = list(retained_tree(reach, kept, types))
        leaked = take(leaks.leaks(reach, types))
        examples = list(leak_examples(reach, places, types))
        return replace(data, retained=held, retained_tree=tree, leaks=leaked, leak_examples=examples)
