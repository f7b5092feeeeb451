"""Reads musl's older malloc: chunks side by side from the beginning of a region to its end, each with its size twice.

A region begins with a chunk whose ``psize`` is 1, and ends with one of no size; a block with a mapping of its own has a
``psize`` of 16. Gaps in the last pages of modules are regions too (``__malloc_donate``). Nobody lists them: they are
looked for at the beginnings of pages, and in modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, List, Optional, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.musl.model import U64, Mask
from gdbext.heap.musl.oldfind import BINS, NEXT, OldLocation
from gdbext.kernels import ChunkRules, LinkRules, walk_chains, walk_chunks, words_of
from gdbext.memory import Region, view
from gdbext.memory.bulk import for_each_written_page, for_each_written_view, words_at
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

OVERHEAD, ALIGN = 16, 32  # bytes
_IN_USE = np.uint64(1)
_RULES = ChunkRules(8, ALIGN, ALIGN)
_FIRST = 2  # position of a region's first chunk, in words
_MANY = 8  # chunks that agree: there is a region, although it does not end
_MOST_MODULE = 64 << 20  # bytes of a module's data that are searched
COUNTED = "free-count"


@dataclass
class OldMalloc:
    """One heap. Of each chunk, by address:

    :param at: its address; what the program holds begins 16 bytes behind.
    :param size: bytes, its header included.
    :param used: whether it is in use.
    :param mapped: whether it has a mapping of its own.
    :param regions: start and end of each region.
    """

    target: Target
    location: OldLocation
    at: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    size: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    used: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    mapped: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    regions: List[Tuple[int, int]] = field(default_factory=list)
    problems: List[Problem] = field(default_factory=list)
    complete: bool = True


Run = Tuple[U64, U64]  # addresses and heads of chunks


def read_old(target: Target, location: OldLocation, progress: Progress) -> OldMalloc:
    """Return the heap as far as it can be read."""
    heap = OldMalloc(target, location)
    runs: List[Run] = [(heap.at, heap.size)]
    try:
        for done, region in enumerate(target.index.regions):
            progress.at("regions of musl's malloc", done, len(target.index.regions))
            if region.readable and region.writable:
                module = target.find_module(region.start)
                inside = module is not None and region.size <= _MOST_MODULE
                runs += _of_module(heap, region) if inside else _of_region(heap, region) if region.anonymous else ()
        heap.at, heads = (np.concatenate(column) for column in zip(*runs))
        heap.size = heads & ~np.uint64(7)
        heap.mapped = heads & np.uint64(2) != 0
        heap.used = (heads & _IN_USE != 0) | heap.mapped
        _check_lists(heap)
    except KeyboardInterrupt:
        heap.complete = False
        heap.problems.append(Problem("interrupted", None, "reading musl's malloc was stopped"))
    return heap


def _of_region(heap: OldMalloc, region: Region) -> Iterator[Run]:
    """Iterate over the chunks of anonymous memory: of each page that begins a region or a mapped block."""
    reach, target = region.start, heap.target
    for pages, rows in for_each_written_page(target.memory, target.abi, region.start, region.end):
        psize, csize = rows[:, _FIRST], rows[:, _FIRST + 1]
        begins = (psize == 1) & (csize & _IN_USE <= 1) & (csize >= ALIGN)
        mapped = (psize == OVERHEAD) & ((csize + np.uint64(OVERHEAD)) % np.uint64(target.abi.page_size) == 0)
        for row in np.flatnonzero(begins | mapped & (csize > 0)).tolist():
            start, size = int(pages[row]), int(csize[row]) + OVERHEAD
            if start < reach:
                continue
            if mapped[row]:
                if start + size <= region.end:
                    reach = start + size
                    heap.regions.append((start, reach))
                    yield np.array([start + OVERHEAD], np.uint64), np.array([size - OVERHEAD | 2], np.uint64)
                continue
            found = _walk(heap, start + OVERHEAD, region.end)
            if found is not None:
                reach = _end_of(found)
                heap.regions.append((start, reach))
                yield found


def _of_module(heap: OldMalloc, region: Region) -> Iterator[Run]:
    """Iterate over the chunks of gaps that a module's last page has: one begins where a chunk may."""
    try:
        words = words_at(heap.target.memory, heap.target.abi, region.start, region.size // 8)
    except FaultError:
        return
    at = np.flatnonzero((words[:-1] == 1) & (words[1:] >= ALIGN))
    address = np.uint64(region.start) + at.astype(np.uint64) * np.uint64(8)
    reach = region.start
    for start in address[address % np.uint64(ALIGN) == OVERHEAD].tolist():
        found = _walk(heap, start, region.end) if start >= reach else None
        if found is not None:
            reach = _end_of(found)
            heap.regions.append((start, reach))
            yield found


def _end_of(run: Run) -> int:
    return int(run[0][-1]) + (int(run[1][-1]) & ~7) + OVERHEAD


def _walk(heap: OldMalloc, start: int, stop: int) -> Optional[Run]:
    """Return the chunks of a region from its first one on; None where it is no region: no end, and few that agree."""
    target = heap.target
    try:
        words = words_of(view(target.memory, start, (stop - start) // 8 * 8), 8, target.abi.byteorder)
    except FaultError:
        return None
    found, end = walk_chunks(words, 0, len(words), _RULES)
    if not len(found):
        return None
    whole = np.append(np.frombuffer(words, np.uint64), np.zeros(2, np.uint64))  # type: ignore[call-overload]
    at = found.astype(np.int64)
    heads, behind = whole[at + 1], whole[np.append(at[1:], end)]
    wrong, ended = heads != behind, int(whole[end + 1]) == 1
    region = target.index.find(start)
    trusted = len(at) > _MANY or (region is not None and region.name == "[heap]")
    if not ended and not (trusted and 2 * wrong.sum() <= len(at)):
        return None
    address = np.uint64(start) + found * np.uint64(8)
    if not ended:
        _note_head(heap, start + 8 * end)
    for row in np.flatnonzero(wrong).tolist():
        _note(heap, int(address[row]), int(heads[row]) & ~7)
    return address, heads


def _note_head(heap: OldMalloc, address: int) -> None:
    heap.complete = False
    message = f"the header of the chunk {address:#x} is no size: what lies before it was written beyond its end"
    heap.problems.append(Problem("chunk-size", address, message, corruption=True))


def _note(heap: OldMalloc, address: int, size: int) -> None:
    message = f"the chunk {address:#x} of {size} bytes was written beyond its end: free would abort"
    heap.problems.append(Problem("overrun", address + OVERHEAD, message, corruption=True))


def _check_lists(heap: OldMalloc) -> None:
    """Compare the bins with the chunks that are free."""
    target, location = heap.target, heap.location
    try:
        words = np.array(target.reader.words(location.bins, 3 * BINS), np.uint64).reshape(-1, 3)
    except FaultError:
        return
    own = np.array([location.sentinel(number) for number in range(BINS)], np.uint64)
    heads = np.where(words[:, 1] == own, np.uint64(0), words[:, 1])
    memory = [one for low, high in heap.regions for one in for_each_written_view(target.memory, low, high, 4096)]
    rules = LinkRules(NEXT, 8, target.abi.byteorder, sentinels=tuple(own.tolist()))
    nodes = np.sort(walk_chains(memory, heads, None, rules, len(heap.at) + 1, len(heap.at) + BINS).nodes)
    free = np.sort(heap.at[~heap.used])
    for node in np.setdiff1d(nodes, free)[:1].tolist():
        message = f"a bin holds {node:#x}, which is no free chunk"
        heap.problems.append(Problem("free-object", node, message, corruption=True))
    if len(free) != len(nodes):
        message = f"{len(free)} chunks are free, the bins hold {len(nodes)}"
        heap.problems.append(Problem(COUNTED, location.bins, message, corruption=True))
