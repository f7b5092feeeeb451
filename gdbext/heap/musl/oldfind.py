"""Finds musl's older malloc (up to 1.2.0) by its 64 bins: a lock, and a list that begins and ends at the bin itself.

From ``src/malloc/malloc.c`` and ``src/internal/malloc_impl.h`` at 1.1.24 (``struct bin``, ``BIN_TO_CHUNK``), for 64-bit
targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.musl.model import U64, Mask
from gdbext.memory.bulk import words_at
from gdbext.memory.intervals import columns, joined
from gdbext.process import Module
from gdbext.report import Evidence
from gdbext.target import Target

BINS = 64
_WORDS = 3  # of a bin: two locks of 4 bytes, head, tail
NEXT, PREV = 16, 24  # of a free chunk
_MOST_REGION = 64 << 20  # bytes of one region that are searched
_MOST_WAITERS = 1 << 16


@dataclass(frozen=True)
class OldLocation:
    """Where it keeps what.

    :param bins: address of the first bin; ``binmap`` lies before it.
    """

    bins: int
    module: Module
    evidence: Sequence[Evidence]

    def sentinel(self, number: int) -> int:
        """Return the address that stands for a bin in its own list."""
        return self.bins + 8 * _WORDS * number + 8 - NEXT


def find_old(target: Target, modules: Sequence[Module]) -> List[OldLocation]:
    """Return where it is, in which of some modules; none is an answer."""
    found = (_find(target, module) for module in modules)
    return [one for one in found if one is not None]


def _find(target: Target, module: Module) -> Optional[OldLocation]:
    best: Optional[OldLocation] = None
    most = 0
    parts = target.index.within(module.base, module.end)
    data = joined(columns((one.start, one.end) for one in parts if one.readable and one.writable))
    for start, end in zip(*(column.tolist() for column in data)):  # the bins may begin in a file's last page
        try:
            words = words_at(target.memory, target.abi, start, min(end - start, _MOST_REGION) // 8)
        except FaultError:
            continue
        for bins in _candidates(start, words):
            location = OldLocation(bins, module, (Evidence("musl", f"malloc of musl up to 1.2.0, bins at {bins:#x}"),))
            if (lists := _lists(target, location)) > most:
                best, most = location, lists
    return best


def _candidates(start: int, words: U64) -> Iterator[int]:
    """Iterate over the addresses where 64 bins may begin, one of which was used."""
    count = len(words) - _WORDS * BINS
    if count <= 0:
        return
    lock, head, tail = (words[part : len(words) - 2 + part] for part in range(_WORDS))
    own = np.uint64(start) + np.arange(len(head), dtype=np.uint64) * np.uint64(8) - np.uint64(8)
    waiters = (lock & np.uint64(0xFFFFFFFF) <= 1) & (lock >> np.uint64(32) < _MOST_WAITERS)
    empty = (head == tail) & ((head == 0) | (head == own))
    listed = (head % np.uint64(16) == 0) & (tail % np.uint64(16) == 0) & (head > 0) & (tail > 0)
    sound: Mask = waiters & (empty | listed)
    used: Mask = head != 0
    for phase in range(_WORDS):
        good = np.cumsum(np.append(0, sound[phase::_WORDS]))
        busy = np.cumsum(np.append(0, used[phase::_WORDS]))
        runs = np.flatnonzero((good[BINS:] - good[:-BINS] == BINS) & (busy[BINS:] - busy[:-BINS] > 0))
        yield from (start + 8 * (phase + _WORDS * at) for at in runs.tolist())


def _lists(target: Target, location: OldLocation) -> int:
    """Return how many bins have chunks that lead back, where ``binmap`` says the same of all but one; 0 otherwise."""
    try:
        words = target.reader.words(location.bins - 8, 1 + _WORDS * BINS)
        odd = lists = 0
        for number in range(BINS):
            head, tail = words[2 + _WORDS * number : 4 + _WORDS * number]
            own = location.sentinel(number)
            filled = head not in (0, own)
            lists += filled
            odd += filled != bool(words[0] >> number & 1)
            if filled and (target.reader.word(head + PREV) != own or target.reader.word(tail + NEXT) != own):
                odd += 1
        return lists if odd <= 1 else 0
    except FaultError:
        return 0
