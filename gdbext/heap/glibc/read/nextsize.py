"""The skip list of a large bin: ``fd_nextsize`` and ``bk_nextsize`` join the first chunk of each size in a ring.

Mirrors malloc/malloc.c: ``unlink_chunk``, the insertion in ``_int_malloc``, and ``do_check_malloc_state``. The bin
itself gives what each link must be, so no link is followed, and none can lead in a circle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, Sequence, Set

import numpy as np

from gdbext.heap.glibc.layouts import malloc_chunk
from gdbext.heap.glibc.read.lists import FreeList, ListMemory
from gdbext.heap.glibc.sizes import FLAG_BITS, SMALL_BINS
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import slices
from gdbext.report import Problem
from gdbext.wording import count_text

NO_CHUNKS: U64 = np.empty(0, np.uint64)
MOST_PROBLEMS = 50  # listed singly, of one bin
_AT_ONCE = 1 << 16  # chunks
_MORE = {"bin-order": ("more chunk", "larger than the one before"), "bin-nextsize": ("more link", "to the next size")}


def with_nextsize(lists: Sequence[FreeList], memory: ListMemory, in_flux: Sequence[bool]) -> List[FreeList]:
    """Return the lists, those that are whole with what is wrong with their order and their skip lists.

    Chunks wait in the unsorted bin without a skip list.

    :param in_flux: of each, whether a thread may be in the middle of hanging a chunk in or out.
    """
    suspect = _with_links([one for one in lists if one.kind == "unsorted" and one.whole], memory)
    found = []
    for one, passing in zip(lists, in_flux):
        if one.kind == "large" and one.whole:
            one = _with_problems(one, _check_large(one, memory, passing))
        elif id(one) in suspect:
            one = _with_problems(one, list(_check_unset(one, memory, passing)))
        found.append(one)
    return found


def _with_links(lists: Sequence[FreeList], memory: ListMemory) -> Set[int]:
    """Return the ids of the unsorted bins in which a large chunk has a link: many arenas have such a bin each."""
    chunks = np.concatenate([NO_CHUNKS, *(one.chunks for one in lists)])
    owner = np.repeat(np.arange(len(lists)), [len(one.chunks) for one in lists])
    parts = [_sizes(chunks[part], memory) for part in slices(len(chunks), _AT_ONCE)]
    large = np.concatenate([NO_CHUNKS, *parts]) >= np.uint64(memory.sizes.least_large)
    chunks, owner = chunks[large], owner[large]
    found: Set[int] = set()
    for name in ("fd_nextsize", "bk_nextsize"):
        links, known = memory.words(chunks + np.uint64(malloc_chunk(memory.target.abi).offset(name)))
        found.update(id(lists[at]) for at in np.unique(owner[known & (links != 0)]).tolist())
    return found


def _with_problems(one: FreeList, found: List[Problem]) -> FreeList:
    problems = found[:MOST_PROBLEMS]
    if len(found) > MOST_PROBLEMS:
        more, rest = _MORE[found[0].kind]
        message = f"{one.kind} bin {one.index}: {count_text(len(found) - MOST_PROBLEMS, more)} {rest}"
        damage = any(problem.corruption for problem in found[MOST_PROBLEMS:])
        problems.append(Problem(found[0].kind, None, message, corruption=damage))
    return replace(one, problems=tuple(problems)) if problems else one


def _sizes(chunks: U64, memory: ListMemory) -> U64:
    heads, _ = memory.words(chunks + np.uint64(malloc_chunk(memory.target.abi).offset("size")))
    sizes: U64 = heads & ~np.uint64(FLAG_BITS)
    return sizes


def _check_unset(one: FreeList, memory: ListMemory, in_flux: bool) -> Iterator[Problem]:
    """Iterate over the links of large chunks in a bin without a skip list: ``unlink_chunk`` would follow them."""
    chunks = one.chunks[_sizes(one.chunks, memory) >= np.uint64(memory.sizes.least_large)]
    for name in ("fd_nextsize", "bk_nextsize"):
        links, known = memory.words(chunks + np.uint64(malloc_chunk(memory.target.abi).offset(name)))
        wrong = np.flatnonzero(known & (links != 0))
        passing = (_bins_of(memory, links[wrong]) >= SMALL_BINS) & in_flux
        for row, excused in zip(wrong.tolist(), passing.tolist()):
            yield _wrong_link(one, (int(chunks[row]), name, int(links[row]), 0), excused)


def _check_large(one: FreeList, memory: ListMemory, in_flux: bool) -> List[Problem]:
    return list(_check_order(one, memory)) or list(_check_ring(one, memory, in_flux))


def _check_order(one: FreeList, memory: ListMemory) -> Iterator[Problem]:
    """Iterate over the chunks that are larger than the one before them: the first of a bin is its largest."""
    sizes = _sizes(one.chunks, memory)
    for row in (np.flatnonzero(sizes[1:] > sizes[:-1]) + 1).tolist():
        chunk, before = int(one.chunks[row]), int(one.chunks[row - 1])
        message = (
            f"large bin {one.index}: chunk {chunk:#x} of size {int(sizes[row]):#x} comes after {before:#x} of size"
            f" {int(sizes[row - 1]):#x}, expected sizes that descend"
        )
        yield Problem("bin-order", chunk, message, corruption=True)


def _check_ring(one: FreeList, memory: ListMemory, in_flux: bool) -> Iterator[Problem]:
    """Iterate over the links that are not as the bin's order asks for."""
    chunks, sizes = one.chunks, _sizes(one.chunks, memory)
    leads = np.concatenate([[True], sizes[1:] != sizes[:-1]])
    ring = chunks[leads]
    for name, shift in (("fd_nextsize", -1), ("bk_nextsize", 1)):
        expected = np.zeros(len(chunks), np.uint64)
        expected[leads] = np.roll(ring, shift)
        links, known = memory.words(chunks + np.uint64(malloc_chunk(memory.target.abi).offset(name)))
        wrong = np.flatnonzero(known & (links != expected))
        passing = _passing(one, memory, links[wrong]) & in_flux
        for row, excused in zip(wrong.tolist(), passing.tolist()):
            yield _wrong_link(one, (int(chunks[row]), name, int(links[row]), int(expected[row])), excused)


def _passing(one: FreeList, memory: ListMemory, links: U64) -> Mask:
    """Return which links may stand for a moment: to nothing, or to a chunk for this bin that comes or goes."""
    passing: Mask = (links == 0) | (_bins_of(memory, links) == one.index)
    return passing


def _bins_of(memory: ListMemory, links: U64) -> "np.typing.NDArray[np.int64]":
    """Return the bin of the chunk that each link leads to, -1 where none can be."""
    sizes = memory.sizes
    if not len(links):
        return np.empty(0, np.int64)
    near = np.where(links > np.uint64(sizes.word), links, np.uint64(0))
    heads, known = memory.words(near + np.uint64(malloc_chunk(memory.target.abi).offset("size")))
    aligned = (near + np.uint64(sizes.header)) % np.uint64(sizes.alignment) == 0
    return np.where(known & aligned, sizes.bin_indices(heads & ~np.uint64(FLAG_BITS)), -1)


def _wrong_link(one: FreeList, link: "tuple[int, str, int, int]", passing: bool) -> Problem:
    chunk, name, found, goal = link
    ring = "the next in the ring of sizes" if goal else "as the chunk before it has the same size"
    why = ring if one.kind == "large" else "as it is in no bin of its size yet"
    message = f"{one.kind} bin {one.index}: {name} of {chunk:#x} is {found:#x}, expected {goal:#x}, {why}"
    return Problem("bin-nextsize", chunk, message + "; its arena is in flux" * passing, corruption=not passing)
