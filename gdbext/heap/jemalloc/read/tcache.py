"""Thread caches: what each thread keeps back of every size class.

Where they are: in a thread's tsd; on each arena's two lists (``tcache_ql``, ``cache_bin_array_descriptor_ql``, builds
with statistics only); in the table of those made through ``mallctl("tcache.create")``. Each is told once. Source:
``tcache_structs.h``, ``tcache.c``, ``cache_bin.h``: the objects are words on a stack that grows downwards, the next
to be handed out at its lowest address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, NamedTuple, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.find.locate import sound_arenas
from gdbext.heap.jemalloc.model import I64, U64, CacheBin, Location, Mask, ThreadCache, TsdKind, TsdState
from gdbext.heap.jemalloc.read.records import Record, fault_problem, find_word, read_record
from gdbext.heap.jemalloc.read.tsd import for_each_in_ring
from gdbext.layout import Member
from gdbext.memory.bulk import words_at
from gdbext.report import Problem
from gdbext.target import Target

_MOST_OBJECTS = (1 << 16) // 8 - 1  # CACHE_BIN_NCACHED_MAX
_MOST_CREATED = 1 << 12  # MALLOCX_TCACHE_MAX
_REINIT = 1  # TCACHES_ELM_NEED_REINIT: flushed, to be made again when it is used
_TOLD = 8  # bins of one cache whose damage is told one by one


class _Place(NamedTuple):
    """A thread cache: its ``tcache_t``, and where the rest of it is (since 5.3 apart, ``tcache_slow_t``)."""

    tcache: int
    slow: int
    tsd: Optional[TsdState]


@dataclass(frozen=True, eq=False)
class _Stacks:
    """The stacks of one cache as columns, one row a size class.

    :param head: address of the object that is handed out next.
    :param most: objects that fit; -1 where not known.
    :param low_water: fewest objects since the last collection.
    """

    head: U64
    count: I64
    most: I64
    low_water: I64

    def row(self, szind: int) -> tuple[int, int, int]:
        """Return head, count and room of one class."""
        return int(self.head[szind]), int(self.count[szind]), int(self.most[szind])


def read_tcaches(
    target: Target, location: Location, tsds: Optional[Sequence[TsdState]], problems: list[Problem]
) -> Optional[list[ThreadCache]]:
    """Return every cache that is in use, threads' first; None when threads' data could not be found.

    A size class whose stack cannot be read, or cannot be, is a problem and left out.
    """
    if "tcache" not in location.layout.structs:
        return None
    places: dict[int, _Place] = {}
    for place in _places(target, location, tsds or (), problems):
        places.setdefault(place.tcache, place)
    if tsds is None and not places:
        return None
    found = (_read_cache(target, location, place, problems) for place in places.values())
    return [one for one in found if one is not None]


def _places(target: Target, location: Location, tsds: Sequence[TsdState], problems: list[Problem]) -> Iterator[_Place]:
    slow = location.layout["tsd"].offset("tcache_slow") if _is_split(location) else None
    of_threads = {tsd.tcache for tsd in tsds}
    for tsd in tsds:
        if is_in_use(tsd):
            yield _Place(tsd.tcache, tsd.tcache if slow is None else tsd.address + slow, tsd)
    for place in _listed(target, location, problems):
        if place.tcache not in of_threads:
            yield place
    yield from _created(target, location, problems)


def is_in_use(tsd: TsdState) -> bool:
    """Whether a thread has a cache now (``tcache_available``): one without an arena is being made, or gone."""
    gone = (TsdKind.PURGATORY, TsdKind.REINCARNATED, TsdKind.UNINITIALIZED)
    return tsd.tcache_enabled and tsd.tcache_arena != 0 and tsd.state not in gone


def _is_split(location: Location) -> bool:
    return "tcache_slow" in location.layout.structs


# -- caches without a thread --------------------------------------------------------------------------


def _listed(target: Target, location: Location, problems: list[Problem]) -> Iterator[_Place]:
    """Iterate over the caches on the arenas' lists."""
    layout = location.layout
    holder = layout["tcache_slow" if _is_split(location) else "tcache"]
    inner = holder.offset("descriptor")
    for index, arena in sound_arenas(target, location).items():
        for field, link, start in (
            ("tcaches", holder.offset("link"), 0),
            ("descriptors", layout["descriptor"].offset("next"), inner),
        ):
            name = f"arena {index}'s list of {'tcaches' if field == 'tcaches' else 'cache bins'}"
            head = find_word(target, arena + layout["arena"].offset(field))
            met: list[Problem] = []
            for item in for_each_in_ring(target, head or 0, link, name, met):
                place = _find_place(target, location, item - start, arena)
                if place is not None:
                    yield place
                elif not target.lacks(item - start, holder.size):
                    met.append(Problem("list", item, f"{name} holds {item:#x}, which is no thread cache", True))
            problems += met


def _find_place(target: Target, location: Location, holder: int, arena: Optional[int]) -> Optional[_Place]:
    """Return the cache whose ``tcache_slow_t`` (5.3) or ``tcache_t`` is at ``holder``, or None when it is none."""
    layout = location.layout
    struct = layout["tcache_slow" if _is_split(location) else "tcache"]
    owner = find_word(target, holder + struct.offset("arena"))
    if owner is None or (arena is not None and owner != arena):
        return None
    if not _is_split(location):
        return _Place(holder, holder, None)
    tcache = find_word(target, holder + struct.offset("tcache"))
    back = None if tcache is None else find_word(target, tcache + layout["tcache"].offset("tcache_slow"))
    return _Place(tcache, holder, None) if tcache is not None and back == holder else None


def _created(target: Target, location: Location, problems: list[Problem]) -> Iterator[_Place]:
    """Iterate over the caches in the table that ``mallctl`` fills; free slots hold each other's addresses."""
    symbols = location.symbols
    if "tcaches" not in symbols or "tcaches_past" not in symbols:
        return
    try:
        table = target.reader.word(symbols["tcaches"], "jemalloc's tcaches")
        past = target.reader.uint(symbols["tcaches_past"], 4, "jemalloc's tcaches_past")
        if past > _MOST_CREATED:
            message = f"jemalloc counts {past} created thread caches: not more than {_MOST_CREATED} there can be"
            problems.append(Problem("tcache-count", symbols["tcaches_past"], message, corruption=True))
        words = words_at(target.memory, target.abi, table, min(past, _MOST_CREATED)) if table else ()
    except FaultError as fault:
        _tell_fault(target, fault, "the table of created thread caches", problems)
        return
    for tcache in (int(word) for word in words):
        if tcache > _REINIT and not table <= tcache < table + 8 * past:
            yield from _created_one(target, location, tcache, problems)


def _created_one(target: Target, location: Location, tcache: int, problems: list[Problem]) -> Iterator[_Place]:
    place: Optional[_Place] = _Place(tcache, tcache, None)
    if _is_split(location):
        slow = find_word(target, tcache + location.layout["tcache"].offset("tcache_slow"))
        place = None if slow is None else _find_place(target, location, slow, None)
    if place is not None and place.tcache == tcache:
        yield place
    elif not target.lacks(tcache, location.layout["tcache"].size):
        message = f"the table of created thread caches holds {tcache:#x}, which is none: left out"
        problems.append(Problem("tcache", tcache, message, corruption=True))


def _tell_fault(target: Target, fault: FaultError, what: str, problems: list[Problem]) -> None:
    problems.append(fault_problem(target, fault, "tcache", f"{what} cannot be read: {fault.message}: left out"))


# -- one cache ----------------------------------------------------------------------------------------


def _read_cache(target: Target, location: Location, place: _Place, problems: list[Problem]) -> Optional[ThreadCache]:
    layout = location.layout
    what = f"the thread cache at {place.tcache:#x}"
    try:
        record = read_record(target, place.tcache, layout["tcache"])
        split = _is_split(location)
        other = read_record(target, place.slow, layout["tcache_slow"]) if split else record
    except FaultError as fault:
        _tell_fault(target, fault, what, problems)
        return None
    nbins = other.find("tcache_nbins")
    stacks = _stacks(location, record, location.layout.nsizes if nbins is None else nbins)
    bins = tuple(_read_bins(target, location, stacks, what, problems))
    known = len(stacks.head) and not _wrong(stacks)[0]
    return ThreadCache(
        place.tsd, place.tcache, other.uint("arena"), bins, int(stacks.head[0]) or None if known else None
    )


def _stacks(location: Location, record: Record, nbins: int) -> _Stacks:
    layout = location.layout
    names = [name for name in ("bins", "bins_small", "bins_large") if name in layout["tcache"]]
    parts = [_rows(record, layout["tcache"].member(name)) for name in names]
    rows = np.concatenate(parts)[: max(min(nbins, len(location.sizes)), 0)]

    def column(name: str) -> U64:
        member = layout["cache_bin"].member(name)
        cells = np.ascontiguousarray(rows[:, member.offset : member.offset + member.size])
        return cells.view(f"{record.abi.order_mark}u{member.size}")[:, 0].astype(np.uint64)

    if "avail" in layout["cache_bin"]:
        return _counted(column("avail"), column("ncached"), column("low_water"))
    most = column("ncached_max").astype(np.int64) if "ncached_max" in layout["cache_bin"] else None
    low_water, full, empty = (column(f"low_bits_{name}") for name in ("low_water", "full", "empty"))
    return _pointed(column("stack_head"), low_water, full, empty, most)


def _rows(record: Record, member: Member) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    start = record.base + member.offset
    return np.frombuffer(record.data, np.uint8, member.extent, start).reshape(-1, member.size)


def _counted(avail: U64, ncached: U64, low_water: U64) -> _Stacks:
    """Return stacks that are counted (5.1, 5.2): ``avail`` is the end of each, where the next class's begins."""
    count, low = (column.astype(np.uint32).view(np.int32).astype(np.int64) for column in (ncached, low_water))
    most = np.full(len(avail), -1, np.int64)
    apart = np.diff(avail).view(np.int64) // 8  # a later class's stack follows the one before
    most[1:] = np.where((apart >= 0) & (apart <= _MOST_OBJECTS), apart, -1)
    return _Stacks(avail - np.uint64(8) * count.view(np.uint64), count, most, np.maximum(low, 0))


def _pointed(head: U64, low_water: U64, full: U64, empty: U64, most: Optional[I64]) -> _Stacks:
    """Return stacks that are told by the low 16 bits of their ends (5.3)."""
    low = np.uint64(0xFFFF)
    used = (empty - head) & low
    count = np.where(used % np.uint64(8) == 0, used // np.uint64(8), -1).astype(np.int64)
    if most is None:
        most = _rooms(head, full, empty)
    water = ((empty - low_water) & low).astype(np.int64) // 8
    return _Stacks(head, count, most, water)


def _rooms(head: U64, full: U64, empty: U64) -> I64:
    """Return how many objects fit: stacks follow each other, so that each has three measures, the least of which holds.

    What is stashed for ``--enable-uaf-detection`` is in front of ``full`` and not counted.
    """
    low = np.uint64(0xFFFF)
    room: I64 = ((empty - full) & low).astype(np.int64) // 8
    both = (head[1:] != 0) & (head[:-1] != 0)
    for ends, part in ((full, slice(0, -1)), (empty, slice(1, None))):
        apart = ((ends[1:] - ends[:-1]) & low).astype(np.int64) // 8
        room[part] = np.where(both, np.minimum(room[part], apart), room[part])
    return room


def _read_bins(
    target: Target, location: Location, stacks: _Stacks, what: str, problems: list[Problem]
) -> Iterator[CacheBin]:
    wrong = _wrong(stacks)
    _tell_wrong(location, stacks, wrong, what, problems)
    for szind in np.flatnonzero((stacks.count > 0) & ~wrong).tolist():
        head, count, most = stacks.row(szind)
        try:
            objects = words_at(target.memory, target.abi, head, count)
        except FaultError as fault:
            _tell_fault(target, fault, f"{what}: its stack of class {szind}", problems)
            continue
        low_water = min(int(stacks.low_water[szind]), count)
        yield CacheBin(szind, location.sizes[szind], objects, None if most < 0 else most, low_water)


def _wrong(stacks: _Stacks) -> Mask:
    limit = np.where(stacks.most < 0, _MOST_OBJECTS, stacks.most)
    unaligned = (stacks.count > 0) & (stacks.head % np.uint64(8) != 0)
    wrong: Mask = (stacks.count < 0) | (stacks.count > limit) | unaligned
    return wrong


def _tell_wrong(location: Location, stacks: _Stacks, wrong: Mask, what: str, problems: list[Problem]) -> None:
    places = np.flatnonzero(wrong).tolist()
    for szind in places[:_TOLD]:
        head, count, most = stacks.row(szind)
        room = f"room for {most}" if most >= 0 else "an unknown room"
        held = f"{count} objects" if count >= 0 else "a number of objects that cannot be"
        size = location.sizes[szind]
        message = f"{what}: class {szind} ({size} bytes) has {held} and {room}, from {head:#x}: left out"
        problems.append(Problem("tcache-count", head, message, corruption=True))
    if len(places) > _TOLD:
        message = f"{what}: {len(places) - _TOLD} more classes have numbers of objects that cannot be: left out"
        problems.append(Problem("tcache-count", None, message, corruption=True))
