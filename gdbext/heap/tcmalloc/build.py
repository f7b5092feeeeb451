"""Reads a tcmalloc: its spans, where each object is, and what it says of itself."""

from __future__ import annotations

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.freelists import Objects
from gdbext.heap.tcmalloc.caches import read_caches
from gdbext.heap.tcmalloc.find import leaf_bits
from gdbext.heap.tcmalloc.model import Location, Spans, Tcmalloc
from gdbext.heap.tcmalloc.spans import read_spans
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target


def read_tcmalloc(target: Target, location: Location, progress: Progress) -> Tcmalloc:
    """Return one tcmalloc as far as it can be read."""
    none = np.empty(0, np.uint64)
    nothing = Objects(none, none, np.empty(0, np.int64))
    heap = Tcmalloc(target, location, Spans(*[none] * 7), none, 8 << leaf_bits(location.shift), nothing)
    try:
        heap.spans, heap.leaves, heap.problems = read_spans(target, location, progress)
        heap.complete = not any(one.kind == "absent-memory" for one in heap.problems)
        heap.drop_unsound()
        read_caches(heap, progress)
        if location.caches is None:
            message = "tcmalloc's thread caches were not found: what they hold counts as in use"
            heap.problems.append(Problem("tcache", None, message))
    except FaultError as fault:
        heap.complete = False
        heap.problems.append(Problem("absent-memory", fault.address, "tcmalloc's page map cannot be read"))
    except KeyboardInterrupt:
        heap.complete = False
        heap.problems.append(Problem("interrupted", None, "reading tcmalloc was stopped"))
    return heap
