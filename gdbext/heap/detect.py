"""Which allocators a target has: one line for each that gdbext knows."""

from __future__ import annotations

import re
from typing import Callable, List, Sequence

from gdbext.errors import FaultError
from gdbext.heap.glibc.heap import find_heaps as find_glibc_heaps
from gdbext.heap.jemalloc.heap import find_heaps as find_jemalloc_heaps
from gdbext.heap.mimalloc.heap import find_heaps as find_mimalloc_heaps
from gdbext.heap.model import Heap
from gdbext.heap.musl.heap import find_heaps as find_musl_heaps
from gdbext.heap.tcmalloc.heap import find_heaps as find_tcmalloc_heaps
from gdbext.memory import view
from gdbext.memory.elf.elfdynamic import find_exported
from gdbext.memory.elf.elffile import find_image
from gdbext.process import Module
from gdbext.progress import Progress
from gdbext.target import Target

_PYTHON = re.compile(r"/(lib)?python\d[\d.]*t?m?(\.so[\d.]*)?$")
_LARGE = 1 << 18  # bytes of variables: an interpreter has more


def find_cpython_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return the heaps of CPython's own allocator; what finds and reads them is loaded where there may be one."""
    if not may_hold_cpython(target):
        return []
    from gdbext.heap.cpython.heap import find_heaps

    return find_heaps(target, progress)


def may_hold_cpython(target: Target) -> bool:
    """Whether a target may have a CPython."""
    return any(_may_hold_cpython(target, module) for module in target.modules)


def is_free_threaded(target: Target) -> bool:
    """Whether a target has a CPython that was built without the global lock."""
    if not may_hold_cpython(target):
        return False
    from gdbext.heap.cpython.find.runtimes import for_each_runtime

    return any(one.free_threaded for one in for_each_runtime(target))


def _may_hold_cpython(target: Target, module: Module) -> bool:
    """Whether a module exports CPython's runtime; where its exported names are not at hand, whether it may have one."""
    image = find_image(lambda at, size: view(target.memory, at, size), module.base, target.abi.page_size)
    try:
        return image is not None and find_exported(target.memory, target.abi, image, "_PyRuntime") is not None
    except FaultError:
        parts = target.index.within(module.base, module.end)
        return bool(_PYTHON.search(module.path)) or sum(one.size for one in parts if one.writable) >= _LARGE


# The first is asked last, and is given what the others have, which is none of its own.
FINDERS: Sequence[Callable[..., List[Heap]]] = (
    find_glibc_heaps,
    find_jemalloc_heaps,
    find_tcmalloc_heaps,
    find_musl_heaps,
    find_mimalloc_heaps,
    find_cpython_heaps,
)


def find_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return every heap of the target, in the allocators' order; none is an answer.

    libc brings its allocator into every process: beside another heap it counts only if it was ever used.
    """
    first, *others = FINDERS
    beside: List[Heap] = [heap for find in others for heap in find(target, progress)]
    taken = [(span.start, span.end) for heap in beside for span in heap.spans]
    heaps = [*first(target, progress, taken), *beside]
    if not any(heap.spans for heap in heaps):
        return heaps
    return [heap for heap in heaps if not _is_idle(heap)]


def _is_idle(heap: Heap) -> bool:
    """Whether a heap was read whole, took nothing from the system and has nothing to tell."""
    return heap.complete and not heap.spans and not heap.problems and not heap.findings
