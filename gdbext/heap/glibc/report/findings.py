"""What ptmalloc itself can be blamed for: an arena for every thread that hardly uses it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from gdbext.heap.glibc.report.tally import Tally, tally_arenas
from gdbext.heap.glibc.report.trim import trimmable
from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.report import Confidence, Finding, Severity
from gdbext.wording import address_text, count_text, size_text

FEWEST_ARENAS = 8  # beside the main one; fewer are what any threaded program has
EMPTY_SHARE = 0.5  # of system memory in use, below which arenas count as hardly used
SHOWN = 5

REMEDY = (
    "Cap the arenas: MALLOC_ARENA_MAX=2 in the environment, mallopt(M_ARENA_MAX, 2), or"
    " GLIBC_TUNABLES=glibc.malloc.arena_max=2 (default 8 x cores). A thread pool with fewer threads, or jemalloc, also"
    " helps."
)
TRIM = " malloc_trim(0) returns {} of free pages in these arenas now, but not their tops."
NO_TRIM = " malloc_trim(0) would return only {} of them: what is free lies in tops, or in pieces of pages."
WORTH = 0.1  # of what is free, from which trimming is worth its while


def find_arena_proliferation(heap: GlibcHeap) -> Optional[Finding]:
    """Return the finding when many thread arenas hold mostly free memory, else None.

    Bytes are what those arenas hold beyond what is in use in them. Settings decide later whether
    that is worth telling.
    """
    if sum(view.head.kind == "thread" for view in heap.arenas) < FEWEST_ARENAS:
        return None
    pairs = [(v, t) for v, t in zip(heap.arenas, tally_arenas(heap)) if v.head.kind == "thread"]
    system = sum(view.head.system_mem for view, _ in pairs)
    used = sum(tally.in_use_bytes for _, tally in pairs)
    if not system or used / system >= EMPTY_SHARE:
        return None
    stranded = [view for view, _ in pairs if view.head.attached == 0]
    summary = (
        f"{len(pairs)} thread arenas hold {size_text(system)} and use {size_text(used)} of them"
        f" ({100 * used / system:.1f} %); {size_text(system - used)} are free inside them"
    )
    absent = any(walked.absent for view in heap.arenas for walked in view.walked)
    return Finding(
        "arena-proliferation",
        Severity.WARNING,
        Confidence.HIGH if heap.complete and not absent else Confidence.MEDIUM,
        summary,
        bytes=system - used,
        evidence=tuple(_evidence(heap, pairs, len(stranded))),
        remedy=REMEDY + trim_advice(heap, system - used),
        details={
            "arenas": len(pairs),
            "system_bytes": system,
            "in_use_bytes": used,
            "stranded": len(stranded),
            "largest": [_details(view, tally) for view, tally in _largest(pairs)],
        },
    )


def trim_advice(heap: GlibcHeap, free: int) -> str:
    """Return whether ``malloc_trim(0)`` helps against free memory of thread arenas.

    :param free: bytes that are free in them.
    """
    gain = sum(one.in_bins for view, one in zip(heap.arenas, trimmable(heap)) if view.head.kind == "thread")
    return (TRIM if gain and gain >= WORTH * free else NO_TRIM).format(size_text(gain))


def _largest(pairs: List[Tuple[ArenaView, Tally]]) -> List[Tuple[ArenaView, Tally]]:
    return sorted(pairs, key=lambda pair: -pair[0].head.system_mem)[:SHOWN]


def _details(view: ArenaView, tally: Tally) -> Dict[str, Any]:
    return {
        "address": address_text(view.head.address),
        "system_bytes": view.head.system_mem,
        "in_use_bytes": tally.in_use_bytes,
        "top_bytes": tally.top_bytes,
        "attached": view.head.attached,
    }




def _evidence(
    heap: GlibcHeap, pairs: List[Tuple[ArenaView, Tally]], stranded: int
) -> List[str]:
    lines = [
        f"arena {view.head.address:#x}: system {size_text(view.head.system_mem)},"
        f" in use {size_text(tally.in_use_bytes)}, cached {size_text(tally.tcache_bytes)},"
        f" in bins {size_text(tally.bins_bytes)}, top {size_text(tally.top_bytes)},"
        f" {count_text(view.head.attached, 'thread')}"
        for view, tally in _largest(pairs)
    ]
    heaps = sum(len(view.heaps) for view, _ in pairs)
    lines.append(
        f"{heaps} heaps reserve {size_text(heaps * heap.location.heap_max)} of address space"
        f" ({size_text(heap.location.heap_max)} each)"
    )
    if stranded:
        lines.append(f"{stranded} of the arenas have no thread attached any more")
    return lines
