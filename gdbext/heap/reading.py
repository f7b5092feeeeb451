"""What heaps have to say about how they were read, in one list: several of one allocator are told apart there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import List, Sequence

from gdbext.heap.model import Heap
from gdbext.report import Evidence, Problem


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


def _alone(heaps: Sequence[Heap]) -> "set[str]":
    """Return the allocators that have one heap only."""
    counts = Counter(heap.family for heap in heaps)
    return {family for family, count in counts.items() if count == 1}


def _named(heap: Heap, one: Evidence) -> Evidence:
    said = one.subject == heap.family or one.message.startswith(one.subject)
    return replace(one, subject=heap.allocator if said else f"{heap.allocator}, {one.subject}")
