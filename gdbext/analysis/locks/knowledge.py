"""What names and places are known for the lock census: symbols, stacks, tables that shapes know, the heap, mappings."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Iterator, Optional, Sequence

from gdbext.analysis.addresses import Addresses, find_short_name
from gdbext.analysis.beyond import NOTHING
from gdbext.analysis.locks.report import Knowledge
from gdbext.analysis.locks.unowned import find_unowned
from gdbext.analysis.locks.waitgraph import find_held_locks, find_holders
from gdbext.analysis.sources import Sources
from gdbext.analysis.tables.places import TablePlaces, WalkedTable, walked_tables
from gdbext.analysis.tables.search import Looked
from gdbext.analysis.tables.variables import find_tables
from gdbext.debuginfo import Frame, Stacks, Types
from gdbext.heap.detect import may_hold_cpython
from gdbext.structures.locks.frames import find_telling
from gdbext.structures.locks.model import Census
from gdbext.target import Target

_FRAMES = 24


def read_knowledge(
    sources: Sources,
    census: Census,
    stacks: Stacks,
    *,
    tables: Optional[Sequence[Looked]] = None,
    more: Sequence[Looked] = (),
    heap: bool = False,
) -> Knowledge:
    """Return what is known of a census's locks and threads besides the census itself.

    Tables are searched for and walked only when somebody waits for a lock that another thread may hold.

    :param tables: those that were walked already; None looks for them.
    :param more: what the user named besides.
    :param heap: whether the heap may be walked for names; else it counts only where that was done before.
    """
    holders = find_holders(census)
    looked, search = list(more), NOTHING
    if tables is not None:
        looked += tables
    elif wants_tables(sources, census):
        search = find_tables(sources, looked.append)
    places = TablePlaces([one for each in looked for one in _tables_of(each, sources.debug.types)])
    threads = [thread for thread in sources.target.threads if thread.number in holders]
    positions = {thread.number: places.find_position(sources.target, thread) for thread in threads}
    names = _Names(sources, places, heap)
    return Knowledge(
        names.find_name,
        {number: position for number, position in positions.items() if position is not None},
        _telling_frames(census, stacks),
        find_unowned(census, stacks, sources.target.identity.pid if sources.target.live else None),
        tuple(search.evidence),
        tuple(search.unexamined),
    )


def with_python(known: Knowledge, target: Target, census: Census) -> Knowledge:
    """Return what is known with what Python's threads do, where the target may have a CPython."""
    if not may_hold_cpython(target):
        return known
    from gdbext.analysis.locks.python import find_python_waits

    return replace(known, python=find_python_waits(target, census))


def wants_tables(sources: Sources, census: Census) -> bool:
    """Return whether tables may say something: somebody holds what others wait for, or it has no name."""
    find_name = sources.target.symbols.find_name
    return bool(find_holders(census)) or any(find_name(lock) is None for lock in find_held_locks(census))


def _tables_of(looked: Looked, types: Types) -> Iterator[WalkedTable]:
    element = next((each.element_type for each in looked.walked if each.element_type), None)
    type = None if element is None else types.find_type(element)
    yield from walked_tables(looked, 0 if type is None else type.size)


def _telling_frames(census: Census, stacks: Stacks) -> "dict[int, Frame]":
    frames: "dict[int, Frame]" = {}
    for wait in census.waits:
        telling = find_telling(stacks.frames(wait.thread, _FRAMES))
        if telling is not None:
            frames[wait.thread.number] = telling
    return frames


class _Names:
    """Names addresses, each once."""

    def __init__(self, sources: Sources, places: TablePlaces, heap: bool) -> None:
        self._sources = sources
        self._places = places
        self._heap = heap
        self._known: "dict[int, Optional[str]]" = {}

    @cached_property
    def _addresses(self) -> Addresses:
        heaps = self._sources.known_heaps or (self._sources.heaps() if self._heap else ())
        return Addresses(self._sources.target, heaps)

    def find_name(self, address: int) -> Optional[str]:
        """Return "lock of bin 7 of cache", "symbol+8", "stack of thread 3", "block of 320 bytes + 0x28", or None."""
        if address not in self._known:
            name = self._places.find_lock_name(address) or self._sources.target.symbols.find_name(address)
            self._known[address] = name or find_short_name(self._addresses.at(address))
        return self._known[address]
