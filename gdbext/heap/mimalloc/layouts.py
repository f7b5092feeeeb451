"""mimalloc's segments and pages, as data, for 64-bit targets.

From ``include/mimalloc/types.h`` at the tags named; the debug info of builds of 1.8.7, 1.9.4, 2.0.9, 2.1.2, 2.1.7,
2.4.1, 3.0.1, 3.0.11, 3.1.5, 3.1.6, 3.2.6, 3.2.8, 3.3.0, 3.4.0 and 3.4.3, each plain and with MI_SECURE=4, has the same.

Builds with MI_SECURE of 3 or more, or with MI_DEBUG, have two keys in each page, before ``xthread_free`` (3.0 and 3.1:
before ``heap``, since 3.2 before ``theap``): their free lists are encoded, and each block ends with padding, but in
secure builds up to 2.0.9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator, Mapping, Sequence, Tuple

SLICE = 1 << 16  # bytes: MI_SEGMENT_SLICE_SIZE of 2.x, MI_ARENA_SLICE_SIZE of 3.x
_SMALL, _HUGE = 1 << 22, 1 << 25  # MI_SEGMENT_SIZE of 1.x and of 2.x, which segments are aligned to
HUGE_SIZE = 0x8000_0000  # an xblock_size of that or more: the block has all of its page
KEYS = 16  # bytes: of a page's two keys
PADDING = 8  # bytes: MI_PADDING_SIZE

Field = Tuple[int, int]  # offset, bytes


@dataclass(frozen=True)
class Layout:
    """One way in which segments look (1.x and 2.x).

    :param align: of segments, bytes.
    :param cookie: offset of the word that is the segment's address ^ one number of the process.
    :param size: of the segment's size: in slices (2.x), or bytes.
    :param info: of the size of the segment's own data: in slices (2.x), or bytes.
    :param entries: of the number of slices or pages.
    :param thread: of the id of the thread that owns it, 0 for none.
    :param pages: offset of the first page, and bytes from one to the next.
    :param page: members of a page.
    :param delayed: offset of ``thread_delayed_free`` in a heap.
    :param shift: offset of ``page_shift``; 0 where segments are cut into slices (2.x).
    :param start: where a page's first block is, if the page does not say so: blocks of how many bytes begin how far
        behind the page's memory, as (largest size, fixed bytes, times the size).
    :param keys: offset of a page's keys; 0 where it has none.
    :param heap_keys: of a heap's, by which ``thread_delayed_free`` is encoded.
    """

    versions: str
    align: int
    cookie: int
    size: int
    info: int
    entries: int
    thread: int
    pages: Tuple[int, int]
    page: Mapping[str, Field]
    delayed: int
    heap_keys: int
    shift: int = 0
    start: Sequence[Tuple[int, int, int]] = ()
    keys: int = 0


@dataclass(frozen=True)
class MapLayout:
    """One way in which pages look that the page map leads to (3.x).

    :param page: members of a page: ``page_start`` is its first block's address, ``page_woffset`` words from the page.
    :param memid: offset of where its memory is from: the arena, the first slice in it and their number.
    :param size: bytes of a page's structure.
    :param keys: offset of its keys; 0 where it has none.
    """

    versions: str
    page: Mapping[str, Field]
    memid: int
    size: int
    keys: int = 0


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

_PLAIN: Sequence[Layout] = (
    Layout("2.2 to 2.4", _HUGE, 224, 248, 256, 272, 280, (288, 96), _PAGE, 8, 40),
    Layout("2.1.4 to 2.1.9", _HUGE, 216, 224, 232, 248, 256, (264, 96), _PAGE, 8, 40),
    Layout(
        "2.0.7 to 2.0.9", _HUGE, 216, 224, 232, 248, 256, (264, 80), _OLD_PAGE, 2840, 2872, start=((1024, 384, 0),)
    ),
    Layout(
        "2.1.0 to 2.1.2", _HUGE, 216, 224, 232, 248, 256, (264, 80), _OLD_PAGE, 2840, 2872,
        start=((64, 0, 3), (512, 0, 1)),
    ),
    Layout("1.9", _SMALL, 112, 32, 104, 96, 136, (160, 80), _UNSLICED_PAGE, 8, 40, shift=144),
    Layout("1.8.4 to 1.8.9", _SMALL, 104, 32, 96, 88, 112, (136, 80), _UNSLICED_PAGE, 8, 40, shift=120),
)  # fmt: skip


def _keyed(layout: Layout) -> Iterator[Layout]:
    """Iterate over how segments look in a secure or debug build: pages have their keys before ``xthread_free``."""
    at, step = layout.pages
    keys = layout.page["thread_free"][0]
    page = {name: (where + KEYS * (where >= keys), size) for name, (where, size) in layout.page.items()}
    moved = replace(
        layout, versions=f"{layout.versions}, secure or debug", page=page, pages=(at, step + KEYS), keys=keys
    )
    yield moved
    if layout.delayed > 8:  # of what lies behind a heap's array, which padding makes longer by an entry in most builds
        yield replace(moved, delayed=layout.delayed + 8, heap_keys=layout.heap_keys + 8)


# CPython without the global lock has in each page more words, behind all others (mimalloc/types.h, qsbr_node).
_IN_CPYTHON = {"2.1.0 to 2.1.2": ("CPython 3.13", 96), "2.2 to 2.4": ("CPython 3.14", 120)}


def _in_cpython(layout: Layout) -> Layout:
    name, step = _IN_CPYTHON[layout.versions]
    return replace(layout, versions=f"{layout.versions} in {name}", pages=(layout.pages[0], step))


LAYOUTS: Sequence[Layout] = (
    *_PLAIN,
    *(keyed for layout in _PLAIN for keyed in _keyed(layout)),
    *(_in_cpython(layout) for layout in _PLAIN if layout.versions in _IN_CPYTHON),
)

_MAPPED = {
    "thread": (0, 8), "free": (8, 8), "used": (16, 2), "capacity": (18, 2), "reserved": (20, 2), "local_free": (24, 8),
    "thread_free": (32, 8), "block_size": (40, 8),
}  # fmt: skip
_START, _OFFSET = {"page_start": (48, 8)}, {"page_woffset": (48, 4)}
_HEAP, _KEYED_HEAP = {"heap": (64, 8)}, {"heap": (80, 8)}

MAP_LAYOUTS: Sequence[MapLayout] = (
    MapLayout("3.0 to 3.3", {**_MAPPED, **_START, **_HEAP}, 96, 120),
    MapLayout("3.4", {**_MAPPED, **_OFFSET, **_HEAP}, 88, 112),
    MapLayout("3.2 and 3.3, secure or debug", {**_MAPPED, **_START, **_KEYED_HEAP}, 112, 136, 56),
    MapLayout("3.4, secure or debug", {**_MAPPED, **_OFFSET, **_KEYED_HEAP}, 104, 128, 56),
    MapLayout("3.0 and 3.1, secure or debug", {**_MAPPED, **_START, **_KEYED_HEAP}, 112, 136, 64),
)
