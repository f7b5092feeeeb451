"""Arenas and heaps without any symbol: by the shapes that only ptmalloc leaves in memory.

Two independent traces. In ``malloc_state`` every empty bin links to itself, two words before where it
stands (``malloc_init_state`` and ``bin_at`` in malloc/malloc.c); the last of the 127 is never used. At
addresses aligned to ``HEAP_MAX_SIZE`` a ``heap_info`` names its arena (malloc/arena.c). Which variant of
the structures it is, the ring of arenas tells: it closes for one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Iterator, Mapping, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.heap.glibc.find.invariants import ArenaCheck, Probe, Ring, check_arena, follow_ring
from gdbext.heap.glibc.layouts import (
    BIN_COUNT,
    alignments,
    heap_infos,
    heap_max_default,
    malloc_states,
)
from gdbext.heap.glibc.read.segments import aligned_addresses
from gdbext.layout import StructLayout
from gdbext.memory import Memory, Region, for_each_written
from gdbext.memory.bulk import closed, words_at
from gdbext.memory.intervals import distinct
from gdbext.progress import Progress

_PIECE = 4 << 20
_DATA_LIMIT = 256 << 20  # of one mapping; no data segment of a program is near it
_UNNAMED_LIMIT = 32 << 20
_HIT_LIMIT = 4096
_DATA_ALIGNMENT = 32  # compilers align large objects so, on x86 at least
_SMALLEST_HEAP_MAX = 256 << 10  # four huge pages of 64 KiB

Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Candidate:
    """A ``malloc_state`` that fits.

    :param alignment: ``MALLOC_ALIGNMENT`` that the layout was made for.
    :param ring: the arenas that it leads to under this layout.
    :param known_by: how many heaps and thread arenas lead to this very address.
    """

    address: int
    layout: StructLayout
    alignment: int
    check: ArenaCheck
    ring: Ring
    known_by: int

    @property
    def rank(self) -> tuple[bool, int, int, int, bool, int]:
        """Orders candidates for the same memory, the best last."""
        return (
            self.ring.closed,
            self.known_by,
            len(self.ring.arenas),
            -len(self.check.faults),
            self.address % _DATA_ALIGNMENT == 0,
            self.check.bins,
        )


@dataclass(frozen=True)
class HeapSeen:
    """A ``heap_info`` at an aligned address.

    :param fifth: the word after ``mprotect_size``: ``pagesize``, padding or the arena's first word.
    """

    address: int
    arena: int
    prev: int
    size: int
    mprotect_size: int
    fifth: int


class ThreadArenas:
    """The arenas that heaps hold, and where their ``next`` leads by each layout.

    :param heaps: as :func:`find_heap_infos` returns them.
    """

    def __init__(self, probe: Probe, heaps: Sequence[HeapSeen]) -> None:
        self.addresses = frozenset(heap.arena for heap in heaps if is_first(probe, heap))
        self._probe = probe
        self._nexts: dict[int, Counter[Optional[int]]] = {}

    def count(self, layout: StructLayout, address: int) -> int:
        """Return how many heaps and arenas lead to ``address``."""
        offset = layout.offset("next")
        if offset not in self._nexts:
            nexts = (self._probe.find_word(arena + offset) for arena in self.addresses)
            self._nexts[offset] = Counter(nexts)
        return self._nexts[offset][address] + (address in self.addresses)


def data_regions(regions: Sequence[Region]) -> Iterator[Region]:
    """Iterate over writable mappings of files and the anonymous ones that continue them (``.bss``)."""
    after_file = 0
    for region in regions:
        follows = region.start == after_file and region.anonymous and not region.name
        if not region.anonymous or follows:
            after_file = region.end
            if region.writable and region.readable and region.size <= _DATA_LIMIT:
                yield region


def unnamed_regions(probe: Probe, known: ThreadArenas) -> Iterator[Region]:
    """Iterate over what may hold data where the target does not tell which mapping is a file's."""
    heaps = {region.start for region in map(probe.region, known.addresses) if region is not None}
    for region in probe.index.regions:
        usable = region.writable and region.readable and not region.name
        if usable and region.size <= _UNNAMED_LIMIT and region.start not in heaps:
            yield region


def find_bin_arenas(
    probe: Probe, known: ThreadArenas, progress: Progress
) -> tuple[list[Candidate], int]:
    """Return the arenas whose bins were found in data segments, the best fit of each.

    Also returns how many likely places were not looked at, because there were too many.
    """
    found, skipped = _arenas_in(probe, data_regions(probe.index.regions), known, progress)
    if found:
        return found, skipped
    return _arenas_in(probe, unnamed_regions(probe, known), known, progress)


def _arenas_in(
    probe: Probe, regions: Iterable[Region], known: ThreadArenas, progress: Progress
) -> tuple[list[Candidate], int]:
    found: dict[int, Candidate] = {}
    tried = 0
    for region in regions:
        progress.at("searching data segments", region.start, None)
        for bins in _bin_arrays(probe, region):
            tried += 1
            best = best_fit(probe, bins, known) if tried <= _HIT_LIMIT else None
            if best is not None:
                found[best.address] = best
    return _without_overlaps(found), max(tried - _HIT_LIMIT, 0)


def _without_overlaps(found: Mapping[int, Candidate]) -> list[Candidate]:
    """Return the arenas but for those that overlap a better one: bins counted from another than the first."""
    kept: set[int] = set()
    for one in sorted(found.values(), key=lambda each: each.rank, reverse=True):
        if all(abs(one.address - address) >= found[address].layout.size for address in kept):
            kept.add(one.address)
    return [one for address, one in found.items() if address in kept]


def _bin_arrays(probe: Probe, region: Region) -> Iterator[int]:
    """Iterate over where ``bins`` may begin: such that a self-linked slot is its last."""
    word = probe.abi.pointer_size
    extent = 2 * BIN_COUNT * word
    hits = _self_linked(probe, region)
    lasts = hits[np.append(np.diff(hits) != 2 * word, True)] if len(hits) else hits
    covered = 0
    for hit in lasts.tolist()[::-1]:
        bins = hit - extent + 2 * word
        if not covered <= bins < covered + extent:
            yield bins
            covered = bins


def _self_linked(probe: Probe, region: Region) -> Addresses:
    """Return where two consecutive words both hold the address two words before the first."""
    abi, word = probe.abi, probe.abi.pointer_size
    parts: list[Addresses] = [np.empty(0, np.uint64)]
    written = closed(for_each_written(probe.target.memory, region.start, region.end))
    for start in (at for low, high in written for at in range(low, high, _PIECE)):
        size = min(_PIECE + word, region.end - start)
        try:
            words = words_at(probe.target.memory, abi, start, size // word)
        except FaultError:
            continue  # absent in part: what is missing cannot be searched
        twin = np.flatnonzero((words[:-1] == words[1:]) & (words[1:] != 0))
        places = twin.astype(np.uint64) * np.uint64(word) + np.uint64(start)
        parts.append(places[words[twin] == places - np.uint64(2 * word)])
    return distinct(np.concatenate(parts))


def best_fit(probe: Probe, bins: int, known: ThreadArenas) -> Optional[Candidate]:
    """Return the ``malloc_state`` around an array of bins, by the layout that fits best, or None."""
    return _best(
        fit_layout(probe, bins - layout.offset("bins"), layout, alignment, known)
        for layout, alignment in _all_layouts(probe.abi)
    )


def fit_arena(probe: Probe, address: int, known: ThreadArenas) -> Optional[Candidate]:
    """Return the best layout for a ``malloc_state`` whose address is known, or None."""
    return _best(fit_layout(probe, address, *choice, known) for choice in _all_layouts(probe.abi))


def fit_layout(
    probe: Probe, address: int, layout: StructLayout, alignment: int, known: ThreadArenas
) -> Optional[Candidate]:
    """Return the arena at ``address`` when its invariants hold by ``layout``, or None."""
    check = check_arena(probe, address, layout, alignment)
    if check is None or check.pristine or not check.sound:
        return None
    ring = follow_ring(probe, address, layout)
    return Candidate(address, layout, alignment, check, ring, known.count(layout, address))


def _all_layouts(abi: Abi) -> Iterator[tuple[StructLayout, int]]:
    for alignment in alignments(abi):
        for layout in malloc_states(abi, alignment):
            yield layout, alignment


def _best(fits: Iterable[Optional[Candidate]]) -> Optional[Candidate]:
    return max((fit for fit in fits if fit is not None), key=lambda fit: fit.rank, default=None)


# -- heaps ------------------------------------------------------------------------------------------


def find_heap_infos(probe: Probe, extra_alignment: int = 0) -> list[HeapSeen]:
    """Return what looks like a ``heap_info`` at aligned addresses and belongs to a first heap.

    :param extra_alignment: another ``HEAP_MAX_SIZE`` to try, or 0.
    """
    seen = list(_plausible_heaps(probe, extra_alignment))
    arenas = {heap.arena for heap in seen if is_first(probe, heap)}
    return [heap for heap in seen if heap.arena in arenas]


def is_first(probe: Probe, heap: HeapSeen) -> bool:
    """Whether the heap holds its own arena, directly behind the ``heap_info``."""
    sizes = {info.size for alignment in alignments(probe.abi) for info in heap_infos(probe.abi, alignment)}
    return heap.prev == 0 and heap.arena - heap.address in sizes


def _plausible_heaps(probe: Probe, extra_alignment: int) -> Iterator[HeapSeen]:
    steps = {heap_max_default(probe.abi), extra_alignment} - {0}
    for address in sorted(set(_aligned(probe.target.memory, steps))):
        words = probe.find_words(address, 5)
        if words is not None:
            heap = HeapSeen(address, *words)
            if _is_plausible(probe, heap):
                yield heap


def _aligned(memory: Memory, steps: set[int]) -> Iterator[int]:
    for region in memory.regions():
        if region.writable and region.readable and region.start % _SMALLEST_HEAP_MAX == 0:
            yield region.start
    for step in steps:
        yield from aligned_addresses(memory, step)


def _is_plausible(probe: Probe, heap: HeapSeen) -> bool:
    page = probe.abi.page_size
    return (
        0 < heap.size <= heap.mprotect_size
        and heap.size % page == 0
        and heap.mprotect_size % page == 0
        and heap.prev % _SMALLEST_HEAP_MAX == 0
        and heap.arena % probe.abi.pointer_size == 0
        and probe.writable(heap.arena)
    )


def choose_heap_info(probe: Probe, heaps: Sequence[HeapSeen], alignment: int) -> Optional[StructLayout]:
    """Return the ``heap_info`` that the first heaps agree on, or None when there are none."""
    first = [heap for heap in heaps if is_first(probe, heap)]
    votes = [
        (sum(_fits_info(probe, heap, info) for heap in first), info)
        for info in heap_infos(probe.abi, alignment)
    ]
    count, best = max(votes, key=lambda vote: vote[0])
    return best if count else None


def _fits_info(probe: Probe, heap: HeapSeen, info: StructLayout) -> bool:
    if heap.arena - heap.address != info.size:
        return False
    is_page = heap.fifth >= probe.abi.page_size and heap.fifth & (heap.fifth - 1) == 0
    return is_page if "pagesize" in info else not is_page


def choose_heap_max(probe: Probe, heaps: Sequence[HeapSeen], hp_pagesize: Optional[int]) -> int:
    """Return ``HEAP_MAX_SIZE``: the largest of the possible values that all heaps seen are aligned to.

    Since glibc commit c1beb51d08 ("malloc: Add Huge Page support to arenas") (in 2.35) it is four huge
    pages where they are in use; since 9f551e28a7 ("malloc: Improve arena_for_chunk()") (in 2.42) constant
    again. Where several values fit, they mean the same for the heaps that there are.

    :param hp_pagesize: ``mp_.hp_pagesize`` in bytes, or None when that is not known.
    """
    default = heap_max_default(probe.abi)
    # Without mp_, each heap's own page size tells.
    pages = {heap.fifth for heap in heaps} if hp_pagesize is None else {hp_pagesize}
    huge = {4 * page for page in pages if page and page % _SMALLEST_HEAP_MAX == 0 and page & (page - 1) == 0}
    fitting = [
        value
        for value in {default} | huge
        if all(heap.address % value == 0 and heap.mprotect_size <= value for heap in heaps)
    ]
    return max(fitting, default=default) if heaps else default
