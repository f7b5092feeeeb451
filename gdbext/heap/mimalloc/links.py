"""Free lists of secure and debug builds: a link is mixed with two keys, and the address of its owner is the end.

From ``mi_ptr_encode`` and ``mi_ptr_decode`` in ``include/mimalloc/internal.h``, the same from 1.8 to 3.4.
"""

from __future__ import annotations

from typing import Iterator

import numpy as np

from gdbext.heap.freelists import Objects
from gdbext.heap.mimalloc.model import U64, Mimalloc
from gdbext.kernels import Span

_BITS = np.uint64(63)


def decoded(links: U64, null: U64, key: U64, turned: U64) -> U64:
    """Return the addresses that links stand for, 0 for the end.

    :param null: what stands for the end: the page, or the heap.
    :param key: the first key, which says how far a word is turned, too.
    :param turned: the second.
    """
    mixed, turn = links - key, key & _BITS
    address: U64 = (mixed >> turn | mixed << (np.uint64(64) - turn & _BITS)) ^ turned
    address[address == null] = 0
    return address


def encoded(addresses: U64, key: U64, turned: U64) -> U64:
    """Return the links that stand for addresses."""
    mixed, turn = addresses ^ turned, key & _BITS
    link: U64 = (mixed << turn | mixed >> (np.uint64(64) - turn & _BITS)) + key
    return link


def memory_of(heap: Mimalloc, slabs: slice) -> Iterator[Span]:
    """Iterate over the memory of some pages' blocks, copied, with plain addresses for links."""
    pages, target = heap.pages, heap.target
    part = Objects(pages.start[slabs], pages.each[slabs], pages.capacity[slabs])
    address, page = part.columns[0], np.repeat(np.arange(len(pages.at))[slabs], part.count)
    for low, view in part.memory(target):
        words = np.frombuffer(view, target.abi.word_dtype).copy()  # type: ignore[call-overload]
        first, last = np.searchsorted(address, np.array((low, low + 8 * len(words)), np.uint64)).tolist()
        row, at = page[first:last], ((address[first:last] - np.uint64(low)) // np.uint64(8)).astype(np.int64)
        words[at] = decoded(words[at].astype(np.uint64), pages.at[row], pages.key[row], pages.turned[row])
        yield low, words
