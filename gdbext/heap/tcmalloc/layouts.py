"""Where gperftools keeps what, as data, for 64-bit targets.

From gperftools' ``src/common.h`` (``SizeMap``), ``src/span.h``, ``src/page_heap.h``, ``src/pagemap.h``,
``src/central_freelist.h`` and ``src/thread_cache.h`` at 2.7, 2.8.1, 2.10, 2.16 and 2.18.1; the debug info of builds of
2.10 and 2.17.2 has the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from gdbext.abi import Abi
from gdbext.layout import StructLayout, declare

ADDRESS_BITS = 48  # kAddressBits of x86-64 and aarch64
PAGES_SHIFT = 20  # kMaxPages is 1 << (20 - kPageShift)
PAGE_SHIFTS = (12, 13, 14, 15, 16, 17, 18)  # kPageShift, as configure can set it
MAX_SIZE = 1 << 18  # kMaxSize: the largest class; larger blocks are spans of their own
ALLOCATOR_BEFORE = 104  # bytes from PageHeap.pagemap_.allocator_ to free_: two std::set lie between
CENTRAL_STRIDE = 1216  # CentralFreeListPadded

# Of a span's ``flags``: location in the low two bits, then ``sample``.
LOCATION, SAMPLED = 3, 4
IN_USE, ON_NORMAL, ON_RETURNED = 0, 1, 2

_ALL = "2.7 and later"
_SPAN = ("u64 start", "u64 length", "ptr next", "ptr prev", "ptr objects", "u16 refcount", "u8 sizeclass", "u8 flags")
_CENTRAL = ("i32 lock", "u64 size_class", "ptr empty[6]", "ptr nonempty[6]", "u64 num_spans", "u64 counter",
            "ptr tc_slots[128]", "i32 used_slots", "i32 cache_size")  # fmt: skip
_STATS = ("u64 system_bytes", "u64 free_bytes", "u64 unmapped_bytes")
_CACHE = ("u64 lists[LISTS]", "i32 size", "i32 max_size", "u64 sampler[3]")


@dataclass(frozen=True)
class Sizes:
    """How a build numbers size classes (``SizeMap``).

    :param most: ``kClassSizesMax``.
    :param pages: offset of ``class_to_pages_`` from ``class_to_size_``, bytes; ``num_objects_to_move_`` ends where the
        latter begins.
    """

    versions: str
    most: int
    pages: int


SIZES: Sequence[Sizes] = (Sizes("2.8 and later", 128, 516), Sizes("2.7", 96, 388))


@dataclass(frozen=True)
class Layouts:
    """The structures of one target.

    :param caches: what a ``ThreadCache`` may look like, the newest first: since 2.16 it has no ``tid_`` and
        ``in_setspecific_`` before its links.
    """

    span: StructLayout
    central: StructLayout
    stats: StructLayout
    caches: Sequence[StructLayout]


def layouts(abi: Abi, sizes: Sizes) -> Layouts:
    """Return the structures for an ABI and a numbering of classes."""
    counts = {"LISTS": 4 * sizes.most}
    new = declare("ThreadCache", (*_CACHE, "ptr next", "ptr prev"), abi, "2.16 and later", counts)
    old = declare("ThreadCache", (*_CACHE, "u64 tid", "u64 in_set", "ptr next", "ptr prev"), abi, "before 2.16", counts)
    span = declare("Span", _SPAN, abi, _ALL)
    return Layouts(
        span, declare("CentralFreeList", _CENTRAL, abi, _ALL), declare("Stats", _STATS, abi, _ALL), (new, old)
    )
