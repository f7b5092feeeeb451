"""What every answer about reachability says beside its data."""

from __future__ import annotations

from typing import Sequence

from gdbext.analysis.reach.graph import Reach
from gdbext.heap.told import evidence_of, problems_of
from gdbext.report import Evidence, Problem, Report


def report_on_reach(
    reach: Reach,
    data: object,
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
    evidence: Sequence[Evidence] = (),
) -> Report:
    """Return a report with all that is to be said about how heaps and roots were read.

    It is incomplete where anything is missing that could point at a block, or something was stopped. Damage is told,
    and leaves it complete.

    :param problems: besides those of the heaps and of the search.
    :param evidence: likewise.
    """
    every = [*problems_of(reach.heaps, brief=True), *reach.marked.problems, *problems]
    stopped = any(problem.kind == "interrupted" for problem in problems)
    return Report(data, [*evidence_of(reach.heaps), *evidence], every, reach.whole and not stopped, notes)
