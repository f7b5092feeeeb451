"""What is looked at for pointers besides the blocks themselves, and what of it is not there."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from gdbext.analysis.footprint.ledger import region_owners
from gdbext.analysis.missing import is_whole
from gdbext.analysis.reach.code import is_generated_code
from gdbext.analysis.reach.model import (
    ANONYMOUS,
    FILE,
    GLOBAL,
    REGISTER,
    STACK,
    TLS,
    Missing,
    RootRange,
    Roots,
    RootWord,
)
from gdbext.analysis.reach.saved import with_saved_frames
from gdbext.analysis.reach.stacks import Stack, find_dead_stacks, find_descriptors, find_stacks
from gdbext.errors import FaultError
from gdbext.heap.model import Heap
from gdbext.memory import Region
from gdbext.memory.intervals import Coverage, columns, subtract, unite
from gdbext.process import Thread
from gdbext.target import Target

Piece = Tuple[int, int]

_KERNELS_OWN = ("[vvar]", "[vdso]", "[vsyscall]", "[vvar_vclock]")
_TLS_MOST = 1 << 20  # a mapping with a thread descriptor and no stack is the loader's, and small
# Words of the thread control block behind which the dtv's address lies (sysdeps/*/nptl/tls.h); the block that holds
# the dtv begins one entry, two words, before it (elf/dl-tls.c, allocate_dtv).
_DTV = {"x86-64": 1, "i386": 1, "aarch64": 0}


def read_roots(target: Target, heaps: Sequence[Heap]) -> Roots:
    """Return every place whose words are pointers that keep blocks alive.

    Heaps are no roots, nor what allocators keep outside of them for themselves, nor stacks below the stack pointer,
    nor those of threads that have ended.
    """
    regions = [region for region in target.memory.regions() if _may_hold_pointers(region)]
    there = [region for region in regions if region.readable]
    allocators = _allocators(heaps)
    stacks = _living_stacks(target, _without(there, allocators))
    own = [part for part in _without(there, allocators) if part.anonymous and part.writable]
    descriptors = find_descriptors(target, own)
    dead = find_dead_stacks(target, descriptors)
    unused = [(stack.low, stack.live) for stack in (*stacks, *dead) if stack.low is not None]
    pieces = _without(there, [*allocators, *unused])
    places = _Places(target, stacks)
    ranges = [one for piece in pieces for one in _named(target, piece, places)]
    inside = list(_stacks_in_blocks(heaps, stacks))
    ranges = sorted([*ranges, *(one for one, _ in inside)], key=lambda one: one.start)
    words = [word for thread in target.threads for word in _words(target, thread)]
    words += [RootWord(TLS, "thread cache", start) for start in _own_blocks(heaps)]
    known = {thread.tls for thread in target.threads}
    words += [word for one in descriptors if one not in known for word in _dtv_words(target, one, None)]
    words += [RootWord(STACK, "stack in a block", block, one.thread) for one, block in inside]
    return Roots(ranges, words, [*_missing(target, regions), *_left_out(target, _without(regions, allocators))])


def _living_stacks(target: Target, pieces: Sequence[Region]) -> Sequence[Stack]:
    """Return the stacks of threads, with frames below the stack pointer where a context has any."""
    stacks = find_stacks(target)
    data = [(piece.start, piece.end) for piece in pieces if target.find_module(piece.start) is not None]
    return with_saved_frames(target, stacks, [*((stack.live, stack.high) for stack in stacks), *data])


def _allocators(heaps: Sequence[Heap]) -> List[Piece]:
    """Return what belongs to allocators; what others took from the midst of it does not."""
    spans = unite([columns([(span.start, span.end) for heap in heaps for span in heap.spans])]).covered
    foreign = unite([columns([piece for heap in heaps for piece in heap.foreign])]).covered
    starts, ends, _ = subtract(spans, foreign)
    return [*zip(starts.tolist(), ends.tolist()), *(piece for heap in heaps for piece in heap.metadata)]


def _own_blocks(heaps: Sequence[Heap]) -> Iterator[int]:
    """Iterate over the blocks that allocators have for themselves: what points at them lies in no root."""
    for heap in heaps:
        for start, _ in heap.metadata:
            if heap.blocks.find(start) is not None:
                yield start


def _without(regions: Sequence[Region], left_out: Sequence[Piece]) -> List[Region]:
    """Return what is left of regions without some intervals."""
    whole = Coverage(*columns([(region.start, region.end) for region in regions]))
    starts, ends, source = subtract(whole, unite([columns(left_out)]).covered)
    rows = zip(starts.tolist(), ends.tolist(), source.tolist())
    return [_part(regions[at], start, end) for start, end, at in rows]


def _part(region: Region, start: int, end: int) -> Region:
    whole = (region.start, region.end) == (start, end)
    return region if whole else replace(region, start=start, end=end)


def _may_hold_pointers(region: Region) -> bool:
    """Whether the program may have put a pointer there; what is read-only in a module may be so since it was filled."""
    if region.name in _KERNELS_OWN or region.permissions == "---":
        return False
    if region.source == "file":
        return region.writable
    if region.writable or region.anonymous or is_generated_code(region):
        return True
    return "x" not in region.permissions and region.source == "memory"


class _Places:
    """The live parts of stacks, and thread pointers, by address: there may be thousands, and as many regions."""

    def __init__(self, target: Target, stacks: Sequence[Stack]) -> None:
        owned = ((stack.live, stack.high, stack.thread.number) for stack in stacks if stack.thread is not None)
        self.stacks = sorted(owned, key=lambda stack: stack[0])
        known = ((thread.tls, at) for at, thread in enumerate(target.threads) if thread.tls is not None)
        self.pointers = sorted(known)
        self.threads = target.threads

    def stacks_within(self, start: int, end: int) -> Sequence[Tuple[int, int, int]]:
        """Return live, high and the thread's number of the stacks whose live part begins between two addresses."""
        return self.stacks[bisect_left(self.stacks, (start,)) : bisect_left(self.stacks, (end,))]

    def find_thread(self, start: int, end: int) -> Optional[Thread]:
        """Return the first of the threads whose pointer is between two addresses, or None."""
        within = self.pointers[bisect_left(self.pointers, (start,)) : bisect_left(self.pointers, (end,))]
        return self.threads[min(at for _, at in within)] if within else None


def _named(target: Target, piece: Region, places: _Places) -> Iterator[RootRange]:
    """Iterate over a piece of a region, cut where stacks begin and end."""
    start = piece.start
    for live, high, number in places.stacks_within(piece.start, piece.end):
        if live < start:
            continue
        if start < live:
            yield _other(target, piece, (start, live), places)
        start = min(high, piece.end)
        yield RootRange(STACK, f"stack of thread {number}", live, start, number)
    if start < piece.end:
        yield _other(target, piece, (start, piece.end), places)


def _other(target: Target, region: Region, part: Piece, places: _Places) -> RootRange:
    start, end = part
    module, code = target.find_module(start), is_generated_code(region)
    if module is not None:
        return RootRange(GLOBAL, module.path.rsplit("/", 1)[-1], start, end, code=code)
    if not region.anonymous:
        return RootRange(FILE, region.name, start, end, code=code)
    thread = places.find_thread(start, end) if end - start <= _TLS_MOST else None
    if thread is not None:
        return RootRange(TLS, f"tls of thread {thread.number}", start, end, thread.number)
    return RootRange(ANONYMOUS, f"{start:#x}-{end:#x}", start, end, code=code)


def _stacks_in_blocks(heaps: Sequence[Heap], stacks: Sequence[Stack]) -> Iterator[Tuple[RootRange, int]]:
    """Iterate over stacks that the program allocated, each with its block: that lives although nothing points at it."""
    for stack in stacks:
        for heap in heaps:
            block = heap.blocks.find(stack.live)
            if block is not None and stack.thread is not None:
                start, number = int(heap.blocks.address[block]), stack.thread.number
                end = min(start + int(heap.blocks.size[block]), stack.high)
                yield RootRange(STACK, f"stack of thread {number}", stack.live, end, number), start


def _words(target: Target, thread: Thread) -> Iterator[RootWord]:
    for name, value in thread.registers.items():
        yield RootWord(REGISTER, name, value, thread.number)
    yield from _dtv_words(target, thread.tls, thread.number)


def _dtv_words(target: Target, tls: Optional[int], thread: Optional[int]) -> Iterator[RootWord]:
    """Iterate over the word of a thread's table, if it has one; libc keeps those of threads that have ended."""
    dtv = _find_dtv(target, tls)
    if dtv is not None:
        yield RootWord(TLS, "dtv", dtv, thread)


def _find_dtv(target: Target, tls: Optional[int]) -> Optional[int]:
    """Return the beginning of the block with a thread's table of thread-local storage, or None."""
    at, word = _DTV.get(target.abi.machine), target.abi.pointer_size
    if tls is None or at is None:
        return None
    try:
        return (target.reader.uint(tls + at * word, word, "dtv") - 2 * word) & target.abi.word_mask
    except FaultError:
        return None


def _is_shared(region: Region) -> bool:
    """Whether a region is memory that processes share, which the core lacks and ``coredump_filter`` did not ask for.

    Other files that are mapped shared, /dev/shm too, are in no usual core; nor do pointers of one process belong there.
    """
    if region.source != "absent":
        return False
    return region.name.endswith(" (deleted)") or region.name.startswith(("/SYSV", "/memfd:", "/dev/zero"))


def _left_out(target: Target, pieces: Sequence[Region]) -> Iterator[Missing]:
    """Iterate over what a whole core lacks: mappings never written, or kept out by MADV_DONTDUMP.

    The kernel leaves out both (fs/coredump.c, vma_dump_size), and nothing in the core tells one from the other.
    """
    absent = [piece for piece in pieces if piece.source == "absent" and piece.writable and not piece.name]
    absent = [piece for piece in absent if target.find_module(piece.start) is None]
    if absent and is_whole(target.problems):
        what = "anonymous memory that is not in the core (never written, or kept out by MADV_DONTDUMP)"
        yield Missing(what, sum(piece.size for piece in absent), absent[0].start)


def _missing(target: Target, regions: Sequence[Region]) -> Iterator[Missing]:
    for thread in target.threads:
        if thread.stack_pointer is None:
            yield Missing(f"registers and stack of thread {thread.number}", None)
    if not target.threads:
        yield Missing("registers and stacks of all threads", None)
    if not target.memory.regions():
        yield Missing("all memory: the mappings are not known", None)
    if is_whole(target.problems):  # what is absent then was never written, or is shared
        absent = [region for region in target.memory.regions() if _is_shared(region)]
    else:
        absent = [region for region in regions if region.source != "memory" and region.writable]
    sums: Dict[str, List[Region]] = {}
    for owner, region in zip(region_owners(target, absent), absent):
        sums.setdefault(owner, []).append(region)
    for owner, parts in sums.items():
        yield Missing(owner, sum(part.size for part in parts), parts[0].start)
