"""What makes blocks look leaked that are not: roots that are missing, and heaps that are not known whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence

from gdbext.analysis.reach.graph import Reach
from gdbext.heap.model import Heap
from gdbext.report import Kind, column
from gdbext.wording import count_text

_UNREAD = "pointers there are not known"


@dataclass(frozen=True)
class Doubt:
    """Something that should be known and is not.

    :param bytes: of memory; None when not known, or where it is no memory.
    :param start: its first address; None when not known, or where it is in several places.
    :param effect: what it does to the answer.
    """

    what: str = column("missing", whole=True)
    bytes: Optional[int] = column("bytes", Kind.BYTES)
    start: Optional[int] = column("from", Kind.ADDRESS)
    effect: str = column("so")


def find_doubts(reach: Reach) -> Sequence[Doubt]:
    """Return everything that can make a block look leaked that is not; nothing where the answer is certain."""
    roots = [Doubt(one.what, one.bytes, one.start, _UNREAD) for one in reach.marked.roots.missing]
    return [*roots, *(doubt for heap in reach.heaps for doubt in _of_heap(heap))]


def _of_heap(heap: Heap) -> Iterator[Doubt]:
    name = heap.allocator
    damage = sum(problem.corruption for problem in heap.problems)
    if not heap.complete:
        yield Doubt(f"a part of the {name} heap", None, None, "blocks there, and pointers in them, are not known")
    if damage:
        what = f"blocks beside damage of the {name} heap ({count_text(damage, 'place')})"
        yield Doubt(what, None, None, "they, and pointers in them, may not be known")
    if not heap.caches_known:
        what = f"the thread caches of the {name} heap"
        yield Doubt(what, None, None, "freed blocks in them count as in use, and look leaked")


def doubts_text(doubts: Sequence[Doubt], most: int = 3) -> str:
    """Return in words what is missing: "stack of thread 3, libfoo.so data and 2 more"."""
    named: List[str] = [doubt.what.rsplit("/", 1)[-1] for doubt in doubts[:most]]
    more = len(doubts) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
