"""Everything that is wrong with a heap, in one list."""

from __future__ import annotations

from typing import Iterator, List

from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.report import Problem


def check_heap(heap: GlibcHeap) -> List[Problem]:
    """Return all problems of a heap, in the order of its parts."""
    problems = list(heap.location.problems)
    for view in heap.arenas:
        problems += view.problems
        for walked in view.walked:
            problems += walked.problems
        for free_list in view.lists:
            problems += free_list.problems
        if heap.complete:
            problems += _check_sum(view)
    problems += heap.problems
    problems += heap.mmapped.problems
    return problems


def _check_sum(view: ArenaView) -> Iterator[Problem]:
    """What was walked, piece by piece, against what the arena says it took from the system."""
    met = view.walked_bytes + view.skipped_bytes
    if met == view.head.system_mem:
        return
    why = "; the arena is in flux" if view.head.in_flux else ""
    message = f"walked {met} bytes, system_mem is {view.head.system_mem}{why}"
    yield Problem("system-mem", view.head.address, message)
