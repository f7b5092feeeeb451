"""What is wrong with a mimalloc; figures that a thread inside of it may have been changing are no damage."""

from __future__ import annotations

from typing import Collection, List

from gdbext.heap.freelists import COUNTED
from gdbext.heap.inside import say_inside
from gdbext.heap.mimalloc.model import Mimalloc
from gdbext.heap.reading import bounded
from gdbext.report import Problem


def check_heap(heap: Mimalloc) -> List[Problem]:
    """Return the problems; pages whose lists and count differ are one where a thread is inside."""
    fresh = heap.fresh if len(heap.fresh) <= len(heap.target.threads) else ()  # each hands out one block at a time
    figures = [one for one in heap.problems if _may_move(one, fresh)]
    modules = heap.target.modules if figures else ()
    named = (module for module in modules if "mimalloc" in module.path)
    reason = next((text for module in named if (text := say_inside(heap.target, module, "mimalloc"))), "")
    if not reason:
        return list(bounded(heap.problems))
    message = (
        f"mimalloc was stopped in the middle of its work ({reason}): what does not agree for that reason is no damage; "
        f"the first of {len(figures)}: {figures[0].message}"
    )
    others = (one for one in heap.problems if not _may_move(one, fresh))
    return [*bounded(others), Problem("in-flux", None, message)]


def _may_move(problem: Problem, fresh: Collection[int]) -> bool:
    return problem.kind == COUNTED or (problem.kind == "overrun" and problem.address in fresh)
