"""Threads' own data: where it is from the thread pointer, and what it says.

Routes, each held to the same test (states that exist, arenas that exist): the debugger's TLS; the library's one
``R_X86_64_TPOFF64`` slot (initial-exec TLS); jemalloc's own lists of threads and caches; the threads' static TLS
itself, where two neighbouring words lead to arenas (a program that jemalloc is linked into has the offset in its code
alone, and keeps no lists without statistics). Source: ``tsd.h``, ``tsd_tls.h``, ``tcache_structs.h``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.find.invariants import read_slots
from gdbext.heap.jemalloc.model import U64, Location, TsdKind, TsdState
from gdbext.heap.jemalloc.read.records import Record, find_word, read_record
from gdbext.memory import view
from gdbext.memory.bulk import words_at
from gdbext.memory.elf.elffile import Image, find_image
from gdbext.process import Module, Thread
from gdbext.report import Problem
from gdbext.target import Target
from gdbext.wording import count_text

_MOST_THREADS = 1 << 20
_REACH = 1 << 20  # bytes between a thread's pointer and its tsd, at most
_MOST_STACK = 1 << 16  # bytes of one size class's stack
_MOST_OFFSETS = 1 << 4
_LOOKED_INTO = 64  # threads whose memory is searched
_STATIC_TLS = 1 << 16  # bytes below a thread's pointer that are searched
_ASKED = 8  # threads that the debugger is asked about
_R_TPOFF = {"x86-64": 18, "aarch64": 1030}
_PT_DYNAMIC, _DT_RELA, _DT_RELASZ, _RELA = 2, 7, 8, 24
_MOST_RELOCATIONS = 64 << 20


@dataclass(frozen=True)
class TsdPlace:
    """An offset from the thread pointer, and how it was found."""

    offset: int
    words: str


def find_tsd_offset(target: Target, location: Location) -> Optional[TsdPlace]:
    """Return where threads have their tsd, or None when no route leads to one that holds."""
    threads = [thread for thread in target.threads if thread.tls is not None]
    arenas = _arena_addresses(target, location)
    for words, offsets in _routes(target, location, threads, arenas):
        good = [offset for offset in offsets if _holds(target, location, offset, threads, arenas)]
        if good:
            return TsdPlace(good[0], f"{good[0]:+#x} from the thread pointer, {words}")
    return None


def _routes(
    target: Target, location: Location, threads: Sequence[Thread], arenas: set[int]
) -> Iterator[tuple[str, Sequence[int]]]:
    if location.prefix is not None:
        yield "by TLS symbol", _by_symbol(target, location.prefix, threads)
    if location.module is not None:
        yield "by the library's one TLS slot", _by_slot(target, location.module)
    yield "by jemalloc's lists", _by_lists(target, location, threads)
    if target.abi.machine == "x86-64":
        yield "by the arenas that lie beside it", _by_arenas(target, location, threads, arenas)


def _by_symbol(target: Target, prefix: str, threads: Sequence[Thread]) -> list[int]:
    for thread in threads[:_ASKED]:
        address = target.symbols.find_tls(prefix + "tsd_tls", thread)
        if address is not None and thread.tls is not None:
            return [address - thread.tls]
    return []


def _by_lists(target: Target, location: Location, threads: Sequence[Thread]) -> list[int]:
    """Return the offsets at which threads have what jemalloc lists as a tsd, the commonest first, then the nearest.

    A thread's own is near its pointer: below it where the ABI is "variant II" (x86-64), above it elsewhere.
    """
    listed = set(listed_tsds(target, location, []))
    votes: Counter[int] = Counter()
    pointers = sorted(thread.tls for thread in threads if thread.tls is not None)
    if len(listed) * len(pointers) > 1 << 22:
        pointers = pointers[: max((1 << 22) // len(listed), 1)]
    for pointer in pointers:
        votes.update(tsd - pointer for tsd in listed if abs(tsd - pointer) < _REACH)
    below = target.abi.machine == "x86-64"
    likely = [offset for offset in votes if (offset < 0) == below]
    return sorted(likely, key=lambda offset: (-votes[offset], abs(offset)))[:4]


def _by_arenas(target: Target, location: Location, threads: Sequence[Thread], arenas: set[int]) -> list[int]:
    """Return the offsets below threads' pointers at which both arenas of a tsd are arenas, the commonest first.

    A thread is bound to both at once (``arena_choose_hard``).
    """
    arena, internal = (location.layout["tsd"].offset(name) for name in ("arena", "iarena"))
    known = np.array(sorted(arenas - {0}), np.uint64)
    votes: Counter[int] = Counter()
    for thread in threads[:_LOOKED_INTO]:
        low, words = _words_below(target, int(thread.tls or 0))
        places = set((np.flatnonzero(np.isin(words, known)) * 8 + low).tolist())
        tsds = (place - arena for place in places if place - arena + internal in places)
        votes.update(tsd - int(thread.tls or 0) for tsd in tsds)
    return [offset for offset, _ in votes.most_common(_MOST_OFFSETS)]


def _words_below(target: Target, pointer: int) -> tuple[int, U64]:
    """Return what lies below a thread's pointer in the same mapping, and where it begins."""
    region = target.index.find(pointer)
    low = pointer if region is None else max(region.start, pointer - _STATIC_TLS)
    try:
        return low, words_at(target.memory, target.abi, low, (pointer - low) // 8)
    except FaultError:
        return pointer, np.empty(0, np.uint64)


def _holds(
    target: Target, location: Location, offset: int, threads: Sequence[Thread], arenas: set[int]
) -> bool:
    """Whether most threads have something there that can be a tsd."""
    good = bad = 0
    for thread in threads:
        tsd = _read(target, location, int(thread.tls or 0) + offset, thread)
        if tsd is None:
            continue
        sound = tsd.state is not None and tsd.arena in arenas and tsd.iarena in arenas
        good, bad = good + sound, bad + (not sound)
    return good > bad


def _arena_addresses(target: Target, location: Location) -> set[int]:
    slots = read_slots(target, location.arenas, max(location.arena_limit, 1), location.layout)
    return {0} if slots is None else {0, *(int(slots.addresses[index]) for index in slots.sound)}


def _by_slot(target: Target, module: Module) -> list[int]:
    """Return what the dynamic linker put where a relocation asks for an offset from the thread pointer."""
    kind = _R_TPOFF.get(target.abi.machine)
    image = find_image(lambda at, size: view(target.memory, at, size), module.base, target.abi.page_size)
    dynamic = (
        next((one for one in image.segments if one.type == _PT_DYNAMIC), None) if image is not None else None
    )
    if image is None or dynamic is None or kind is None:
        return []
    try:
        tags = words_at(target.memory, target.abi, image.bias + dynamic.address, dynamic.memsz // 16 * 2)
        slots = _slots(target, image, dict(zip(tags[0::2].tolist(), tags[1::2].tolist())), kind)
        return [target.reader.sint(slot, 8) for slot in slots[:_ASKED]]
    except FaultError:
        return []


def _slots(target: Target, image: Image, tags: dict[int, int], kind: int) -> list[int]:
    start, size = tags.get(_DT_RELA, 0), min(tags.get(_DT_RELASZ, 0), _MOST_RELOCATIONS)
    if not start or not size:
        return []
    start += image.bias if start < image.bias else 0  # the linker relocates the tag itself in some systems
    table = words_at(target.memory, target.abi, start, size // _RELA * 3).reshape(-1, 3)
    return [image.bias + int(row[0]) for row in table[(table[:, 1] & np.uint64(0xFFFFFFFF)) == kind]]


# -- jemalloc's own lists -----------------------------------------------------------------------------


def listed_tsds(target: Target, location: Location, problems: list[Problem]) -> list[int]:
    """Return the addresses of the tsds on ``tsd_nominal_tsds``, or of those whose caches the arenas list."""
    if location.nominal_tsds is not None and "tsd_link" in location.layout["tsd"]:
        first = find_word(target, location.nominal_tsds)
        link = location.layout["tsd"].offset("tsd_link")
        return list(for_each_in_ring(target, first or 0, link, "tsd_nominal_tsds", problems))
    return [tsd for tsd, _ in listed_tcaches(target, location, problems)]


def listed_tcaches(target: Target, location: Location, problems: list[Problem]) -> list[tuple[int, int]]:
    """Return the threads' caches that the arenas list: tsd and ``tcache_t`` of each."""
    layout = location.layout
    slow = "tcache_slow" in layout.structs
    struct, member = ("tcache_slow", "tcache_slow") if slow else ("tcache", "tcache")
    found = []
    for arena in sorted(_arena_addresses(target, location) - {0}):
        head = find_word(target, arena + layout["arena"].offset("tcaches"))
        link = layout[struct].offset("link")
        for item in for_each_in_ring(target, head or 0, link, "an arena's list of tcaches", problems):
            tsd = item - layout["tsd"].offset(member)
            tcache = tsd + layout["tsd"].offset("tcache")
            if not _is_created(target, location, item, tcache):
                found.append((tsd, tcache))
    return found


def _is_created(target: Target, location: Location, item: int, tcache: int) -> bool:
    """Whether a listed cache is one that the program made: then no tsd is around it (``tcache_create_explicit``).

    Before 5.3 its stacks follow it in one block; since then it says where its ``tcache_t`` is.
    """
    layout = location.layout
    if "tcache_slow" in layout.structs:
        return find_word(target, item + layout["tcache_slow"].offset("tcache")) not in (tcache, None)
    first = item + layout["tcache"].offset("bins_small") + layout["cache_bin"].offset("avail")
    end = item + layout["tcache"].size
    return end <= (find_word(target, first) or 0) < end + _MOST_STACK


def for_each_in_ring(
    target: Target, first: int, link: int, name: str, problems: list[Problem]
) -> Iterator[int]:
    """Iterate over a ring (``ql.h``, ``qr.h``): each element's ``qre_next`` at ``link``, back to the first.

    Where it does not close, a problem is added.
    """
    seen: set[int] = set()
    at: Optional[int] = first
    last = first
    while at and at not in seen and len(seen) < _MOST_THREADS:
        seen.add(at)
        yield at
        last, at = at, find_word(target, at + link)
    if first and at != first:
        lacks = at is None and target.lacks(last + link, 8)
        stop = "the next is not in the target" if lacks else f"it does not lead back to {first:#x}"
        message = f"{name}: {count_text(len(seen), 'element')} read, then {stop}"
        kind = "absent-memory" if lacks else "list"
        problems.append(Problem(kind, at or last, message, corruption=not lacks))


# -- reading ------------------------------------------------------------------------------------------


def read_tsds(target: Target, location: Location, problems: list[Problem]) -> Optional[list[TsdState]]:
    """Return the tsd of every thread that has one, then those that jemalloc lists and no thread has.

    None when neither the offset nor a list is known.
    """
    layout = location.layout
    if "tsd" not in layout.structs:
        return None
    found: dict[int, TsdState] = {}
    for thread in target.threads:
        address = location.tsd_of(thread)
        tsd = None if address is None else _read(target, location, address, thread)
        if tsd is not None:
            found[tsd.address] = tsd
    for address in listed_tsds(target, location, problems):
        if address not in found:
            tsd = _read(target, location, address, None)
            if tsd is not None:
                found[address] = tsd
    return None if not found and location.tsd_offset is None else list(found.values())


def _read(target: Target, location: Location, address: int, thread: Optional[Thread]) -> Optional[TsdState]:
    layout = location.layout
    try:
        record = read_record(target, address, layout["tsd"])
    except FaultError:
        return None
    return decode_tsd(record, location, address, thread)


def decode_tsd(record: Record, location: Location, address: int, thread: Optional[Thread]) -> TsdState:
    """Return what one ``tsd_t`` says."""
    layout = location.layout
    raw = record.uint("state")
    names = layout.family.tsd_states
    slow = "tcache_slow" in layout.structs
    cache = record.inner("tcache_slow" if slow else "tcache", layout["tcache_slow" if slow else "tcache"])
    bypass = record.find("arenas_tdata_bypass")
    return TsdState(
        address=address,
        thread=None if thread is None else thread.ref,
        raw_state=raw,
        state=TsdKind[names[raw].upper()] if raw < len(names) else None,
        arena=record.uint("arena"),
        iarena=record.uint("iarena"),
        tcache_enabled=bool(record.uint("tcache_enabled")),
        tcache=address + layout["tsd"].offset("tcache"),
        tcache_arena=cache.uint("arena"),
        arenas_tdata=record.find("arenas_tdata"),
        bypass=None if bypass is None else bool(bypass),
        ticks=record.sint("arena_decay_ticker_tick") if "arena_decay_ticker_tick" in layout["tsd"] else None,
    )
