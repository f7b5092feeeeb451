"""mimalloc's segments and pages, as data, for 64-bit targets without MI_SECURE, MI_DEBUG or padding.

From ``include/mimalloc/types.h`` at the tags named; the debug info of builds of 1.8.7, 1.9.11, 2.0.9, 2.1.2, 2.1.4 and
2.4.0 has the same, but for the keys that MI_DEBUG adds there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence, Tuple

SLICE = 1 << 16  # bytes: MI_SEGMENT_SLICE_SIZE of 2.x
_SMALL, _HUGE = 1 << 22, 1 << 25  # MI_SEGMENT_SIZE of 1.x and of 2.x, which segments are aligned to
HUGE_SIZE = 0x8000_0000  # an xblock_size of that or more: the block has all of its page

Field = Tuple[int, int]  # offset, bytes


@dataclass(frozen=True)
class Layout:
    """One way in which segments look.

    :param align: of segments, bytes.
    :param cookie: offset of the word that is the segment's address ^ one number of the process.
    :param size: of the segment's size: in slices (2.x), or bytes.
    :param info: of the size of the segment's own data: in slices (2.x), or bytes.
    :param entries: of the number of slices or pages.
    :param pages: offset of the first page, and bytes from one to the next.
    :param page: members of a page.
    :param delayed: offset of ``thread_delayed_free`` in a heap.
    :param shift: offset of ``page_shift``; 0 where segments are cut into slices (2.x).
    :param start: where a page's first block is, if the page does not say so: blocks of how many bytes begin how far
        behind the page's memory, as (largest size, fixed bytes, times the size).
    """

    versions: str
    align: int
    cookie: int
    size: int
    info: int
    entries: int
    pages: Tuple[int, int]
    page: Mapping[str, Field]
    delayed: int
    shift: int = 0
    start: Sequence[Tuple[int, int, int]] = ()


_OLD_PAGE = {
    "slice_count": (0, 4), "capacity": (10, 2), "reserved": (12, 2), "free": (16, 8), "used": (24, 4),
    "block_size": (28, 4),
    "local_free": (32, 8), "thread_free": (40, 8), "heap": (48, 8),
}  # fmt: skip
_PAGE = {
    "slice_count": (0, 4), "capacity": (10, 2), "reserved": (12, 2), "free": (16, 8), "local_free": (24, 8),
    "used": (32, 2),
    "block_size": (40, 8), "page_start": (48, 8), "thread_free": (56, 8), "heap": (64, 8),
}  # fmt: skip
_UNSLICED_PAGE = {
    "bits": (1, 1), "capacity": (2, 2), "reserved": (4, 2), "free": (8, 8), "local_free": (16, 8), "used": (24, 2),
    "block_size": (32, 8), "page_start": (40, 8), "thread_free": (48, 8), "heap": (56, 8),
}  # fmt: skip
IN_USE = 1  # of an unsliced page's bits

LAYOUTS: Sequence[Layout] = (
    Layout("2.2 to 2.4", _HUGE, 224, 248, 256, 272, (288, 96), _PAGE, 8),
    Layout("2.1.4 to 2.1.9", _HUGE, 216, 224, 232, 248, (264, 96), _PAGE, 8),
    Layout("2.0.7 to 2.0.9", _HUGE, 216, 224, 232, 248, (264, 80), _OLD_PAGE, 2840, start=((1024, 384, 0),)),
    Layout("2.1.0 to 2.1.2", _HUGE, 216, 224, 232, 248, (264, 80), _OLD_PAGE, 2840, start=((64, 0, 3), (512, 0, 1))),
    Layout("1.9", _SMALL, 112, 32, 104, 96, (160, 80), _UNSLICED_PAGE, 8, shift=144),
    Layout("1.8.4 to 1.8.9", _SMALL, 104, 32, 96, 88, (136, 80), _UNSLICED_PAGE, 8, shift=120),
)
