"""Blocks of tcmalloc's debug variant (``libtcmalloc_debug``): a header of its own is in each object, before the block.

From gperftools' ``src/debugallocation.cc`` (``MallocBlock``) at 2.10: ``size1_``, ``offset_``, ``magic1_`` and
``alloc_type_``, a word each, and behind the block ``size2_``. One that was freed is overwritten, and waits for a while.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from gdbext.heap.model import Blocks, State
from gdbext.heap.tcmalloc.model import U64, Tcmalloc
from gdbext.kernels import Spans, hold_spans
from gdbext.memory.bulk import for_each_written_view
from gdbext.memory.intervals import for_each_chosen, joined, merged
from gdbext.report import Problem

HEADER = 32  # bytes
_MALLOC, _MMAP = np.uint64(0xDEADBEEF), np.uint64(0xABCDEFAB)  # kMagicMalloc, kMagicMMap: no size behind it
_DELETED = np.uint64(0xCDCDCDCDCDCDCDCD)  # kMagicDeletedSizeT
_SAMPLE = 64


def without_headers(heap: Tcmalloc, blocks: Blocks) -> Blocks:
    """Return the blocks as the program has them; as they are where the first of those in use have no headers."""
    spans, target = heap.spans, heap.target
    pieces = joined(merged((spans.start, spans.start + spans.size)))
    views = [
        one
        for low, high in zip(*(column.tolist() for column in pieces))
        for one in for_each_written_view(target.memory, low, high, target.abi.page_size)
    ]
    memory, used = hold_spans(views, target.abi.byteorder), blocks.state == int(State.IN_USE)
    _, magic = _headers(memory, blocks.address[np.flatnonzero(used)[:_SAMPLE]])
    if not len(magic) or 2 * np.isin(magic, (_MALLOC, _MMAP, _DELETED)).sum() < len(magic):
        return blocks
    address, sizes, states = blocks.address.copy(), blocks.size.copy(), blocks.state.copy()
    for _, part in for_each_chosen(used):
        size, magic = _headers(memory, blocks.address[part])
        states[part[magic == _DELETED]] = int(State.FREE)
        alive = np.isin(magic, (_MALLOC, _MMAP)) & (size + np.uint64(HEADER) <= blocks.size[part])
        address[part[alive]] += np.uint64(HEADER)
        sizes[part[alive]] = size[alive]
        behind, known = memory.gather(address[part] + sizes[part], 8)
        for row in part[alive & known & (magic == _MALLOC) & (behind != size)].tolist():
            message = f"the block {int(address[row]):#x} of {int(sizes[row])} bytes was written beyond its end"
            heap.problems.append(Problem("overrun", int(address[row]), message, corruption=True))
    return Blocks(address, sizes, states, blocks.owner)


def _headers(memory: Spans, address: U64) -> Tuple[U64, U64]:
    """Return the size that was asked for, and the magic number."""
    size, magic = (memory.gather(address + np.uint64(offset), 8)[0] for offset in (0, 16))
    return size, magic
