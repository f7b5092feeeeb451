"""Finds mimalloc by its segments: each has its own address in it, mixed with one number that all have in common."""

from __future__ import annotations

from collections import defaultdict
from typing import DefaultDict, Iterator, List, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.heap.mimalloc.layouts import LAYOUTS, SLICE, Layout
from gdbext.heap.mimalloc.model import Location
from gdbext.memory import for_each_written
from gdbext.process import Module
from gdbext.report import Evidence
from gdbext.target import Target

_WORD = 8
_MOST_ENTRIES = 512
_MOST_CANDIDATES = 1 << 20


def find_locations(target: Target, modules: Sequence[Module]) -> List[Location]:
    """Return what the mimalloc of a target may be: where its segments are, by the layouts that most of them fit.

    :param modules: one of which has its variables.
    """
    alike: DefaultDict[Tuple[int, ...], List[Layout]] = defaultdict(list)
    for layout in LAYOUTS:
        alike[_segment_of(layout)].append(layout)
    found = [_find(target, layouts, modules) for layouts in alike.values()]
    most = max((len(some[0].segments) for some in found if some), default=0)
    return [one for some in found for one in some if len(one.segments) == most]


def _segment_of(layout: Layout) -> Tuple[int, ...]:
    """Return what tells a segment: layouts that have it in common differ in their pages alone."""
    return (layout.align, layout.cookie, layout.size, layout.info, layout.entries, layout.shift, layout.pages[0])


def _find(target: Target, layouts: Sequence[Layout], modules: Sequence[Module]) -> List[Location]:
    groups: DefaultDict[int, List[int]] = defaultdict(list)
    for base, cookie in _candidates(target, layouts[0]):
        groups[cookie].append(base)
    cookie, segments = max(groups.items(), key=lambda group: len(group[1]), default=(0, []))
    if not segments:
        return []
    said = f"{len(segments)} segments by their cookie, as of "
    return [
        Location(layout, cookie, segments, modules, (Evidence("mimalloc", said + layout.versions),))
        for layout in layouts
    ]


def _candidates(target: Target, layout: Layout) -> Iterator[Tuple[int, int]]:
    """Iterate over aligned addresses at which a segment may begin, with the number that its cookie would tell."""
    tried = 0
    for region in target.index.regions:
        if not (region.anonymous and region.writable and region.readable):
            continue
        for base in range(region.start + -region.start % layout.align, region.end, layout.align):
            tried += 1
            if tried > _MOST_CANDIDATES:
                return
            if next(iter(for_each_written(target.memory, base, base + SLICE)), None) and is_segment(
                target, base, layout
            ):
                yield base, base ^ target.reader.word(base + layout.cookie)


def is_segment(target: Target, base: int, layout: Layout) -> bool:
    """Whether what stands at an address agrees with itself as a segment, its cookie aside."""
    try:
        word = target.reader.word
        size, info, entries = (word(base + at) for at in (layout.size, layout.info, layout.entries))
        if not 0 < entries <= _MOST_ENTRIES or not info or base ^ word(base + layout.cookie) < 1 << 16:
            return False
        if layout.shift:
            shift = word(base + layout.shift)
            return 16 <= shift <= 23 and info < size and size % 4096 == 0 and info % 16 == 0 and size < 1 << 46
        first = target.reader.uint(base + layout.pages[0], 4)
        return info == first <= 16 and entries <= size < 1 << 31
    except FaultError:
        return False
