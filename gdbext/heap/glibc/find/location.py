"""Where a target's ptmalloc is, and by which structures: what ``find`` hands to the walkers.

Plain results. An address that could not be found is None; the problems say why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Sequence

from gdbext.heap.glibc.layouts import TcacheLayout
from gdbext.layout import StructLayout
from gdbext.process import Thread
from gdbext.report import Evidence, Problem
from gdbext.wording import count_text

__all__ = ["Location", "Tcache", "TcacheLayout"]


@dataclass(frozen=True)
class Location:
    """One ptmalloc: its arenas, its parameters and the layouts that fit.

    :param main_arena: address of ``main_arena``; None when libc's data is not in the core.
    :param arenas: addresses of all ``malloc_state``, in ring order, the main one first.
    :param malloc_par: address of ``mp_``, or None.
    :param malloc_par_layout: None when ``malloc_par`` is.
    :param tcache_layouts: those still open, likeliest first; empty where there is no tcache.
    :param heap_max: ``HEAP_MAX_SIZE`` in force, bytes.
    :param alignment: ``MALLOC_ALIGNMENT``, bytes.
    :param trusted_debug: whether debug info or ``.symtab`` was believed.
    """

    main_arena: Optional[int]
    arenas: tuple[int, ...]
    malloc_par: Optional[int]
    malloc_state: StructLayout
    heap_info: StructLayout
    malloc_par_layout: Optional[StructLayout]
    tcache_layouts: tuple[TcacheLayout, ...]
    heap_max: int
    alignment: int
    evidence: tuple[Evidence, ...] = ()
    problems: tuple[Problem, ...] = ()
    trusted_debug: bool = False


@dataclass(frozen=True)
class Tcache:
    """One thread cache.

    :param address: of its ``tcache_perthread_struct``.
    :param thread: whose it is, or None when no thread was found to point to it.
    :param found_by: "TLS symbol", "thread pointer" or "lists".
    """

    address: int
    layout: TcacheLayout
    thread: Optional[Thread]
    found_by: str


def with_tcaches(location: Location, found: Sequence[Tcache]) -> Location:
    """Return the location with evidence of the caches found in place of the layouts that were possible."""
    if not found:
        return location
    ways = sorted({f"{cache.layout.struct.origin}, by {cache.found_by}" for cache in found})
    told = Evidence("tcache", f"{count_text(len(found), 'thread cache')}, layout {'; '.join(ways)}")
    kept = tuple(evidence for evidence in location.evidence if evidence.subject != "tcache")
    return replace(location, evidence=(*kept, told))
