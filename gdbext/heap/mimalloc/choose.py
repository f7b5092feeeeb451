"""Which mimalloc a target has: what fits is read in part by each layout, and whole by the one that agrees best."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Union

from gdbext.heap.mimalloc.find import find_locations
from gdbext.heap.mimalloc.model import Location, MapLocation, Mimalloc
from gdbext.heap.mimalloc.pagemap import find_maps
from gdbext.heap.mimalloc.read import read_mimalloc
from gdbext.process import Module
from gdbext.progress import Progress
from gdbext.target import Target

_SEGMENTS, _PAGES = 4, 64  # that are read to choose a layout


def find_mimalloc(target: Target, modules: Sequence[Module], progress: Progress) -> Optional[Mimalloc]:
    """Return the mimalloc of a target, or None.

    :param modules: one of which has its variables.
    """
    locations: List[Union[Location, MapLocation]] = [*find_locations(target, modules), *find_maps(target, modules)]
    if not locations:
        return None
    # By a wrong layout few pages are found, or their lists lead nowhere.
    best = max(locations, key=lambda one: _agreement(read_mimalloc(target, _part(one), progress)))
    return read_mimalloc(target, best, progress)


def _part(location: Union[Location, MapLocation]) -> Union[Location, MapLocation]:
    if isinstance(location, Location):
        return replace(location, segments=location.segments[:_SEGMENTS])
    return replace(location, pages=location.pages[:: max(len(location.pages) // _PAGES, 1)])


def _agreement(heap: Mimalloc) -> int:
    return len(heap.pages.at) - len(heap.problems)
