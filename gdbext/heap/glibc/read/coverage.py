"""Which of the heap's memory could be walked, where a core lacks some of it: absent is not damaged."""

from __future__ import annotations

from typing import Iterator, List, Tuple

from gdbext.heap.glibc.view import GlibcHeap
from gdbext.memory import Region, RegionIndex
from gdbext.report import Problem

_ABSENCE = ("absent-memory", "no-main-arena")


class Coverage:
    """What was walked of a heap, and whether there is more that could not be.

    :param heap: with all its arenas walked.
    """

    def __init__(self, heap: GlibcHeap) -> None:
        walked = [(one.segment.start, one.end) for view in heap.arenas for one in view.walked]
        gaps = [gap for view in heap.arenas for one in view.walked if one.absent for gap in one.skipped]
        self._walked, self._gaps = _index(walked), _index(gaps)
        self._partial = any(problem.kind in _ABSENCE for problem in _problems_of(heap))

    def unknown(self, address: int) -> bool:
        """Whether a chunk may be at an address although none was seen."""
        if self._gaps.find(address) is not None:
            return True
        return self._partial and self._walked.find(address) is None


def _index(intervals: List[Tuple[int, int]]) -> RegionIndex:
    return RegionIndex([Region(low, high) for low, high in sorted(intervals)])


def _problems_of(heap: GlibcHeap) -> Iterator[Problem]:
    yield from heap.location.problems
    yield from heap.problems
    for view in heap.arenas:
        yield from view.problems
        for walked in view.walked:
            yield from walked.problems
