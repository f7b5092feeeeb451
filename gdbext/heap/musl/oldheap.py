"""musl's older malloc as the neutral model sees it."""

from __future__ import annotations

from functools import partial
from typing import List, Optional

import numpy as np

from gdbext.heap.inside import say_inside
from gdbext.heap.model import Arena, Blocks, Heap, LazyCharges, Span, State
from gdbext.heap.musl.model import Mask
from gdbext.heap.musl.oldfind import OldLocation
from gdbext.heap.musl.oldread import COUNTED, OVERHEAD, OldMalloc, read_old
from gdbext.heap.reading import bounded
from gdbext.memory.intervals import Intervals, columns, joined, merged, without
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

_NAMES = {True: "in use", False: "free"}


def read_heap(target: Target, location: OldLocation, remedies: "dict[str, str]", progress: Progress) -> Heap:
    """Return the heap."""
    heap = read_old(target, location, progress)
    return Heap(
        "musl",
        _blocks(heap),
        [Arena(0, location.bins, "main", None)],
        _spans(heap),
        _charges(heap),
        location.evidence,
        _problems(heap),
        (),
        remedies=remedies,
        complete=heap.complete,
        detail=heap,
        size_classes=False,
        shrinks_from_top=False,
        explain=partial(_explain, heap),
    )


def _blocks(heap: OldMalloc) -> Blocks:
    state = np.where(heap.used, np.where(heap.mapped, State.MMAPPED, State.IN_USE), State.FREE).astype(np.uint8)
    whole = Blocks(
        heap.at + np.uint64(OVERHEAD),
        heap.size - np.uint64(OVERHEAD),
        state,
        np.zeros(len(state), np.uint8),
    )
    return Blocks.join([whole])


def _spans(heap: OldMalloc) -> List[Span]:
    single = set((heap.at[heap.mapped] - np.uint64(OVERHEAD)).tolist())

    def kind(start: int) -> str:
        region = heap.target.index.find(start)
        return "mmapped" if start in single else "brk" if region and region.name == "[heap]" else "mmap"

    return [Span(start, end, kind(start), 0) for start, end in sorted(heap.regions)]


def _charges(heap: OldMalloc) -> LazyCharges:
    def chunks(picked: Mask) -> Intervals:
        return joined((heap.at[picked] + np.uint64(OVERHEAD), heap.at[picked] + heap.size[picked]))

    def overhead() -> Intervals:
        both = [np.concatenate(two) for two in zip(chunks(heap.used), chunks(~heap.used))]
        return without(joined(merged(columns(heap.regions))), joined((both[0], both[1])))

    makers = {"in use": lambda: chunks(heap.used), "free": lambda: chunks(~heap.used), "overhead": overhead}
    return LazyCharges([(f"musl {owner}", make) for owner, make in makers.items()])


def _problems(heap: OldMalloc) -> List[Problem]:
    """Return the problems; what does not agree where a thread is inside is one and no damage."""
    moving = [one for one in heap.problems if one.kind in (COUNTED, "free-object")]
    reason = say_inside(heap.target, heap.location.module, "musl's malloc") if moving else ""
    if not reason:
        return list(bounded(heap.problems))
    message = (
        f"musl's malloc may have been stopped in the middle of its work ({reason}): what does not agree for that"
        f" reason is no damage; the first of {len(moving)}: {moving[0].message}"
    )
    return [*bounded(one for one in heap.problems if one not in moving), Problem("in-flux", None, message)]


def _explain(heap: OldMalloc, address: int) -> Optional[str]:
    """Return one line on an address, or None when it is in no chunk."""
    order = np.argsort(heap.at, kind="stable")
    row = int(np.searchsorted(heap.at[order], np.uint64(address), side="right")) - 1
    if row < 0 or address - int(heap.at[order[row]]) >= int(heap.size[order[row]]):
        return None
    at = int(order[row])
    return f"chunk {int(heap.at[at]):#x} of {int(heap.size[at])} bytes, {_NAMES[bool(heap.used[at])]}"
