"""Everything that is wrong with a heap, in one list."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List

from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.report import Problem


def check_heap(heap: GlibcHeap) -> List[Problem]:
    """Return all problems of a heap, in the order of its parts."""
    problems = list(heap.location.problems)
    for view in heap.arenas:
        problems += view.problems
        for walked in view.walked:
            problems += (_excused(one) if view.head.in_flux else one for one in walked.problems)
        for free_list in view.lists:
            problems += free_list.problems
        if heap.complete:
            problems += _check_sum(view)
    problems += heap.problems
    problems += heap.mmapped.problems
    return problems


# What a thread that splits top or frees a chunk leaves for a moment. Sizes that cannot be are not among
# them: malloc aborts on damage with the arena still locked.
_PASSING = ("prev-size", "top-header")


def _excused(problem: Problem) -> Problem:
    if problem.kind not in _PASSING:
        return problem
    return replace(problem, corruption=False, message=f"{problem.message}; its arena is in flux")


def _check_sum(view: ArenaView) -> Iterator[Problem]:
    """What was walked, piece by piece, against what the arena says it took from the system."""
    met = view.walked_bytes + view.skipped_bytes
    if met == view.head.system_mem:
        return
    why = "; the arena is in flux" if view.head.in_flux else ""
    message = f"walked {met} bytes, system_mem is {view.head.system_mem}{why}"
    yield Problem("system-mem", view.head.address, message)
