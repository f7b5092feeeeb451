"""CPython's allocators as the neutral model sees them."""

from __future__ import annotations

import os
from functools import partial
from typing import List, Optional

from gdbext.errors import FaultError
from gdbext.heap.cpython.find.places import Places, find_places
from gdbext.heap.cpython.find.runtimes import for_each_runtime
from gdbext.heap.cpython.model import Pymalloc, Runtime, StatePlace
from gdbext.heap.cpython.objects.layouts import FREE_THREADED
from gdbext.heap.model import Blocks, Heap
from gdbext.progress import Progress
from gdbext.report import Evidence, Problem
from gdbext.target import Target

FAMILY = "pymalloc"
REMEDIES = {
    "corruption": "Look at who writes to the block before the first damaged place: `blocks at ADDRESS` shows it and "
    "what it holds; an extension module that writes beyond its block, or frees it twice, is the usual cause. "
    "PYTHONMALLOC=debug names the block when it is freed.",
}


def find_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return the heap of every allocator of every CPython in a target; those that were never used are none.

    What is recognised and could not be read is one more heap, without detail, that says why.
    """
    found: List[Pymalloc] = []
    problems: List[Problem] = []
    doubts: List[Problem] = []
    for runtime in for_each_runtime(target):
        why = _find_reason(target, runtime)
        places = find_places(target, runtime) if why is None else Places((), idle=False)
        for place in places.states:
            found += _read(target, runtime, place, progress, problems)
        if why is not None or not (places.states or places.idle):
            certain = runtime.address is not None
            (problems if certain else doubts).append(why or _not_found(target, runtime))
    if not found and not problems:
        problems = [one for one in doubts if _is_python(target, one)]
    names = [FAMILY] if len(found) == 1 else [f"{FAMILY} {number}" for number in range(len(found))]
    for heap, name in zip(found, names):
        heap.name = name
    return [*(neutral(target, heap) for heap in found), *_unread(problems, bool(found))]


def _find_reason(target: Target, runtime: Runtime) -> Optional[Problem]:
    """Return why the allocator of a build is one that cannot be read, or None where it can."""
    if runtime.free_threaded:
        known = ".".join(map(str, runtime.version or ())) in FREE_THREADED
        what = "neither its objects nor its threads are read"
        if known:
            what = "of its blocks in use some may be freed, and wait for other threads"
        why = f"is built without the global lock: it allocates by a mimalloc of its own; {what}"
    elif target.abi.pointer_size != 8:
        why = "is a 32-bit build, whose allocator is not read"
    else:
        return None
    return Problem("no-layout", runtime.module.base, f"{runtime.label} in {runtime.module.path} {why}")


def _is_python(target: Target, doubt: Problem) -> bool:
    """Whether what was not found is to be missed: no names are at hand, but the file is called python."""
    module = target.find_module(doubt.address or 0)
    return module is not None and os.path.basename(module.path).startswith(("python", "libpython"))


def _not_found(target: Target, runtime: Runtime) -> Problem:
    base, end = runtime.module.base, runtime.module.end
    lost = any(one.source == "absent" and one.writable for one in target.index.within(base, end))
    where = f"{runtime.label} in {runtime.module.path}"
    if lost:
        return Problem(
            "absent-memory", base, f"{where}: its variables are not in the target, so its allocator is not read"
        )
    return Problem("no-layout", base, f"{where}: the state of its allocator was not found")


def _read(
    target: Target, runtime: Runtime, place: StatePlace, progress: Progress, problems: List[Problem]
) -> "List[Pymalloc]":
    from gdbext.heap.cpython.read.build import read_pymalloc

    try:
        return [read_pymalloc(target, runtime, place, FAMILY, progress)]
    except FaultError as fault:
        message = f"{runtime.label} in {runtime.module.path}: the array of its arenas cannot be read"
        problems.append(Problem("absent-memory", fault.address, message))
        return []


def _unread(problems: List[Problem], beside: bool) -> List[Heap]:
    if not problems:
        return []
    name = f"{FAMILY} (not read)" if beside else FAMILY
    return [Heap(name, Blocks.empty(), (), problems=problems, complete=False, shrinks_from_top=False)]


def neutral(target: Target, heap: Pymalloc) -> Heap:
    """Return the neutral view of one allocator."""
    from gdbext.heap.cpython.read.convert import arenas_of, blocks_of, charges_of, spans_of
    from gdbext.heap.cpython.report.explain import explain
    from gdbext.heap.cpython.report.pinned import find_pinned

    blocks = blocks_of(heap)
    pinned = find_pinned(target, heap, blocks)
    return Heap(
        heap.name,
        blocks,
        arenas_of(heap),
        spans_of(heap),
        charges_of(heap, blocks),
        evidence=_evidence(heap),
        problems=heap.problems,
        findings=[] if pinned is None else [pinned],
        remedies=dict(REMEDIES),
        complete=heap.complete,
        detail=heap,
        largest_block=512,
        size_classes=False,
        shrinks_from_top=False,
        explain=partial(explain, heap),
        foreign=[(one.address, one.live) for one in heap.stacks],
    )


def _evidence(heap: Pymalloc) -> List[Evidence]:
    runtime, place = heap.runtime, heap.place
    where = f"{runtime.label}, {runtime.module.path}, build-id {runtime.module.build_id}, by {runtime.found_by}"
    return [
        Evidence("pymalloc", f"{where}; its state at {place.usedpools:#x} by {place.found_by}"),
        Evidence("layout", f"{place.geometry.origin}; {len(heap.arenas)} arenas, {len(heap.pools)} pools"),
    ]
