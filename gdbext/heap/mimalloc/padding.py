"""What stands behind each block in secure and debug builds: a word that proves it whole, and how much was asked for.

From ``mi_padding_t`` and ``mi_verify_padding`` (``src/free.c``): the upper 24 bits of the canary are those of the
block's address as a link; a byte behind what was asked for is 0xDE, but in huge pages.
"""

from __future__ import annotations

import numpy as np

from gdbext.heap.freelists import PROGRAM
from gdbext.heap.mimalloc.layouts import PADDING
from gdbext.heap.mimalloc.links import encoded
from gdbext.heap.mimalloc.model import U64, Mimalloc
from gdbext.kernels import hold_spans
from gdbext.memory.intervals import for_each_chosen
from gdbext.report import Problem

_CANARY = np.uint64(0xFFFFFF00)
_FILL = 0xDE  # MI_DEBUG_PADDING
_MOST_FILLED = 1 << 16  # bytes of a block; larger ones may be in huge pages


def read_padding(heap: Mimalloc) -> None:
    """Note what the program asked for, and a problem for each block that was written beyond its end.

    Secure builds up to 2.0.9 have keys and no padding: there next to no word would be the one that proves a block.
    """
    objects = heap.objects
    address, each = objects.columns
    page = np.repeat(np.arange(len(objects.start)), objects.count)
    memory = hold_spans(list(objects.memory(heap.target)), heap.target.abi.byteorder)
    sizes, odd, whole = each.copy(), [np.empty(0, np.int64)], 0
    for _, used in for_each_chosen(objects.held == PROGRAM):
        end = address[used] + each[used] - np.uint64(PADDING)
        canary, known = memory.gather(end, 4)
        delta, _ = memory.gather(end + np.uint64(4), 4)
        link = encoded(address[used], heap.pages.key[page[used]], heap.pages.turned[page[used]])
        proven = (canary & _CANARY == link & _CANARY) & (delta <= each[used] - np.uint64(PADDING))
        sizes[used] = each[used] - np.uint64(PADDING) - np.where(proven, delta, 0).astype(np.uint64)
        fill, _ = memory.gather(address[used] + sizes[used], 1)
        over = ~proven | (delta > 0) & (fill != _FILL) & (each[used] <= _MOST_FILLED)
        odd.append(used[known & over])
        heap.fresh.update(address[used[known & (canary == 0) & (delta == 0)]].tolist())
        whole += int(proven.sum())
    if 2 * whole >= int((objects.held == PROGRAM).sum()):
        heap.sizes = sizes
        _note(heap, *(column[np.concatenate(odd)] for column in (address, sizes)))


def _note(heap: Mimalloc, address: U64, size: U64) -> None:
    for at, bytes in zip(address.tolist(), size.tolist()):
        message = f"the block {at:#x} of {bytes} bytes was written beyond its end"
        heap.problems.append(Problem("overrun", at, message, corruption=True))
