"""tcmalloc's heaps as the neutral model sees them."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Iterator, List

from gdbext.errors import FaultError
from gdbext.heap.model import Arena, Heap
from gdbext.memory import Region, view
from gdbext.process import Module
from gdbext.progress import Progress
from gdbext.target import Target

if TYPE_CHECKING:
    from gdbext.heap.tcmalloc.model import Location

_AT_ENTRY = 9
_MOST = 64 << 20  # bytes of one region that are searched
_NAME = re.compile(r"/libtcmalloc")
_WORDS = re.compile(rb"TCMALLOC_[A-Z_]{8}")
REMEDIES = {
    "corruption": "`blocks at ADDRESS` of the first damaged place shows the object and what it holds. One that is in "
    "two lists was freed twice. Running the program under AddressSanitizer, or with "
    "libtcmalloc_debug, names the line.",
    "trim": "MallocExtension::instance()->ReleaseFreeMemory()",
}


def find_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return the heap of each tcmalloc of a target; none is an answer."""
    modules = list(for_each_suspect(target, target.auxv.get(_AT_ENTRY, 0))) if target.abi.pointer_size == 8 else []
    if not modules:
        return []
    from gdbext.heap.tcmalloc.find import find_locations  # most processes have none, and pay for none

    return [_read(target, location, progress) for location in find_locations(target, modules)]


def _read(target: Target, location: "Location", progress: Progress) -> Heap:
    from gdbext.heap.tcmalloc.build import read_tcmalloc
    from gdbext.heap.tcmalloc.check import check_heap
    from gdbext.heap.tcmalloc.convert import blocks_of, charges_of, metadata_of, spans_of
    from gdbext.heap.tcmalloc.explain import explain
    from gdbext.heap.tcmalloc.extension import for_each_extension
    from gdbext.heap.tcmalloc.findings import find_findings

    heap = read_tcmalloc(target, location, progress)
    own = zip(*(column.tolist() for column in metadata_of(heap)))
    return Heap(
        "tcmalloc",
        blocks_of(heap),
        [Arena(0, location.stats, "page heap", heap.system_bytes)],
        spans_of(heap),
        charges_of(heap),
        location.evidence,
        check_heap(heap),
        find_findings(heap),
        remedies=dict(REMEDIES),
        complete=heap.complete,
        detail=heap,
        caches_known=location.caches is not None,
        shrinks_from_top=False,
        explain=partial(explain, heap),
        metadata=[*own, *for_each_extension(heap)],
    )


def for_each_suspect(target: Target, entry: int) -> Iterator[Module]:
    """Iterate over the modules that may hold one: its libraries, and a program that has its words.

    :param entry: the program's first instruction (AT_ENTRY), 0 where it is not known.
    """
    for module in target.modules:
        if _NAME.search(module.path) or (module.base <= entry < module.end and _has_words(target, module)):
            yield module


def _has_words(target: Target, module: Module) -> bool:
    regions = target.index.within(module.base, module.end)
    return any(_is_in(target, one) for one in regions if one.readable and not one.writable and one.size <= _MOST)


def _is_in(target: Target, region: Region) -> bool:
    try:
        return _WORDS.search(view(target.memory, region.start, region.size)) is not None
    except FaultError:
        return False
