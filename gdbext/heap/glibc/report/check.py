"""Everything that is wrong with a heap, in one list."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Optional

from gdbext.heap.glibc.report.passing import Found, excused
from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.report import Problem

_UNKNOWN = (
    "whether the only thread was inside malloc, where it locks no arena, is not known, as libc's symbols are not there:"
    " what is listed as damage may be what malloc leaves for a moment"
)


def check_heap(heap: GlibcHeap) -> List[Problem]:
    """Return all problems of a heap, in the order of its parts."""
    problems = list(excused(heap, list(_for_each_found(heap))))
    if heap.underway.alone is None and any(problem.corruption for problem in problems):
        problems.append(Problem("malloc-unknown", None, _UNKNOWN))
    return problems


def _for_each_found(heap: GlibcHeap) -> Iterator[Found]:
    yield from _placed(None, heap.location.problems)
    for view in heap.arenas:
        yield from _placed(None, view.problems)
        for walked in view.walked:
            yield from _placed(view, walked.problems)
        for free_list in view.lists:
            yield from _placed(view, free_list.problems)
        if heap.complete:
            yield from _placed(view, _check_sum(view))
    yield from _placed(None, [*heap.problems, *heap.mmapped.problems])


def _placed(view: Optional[ArenaView], problems: Iterable[Problem]) -> Iterator[Found]:
    return ((view, problem) for problem in problems)


def _check_sum(view: ArenaView) -> Iterator[Problem]:
    """What was walked, piece by piece, against what the arena says it took from the system."""
    met = view.met_bytes
    if met == view.head.system_mem:
        return
    why = "; the arena is in flux" if view.head.in_flux else ""
    message = f"walked {met} bytes, system_mem is {view.head.system_mem}{why}"
    yield Problem("system-mem", view.head.address, message)
