"""mallocng's heap as the neutral model sees it."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, List

from gdbext.heap.model import Arena, Heap
from gdbext.process import Module
from gdbext.progress import Progress
from gdbext.target import Target

if TYPE_CHECKING:
    from gdbext.heap.musl.model import Location

_NAME = re.compile(r"musl|/libc\.so$")
_VDSO = ("[vdso]", "linux-vdso.so.1")
REMEDIES = {
    "corruption": "Look at who writes to the block before the first damaged place: `blocks at ADDRESS` shows it and "
    "what it holds. Running the program under AddressSanitizer, or on glibc under valgrind, names the line.",
}


def find_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return the heap of musl's mallocng, or of its malloc before that, as a list of one, or of none."""
    modules = _suspects(target)
    if target.abi.pointer_size != 8 or not modules:
        return []
    from gdbext.heap.musl.find import find_locations  # most processes have none, and pay for none

    found = [_read(target, location, progress) for location in find_locations(target, modules)]
    return found or _find_old(target, modules, progress)


def _find_old(target: Target, modules: List[Module], progress: Progress) -> List[Heap]:
    from gdbext.heap.musl.oldfind import find_old

    locations = find_old(target, modules)
    if not locations:
        return []
    from gdbext.heap.musl.oldheap import read_heap

    return [read_heap(target, locations[0], dict(REMEDIES), progress)]


def _suspects(target: Target) -> List[Module]:
    """Return the modules that may have it: musl's library, or a program that is the only one."""
    modules = [module for module in target.modules if module.path not in _VDSO]
    return modules if len(modules) == 1 else [module for module in modules if _NAME.search(module.path)]


def _read(target: Target, location: "Location", progress: Progress) -> Heap:
    from gdbext.heap.musl.check import check_heap
    from gdbext.heap.musl.convert import blocks_of, charges_of, explain, metadata_of, spans_of
    from gdbext.heap.musl.findings import find_findings
    from gdbext.heap.musl.read import read_mallocng

    heap = read_mallocng(target, location, progress)
    return Heap(
        "musl",
        blocks_of(heap),
        [Arena(0, location.context, "main", None)],
        spans_of(heap),
        charges_of(heap),
        location.evidence,
        check_heap(heap),
        find_findings(heap),
        remedies=dict(REMEDIES),
        complete=heap.complete,
        detail=heap,
        size_classes=False,
        shrinks_from_top=False,
        explain=partial(explain, heap),
        metadata=metadata_of(heap),
    )
