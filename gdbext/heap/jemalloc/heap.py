"""jemalloc's heaps as the neutral model sees them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gdbext.heap.jemalloc.find.globals import find_jemallocs, heap_names
from gdbext.heap.model import Arena, Blocks, Heap
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

if TYPE_CHECKING:
    from gdbext.heap.jemalloc.model import ArenaState, Jemalloc, Location

UNREAD = "jemalloc (not read)"
REMEDIES = {
    "corruption": "Look at who writes to the block before the first damaged place: `blocks at ADDRESS` shows it and "
    "what it holds; `gx jemalloc check` lists every place. A region that is free and cached, or cached twice, was "
    "freed twice. Running the program under AddressSanitizer, or with a jemalloc built with --enable-debug, names "
    "the line.",
}


def find_heaps(target: Target, progress: Progress) -> list[Heap]:
    """Return the heap of every jemalloc of a target; none is an answer.

    Jemallocs that are there and could not be read are one more heap, without detail, that tells why.
    """
    found = find_jemallocs(target, progress)
    doubts = list(found.problems)
    if not found.locations:
        return _unread(doubts, beside=False)
    from gdbext.heap.jemalloc.read.build import read_jemalloc  # most processes have none, and pay for none

    heaps = []
    for name, location in zip(heap_names(found.locations), found.locations):
        heap = read_jemalloc(target, location, progress)
        heap.name = name
        heap.problems += _take(doubts, location)
        heaps.append(neutral(heap))
    return [*heaps, *_unread(doubts, bool(heaps))]


def _take(doubts: list[Problem], location: Location) -> list[Problem]:
    """Take from the problems of finding those about the module of a jemalloc that was found after all."""
    module = location.module
    own = [
        one for one in doubts if module and one.address is not None and module.base <= one.address < module.end
    ]
    doubts[:] = [one for one in doubts if one not in own]
    return own


def _unread(doubts: list[Problem], beside: bool) -> list[Heap]:
    if not doubts:
        return []
    name = UNREAD if beside else UNREAD.partition(" ")[0]
    return [Heap(name, Blocks.empty(), (), problems=doubts, complete=False, shrinks_from_top=False)]


def neutral(heap: Jemalloc) -> Heap:
    """Return the neutral view of one jemalloc."""
    from gdbext.heap.jemalloc.check.check import check_heap
    from gdbext.heap.jemalloc.check.flux import in_brief
    from gdbext.heap.jemalloc.read.convert import CacheStacks, Charges, Territory, blocks_of, spans_of
    from gdbext.heap.jemalloc.report.explain import explain
    from gdbext.heap.jemalloc.report.findings import find_findings

    territory = Territory(heap)
    blocks = blocks_of(heap)
    problems = check_heap(heap)
    return Heap(
        heap.name,
        blocks,
        [_arena(arena) for arena in heap.arenas],
        spans_of(heap, territory),
        Charges(heap, blocks, territory),
        evidence=heap.location.evidence,
        problems=problems,
        findings=find_findings(heap),
        remedies=dict(REMEDIES),
        complete=heap.complete,
        detail=heap,
        caches_known=heap.tcaches is not None,
        shrinks_from_top=False,
        explain=partial(explain, heap),
        brief=in_brief(problems),
        metadata=CacheStacks(heap, blocks),
    )


def _arena(arena: ArenaState) -> Arena:
    kind = "unknown" if arena.auto is None else "auto" if arena.auto else "manual"
    return Arena(arena.index, arena.address, kind, arena.mapped, arena.threads)
