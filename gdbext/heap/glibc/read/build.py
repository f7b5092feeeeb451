"""The whole glibc heap of a target, put together.

Walk all arenas; follow all free lists; where the walk met damage, walk again with the listed chunks as
landmarks; only then find the thread caches, which are recognised among known chunks; then mark states.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Dict, Iterator, List, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.find.globals import find_arenas
from gdbext.heap.glibc.find.location import Tcache, with_tcaches
from gdbext.heap.glibc.find.tcaches import find_safe_linking, find_tcaches, find_thread_arenas
from gdbext.heap.glibc.find.underway import find_underway
from gdbext.heap.glibc.read.binmap import with_binmap
from gdbext.heap.glibc.read.chunks import Chunks, GrowingChunks
from gdbext.heap.glibc.read.convert import blocks_of
from gdbext.heap.glibc.read.coverage import Coverage
from gdbext.heap.glibc.read.fastbins import fastbin_heads, follow_fastbins
from gdbext.heap.glibc.read.keys import check_keys
from gdbext.heap.glibc.read.lists import Bin, FreeList, ListMemory, follow_bins, read_bins
from gdbext.heap.glibc.read.mark import check_flags, check_merged, check_unlisted, mark_states
from gdbext.heap.glibc.read.mmapped import find_mmapped
from gdbext.heap.glibc.read.nextsize import with_nextsize
from gdbext.heap.glibc.read.segments import (
    Interval,
    MainArena,
    read_arena,
    thread_segments,
)
from gdbext.heap.glibc.read.segments import (
    find_heaps as find_heap_infos,
)
from gdbext.heap.glibc.read.tcache import check_shared, read_cache
from gdbext.heap.glibc.read.walk import NONE_KNOWN, Segment, Walked, begin_walk, readable_spans, walk_segment
from gdbext.heap.glibc.sizes import sizes_for
from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.heap.model import U64, State
from gdbext.memory.intervals import columns, unite
from gdbext.progress import Progress
from gdbext.report import Problem, ThreadRef
from gdbext.target import Target

_TOGETHER = 1 << 26  # bytes of arenas whose lists are followed at once


def read_heap(target: Target, progress: Progress, taken: Sequence[Interval] = ()) -> Optional[GlibcHeap]:
    """Read the ptmalloc heap of a target, or return None when it has none.

    An interrupt ends the reading early; what is there then is returned with ``complete`` False.

    :param taken: start and end of what other allocators have.
    :raises KeyboardInterrupt: where nothing is known yet, and at the very end, when chunks become blocks in place.
    """
    location = find_arenas(target, progress)
    if location is None:
        return None
    heap = GlibcHeap(target, location, sizes_for(target.abi, location.alignment))
    builder = _Builder(heap, progress, taken)
    for step in (builder.run, builder.mark):  # what has been walked is marked also after an interrupt
        try:
            step()
        except KeyboardInterrupt:
            builder.note_interrupt()
    builder.finish()
    return heap


class _Builder:
    def __init__(self, heap: GlibcHeap, progress: Progress, taken: Sequence[Interval]) -> None:
        self.heap, self.progress, self.taken = heap, progress, taken
        self.target, self.location, self.sizes = heap.target, heap.location, heap.sizes
        self.chunks = GrowingChunks()

    def run(self) -> None:
        """Take all steps but the last two, in the one order in which each has what it needs."""
        self._read_arenas()
        self._walk()
        self._walk_old_mappings()
        self._read_bins()
        if self._damaged():
            self._walk_again()
            self._read_bins()
        self.progress.at("thread caches", 0, None)
        self._read_single_lists(self.chunks.finish())
        self._attach_threads()
        self.progress.at("mmapped chunks", 0, None)
        self._find_mmapped()

    def note_interrupt(self) -> None:
        """Say, once, that something is missing."""
        if self.heap.complete:
            message = "interrupted: what was not reached is missing, and cached or listed chunks may count as used"
            self.heap.problems.append(Problem("interrupted", None, message))
        self.heap.complete = False

    def mark(self) -> None:
        """Set the states of the chunks that have been walked."""
        chunks = self.chunks.finish()
        lists: List[Sequence[FreeList]] = [view.lists for view in self.heap.arenas]
        excuses = [_excuse(view) for view in self.heap.arenas]
        problems = mark_states(chunks, lists, self.heap.caches, Coverage(self.heap).unknown)
        if self.heap.complete:  # else the lists were perhaps not read
            problems += check_unlisted(chunks, excuses)
        in_flux = [view.head.in_flux for view in self.heap.arenas]
        problems += check_merged(chunks, in_flux)
        problems += check_flags(chunks, self._main_position, in_flux)
        self.heap.problems += problems

    def finish(self) -> None:
        """Make blocks of the chunks."""
        self.heap.blocks = blocks_of(self.heap, self.chunks)

    def _read_arenas(self) -> None:
        self.heap.underway = find_underway(self.target, self.location)
        total = len(self.location.arenas)
        for index in range(total):
            self.progress.at("arenas", index, total)
            try:
                head = read_arena(self.target, self.location, index)
            except FaultError as fault:
                message = f"arena {self.location.arenas[index]:#x}: {fault}"
                self.heap.problems.append(Problem("absent-memory", fault.address, message))
                continue
            view = ArenaView(replace(head, alone=bool(self.heap.underway.alone)))
            self.heap.arenas.append(view)
            view.walked = [begin_walk(segment) for segment in self._segments(view)]

    def _walk(self, known: U64 = NONE_KNOWN) -> None:
        """Walk all segments, in order of address: so the chunks are in order too."""
        segments = [(at, walked) for at, view in enumerate(self.heap.arenas) for walked in view.walked]
        segments.sort(key=lambda one: one[1].segment.first)
        extent = sum((one.segment.top or one.segment.end) - one.segment.first for _, one in segments)
        self.chunks = GrowingChunks(len(self.heap.arenas), extent)
        for number, (owner, walked) in enumerate(segments):
            self.progress.at("segments", number, len(segments))
            self._walk_one(owner, walked, known)

    def _walk_one(self, owner: int, walked: Walked, known: U64 = NONE_KNOWN) -> None:
        self.chunks.begin(owner)
        walk_segment(self.target, self.sizes, walked, self.chunks, known, self.progress)

    def _segments(self, view: ArenaView) -> List[Segment]:
        if view.head.kind == "main":
            return self._main_segments(view)
        view.heaps, problems = find_heap_infos(self.target, self.location, view.head)
        view.problems += problems
        return thread_segments(self.target, self.location, self.sizes, view.head, view.heaps)

    def _main_segments(self, view: ArenaView) -> List[Segment]:
        try:
            segments = MainArena(self.target, self.location, self.sizes, view.head).segments()
        except FaultError as fault:
            message = f"main arena: {fault}; its chunks are unknown"
            view.problems.append(Problem("absent-memory", fault.address, message))
            return []
        if not any(segment.top is not None for segment in segments) and view.head.system_mem:
            message = f"top of the main arena is {view.head.top:#x}, in no memory that malloc has"
            absent = self._absent(view.head.top)
            kind = "absent-memory" if absent else "top-address"
            view.problems.append(Problem(kind, view.head.top, message, corruption=not absent))
        return segments

    def _absent(self, address: int) -> bool:
        region = self.target.index.find(address)
        return region is not None and region.source == "absent"

    def _walk_old_mappings(self) -> None:
        """Where the main arena's segments do not add up: mappings that took brk's place."""
        at = self._main_position
        if at < 0:
            return
        view = self.heap.arenas[at]
        missing = view.head.system_mem - view.met_bytes
        if missing <= 0:
            return
        finder = MainArena(self.target, self.location, self.sizes, view.head)
        for segment in finder.for_each_old_mapping(self._claimed(), missing):
            view.walked.append(begin_walk(segment))
            self._walk_one(at, view.walked[-1])

    @property
    def _main_position(self) -> int:
        """The position of the main arena, or -1."""
        return next((at for at, view in enumerate(self.heap.arenas) if view.head.kind == "main"), -1)

    def _claimed(self) -> List[Interval]:
        claimed = [
            (walked.segment.start, walked.end) for view in self.heap.arenas for walked in view.walked
        ]
        for view in self.heap.arenas:
            claimed += [(info.address, info.address + info.mprotect_size) for info in view.heaps]
        if not self.taken:
            return claimed
        every = unite([columns([*claimed, *self.taken])]).covered
        return list(zip(every.starts.tolist(), every.ends.tolist()))

    def _read_bins(self) -> None:
        for views in self._together():
            memory = self._memory_of(views)
            heads = [(view, bins) for view in views for bins in [self._find_bins(view)] if bins is not None]
            lists = follow_bins(memory, [one for _, bins in heads for one in bins])
            flux = [view.head.in_flux for view, bins in heads for _ in bins]
            rest = iter(with_nextsize(lists, memory, flux))
            for view, bins in heads:
                self._keep_lists(view, list(islice(rest, len(bins))))

    def _together(self) -> Iterator[List[ArenaView]]:
        """Iterate over the arenas, many small ones at a time; of a process their memory is copied."""
        views: List[ArenaView] = []
        size = 0
        for view in self.heap.arenas:
            own = sum(walked.segment.end - walked.segment.start for walked in view.walked)
            if views and size + own > _TOGETHER:
                yield views
                views, size = [], 0
            views.append(view)
            size += own
        if views:
            yield views

    def _find_bins(self, view: ArenaView) -> Optional[List[Bin]]:
        self.progress.at("free lists", view.head.index, len(self.heap.arenas))
        try:
            return read_bins(self.target, self.sizes, self.location, view.head)
        except FaultError as fault:
            view.listed = False
            self._note_lists(view, fault)
            return None

    def _keep_lists(self, view: ArenaView, lists: List[FreeList]) -> None:
        try:
            view.lists = with_binmap(lists, self.location, view.head, self.target.reader)
        except FaultError as fault:
            view.listed = False
            self._note_lists(view, fault)

    def _memory_of(self, views: Sequence[ArenaView]) -> ListMemory:
        """Return what can be read of the segments of some arenas."""
        walked = [one for view in views for one in view.walked]
        return ListMemory(self.target, self.sizes, readable_spans(self.target, self.sizes, walked))

    def _damaged(self) -> bool:
        return any(
            problem.kind == "chunk-size"
            for view in self.heap.arenas
            for walked in view.walked
            for problem in walked.problems
        )

    def _walk_again(self) -> None:
        listed = (free_list.chunks for view in self.heap.arenas for free_list in view.lists)
        known = np.unique(np.concatenate([NONE_KNOWN, *listed]))
        for view in self.heap.arenas:  # what is interrupted now has neither chunks nor lists that lack them
            view.walked, view.lists = [begin_walk(walked.segment) for walked in view.walked], []
        self._walk(known)

    def _read_single_lists(self, chunks: Chunks) -> None:
        """Thread caches and fastbins: their links may be mangled, which the caches' lists tell."""
        found, problems = find_tcaches(
            self.target, self.location, chunks.address, chunks.size, chunks.state == State.FREE
        )
        self.heap.problems += problems
        self.heap.location = with_tcaches(self.location, found)
        self.heap.safe_linking = find_safe_linking(self.target, self.location, found)
        for at in found:
            self._read_cache(at)
        self.heap.problems += check_shared(self.heap.caches)
        self.heap.problems += check_keys(self.target, self.location, self.heap.caches)
        for view in self.heap.arenas:
            self._read_fastbins(view)

    def _read_fastbins(self, view: ArenaView) -> None:
        try:
            bins = fastbin_heads(self.target, self.location, view.head)
            if bins:
                view.lists += follow_fastbins(bins, self._memory_of([view]), self.heap.safe_linking)
        except FaultError as fault:
            self._note_lists(view, fault)

    def _note_lists(self, view: ArenaView, fault: FaultError) -> None:
        message = f"arena {view.head.address:#x}: {fault}; its free lists are unknown"
        self.heap.problems.append(Problem("absent-memory", fault.address, message))

    def _read_cache(self, at: Tcache) -> None:
        try:
            cache = read_cache(self.target, self.location, self.sizes, at, self.heap.safe_linking)
        except FaultError as fault:
            message = f"tcache at {at.address:#x}: {fault}"
            self.heap.problems.append(Problem("absent-memory", fault.address, message))
            return
        self.heap.caches.append(cache)
        self.heap.problems += cache.problems

    def _attach_threads(self) -> None:
        attached = find_thread_arenas(self.target, self.location)
        self.heap.thread_arenas = attached
        if attached is None:
            return
        threads: Dict[int, List[ThreadRef]] = {}
        for thread in self.target.threads:
            if thread.number in attached:
                threads.setdefault(attached[thread.number], []).append(thread.ref)
        for view in self.heap.arenas:
            view.threads = tuple(threads.get(view.head.address, ()))

    def _find_mmapped(self) -> None:
        claimed = self._claimed()
        census = find_mmapped(self.target, self.location, self.sizes, claimed)
        if census.problems:
            stacks = _stacks(self.target)
            without = find_mmapped(self.target, self.location, self.sizes, claimed + stacks)
            census = without if not without.problems else census
        self.heap.mmapped = census


def _excuse(view: ArenaView) -> str:
    """Return why a free chunk on no list is no damage in this arena, or ""."""
    if view.head.in_flux:
        return "its arena is in flux"
    cut = any(problem.kind == "absent-memory" for one in view.lists for problem in one.problems)
    return "part of its arena's lists is not in the core" if cut or not view.listed else ""


def _stacks(target: Target) -> List[Interval]:
    """Return the regions that threads have their stacks in."""
    stacks = []
    for thread in target.threads:
        region = None if thread.stack_pointer is None else target.index.find(thread.stack_pointer)
        if region is not None:
            stacks.append((region.start, region.end))
    return stacks
