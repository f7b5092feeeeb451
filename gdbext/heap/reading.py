"""What heaps have to say about how they were read, in one list: several of one allocator are told apart there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Iterable, Iterator, List, Sequence

from gdbext.heap.model import Heap
from gdbext.memory import RegionIndex
from gdbext.memory.intervals import Coverage, columns, joined
from gdbext.report import Evidence, Problem

_MOST_OF_A_KIND = 50  # problems


def evidence_of(heaps: Sequence[Heap]) -> List[Evidence]:
    """Return the evidence of all heaps, each line with the heap's name where its allocator has several."""
    alone = _alone(heaps)
    return [
        one if heap.family in alone else _named(heap, one) for heap in heaps for one in heap.evidence
    ]


def problems_of(heaps: Sequence[Heap], brief: bool = False) -> List[Problem]:
    """Return the problems of all heaps, each with the heap's name where its allocator has several.

    :param brief: as the heap has them for a page that is about more than the heap.
    """
    alone = _alone(heaps)
    return [
        one if heap.family in alone else replace(one, message=f"{heap.allocator}: {one.message}")
        for heap in heaps
        for one in (heap.in_brief if brief else heap.problems)
    ]


def bounded(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Iterate over the first of each kind, then say how many more there are."""
    met: Counter[str] = Counter()
    corrupt: Counter[str] = Counter()
    for one in problems:
        met[one.kind] += 1
        if met[one.kind] <= _MOST_OF_A_KIND:
            yield one
        else:
            corrupt[one.kind] += one.corruption
    for kind, count in met.items():
        if count > _MOST_OF_A_KIND:
            yield Problem(kind, None, f"{count - _MOST_OF_A_KIND} more problems of this kind", corrupt[kind] > 0)


def mapped_ranges(index: RegionIndex) -> Coverage:
    """Return the memory that a target may write, regions that touch as one: no heap reaches beyond."""
    return Coverage(*joined(columns((region.start, region.end) for region in index.regions if region.writable)))


def _alone(heaps: Sequence[Heap]) -> "set[str]":
    """Return the allocators that have one heap only."""
    counts = Counter(heap.family for heap in heaps)
    return {family for family, count in counts.items() if count == 1}


def _named(heap: Heap, one: Evidence) -> Evidence:
    said = one.subject == heap.family or one.message.startswith(one.subject)
    return replace(one, subject=heap.allocator if said else f"{heap.allocator}, {one.subject}")
