"""The keys of cached chunks: free() writes one as their second word, so that it can tell a chunk that is freed twice.

Since glibc commit bcdaad21d4 ("malloc: tcache double free check") (in 2.29) the key is the address of the cache; since
fc859c3048 ("Harden tcache double-free check") (in 2.34) it is ``tcache_key``, a random word of the process. Which of
the two a target has, or none, most of its chunks say; the random one stands in libc's data, too. malloc does not abort
on another word: it misses a double free then. Something has written to the chunk after it was freed.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from gdbext.heap.glibc.find.invariants import Probe
from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.find.par import data_segment
from gdbext.heap.glibc.read.tcache import Cache
from gdbext.memory.bulk import for_each_written_view
from gdbext.report import Problem
from gdbext.target import Target


class _Keyed(NamedTuple):
    """A cached chunk. ``first``: whether its list begins with it."""

    cache: Cache
    tcache_index: int
    chunk: int
    key: int
    first: bool


def check_keys(target: Target, location: Location, caches: Sequence[Cache]) -> List[Problem]:
    """Return a problem for each cached chunk whose key is another than most have; none where it is not known."""
    chunks = list(_for_each_keyed(caches))
    if 2 * sum(one.key == one.cache.at.address for one in chunks) > len(chunks):
        return [_wrong_key(one, one.cache.at.address) for one in chunks if one.key != one.cache.at.address]
    key = _find_random_key(target, location, chunks)
    return [] if key is None else [_wrong_key(one, key) for one in chunks if one.key != key]


def _for_each_keyed(caches: Sequence[Cache]) -> Iterator[_Keyed]:
    for cache in caches:
        for one in cache.classes:
            for at, (chunk, key) in enumerate(zip(one.chunks, one.keys)):
                yield _Keyed(cache, one.index, chunk, key, not at)


def _find_random_key(target: Target, location: Location, chunks: Sequence[_Keyed]) -> Optional[int]:
    """Return the word that most chunks have and libc's data has, or None. What counts in bytes is older than keys."""
    counts = Counter(one.key for one in chunks if one.cache.at.layout.struct.member("counts").size > 1)
    key, count = max(counts.items(), key=lambda item: item[1], default=(0, 0))
    known = 2 * count > len(chunks) and key > target.abi.page_size and _is_in_data(target, location, key)
    return key if known else None


def _is_in_data(target: Target, location: Location, value: int) -> bool:
    """Whether a word stands in the data of the libc."""
    abi = target.abi
    for region in data_segment(Probe(target), location.main_arena or 0):
        for _, data in for_each_written_view(target.memory, region.start, region.end, abi.page_size):
            whole = memoryview(data)[: len(data) - len(data) % abi.pointer_size]
            if (np.frombuffer(whole, abi.word_dtype) == value).any():
                return True
    return False


def _wrong_key(one: _Keyed, wanted: int) -> Problem:
    """Return the problem of a chunk. free() writes the key and hangs the chunk in, malloc() the other way round."""
    passing = one.first or not one.key
    place = f"{one.cache.label}, class {one.tcache_index}"
    message = f"{place}: the key of {one.chunk:#x} is {one.key:#x}, expected {wanted:#x}: written after it was freed"
    why = ", or its thread was in between" * passing
    return Problem("tcache-key", one.chunk, message + why, corruption=not passing)
