"""Whether a tcmalloc agrees with itself: its own sums, and what was being changed at the stop."""

from __future__ import annotations

from typing import Iterator, List

from gdbext.errors import FaultError
from gdbext.heap.freelists import COUNTED
from gdbext.heap.inside import say_inside
from gdbext.heap.reading import bounded
from gdbext.heap.tcmalloc.layouts import ON_NORMAL, ON_RETURNED
from gdbext.heap.tcmalloc.model import Tcmalloc
from gdbext.report import Problem


def check_heap(heap: Tcmalloc) -> List[Problem]:
    """Return what is wrong; figures that a thread inside of it may have been changing are no damage."""
    problems = [*bounded(heap.problems), *_check_sums(heap)]
    figures = [one for one in problems if one.corruption and one.kind in (COUNTED, "page-heap")]
    reason = say_inside(heap.target, heap.location.module, "tcmalloc") if figures else ""
    if not reason:
        return problems
    message = (
        f"tcmalloc was stopped in the middle of its work ({reason}): what does not agree for that reason is no damage; "
        f"the first of {len(figures)}: {figures[0].message}"
    )
    return [*(one for one in problems if one not in figures), Problem("in-flux", None, message)]


def _check_sums(heap: Tcmalloc) -> Iterator[Problem]:
    """Compare the sums of spans with the page heap's own (``PageHeap::Stats``)."""
    location, spans, stats = heap.location, heap.spans, heap.location.layouts.stats
    found = {
        "system_bytes": spans.size,
        "free_bytes": spans.size[spans.location == ON_NORMAL],
        "unmapped_bytes": spans.size[spans.location == ON_RETURNED],
    }
    for name, sizes in found.items():
        try:
            said = stats.read(heap.target.reader, location.stats, name)
        except FaultError:
            continue
        if said != (total := int(sizes.sum())):
            message = f"the page heap counts {said} {name}, the spans hold {total}"
            yield Problem("page-heap", location.stats, message, corruption=heap.complete)
