"""mimalloc's heap as the neutral model sees it."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Iterator, List

from gdbext.errors import FaultError
from gdbext.heap.model import Arena, Heap
from gdbext.memory import view
from gdbext.process import Module
from gdbext.progress import Progress
from gdbext.target import Target

if TYPE_CHECKING:
    from gdbext.heap.mimalloc.model import Mimalloc

_AT_ENTRY = 9
_MOST = 64 << 20  # bytes of one region that are searched
_NAME = re.compile(r"/(libmimalloc|(lib)?python3\.1[3-9])")
_WORDS = re.compile(rb"mimalloc: ")
REMEDIES = {
    "corruption": "`blocks at ADDRESS` of the first damaged place shows the block and what it holds. One that is in "
    "two lists was freed twice. Running the program under AddressSanitizer, or with a mimalloc built with "
    "MI_DEBUG_FULL, names the line.",
    "trim": "mi_collect(true)",
}


def find_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return the heap of mimalloc as a list of one, or of none."""
    modules = list(_suspects(target)) if target.abi.pointer_size == 8 else []
    if not modules:
        return []
    from gdbext.heap.mimalloc.choose import find_mimalloc  # most processes have none, and pay for none

    found = find_mimalloc(target, modules, progress)
    return [] if found is None else [_neutral(found)]


def _suspects(target: Target) -> Iterator[Module]:
    """Iterate over mimalloc's library, and a program that has its words."""
    entry = target.auxv.get(_AT_ENTRY, 0)
    for module in target.modules:
        if _NAME.search(module.path) or (module.base <= entry < module.end and _has_words(target, module)):
            yield module


def _has_words(target: Target, module: Module) -> bool:
    for region in target.index.within(module.base, module.end):
        if region.readable and not region.writable and region.size <= _MOST:
            try:
                if _WORDS.search(view(target.memory, region.start, region.size)):
                    return True
            except FaultError:
                continue
    return False


def _neutral(heap: "Mimalloc") -> Heap:
    from gdbext.heap.mimalloc.check import check_heap
    from gdbext.heap.mimalloc.convert import blocks_of, charges_of, explain, spans_of
    from gdbext.heap.mimalloc.findings import find_findings

    spans = spans_of(heap)
    return Heap(
        "mimalloc",
        blocks_of(heap),
        [Arena(0, spans[0].start if spans else 0, f"{heap.unit}s", sum(one.end - one.start for one in spans))],
        spans,
        charges_of(heap),
        heap.location.evidence,
        check_heap(heap),
        find_findings(heap),
        remedies=dict(REMEDIES),
        complete=heap.complete,
        detail=heap,
        shrinks_from_top=False,
        explain=partial(explain, heap),
        metadata=list(heap.own),
        reserves=list(heap.reserves),
    )
