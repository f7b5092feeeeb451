"""What is wrong with a mimalloc; figures that a thread inside of it may have been changing are no damage."""

from __future__ import annotations

from typing import List

from gdbext.heap.freelists import COUNTED
from gdbext.heap.inside import say_inside
from gdbext.heap.mimalloc.model import Mimalloc
from gdbext.heap.reading import bounded
from gdbext.report import Problem


def check_heap(heap: Mimalloc) -> List[Problem]:
    """Return the problems; pages whose lists and count differ are one where a thread is inside."""
    figures = [one for one in heap.problems if one.kind == COUNTED]
    modules = heap.target.modules if figures else ()
    named = (module for module in modules if "mimalloc" in module.path)
    reason = next((text for module in named if (text := say_inside(heap.target, module, "mimalloc"))), "")
    if not reason:
        return list(bounded(heap.problems))
    message = (
        f"mimalloc was stopped in the middle of its work ({reason}): what does not agree for that reason is no damage; "
        f"the first of {len(figures)}: {figures[0].message}"
    )
    others = [one for one in heap.problems if one.kind != COUNTED]
    return [*bounded(others), Problem("in-flux", None, message)]
