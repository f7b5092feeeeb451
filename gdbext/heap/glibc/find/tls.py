"""Thread-local variables without libthread_db: what the words around a thread pointer hold.

libc's TLS block is at the same distance from every thread's pointer: below it where the ABI is
"variant II" (x86, s390x, sparc), above it elsewhere. So the offset of a variable whose values are known
is the one at which most threads hold such a value. Upstream: ``nptl/allocatestack.c``,
``sysdeps/x86_64/nptl/tls.h``; the header of ``struct pthread`` begins with a pointer to itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.find.invariants import Probe
from gdbext.heap.model import U64
from gdbext.memory import Region
from gdbext.memory.bulk import words_at
from gdbext.process import Thread

_BELOW = {"x86-64", "i386", "22", "s390x", "2", "43"}
_SELF_POINTING = {"x86-64", "i386", "22", "s390x"}
_WINDOWS = (8 << 10, 512 << 10)
_BIAS = 0x8000  # on PowerPC and MIPS the pointer is 0x7000 beyond the start of the block
_PTHREAD_SCAN = 16 << 20
_LONE_REGION = 1 << 20
_TID_AT = {8: 0x2D0, 4: 0x68}


@dataclass(frozen=True)
class Vote:
    """An offset from the thread pointer, with how many threads speak for it."""

    offset: int
    threads: int


def vote_offset(probe: Probe, pointers: Mapping[int, int], values: U64) -> Optional[Vote]:
    """Return the offset at which most threads hold one of ``values``, or None when none does.

    Where several tie, the nearest to the thread pointer: beyond libc's block lie other blocks and stacks.

    :param pointers: thread pointers by thread number.
    """
    for reach in _WINDOWS:
        votes: Counter[int] = Counter()
        for pointer in pointers.values():
            votes.update(_offsets_holding(probe, pointer, values, reach))
        if votes:
            offset, count = min(votes.items(), key=lambda item: (-item[1], abs(item[0])))
            return Vote(offset, count)
    return None


def _offsets_holding(probe: Probe, pointer: int, values: U64, reach: int) -> list[int]:
    start, end = _window(probe, pointer, reach)
    try:
        words = words_at(probe.target.memory, probe.abi, start, (end - start) // probe.abi.pointer_size)
    except FaultError:
        return []
    hits = np.flatnonzero(np.isin(words, values)) * probe.abi.pointer_size
    return [start - pointer + int(hit) for hit in hits]


def _window(probe: Probe, pointer: int, reach: int) -> tuple[int, int]:
    """Return the part of the mapping around a thread pointer that may hold libc's block."""
    region = probe.region(pointer) or probe.region(pointer - 1)
    word = probe.abi.pointer_size
    if region is None or pointer % word:
        return pointer, pointer
    low, high = (reach, 0) if probe.abi.machine in _BELOW else (_BIAS, reach)
    start, end = max(pointer - low, region.start), min(pointer + high, region.end)
    return start, max(start, end)


def thread_pointers(probe: Probe) -> dict[int, int]:
    """Return the thread pointers by thread number: from the registers, else by ``struct pthread``."""
    threads = probe.target.threads
    known = {thread.number: thread.tls for thread in threads if thread.tls}
    missing = [thread for thread in threads if thread.number not in known]
    if missing and probe.abi.machine in _SELF_POINTING:
        known.update(_by_pthread(probe, missing, set(known.values())))
    return known


def _by_pthread(probe: Probe, threads: Sequence[Thread], taken: set[int]) -> dict[int, int]:
    """Match structs pthread to threads: by tid, then by stack, then the last two left."""
    found = {at: tid for at, tid in _for_each_pthread(probe, threads) if at not in taken}
    by_tid = {tid: at for at, tid in found.items()}
    matched = {t.number: by_tid[t.lwp] for t in threads if t.lwp is not None and t.lwp in by_tid}
    if matched:
        return matched
    for thread in threads:
        stack = thread.stack_pointer or 0
        region = probe.region(stack)
        above = [at for at in found if region is not None and at in region and at > stack]
        if above:
            matched[thread.number] = max(above)
    rest = [thread for thread in threads if thread.number not in matched]
    unused = set(found) - set(matched.values())
    if len(rest) == len(unused) == 1:
        matched[rest[0].number] = unused.pop()
    return matched


def _for_each_pthread(probe: Probe, threads: Sequence[Thread]) -> Iterator[tuple[int, int]]:
    """Iterate over the address and tid of everything that begins as ``struct pthread`` does."""
    word = probe.abi.pointer_size
    for start, end in _where_pthreads_are(probe, threads):
        words = _find_words(probe, start, end)
        own = np.arange(len(words), dtype=np.uint64) * np.uint64(word) + np.uint64(start)
        for at in np.flatnonzero((words[:-2] == own[:-2]) & (words[2:] == own[:-2])).tolist():
            address = start + at * word
            try:
                yield address, probe.reader.uint(address + _TID_AT[word], 4)
            except FaultError:
                continue  # too near the end of its mapping to be a struct pthread


def _find_words(probe: Probe, start: int, end: int) -> U64:
    try:
        return words_at(probe.target.memory, probe.abi, start, (end - start) // probe.abi.pointer_size)
    except FaultError:
        return np.empty(0, np.uint64)


def _where_pthreads_are(probe: Probe, threads: Sequence[Thread]) -> Iterator[tuple[int, int]]:
    """Iterate over stacks from the stack pointer up, and small mappings that no thread's stack is in."""
    stacks: set[Region] = set()
    for thread in threads:
        region = probe.region(thread.stack_pointer) if thread.stack_pointer else None
        if region is not None and thread.stack_pointer is not None and region.readable:
            stacks.add(region)
            start = thread.stack_pointer & -probe.abi.page_size
            yield start, min(region.end, start + _PTHREAD_SCAN)
    for region in probe.index.regions:
        if region not in stacks and region.writable and region.readable and region.size <= _LONE_REGION:
            yield region.start, region.end
