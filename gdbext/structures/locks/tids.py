"""The ids that locks hold: those of the process's own PID namespace, not the debugger's.

``struct pthread`` keeps its thread's id at a place that is fixed for one libc. Usually it equals the LWP, and the
place is the one where most threads hold theirs; in a container only the known place helps.
Upstream: nptl/descr.h (``struct pthread``), ``tid``.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from gdbext.errors import FaultError
from gdbext.process import Thread
from gdbext.target import Target

# Offset of `tid` from the thread pointer, by machine; the same from glibc 2.23 to 2.44.
_KNOWN = {"x86-64": 0x2D0, "i386": 0x68}
_REACH = 0xA00  # struct pthread has 2304 bytes on 64-bit machines
_HIGHEST = 1 << 22  # PID_MAX_LIMIT
_UNLISTED = "threads-not-listed"  # the debugger was attached to some of the threads only


@dataclass(frozen=True)
class Tids:
    """The inner ids.

    :param offset: of ``tid`` from the thread pointer, or None when it was not found.
    :param inner: tid by thread number.
    :param numbers: thread number by tid.
    :param foreign: whether they differ from the LWPs (another PID namespace).
    :param blocks: start and end of each thread's ``struct pthread``, about, and its number; sorted.
    :param whole: whether the debugger lists all threads of the process.
    """

    offset: Optional[int]
    inner: Mapping[int, int]
    numbers: Mapping[int, int]
    foreign: bool = False
    blocks: Sequence["tuple[int, int, int]"] = ()
    whole: bool = True

    @property
    def certain(self) -> bool:
        """Whether an id that is not among these belongs to no living thread."""
        return self.whole and self.offset is not None

    def find_number(self, tid: int) -> Optional[int]:
        """Return the number of the thread with that tid, or None: it is not among the living."""
        return self.numbers.get(tid)

    def find_descriptor(self, address: int) -> Optional[int]:
        """Return the number of the thread whose ``struct pthread`` an address lies in, or None."""
        at = bisect_right(self.blocks, (address, 1 << 64, 0)) - 1
        if at < 0 or not self.blocks[at][0] <= address < self.blocks[at][1]:
            return None
        return self.blocks[at][2]


def read_tids(target: Target) -> Tids:
    """Find every thread's own id; where nothing tells, the LWP stands for it."""
    threads = [thread for thread in target.threads if thread.tls]
    offset = _voted(target, threads)
    if offset is None:
        offset = _known(target, threads)
    read = {} if offset is None else _read_all(target, threads, offset)
    foreign = any(read.get(thread.number, thread.lwp) != thread.lwp for thread in threads)
    # An LWP says nothing in another namespace: there it may be another thread's inner id.
    known = {} if foreign else {thread.number: thread.lwp for thread in target.threads if thread.lwp is not None}
    inner = {**known, **read}
    numbers = {tid: number for number, tid in inner.items()}
    whole = not any(problem.kind == _UNLISTED for problem in target.problems)
    return Tids(offset, inner, numbers, foreign, _blocks(target, threads), whole)


def _read_all(target: Target, threads: Sequence[Thread], offset: int) -> "dict[int, int]":
    """Return the ids that can be read; a thread that ends has none any more."""
    read = ((thread.number, _tid_at(target, thread, offset)) for thread in threads)
    return {number: tid for number, tid in read if tid is not None and 0 < tid < _HIGHEST}


def _blocks(target: Target, threads: Sequence[Thread]) -> Sequence["tuple[int, int, int]"]:
    first = 0 if target.abi.machine in _KNOWN else -_REACH
    pointers = ((thread.tls or 0, thread.number) for thread in threads)
    return tuple(sorted((pointer + first, pointer + first + _REACH, number) for pointer, number in pointers))


def _voted(target: Target, threads: Sequence[Thread]) -> Optional[int]:
    votes: "Counter[int]" = Counter()
    for thread in threads:
        votes.update(_offsets_of_lwp(target, thread))
    if not votes:
        return None
    offset, count = min(votes.items(), key=lambda item: (-item[1], item[0] != _KNOWN.get(target.abi.machine)))
    return offset if 3 * count >= 2 * len(threads) else None


def _offsets_of_lwp(target: Target, thread: Thread) -> Sequence[int]:
    start = (thread.tls or 0) - (0 if target.abi.machine in _KNOWN else _REACH)
    if not thread.lwp:  # 0 in a damaged core, and in many a word
        return ()
    try:
        data = bytes(target.memory.read(start, _REACH))
    except FaultError:
        return ()
    words = struct.unpack(f"{target.abi.order_mark}{_REACH // 4}I", data)
    return [start + 4 * at - (thread.tls or 0) for at, word in enumerate(words) if word == thread.lwp]


def _known(target: Target, threads: Sequence[Thread]) -> Optional[int]:
    """Return the known offset when nearly all threads hold different plausible ids there, else None."""
    offset = _KNOWN.get(target.abi.machine)
    if offset is None or not threads:
        return None
    sound = _read_all(target, threads, offset).values()
    return offset if 3 * len(set(sound)) >= 2 * len(threads) else None


def _tid_at(target: Target, thread: Thread, offset: int) -> Optional[int]:
    try:
        return target.reader.sint((thread.tls or 0) + offset, 4, "thread id")
    except FaultError:
        return None
