"""``jemalloc tcache``: what every thread keeps back of each size class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from gdbext.heap.jemalloc.model import CacheBin, ThreadCache
from gdbext.heap.jemalloc.report.common import NO_THREAD, Part, named_heaps, parts_of, report_of, total
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, column, line, table

_NOT_FOUND = "{}: threads' data could not be found, so their caches are unknown"


@dataclass(frozen=True)
class ThreadCacheRow:
    """One cache as a whole; one that no thread has is nobody's (``mallctl("tcache.create")``).

    :param heap: ``threads`` and ``classes`` are None where no caches could be found.
    :param number: the debugger's number; None: the cache is no thread's, or its thread is gone.
    :param name: None on a core, which holds no thread names.
    :param lwp: the kernel's id.
    :param address: of the ``tcache_t``.
    :param arena: index of the arena that fills it; None: none.
    :param classes: size classes of which it holds objects.
    :param objects: cached objects.
    :param bytes: usable bytes of them.
    """

    heap: str = column(None)
    number: Optional[int] = column("thread", Kind.NUMBER)
    name: Optional[str] = column("name")
    lwp: Optional[int] = column("lwp", Kind.NUMBER)
    address: int = column("tcache", Kind.ADDRESS)
    arena: Optional[int] = column("arena", Kind.NUMBER)
    classes: int = column("classes", Kind.COUNT)
    objects: int = column("objects", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class ClassRow:
    """One size class of one cache.

    :param heap: which jemalloc.
    :param number: as ``threads[].number``.
    :param name: as ``threads[].name``.
    :param address: as ``threads[].address``.
    :param szind: size class.
    :param size: usable bytes of one object.
    :type size: bytes
    :param objects: cached objects of the class.
    :param most: that it may hold; None: not known.
    :param low_water: fewest objects since the last collection, -1: it once was found empty; None: not known.
    :type low_water: signed
    :param bytes: usable bytes of them.
    """

    heap: str = column(None)
    number: Optional[int] = column("thread", Kind.NUMBER)
    name: Optional[str] = column("name")
    address: int = column("tcache", Kind.ADDRESS)
    szind: int = column("class", Kind.NUMBER)
    size: int = column("size", Kind.COUNT)
    objects: int = column("objects", Kind.COUNT)
    most: Optional[int] = column("at most", Kind.COUNT)
    low_water: Optional[int] = column("low water", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class TcacheReport:
    """``jemalloc tcache``; None everywhere when the caches could not be found.

    :param objects: cached objects; None when a jemalloc's caches could not be found.
    :param bytes: usable bytes of them.
    """

    objects: Optional[int] = line("cached objects", Kind.COUNT)
    bytes: Optional[int] = line("cached bytes", Kind.BYTES)
    threads: Optional[Sequence[ThreadCacheRow]] = table("Caches")
    classes: Optional[Sequence[ClassRow]] = table("Classes that are not empty")


def tcache(heaps: Sequence[Heap], number: Optional[int] = None) -> Report:
    """Return ``jemalloc tcache``: every cache, then every class in it.

    :param number: debugger's number of the one thread wanted, or None for all.
    """
    parts = parts_of(heaps)
    notes = [_NOT_FOUND.format(part.name) for part in parts if part.heap.tcaches is None]
    if len(notes) == len(parts):
        return report_of(heaps, TcacheReport(None, None, None, None), notes)
    caches = [(part, cache) for part in parts for cache in part.heap.tcaches or ()]
    wanted = [one for one in caches if number is None or (one[1].thread or NO_THREAD).number == number]
    threads = [_thread_row(part, cache) for part, cache in wanted]
    classes = [_class_row(part, cache, one) for part, cache in wanted for one in cache.bins]
    # of several jemallocs one may not be known: no sum then
    unknown = [None] if notes else []
    objects = total([*(row.objects for row in threads), *unknown])
    data = TcacheReport(objects, total([*(row.bytes for row in threads), *unknown]), threads, classes)
    return report_of(heaps, data, notes, labels=named_heaps(parts, ThreadCacheRow, ClassRow))


def _thread_row(part: Part, cache: ThreadCache) -> ThreadCacheRow:
    thread = cache.thread or NO_THREAD
    return ThreadCacheRow(
        heap=part.name,
        number=thread.number,
        name=thread.name,
        lwp=thread.lwp,
        address=cache.address,
        arena=arena_index(part, cache.arena),
        classes=len(cache.bins),
        objects=cache.cached,
        bytes=cache.bytes,
    )


def arena_index(part: Part, address: int) -> Optional[int]:
    """Return the index of the arena at an address; None for none."""
    return next((arena.index for arena in part.arenas if arena.address == address), None)


def _class_row(part: Part, cache: ThreadCache, one: CacheBin) -> ClassRow:
    thread = cache.thread or NO_THREAD
    return ClassRow(
        heap=part.name,
        number=thread.number,
        name=thread.name,
        address=cache.address,
        szind=one.szind,
        size=one.size,
        objects=one.cached,
        most=one.most,
        low_water=one.low_water,
        bytes=one.bytes,
    )
