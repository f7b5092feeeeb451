"""Whether a mallocng agrees with itself."""

from __future__ import annotations

from typing import Iterator, List

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.musl.layouts import CLASSES
from gdbext.heap.musl.model import Mallocng
from gdbext.heap.reading import bounded
from gdbext.report import Problem


def check_heap(heap: Mallocng) -> List[Problem]:
    """Return what is wrong: what reading met, and counts of slots that differ."""
    return [*bounded(heap.problems), *(_check_usage(heap) if heap.complete else ())]


def _check_usage(heap: Mallocng) -> Iterator[Problem]:
    """Compare slots by class with ``usage_by_class``, in which gaps that were given to malloc do not count."""
    layout, context = heap.location.layout, heap.location.context
    try:
        said = heap.target.reader.words(context + layout.offset("usage_by_class"), len(CLASSES), "usage_by_class")
    except FaultError:
        return
    groups = heap.groups
    counted = (groups.sizeclass < len(CLASSES)) & ~(heap.own & (groups.mapped == 0))
    found = np.bincount(groups.sizeclass[counted], groups.slots[counted], len(CLASSES)).astype(np.int64)
    for number in np.flatnonzero(found != np.array(said, np.int64)).tolist():
        message = f"size class {number}: usage_by_class is {said[number]}, its groups have {found[number]} slots"
        yield Problem("slot-count", context, message, corruption=True)
