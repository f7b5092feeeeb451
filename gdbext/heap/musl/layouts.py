"""mallocng's structures, as data, for 64-bit targets.

From musl's ``src/malloc/mallocng/meta.h``, the same from 1.2.1 to 1.2.6. Where ``bits/limits.h`` of an architecture has
no PAGESIZE, ``malloc_context`` has it as a member.
"""

from __future__ import annotations

from typing import Sequence

from gdbext.abi import Abi
from gdbext.layout import StructLayout, declare

UNIT, IB = 16, 4  # bytes: of a size class's units; of a slot's end that is the next one's header
AREA = 4096  # bytes of a meta_area, and its alignment
PAGE = 4096  # of maplen
META_WORDS = 5
SINGLE = 63  # the size class of a group with a mapping of its own for one slot
CLASSES = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
)  # fmt: skip

_HEAD = ("u64 secret",)
_REST = (
    "i32 init_done", "u32 mmap_counter", "ptr free_meta_head", "ptr avail_meta", "size_t avail_meta_count",
    "size_t avail_meta_area_count", "size_t meta_alloc_shift", "ptr meta_area_head", "ptr meta_area_tail",
    "ptr avail_meta_areas", "ptr active[48]", "size_t usage_by_class[48]", "u8 unmap_seq[32]", "u8 bounces[32]",
    "u8 seq", "ulong brk",
)  # fmt: skip
_AREA = ("u64 check", "ptr next", "i32 nslots")

METAS_AT = 24  # of a meta_area: its slots


def contexts(abi: Abi) -> Sequence[StructLayout]:
    """Return what a ``malloc_context`` may look like."""
    return (
        declare("malloc_context", (*_HEAD, *_REST), abi, "1.2.1 and later"),
        declare("malloc_context", (*_HEAD, "size_t pagesize", *_REST), abi, "1.2.1 and later, pagesize a variable"),
    )


def area(abi: Abi) -> StructLayout:
    """Return what a ``meta_area`` begins with."""
    return declare("meta_area", _AREA, abi, "1.2.1 and later")
