"""Where the allocators of an interpreter are: by its runtime, by symbols, by structure, all held to the same rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.heap.cpython.find.runtimes import find_symbol
from gdbext.heap.cpython.find.structural import Ring, explains, find_by_structure, find_ring
from gdbext.heap.cpython.layouts import (
    ARENAS_IN_STATE,
    CHUNK_DATA,
    CHUNK_PREVIOUS,
    CHUNK_SIZE,
    CHUNK_TOP,
    MAXARENAS_IN_STATE,
    NARENAS_IN_STATE,
    RAW_BLOCKS_IN_STATE,
    RUNTIMES,
    THREAD_NEXT,
    RuntimeLayout,
)
from gdbext.heap.cpython.model import DataStack, Runtime, StatePlace
from gdbext.heap.cpython.objects.layouts import FREE_THREADED
from gdbext.target import Target

MOST_INTERPRETERS = 1 << 10
MOST_THREADS = 1 << 16
MOST_CHUNKS = 1 << 12
_MOST_CHUNK = 1 << 30  # bytes


@dataclass(frozen=True)
class Places:
    """What was found of one interpreter's allocators.

    :param idle: whether there is one that has never had an arena.
    """

    states: Sequence[StatePlace]
    idle: bool


def find_places(target: Target, runtime: Runtime) -> Places:
    """Return the allocators of a runtime; that none was found is no statement that there is none."""
    rings = [*_rings_of_interpreters(target, runtime), *_rings_of_symbols(target, runtime)]
    states = [one for ring, found_by in rings if (one := _state(target, runtime, ring, found_by)) is not None]
    used = [one for one in states if one.arenas]
    if used:
        return Places(used, idle=False)
    structural, idle = find_by_structure(target, runtime.module)
    return Places(structural, idle or bool(states))


def for_each_interpreter(target: Target, runtime: Runtime) -> Iterator[int]:
    """Iterate over the interpreters of a runtime, as far as its list leads."""
    layout = layout_of(runtime)
    if layout is None or runtime.address is None:
        return
    yield from for_each_linked(target, runtime.address + layout.interpreters, layout.next, MOST_INTERPRETERS)


def layout_of(runtime: Runtime) -> Optional[RuntimeLayout]:
    """Return where the interpreters of a runtime are, or None where that is not known of its version."""
    if runtime.version is None or (runtime.free_threaded and ".".join(map(str, runtime.version)) not in FREE_THREADED):
        return None
    return RUNTIMES.get(runtime.version)


def find_data_stacks(target: Target, runtime: Runtime) -> Sequence[DataStack]:
    """Return the chunks of frames that threads' data stacks have, by address."""
    layout = layout_of(runtime)
    if layout is None or layout.datastack is None:
        return ()
    found: Dict[int, DataStack] = {}
    for interpreter in for_each_interpreter(target, runtime):
        for thread in for_each_linked(target, interpreter + layout.threads, THREAD_NEXT, MOST_THREADS):
            top = _word(target, thread + layout.datastack + target.abi.pointer_size) or 0
            for chunk in for_each_linked(target, thread + layout.datastack, CHUNK_PREVIOUS, MOST_CHUNKS):
                one = _data_stack(target, chunk, top)
                if one is not None:
                    found[chunk] = one
    return [found[chunk] for chunk in sorted(found)]


def _data_stack(target: Target, chunk: int, top: int) -> Optional[DataStack]:
    """Return a chunk with what of it holds frames; of a thread's newest chunk the thread says that, of others they do.

    :param top: ``datastack_top`` of the thread.
    """
    size, used = _word(target, chunk + CHUNK_SIZE), _word(target, chunk + CHUNK_TOP)
    if not size or used is None or (size | chunk) % target.abi.page_size or size > _MOST_CHUNK:
        return None
    live = top if chunk < top <= chunk + size else chunk + CHUNK_DATA + used * target.abi.pointer_size
    return DataStack(chunk, size, min(live, chunk + size)) if _is_mapped(target, chunk, size) else None


def _is_mapped(target: Target, start: int, size: int) -> bool:
    held = sum(min(one.end, start + size) - max(one.start, start) for one in target.index.within(start, start + size))
    return held == size


def for_each_linked(target: Target, head: int, next: int, most: int) -> Iterator[int]:
    """Iterate over a list that ends with null, or where it leads nowhere or back."""
    seen: "set[int]" = set()
    at = _word(target, head)
    while at and at not in seen and len(seen) < most:
        if _word(target, at + next) is None:
            return
        yield at
        seen.add(at)
        at = _word(target, at + next)


def _word(target: Target, address: int) -> Optional[int]:
    try:
        return target.reader.word(address)
    except FaultError:
        return None


def _rings_of_interpreters(target: Target, runtime: Runtime) -> Iterator[Tuple[Ring, str]]:
    layout = layout_of(runtime)
    if layout is None or layout.obmalloc is None:
        return
    seen: "set[int]" = set()
    for interpreter in for_each_interpreter(target, runtime):
        at: Optional[int] = interpreter + layout.obmalloc
        if layout.obmalloc_is_pointer:
            at = _word(target, interpreter + layout.obmalloc)
        ring = find_ring(target, at) if at and at not in seen else None
        if ring is not None:
            seen.add(ring.address)
            yield ring, "_PyRuntime"


def _rings_of_symbols(target: Target, runtime: Runtime) -> Iterator[Tuple[Ring, str]]:
    address = find_symbol(target, runtime.module, "usedpools")
    ring = None if address is None else find_ring(target, address)
    if ring is not None:
        yield ring, "symbols"


def _state(target: Target, runtime: Runtime, ring: Ring, found_by: str) -> Optional[StatePlace]:
    if found_by == "symbols":
        names = ("arenas", "maxarenas", "narenas_currently_allocated", "raw_allocated_blocks")
        places: List[Optional[int]] = [find_symbol(target, runtime.module, name) for name in names]
    else:
        offsets = (ARENAS_IN_STATE, MAXARENAS_IN_STATE, NARENAS_IN_STATE, RAW_BLOCKS_IN_STATE)
        places = [ring.address + offset for offset in offsets]
    arenas, limit, narenas, raw = (None if at is None else _word(target, at) for at in places)
    if arenas is None or (arenas and not explains(target, arenas, ring)):
        return None
    counts = {"narenas_currently_allocated": narenas, "raw_allocated_blocks": raw}
    counted = {name: value for name, value in counts.items() if value is not None}
    entries = None if limit is None else limit & 0xFFFF_FFFF
    return StatePlace(ring.address, arenas, entries, ring.geometry, found_by, counted)
