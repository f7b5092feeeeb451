"""Finds gperftools' tcmalloc in a module's data: by structure, since its names are hidden in every stripped build.

``class_to_size_`` is an array of numbers that begins and ends alike everywhere; the page heap's lists are the longest
run of list heads 48 bytes apart, whose length tells ``kPageShift``; from both the rest follows.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.tcmalloc.layouts import (
    ALLOCATOR_BEFORE,
    CENTRAL_STRIDE,
    MAX_SIZE,
    PAGE_SHIFTS,
    PAGES_SHIFT,
    SIZES,
    Layouts,
    Sizes,
    layouts,
)
from gdbext.heap.tcmalloc.model import U64, Location
from gdbext.layout import StructLayout
from gdbext.memory import Region
from gdbext.memory.bulk import words_at
from gdbext.process import Module
from gdbext.report import Evidence
from gdbext.target import Target

_WORD = 8
_HEAD = 48  # bytes from one list head to the next: a Span
_MOST_CLASSES = 128  # kClassSizesMax
_MOST_CACHES = 1 << 20
_MOST_REGION = 64 << 20  # bytes of one region that are searched


def find_locations(target: Target, modules: Sequence[Module]) -> List[Location]:
    """Return where each tcmalloc of some modules keeps what; none is an answer."""
    found = (find_location(target, module) for module in modules)
    return [one for one in found if one is not None]


def find_location(target: Target, module: Module) -> Optional[Location]:
    """Return where the tcmalloc of one module keeps what, or None: there is none, or it has not begun."""
    data = list(_data(target, module))
    for sizes, at, classes, moved in _for_each_size_map(target, data):
        known = layouts(target.abi, sizes)
        heap = _find_page_heap(target, data, known)
        central = _find_central(data, len(classes))
        if heap is None or central is None:
            continue
        free, shift, root = heap
        stats = free + 2 * _HEAD * (1 << (PAGES_SHIFT - shift))
        named = f"size classes at {at:#x} ({len(classes) - 1}), page heap's lists at {free:#x}"
        evidence = [Evidence("tcmalloc", f"found by structure: {named}, central lists at {central:#x}")]
        caches, layout = _find_caches(target, data, known, classes)
        return Location(module, sizes, known, shift, classes, moved, root, stats, central, caches, layout, evidence)
    return None


def _data(target: Target, module: Module) -> Iterator[Tuple[int, U64]]:
    """Iterate over a module's writable data: address of the first word, words; what cannot be read is left out."""
    for region in target.index.within(module.base, module.end):
        if region.readable and region.writable:
            yield from _words(target, region)


def _words(target: Target, region: Region) -> Iterator[Tuple[int, U64]]:
    try:
        yield region.start, words_at(target.memory, target.abi, region.start, min(region.size, _MOST_REGION) // _WORD)
    except FaultError:
        return


def _for_each_size_map(
    target: Target, data: Sequence[Tuple[int, U64]]
) -> Iterator[Tuple[Sizes, int, Sequence[int], Sequence[int]]]:
    """Iterate over what may be a ``SizeMap``: its kind, the address of ``class_to_size_``, sizes, objects moved."""
    kind = f"{target.abi.order_mark}i4"
    for start, words in data:
        numbers = words.astype(target.abi.word_dtype, copy=False).view(kind)
        first = np.flatnonzero((numbers[:-2] == 0) & (numbers[1:-1] == 8) & (numbers[2:] == 16))
        for at in first.tolist():
            classes = _classes(numbers[at : at + _MOST_CLASSES])
            for sizes in SIZES if classes else ():
                moved = numbers[max(at - sizes.most, 0) : at][: len(classes)]
                pages = at + sizes.pages // 4
                taken = numbers[pages : pages + 2 * len(classes)].view(f"{target.abi.order_mark}u8")
                if len(moved) == len(taken) == len(classes) and (moved[1:] >= 2).all() and _counts(taken[1:]):
                    yield sizes, start + 4 * at, classes, moved.tolist()


def _classes(numbers: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> Sequence[int]:
    """Return the classes that an array of numbers begins with: rising to the largest that there is; none otherwise."""
    last = np.flatnonzero(numbers == MAX_SIZE)
    if not len(last):
        return ()
    found = numbers[: last[0] + 1]
    return found.tolist() if (np.diff(found) > 0).all() and not (found & 7).any() else ()


def _counts(pages: U64) -> bool:
    return bool(((pages >= 1) & (pages <= MAX_SIZE)).all())


def _find_page_heap(target: Target, data: Sequence[Tuple[int, U64]], known: Layouts) -> Optional[Tuple[int, int, int]]:
    """Return where the page heap's lists begin, ``kPageShift`` and the page map's root, or None."""
    for start, words in data:
        for at, count in _runs(start, words):
            shift = PAGES_SHIFT - (count // 2).bit_length() + 1
            if shift not in PAGE_SHIFTS or count != 2 << (PAGES_SHIFT - shift):
                continue
            free, bits = start + _WORD * at, 48 - shift
            allocator = free - ALLOCATOR_BEFORE
            root = allocator - (_WORD << (bits - leaf_bits(shift)))
            if root >= start and _is_code(target, int(words[(allocator - start) // _WORD])):
                return free, shift, root
    return None


def leaf_bits(shift: int) -> int:
    """Return how many bits of a page's number choose the entry in a leaf of the page map (``TCMalloc_PageMap2``)."""
    return (48 - shift + 1) // 2


def _runs(start: int, words: U64) -> Iterator[Tuple[int, int]]:
    """Iterate over runs of list heads, longest first: index of the first word, heads.

    An empty list's head is its own next and prev; one that is not has a page number and a length of 0.
    """
    step = _HEAD // _WORD
    count = len(words) - step
    if count <= 0:
        return
    own = np.uint64(start) + np.arange(count, dtype=np.uint64) * np.uint64(_WORD)
    unused = (words[:count] == 0) & (words[1 : count + 1] == 0)
    empty = unused & (words[2 : count + 2] == own) & (words[3 : count + 3] == own)
    some = unused & (words[2 : count + 2] != 0) & (words[3 : count + 3] != 0)
    runs = []
    for phase in range(step):
        heads = (empty | some)[phase::step].astype(np.int8)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], heads, [0]))))
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist()):
            if end - first >= 8 and empty[phase::step][first:end].any():
                runs.append((phase + first * step, end - first))
    yield from sorted(runs, key=lambda run: -run[1])


def _is_code(target: Target, address: int) -> bool:
    region = target.index.find(address)
    return region is not None and ("x" in region.permissions or "?" in region.permissions)


def _find_central(data: Sequence[Tuple[int, U64]], classes: int) -> Optional[int]:
    """Return the address of ``central_cache_[0]``, or None: its records know their size class."""
    step = CENTRAL_STRIDE // _WORD
    for start, words in data:
        end = len(words) - step * (classes - 1)
        if end <= step:
            continue
        match = words[step : step + end - 1] == 1
        for number in range(2, classes):
            match = match & (words[step * number : step * number + len(match)] == number)
        for at in np.flatnonzero(match).tolist():
            return int(start + _WORD * (at - 1))
    return None


def _find_caches(
    target: Target, data: Sequence[Tuple[int, U64]], known: Layouts, classes: Sequence[int]
) -> Tuple[Optional[Sequence[int]], Optional[StructLayout]]:
    """Return the addresses of all thread caches and their layout; None where the list's head is not found.

    Other words lead into the middle of the list, or to a cache that seems alone by another layout: the longest list is
    the one.
    """
    best: Tuple[Optional[Sequence[int]], Optional[StructLayout]] = (None, None)
    for _, words in data:
        for address in dict.fromkeys(words[(words != 0) & (words % np.uint64(64) == 0)].tolist()):
            for layout in known.caches if target.index.find(address) is not None else ():
                found = _follow(target, address, layout, classes)
                if len(found) > len(best[0] or ()):
                    best = found, layout
    return best


def _follow(target: Target, first: int, layout: StructLayout, classes: Sequence[int]) -> Sequence[int]:
    """Return all thread caches from the first on, or none where one of them is none."""
    found: List[int] = []
    at, before = first, 0
    while at and len(found) < _MOST_CACHES:
        try:
            data = bytes(target.memory.read(at, layout.size))
        except FaultError:
            return ()
        words = np.frombuffer(data, target.abi.word_dtype)
        if int(words[layout.offset("prev") // _WORD]) != before or not is_cache(words, layout, classes):
            return ()
        found.append(at)
        at, before = int(words[layout.offset("next") // _WORD]), at
    return found


def is_cache(words: U64, layout: StructLayout, classes: Sequence[int]) -> bool:
    """Whether the words of a structure are those of a ``ThreadCache``: lists and lengths agree, and sizes with all."""
    lists = words[: 4 * len(classes)].reshape(-1, 4)
    lengths = lists[:, 1] & np.uint64(0xFFFFFFFF)
    total = int((lengths * np.array(classes, np.uint64)).sum())
    size = int(words[layout.offset("size") // _WORD]) & 0xFFFFFFFF
    capacity = int(words[layout.offset("size") // _WORD]) >> 32
    # A thread stopped inside its cache may have counted one object and not linked it yet, or the reverse.
    odd = int(((lists[:, 0] == 0) != (lengths == 0)).sum())
    return capacity > 0 and odd <= 1 and abs(total - size) <= MAX_SIZE and (lengths < 1 << 24).all().item()
