"""Which stretches of memory an arena consists of.

A thread arena is a chain of ``heap_info`` from the heap of its ``top`` (malloc/arena.c). The main arena
is what ``brk`` gave from ``mp_.sbrk_base`` on, and, where brk was refused, mappings (malloc/malloc.c,
``sysmalloc``, ``MMAP_AS_MORECORE_SIZE``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.read.walk import Segment
from gdbext.heap.glibc.sizes import FLAG_BITS, PREV_INUSE, Sizes
from gdbext.kernels import find_chunk, walk_chunks, words_of
from gdbext.memory import Memory, Region, for_each_written, view
from gdbext.report import Problem
from gdbext.target import Target

NONCONTIGUOUS_BIT = 2

Interval = Tuple[int, int]


@dataclass(frozen=True)
class ArenaHead:
    """The scalar members of one ``malloc_state``.

    :param attached: ``attached_threads``.
    :param mutex: raw lock word; 0 is free.
    :param alone: whether the process's only thread was inside malloc, where it locks no arena.
    """

    index: int
    address: int
    kind: str
    system_mem: int
    top: int
    attached: int
    mutex: int
    flags: int
    alone: bool = False

    @property
    def in_flux(self) -> bool:
        """Whether a thread was inside malloc with this arena locked, or without locks as the only one."""
        return self.mutex != 0 or self.alone

    @property
    def contiguous(self) -> bool:
        """Whether sysmalloc believes that brk still grows in one piece."""
        return not self.flags & NONCONTIGUOUS_BIT


@dataclass(frozen=True)
class HeapInfo:
    """One ``heap_info``.

    :param size: bytes in use by malloc; ``mprotect_size`` of them and the rest are mapped writable.
    """

    address: int
    arena: int
    prev: int
    size: int
    mprotect_size: int


def read_arena(target: Target, location: Location, index: int) -> ArenaHead:
    """Read the head of ``location.arenas[index]``.

    :raises FaultError: when the malloc_state cannot be read.
    """
    address, layout, reader = location.arenas[index], location.malloc_state, target.reader

    def field(name: str) -> int:
        return layout.read(reader, address, name)

    return ArenaHead(
        index,
        address,
        "main" if address == location.main_arena else "thread",
        field("system_mem"),
        field("top"),
        field("attached_threads"),
        field("mutex"),
        field("flags"),
    )


def read_heap_info(target: Target, location: Location, address: int) -> HeapInfo:
    """Read one heap_info.

    :raises FaultError: when it cannot be read.
    """
    layout, reader = location.heap_info, target.reader
    members = ("ar_ptr", "prev", "size", "mprotect_size")
    return HeapInfo(address, *(layout.read(reader, address, name) for name in members))


def find_heaps(
    target: Target, location: Location, head: ArenaHead
) -> Tuple[List[HeapInfo], List[Problem]]:
    """Return the heaps of a thread arena, newest first; problems where the chain is broken."""
    heaps: List[HeapInfo] = []
    problems: List[Problem] = []
    address = head.top & -location.heap_max
    while address and address not in {heap.address for heap in heaps}:
        heap = _sound_heap(target, location, head, address, problems)
        if heap is None:
            break
        heaps.append(heap)
        address = heap.prev
        if any(address == one.address for one in heaps):
            message = f"heap_info of arena {head.address:#x}: prev is {address:#x}, which the chain has passed: a cycle"
            problems.append(Problem("heap-info", heap.address, message, corruption=True))
    if not any(heap.address <= head.address < heap.address + heap.size for heap in heaps):
        heaps = _heaps_by_scan(target, location, head)
    return heaps, problems


def _sound_heap(
    target: Target, location: Location, head: ArenaHead, address: int, problems: List[Problem]
) -> Optional[HeapInfo]:
    try:
        heap = read_heap_info(target, location, address)
    except FaultError as fault:
        message = f"{fault}; the chain of heaps of arena {head.address:#x} breaks here"
        problems.append(Problem("absent-memory", address, message))
        return None
    wrong = _heap_fault(location, head, heap, target.abi.page_size)
    if wrong is None:
        return heap
    message = f"heap_info of arena {head.address:#x}: {wrong}"
    problems.append(Problem("heap-info", address, message, corruption=True))
    return None


def _heap_fault(location: Location, head: ArenaHead, heap: HeapInfo, page: int) -> Optional[str]:
    """Return what is wrong with a heap_info, or None."""
    if heap.arena != head.address:
        return f"ar_ptr is {heap.arena:#x}, expected {head.address:#x}"
    if heap.size % page or not 0 < heap.size <= location.heap_max:
        return f"size is {heap.size:#x}, expected pages up to {location.heap_max:#x}"
    if not heap.size <= heap.mprotect_size <= location.heap_max:
        return f"mprotect_size is {heap.mprotect_size:#x}, expected at least size {heap.size:#x}"
    if heap.prev % location.heap_max:
        return f"prev is {heap.prev:#x}, expected a multiple of {location.heap_max:#x}"
    return None


def _heaps_by_scan(target: Target, location: Location, head: ArenaHead) -> List[HeapInfo]:
    """Where ``top`` does not lead to the heaps: every aligned address that claims the arena."""
    heaps = []
    for address in aligned_addresses(target.memory, location.heap_max):
        try:
            heap = read_heap_info(target, location, address)
        except FaultError:
            continue  # an aligned address whose page is not in the core holds no heap_info to see
        if _heap_fault(location, head, heap, target.abi.page_size) is None:
            heaps.append(heap)
    return heaps[::-1]


def aligned_addresses(memory: Memory, alignment: int) -> Iterator[int]:
    """Iterate over the multiples of ``alignment`` at which the target may have written something."""
    for region in memory.regions():
        if region.writable and region.readable and region.start + -region.start % alignment < region.end:
            for low, high in for_each_written(memory, region.start, region.end):
                yield from range(low + -low % alignment, high, alignment)


def thread_segments(
    target: Target, location: Location, sizes: Sizes, head: ArenaHead, heaps: Sequence[HeapInfo]
) -> List[Segment]:
    """Return one segment a heap, oldest first."""
    segments = []
    for heap in reversed(heaps):
        end = heap.address + heap.size
        structures = location.heap_info.size
        if heap.address <= head.address < end:
            structures = head.address + location.malloc_state.size - heap.address
        first = sizes.align_chunk(heap.address + structures)
        top = head.top if first <= head.top < end and sizes.aligned(head.top) else None
        segments.append(Segment(heap.address, first, end, "heap", head.index, top, structures))
    return segments


class MainArena:
    """Finds the main arena's segments, the later ones by what the earlier ones leave open."""

    def __init__(self, target: Target, location: Location, sizes: Sizes, head: ArenaHead) -> None:
        self.target, self.location, self.sizes, self.head = target, location, sizes, head
        self.runs = _writable_runs(target.memory.regions())

    @property
    def sbrk_base(self) -> Optional[int]:
        """``mp_.sbrk_base``; None when mp_ is not known or brk never gave anything."""
        layout, address = self.location.malloc_par_layout, self.location.malloc_par
        if layout is None or address is None:
            return None
        return layout.read(self.target.reader, address, "sbrk_base") or None

    def segments(self) -> List[Segment]:
        """Return the brk segment and the one that holds top, often one and the same."""
        base, top = self.sbrk_base, self.head.top
        brk_run = _run_of(self.runs, base) if base is not None else None
        top_run = _run_of(self.runs, top) if self.sizes.aligned(top) else None
        if base is not None and brk_run is not None and (top_run == brk_run and top >= base):
            return [self._segment(base, self._top_end(brk_run), "brk", top)]
        segments = []
        if base is not None and brk_run is not None:
            segments.append(self._segment(base, brk_run[1], "brk", None))
        if top_run is not None:
            segments += self._top_segment(top_run)
        return segments

    def _segment(self, start: int, end: int, kind: str, top: Optional[int]) -> Segment:
        return Segment(start, self.sizes.align_chunk(start), end, kind, self.head.index, top)

    def _top_end(self, run: Interval) -> int:
        """Return where top ends; the run's end when its size cannot be so, or is not in the core."""
        top, page = self.head.top, self.target.abi.page_size
        if self.target.lacks(top + self.sizes.word, self.sizes.word):
            return run[1]
        size = self.target.reader.word(top + self.sizes.word, "top's size") & ~FLAG_BITS
        end = top + size
        return end if size >= self.sizes.minimum and end <= run[1] and end % page == 0 else run[1]

    def _top_segment(self, run: Interval) -> List[Segment]:
        """Where brk was refused, or is unknown: the mapping or brk area that ends with top."""
        top, end = self.head.top, self._top_end(run)
        for start in self._page_starts(run[0], top):
            return [self._segment(start, end, self._kind(start), top)]
        first = self._first_leading_to(run[0], top)
        return [] if first is None else [self._segment(first, end, self._kind(first), top)]

    def _kind(self, start: int) -> str:
        region = self.target.index.find(start)
        named = region is not None and region.name == "[heap]"
        return "brk" if named or self.head.contiguous else "mmap"

    def _page_starts(self, low: int, top: int) -> Iterator[int]:
        """Iterate over the page starts from which the chunks lead exactly to ``top``."""
        words = self._words(low, top - low)
        page, stop = self.target.abi.page_size, len(words)
        written = for_each_written(self.target.memory, low, top)
        pages = (page_at for first, end in written for page_at in range(first + (low - first) % page, end, page))
        for at in ((page_at - low) // self.sizes.word for page_at in pages):
            if words[at + 1] & PREV_INUSE and walk_chunks(words, at, stop, self.sizes.rules)[1] == stop:
                yield low + at * self.sizes.word

    def _first_leading_to(self, low: int, top: int) -> Optional[int]:
        low = self.sizes.align_chunk(next(for_each_written(self.target.memory, low, top), (low, top))[0])
        words = self._words(low, top - low)
        at = find_chunk(words, 0, len(words), {len(words)}, self.sizes.rules, None)
        return None if at is None else low + at * self.sizes.word

    def _words(self, start: int, size: int) -> Sequence[int]:
        size -= size % self.sizes.word
        buffer = view(self.target.memory, start, size)
        return words_of(buffer, self.sizes.word, self.target.abi.byteorder)

    def for_each_old_mapping(self, claimed: Sequence[Interval], missing: int) -> Iterator[Segment]:
        """Iterate over mappings that served as brk before: they begin at a page, end in fenceposts.

        :param claimed: what other segments, stacks and mmapped blocks occupy.
        :param missing: bytes of system_mem not found yet; larger ones are not tried.
        """
        page = self.target.abi.page_size
        readable = [region for region in self.target.memory.regions() if region.source != "absent"]
        start = 0
        runs = _writable_runs(readable)
        written = ((high, part) for low, high in runs for part in for_each_written(self.target.memory, low, high))
        for high, (first, behind) in written:
            start, behind = max(first + -first % page, start), behind - behind % page
            while start < behind and missing > 0:
                taken = _run_of(claimed, start) is not None
                end = None if taken else self._end_in_fenceposts(start, high - high % page)
                if end is not None and end - start <= missing:
                    yield self._segment(start, end, "mmap", None)
                    missing -= end - start
                    start = end
                else:
                    start += page

    def _end_in_fenceposts(self, start: int, high: int) -> Optional[int]:
        first = self.sizes.align_chunk(start)
        head = self.target.reader.word(first + self.sizes.word, "chunk size")
        if not head & PREV_INUSE or not self.sizes.valid(head & ~FLAG_BITS) or first + head > high:
            return None
        words = self._words(first, high - first)
        fence = self.sizes.header
        _, at = walk_chunks(words, 0, len(words), self.sizes.rules)
        passed = 0
        while at + 1 < len(words) and words[at + 1] & ~PREV_INUSE == fence:
            at, passed = at + fence // self.sizes.word, passed + 1
        end = first + at * self.sizes.word
        return end if passed >= 2 and end % self.target.abi.page_size == 0 else None


def _writable_runs(regions: Sequence[Region]) -> List[Interval]:
    """Return the stretches of adjacent anonymous memory that the target may write, absent or not."""
    runs: List[Interval] = []
    for region in regions:
        if not (region.anonymous and region.writable):
            continue
        if region.name.startswith("[stack"):
            continue
        if runs and runs[-1][1] == region.start:
            runs[-1] = (runs[-1][0], region.end)
        else:
            runs.append((region.start, region.end))
    return runs


def _run_of(runs: Sequence[Interval], address: int) -> Optional[Interval]:
    return next(((low, high) for low, high in runs if low <= address < high), None)
