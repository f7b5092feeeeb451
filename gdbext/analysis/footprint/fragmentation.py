"""Free memory that cannot go back to the system because something live lies above it.

Two causes are told apart. *Shrink-realloc*: buffers of one size are filled, then shrunk in place, and
each leaves a small live block at the bottom of a free run; what tells it is that block and run together
are always the same, round size. *Fragmentation*: everything else, such as a wave of blocks that was
freed below a later wave.

False alarms to beware of: the holes of any long-lived heap (a tenth or so of it is free), and one
freed buffer that the next request will use again. So a heap must be a fifth free under live blocks,
and the largest run of each arena counts only by what exceeds the largest block it can have been.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Container, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.blocks.sums import CACHED, FREE, TOP, USED, arena_address, tally
from gdbext.analysis.footprint.residency import Residency
from gdbext.analysis.footprint.runs import NONE, Layout, Runs, find_runs
from gdbext.analysis.thresholds import Thresholds
from gdbext.heap.model import U64, Heap, Mask
from gdbext.memory.intervals import I64
from gdbext.report import Confidence, Finding, Kind, Severity, column
from gdbext.target import Target
from gdbext.wording import address_text, count_text, share_text, size_text

FRAGMENTATION = "fragmentation"
SHRINK_REALLOC = "shrink-realloc"

_HEAP_SHARE = 20  # per cent of the heap that must be free under live blocks
_SINGLE_BLOCK = 32 << 20  # where the allocator does not say: no common one cuts larger blocks from a span
_ALIKE = 1.02  # runs whose totals differ by less are of one kind
_LEAST_RUNS = 4
_LEAST_SHARE = 50  # per cent of the free bytes that a pattern must explain
_LEAST_RATIO = 8  # a shrunk block is at most this part of what it was
_LARGE_RATIO = 200
_ROUND = 4096
_ROUND_SLACK = 16  # usable bytes that one block may have beyond the request
_TOLD = 3
_WORTH = 10  # one part in so many of what is free must go back for trimming to be advised


@dataclass(frozen=True)
class PinClass:
    """Runs of like size between blocks of like size.

    :param before: usable bytes of the live block that precedes the runs, the most common; None: no block.
    :param run: bytes of the runs, the most common.
    :param after: as ``before``, of the live block that follows and pins the run.
    """

    before: Optional[int] = column("block before", Kind.COUNT)
    run: int = column("free run", Kind.BYTES)
    after: Optional[int] = column("block after", Kind.COUNT)
    runs: int = column("runs", Kind.COUNT)
    bytes: int = column("free bytes", Kind.BYTES)
    pages: int = column("whole pages", Kind.BYTES)


def find_fragmentation(
    heap: Heap,
    target: Target,
    limits: Thresholds,
    residency: Optional[Residency] = None,
    skip_arenas: Container[int] = (),
) -> Sequence[Finding]:
    """Return the findings about free bytes under live blocks: none, one or both kinds.

    :param residency: when known, free bytes that are not in RAM cost nothing.
    :param skip_arenas: indices of arenas that another finding accounts for.
    """
    runs, layout = find_runs(heap, target.abi.page_size, skip_arenas)
    pinned = runs.select(runs.pinned)
    scene = _Scene(heap, layout, limits, residency, _shared_bytes(heap, skip_arenas), target.abi.page_size)
    findings: List[Finding] = []
    pattern = find_pattern(heap, pinned)
    if pattern is not None and scene.worth_telling(pinned.select(pattern.mask), excused=0):
        findings.append(_shrink_finding(scene, pinned.select(pattern.mask), pattern))
        pinned = pinned.select(~pattern.mask)
    if scene.worth_telling(pinned):
        findings.append(_fragmentation_finding(scene, pinned))
    return findings


def _shared_bytes(heap: Heap, skip_arenas: Container[int]) -> int:
    """Return the bytes of all blocks that share a span with others, in the arenas looked at."""
    sizes = tally(heap).bytes[:, [USED, CACHED, FREE, TOP]].sum(axis=1)
    return sum(int(sizes[at]) for at, arena in enumerate(heap.arenas) if arena.index not in skip_arenas)


@dataclass(frozen=True)
class _Scene:
    """What a finding is measured against.

    :param shared: bytes of the heap that lie in shared spans.
    :param page: bytes of one.
    """

    heap: Heap
    layout: Layout
    limits: Thresholds
    residency: Optional[Residency]
    shared: int
    page: int

    def cost(self, runs: Runs) -> int:
        """Return the free bytes, only those in RAM where that is known."""
        if self.residency is None:
            return int(runs.bytes.sum())
        return self.residency.resident(runs.start, runs.end)

    def worth_telling(self, runs: Runs, excused: Optional[int] = None) -> bool:
        """Return whether the runs cost enough; see :meth:`surplus` for ``excused``."""
        cost = self.surplus(runs, excused)
        return self.limits.reached(cost) and 100 * cost >= _HEAP_SHARE * self.shared

    def surplus(self, runs: Runs, excused: Optional[int] = None) -> int:
        """Return what the runs cost beyond one freed buffer in each arena.

        :param excused: bytes that such a buffer has at most; None as the heap says.
        """
        if excused is None:
            known = self.heap.largest_block
            excused = _SINGLE_BLOCK if known is None else known
        buffers = sum(min(excused, self.cost(runs.select(at))) for at in _largest_by_arena(runs))
        return self.cost(runs) - buffers

    def returnable(self, runs: Runs) -> int:
        """Return the bytes of whole pages inside the runs, those in RAM where that is known."""
        if self.residency is None:
            return int(runs.pages.sum())
        return self.residency.resident(*runs.page_bounds(self.page))

    def share_text(self, cost: int) -> str:
        """Return a cost as share of the heap."""
        return f"{share_text(cost, self.shared)} of the {self.heap.allocator} heap"

    def confidence(self) -> Confidence:
        """Return how far the heap's own walk can be trusted."""
        damaged = any(problem.corruption for problem in self.heap.problems)
        return Confidence.MEDIUM if damaged or not self.heap.complete else Confidence.HIGH


def _largest_by_arena(runs: Runs) -> Iterator[I64]:
    """Iterate over the largest run of each arena, as an index array of one."""
    order = np.lexsort((runs.bytes, runs.owner))
    owner = runs.owner[order]
    last = np.append(owner[1:] != owner[:-1], True) if len(owner) else np.empty(0, np.bool_)
    for at in order[last].tolist():
        yield np.array([at], np.int64)


@dataclass(frozen=True)
class Pattern:
    """Runs that each follow a small live block, block and run together always of one size.

    :param mask: which runs.
    :param total: usable bytes of a buffer before it was shrunk, the most common.
    :param before: usable bytes of the live block, the most common.
    :param sure: whether a buffer of that size was surely asked for, rather than a regular mix of blocks.
    """

    mask: Mask
    total: int
    before: int
    sure: bool


def find_pattern(heap: Heap, runs: Runs) -> Optional[Pattern]:
    """Return the pattern of shrinking reallocations that explains most of the free bytes, or None.

    A regular mix (every hundredth block of one size survived) looks alike. What tells a shrunk
    buffer: its size was round, or the parts left over differ while the total never does.
    """
    known = np.flatnonzero(runs.before >= 0)
    small = heap.blocks.size[runs.before[known]]
    chosen = known[runs.bytes[known] >= np.uint64(_LEAST_RATIO) * small]
    if len(chosen) < _LEAST_RUNS:
        return None
    totals = runs.end[chosen] - heap.blocks.address[runs.before[chosen]]
    alike = _heaviest_window(totals, runs.bytes[chosen])
    group, totals = chosen[alike], totals[alike]
    explained = int(runs.bytes[group].sum())
    if len(group) < _LEAST_RUNS or 100 * explained < _LEAST_SHARE * int(runs.bytes.sum()):
        return None
    return _judged(heap, runs, group, totals)


def _heaviest_window(values: U64, weights: U64) -> I64:
    """Return the indices of the values within 2 % of each other that weigh most together."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(weights[order])))
    until = np.searchsorted(ordered, (ordered * _ALIKE).astype(np.uint64), side="right")
    best = int(np.argmax(running[until] - running[: len(ordered)]))
    return order[best : until[best]]


def _judged(heap: Heap, runs: Runs, group: I64, totals: U64) -> Optional[Pattern]:
    before = heap.blocks.size[runs.before[group]]
    total, same_total = _most_common(totals)
    left, same_left = _most_common(before)
    exact = 2 * same_total >= len(group)
    rounded = total % _ROUND < _ROUND_SLACK
    varied = 2 * same_left <= len(group)
    sure = exact and (rounded or varied)
    if not sure and not (exact and total >= _LARGE_RATIO * left):
        return None
    mask = np.zeros(len(runs), np.bool_)
    mask[group] = True
    return Pattern(mask, total, left, sure)


def _most_common(values: U64) -> Tuple[int, int]:
    distinct, counts = np.unique(values, return_counts=True)
    at = int(np.argmax(counts))
    return int(distinct[at]), int(counts[at])


def _shrink_finding(scene: _Scene, runs: Runs, pattern: Pattern) -> Finding:
    cost = scene.cost(runs)
    free = int(runs.bytes.sum()) // len(runs)
    kept = count_text(len(runs), "live block")
    summary = (
        f"{kept} of about {size_text(pattern.before)} each stand before a free run of about "
        f"{size_text(free)}: buffers of {size_text(pattern.total)} were shrunk in place, and "
        f"{size_text(cost)} ({scene.share_text(cost)}) cannot go back"
    )
    sure = scene.confidence() if pattern.sure else Confidence.MEDIUM
    return Finding(
        SHRINK_REALLOC,
        Severity.WARNING,
        sure,
        summary,
        cost,
        evidence=tuple(_evidence(scene, runs)),
        remedy=_remedy(scene, runs, SHRINK_REALLOC),
        details={**_details(scene, runs), "buffer_bytes": pattern.total, "left_bytes": pattern.before},
    )


def _fragmentation_finding(scene: _Scene, runs: Runs) -> Finding:
    cost, pages = scene.cost(runs), int(runs.pages.sum())
    clear = 2 * scene.surplus(runs) >= cost
    summary = (
        f"{size_text(cost)} ({scene.share_text(cost)}) are free in "
        f"{count_text(len(runs), 'run')} under live blocks and cannot go back from the top; "
        f"{size_text(pages)} of it are whole pages"
    )
    return Finding(
        FRAGMENTATION,
        Severity.WARNING,
        scene.confidence() if clear else Confidence.MEDIUM,
        summary,
        cost,
        evidence=tuple(_evidence(scene, runs)),
        remedy=_remedy(scene, runs, FRAGMENTATION),
        details=_details(scene, runs),
    )


_ADVICE = {
    FRAGMENTATION: "allocate long-lived blocks before short-lived ones, or use an allocator that returns pages below "
    "live blocks",
    SHRINK_REALLOC: "copy what is kept into a block of its own size and free the buffer, or reuse one "
    "buffer, instead of shrinking each with realloc",
}


def _remedy(scene: _Scene, runs: Runs, kind: str) -> str:
    """Return what to do; giving pages back by hand is a part of it only where that gives back something."""
    advice = scene.heap.remedies.get(kind, _ADVICE[kind])
    trim, pages = scene.heap.remedies.get("trim"), scene.returnable(runs)
    if trim is None:
        return advice
    if _WORTH * pages >= scene.cost(runs):
        return f"{trim} returns {size_text(pages)} of whole pages now. {advice}"
    nothing = f"only {size_text(pages)}" if pages else "nothing"
    return f"{advice} {trim} would return {nothing}: hardly a run holds whole pages that the process still has."


def _details(scene: _Scene, runs: Runs) -> Dict[str, Any]:
    blocks = scene.heap.blocks
    largest = np.argsort(~runs.bytes, kind="stable")[:_TOLD].tolist()
    pins = [None if int(runs.after[at]) == NONE else int(runs.after[at]) for at in largest]
    return {
        "allocator": scene.heap.allocator,
        "runs": len(runs),
        "free_bytes": int(runs.bytes.sum()),
        "page_bytes": int(runs.pages.sum()),
        "heap_bytes": scene.shared,
        "largest": [
            {
                "address": address_text(int(runs.start[at])),
                "bytes": int(runs.bytes[at]),
                "arena": address_text(arena_address(scene.heap, int(runs.owner[at]))),
                "pinned_by": None if pin is None else address_text(int(blocks.address[pin])),
                "pin_bytes": None if pin is None else int(blocks.size[pin]),
            }
            for at, pin in zip(largest, pins)
        ],
    }


def _evidence(scene: _Scene, runs: Runs) -> Iterator[str]:
    free, pages = int(runs.bytes.sum()), int(runs.pages.sum())
    yield (
        f"{size_text(free)} free in {count_text(len(runs), 'run')} below live blocks, of "
        f"{size_text(scene.shared)} in shared spans; page by page {size_text(pages)} could be returned, "
        f"{size_text(free - pages)} not"
    )
    if scene.residency is not None:
        yield f"in RAM: {size_text(scene.cost(runs))} of them"
    yield "by size of run: " + "; ".join(_by_size(runs))
    for pin in pin_classes(scene.heap, runs, _TOLD):
        if 10 * pin.bytes >= free:
            yield _pin_class_text(pin)
    yield from _largest_runs(scene, runs)
    yield from _top_pins(scene, runs)


def _by_size(runs: Runs) -> Iterator[str]:
    """Iterate over powers of two, those with most bytes first: "64 MiB to 128 MiB: 1 run, 100 MiB"."""
    power = _octave(runs.bytes)
    count = np.bincount(power)
    total = np.bincount(power, runs.bytes.astype(np.float64))
    for at in np.argsort(-total, kind="stable")[: _TOLD + 1].tolist():
        if count[at]:
            bounds = f"{size_text(1 << at)} to {size_text(2 << at)}"
            yield f"{bounds}: {count_text(int(count[at]), 'run')}, {size_text(int(total[at]))}"


def _octave(sizes: U64) -> I64:
    exponent: I64 = np.frexp(np.maximum(sizes, np.uint64(1)).astype(np.float64))[1].astype(np.int64) - 1
    return exponent


def _pin_class_text(pin: PinClass) -> str:
    def block(size: Optional[int]) -> str:
        return "no live block" if size is None else f"a live block of {size} bytes"

    runs = count_text(pin.runs, "run")
    return f"{runs} of about {size_text(pin.run)} between {block(pin.before)} and {block(pin.after)}"


def _largest_runs(scene: _Scene, runs: Runs) -> Iterator[str]:
    """Iterate over the largest runs and the block that pins each; not those that hardly matter."""
    order = np.argsort(~runs.bytes, kind="stable")[:_TOLD].tolist()
    enough = int(runs.bytes.sum()) // 100
    for at in (row for row in order if int(runs.bytes[row]) >= enough):
        pin, arena = int(runs.after[at]), arena_address(scene.heap, int(runs.owner[at]))
        pinned = "something live further up"
        if pin != NONE:
            blocks = scene.heap.blocks
            pinned = f"the live block {int(blocks.address[pin]):#x} of {int(blocks.size[pin])} bytes"
        place = "" if arena is None else f" (arena {arena:#x})"
        size = size_text(int(runs.bytes[at]))
        yield f"run at {int(runs.start[at]):#x}, {size}, pinned by {pinned}{place}"


def _top_pins(scene: _Scene, runs: Runs) -> Iterator[str]:
    """Iterate over the highest live blocks of the spans with most free bytes: what keeps their top up."""
    total = np.bincount(runs.span, runs.bytes.astype(np.float64), len(scene.layout.spans))
    for at in np.argsort(-total, kind="stable")[:_TOLD].tolist():
        block = int(scene.layout.last_live[at])
        if total[at] and block != NONE:
            blocks, span = scene.heap.blocks, scene.layout.spans[at]
            yield (
                f"highest live block of the span {span.start:#x}-{span.end:#x}: "
                f"{int(blocks.address[block]):#x}, {int(blocks.size[block])} bytes, above "
                f"{size_text(int(total[at]))} free"
            )


def pin_classes(heap: Heap, runs: Runs, limit: int) -> Sequence[PinClass]:
    """Return the classes of runs by power of two of the run and its neighbours, most bytes first.

    :param limit: rows at most; 0 means all.
    """
    before, after = (_neighbour_octave(heap, side) for side in (runs.before, runs.after))
    key = (before << 16) | (_octave(runs.bytes) << 8) | after
    distinct, place = np.unique(key, return_inverse=True)
    total = np.bincount(place, runs.bytes.astype(np.float64), len(distinct))
    order: List[int] = np.argsort(-total, kind="stable")[: limit or None].tolist()
    return [_pin_class(heap, runs.select(np.flatnonzero(place == at))) for at in order]


def _neighbour_octave(heap: Heap, neighbour: I64) -> I64:
    octave = np.full(len(neighbour), 255, np.int64)
    known = neighbour >= 0
    octave[known] = _octave(heap.blocks.size[neighbour[known]])
    return octave


def _pin_class(heap: Heap, runs: Runs) -> PinClass:
    def common(side: I64) -> Optional[int]:
        return None if int(side[0]) == NONE else _most_common(heap.blocks.size[side])[0]

    return PinClass(
        common(runs.before),
        _most_common(runs.bytes)[0],
        common(runs.after),
        len(runs),
        int(runs.bytes.sum()),
        int(runs.pages.sum()),
    )
