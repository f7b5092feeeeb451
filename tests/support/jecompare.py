"""Every figure that jemalloc gave of itself, beside ours: what must be equal.

From 5.3 on ``malloc_stats_print`` allocates a buffer of 64 KiB from arena 0 for what it prints, which is freed when it
ends: it is one large block too many in arena 0 there, and subtracted at its exact size. What it moves among unused
extents is taken from the figures of ``mallctl``, when nothing is allocated any more.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

from gdbext.heap.jemalloc.model import ArenaState, ExtentState, Jemalloc
from tests.support.jetruth import JeTruth

Figure = tuple[str, Any, Any]
PRINT_BUFFER = 64 << 10
BUFFERED = ("5.3.0", "5.3.1")
COUNTERS = ("nmalloc", "ndalloc", "curregs", "nfills", "nflushes", "curslabs", "nonfull_slabs")
CACHES = {"dirty": ExtentState.DIRTY, "muzzy": ExtentState.MUZZY, "retained": ExtentState.RETAINED}


def differences(heap: Jemalloc, je: JeTruth) -> list[str]:
    """Return the figures that are not equal, in words."""
    return [
        f"{name}: {ours}, jemalloc says {theirs}"
        for name, ours, theirs in figures(heap, je)
        if ours != theirs
    ]


def figures(heap: Jemalloc, je: JeTruth) -> Iterator[Figure]:
    """Iterate over name, ours, jemalloc's."""
    yield "arenas", [arena.index for arena in heap.arenas], sorted(je.arenas)
    yield from _totals(heap, je)
    for arena in heap.arenas:
        for name, ours, theirs in _arena(heap, arena, je):
            yield f"arena {arena.index} {name}", ours, theirs


def printed_figures(heap: Jemalloc, je: JeTruth) -> Iterator[Figure]:
    """Iterate over what ``malloc_stats_print`` told alone, for programs that did not ask ``mallctl`` afterwards.

    The pages of its buffer go from arena 0's unused ones to its active ones and back: there only their sum is told.
    """
    yield "arenas", [arena.index for arena in heap.arenas], sorted(je.arena_stats)
    for arena in heap.arenas:
        stats = je.arena_stats[arena.index]
        for name, ours, theirs in _printed(heap, arena, stats, je):
            yield f"arena {arena.index} {name}", ours, theirs


def _printed(heap: Jemalloc, arena: ArenaState, stats: dict[str, Any], je: JeTruth) -> Iterator[Figure]:
    buffered = arena.index == 0 and je.version in BUFFERED
    yield from _bins(arena, stats)
    yield from _large(heap, arena, stats, je)
    yield "small", arena.small_allocated, stats["small"]["allocated"]
    yield "small by slabs", arena.small_walked, stats["small"]["allocated"]
    buffer = PRINT_BUFFER if buffered else 0
    yield "large", arena.large_allocated, stats["large"]["allocated"] - buffer
    yield "large by extents", arena.large_walked[1], stats["large"]["allocated"] - buffer
    pages = (arena.nactive, arena.ndirty, arena.muzzy.npages, arena.retained.npages)
    told = (stats["pactive"], stats["pdirty"], stats["pmuzzy"], stats["retained"] // arena.page)
    yield "pages", sum(pages) if buffered else pages, sum(told) if buffered else told
    yield "active pages", arena.nactive, stats["pactive"] - (buffer and buffer // arena.page + 1)
    yield "nthreads", arena.nthreads[0], stats["nthreads"]
    if not buffered:
        yield from _decay(arena, stats, stats)
        yield from _caches(heap, arena, stats)


def _totals(heap: Jemalloc, je: JeTruth) -> Iterator[Figure]:
    page = heap.location.geometry.page
    yield "page", page, je.raw["page"]
    for name in ("allocated", "active", "metadata", "resident", "mapped"):
        yield name, sum(getattr(arena, name) for arena in heap.arenas), je.after[name]
    yield "retained", sum(arena.retained.npages * page for arena in heap.arenas), je.after["retained"]


def _arena(heap: Jemalloc, arena: ArenaState, je: JeTruth) -> Iterator[Figure]:
    yield from _after(arena, je.arenas[arena.index])
    stats = je.arena_stats[arena.index]
    yield from _decay(arena, je.arenas[arena.index], stats)
    yield from _bins(arena, stats)
    yield from _large(heap, arena, stats, je)
    if not (arena.index == 0 and je.version in BUFFERED):
        yield from _caches(heap, arena, stats)
    if "abandoned_vm" in stats:
        yield "abandoned_vm", arena.abandoned_vm, stats["abandoned_vm"]


def _after(arena: ArenaState, after: dict[str, Any]) -> Iterator[Figure]:
    page = arena.page
    yield "nthreads", arena.nthreads[0], after["nthreads"]
    yield "pactive", arena.nactive, after["pactive"]
    yield "pactive in the tree", arena.walked[ExtentState.ACTIVE].pages, after["pactive"]
    yield "pdirty", arena.ndirty, after["pdirty"]
    yield "pmuzzy", arena.muzzy.npages, after["pmuzzy"]
    for name in CACHES:
        yield f"{name} pages in the tree", arena.walked[ExtentState[name.upper()]].pages, getattr(arena, name).npages
    yield "retained", arena.retained.npages * page, after["retained"]
    yield "cached by HPA", arena.walked[ExtentState.CACHED].pages * page, arena.sec_bytes or 0
    others = (arena.walked[ExtentState.TRANSITION], arena.walked[ExtentState.MERGING], arena.walked[-1])
    yield "other pages", sum(one.pages for one in others), 0
    for name in ("mapped", "resident", "internal"):
        yield name, getattr(arena, name), after[name]
    yield "base", arena.base.allocated, after["base"]
    yield "small", arena.small_allocated, after["small.allocated"]
    yield "small by slabs", arena.small_walked, after["small.allocated"]
    yield "large", arena.large_allocated, after["large.allocated"]
    yield "large by extents", arena.large_walked[1], after["large.allocated"]


def _decay(arena: ArenaState, after: dict[str, Any], stats: dict[str, Any]) -> Iterator[Figure]:
    for kind, decay in (("dirty", arena.decay_dirty), ("muzzy", arena.decay_muzzy)):
        yield f"{kind} time", decay.time_ms, stats[f"{kind}_decay_ms"]
        for name in ("npurge", "nmadvise", "purged"):
            yield f"{kind} {name}", getattr(decay, name), after[f"{kind}_{name}"]


def _bins(arena: ArenaState, stats: dict[str, Any]) -> Iterator[Figure]:
    for one, told in zip(arena.bins, stats["bins"]):
        where = f"bin {one.info.index}"
        for name in COUNTERS:
            if name in told:
                yield f"{where} {name}", getattr(one.stats, name), told[name]
        yield f"{where} regions by count", one.used, told["curregs"]
        yield f"{where} regions by bitmap", one.total - one.free_bits, told["curregs"]
        yield f"{where} slabs in the tree", one.slabs, told["curslabs"]
        yield f"{where} all slabs", one.current + one.nonfull + one.full, told["curslabs"]
        if "nonfull_slabs" in told:
            yield f"{where} slabs not full", one.nonfull, told["nonfull_slabs"]


def _large(heap: Jemalloc, arena: ArenaState, stats: dict[str, Any], je: JeTruth) -> Iterator[Figure]:
    known = {one.szind: one.current for one in arena.large}
    walked = _large_walked(heap, arena.index)
    first = heap.location.nbins
    for at, told in enumerate(stats["lextents"]):
        buffer = (
            arena.index == 0 and je.version in BUFFERED and heap.location.sizes[first + at] == PRINT_BUFFER
        )
        yield f"large class {first + at}", known.get(first + at, 0), told["curlextents"] - buffer
        yield f"large class {first + at} in the tree", walked.get(first + at, 0), told["curlextents"] - buffer


def _large_walked(heap: Jemalloc, arena: int) -> dict[int, int]:
    extents = heap.extents
    mask = (extents.arena == arena) & (extents.state == ExtentState.ACTIVE) & ~extents.slab
    counts: dict[int, int] = {}
    for szind in extents.szind[mask].tolist():
        counts[szind] = counts.get(szind, 0) + 1
    return counts


def _caches(heap: Jemalloc, arena: ArenaState, stats: dict[str, Any]) -> Iterator[Figure]:
    rows: Optional[list[dict[str, Any]]] = stats.get("extents")
    if not rows or "ndirty" not in rows[0]:
        return
    for name, state in CACHES.items():
        cache = getattr(arena, name)
        mask = (heap.extents.arena == arena.index) & (heap.extents.state == state)
        yield f"{name} extents", cache.nextents, sum(row[f"n{name}"] for row in rows)
        yield f"{name} bytes", cache.nbytes, sum(row[f"{name}_bytes"] for row in rows)
        yield f"{name} extents in the tree", int(mask.sum()), cache.nextents
