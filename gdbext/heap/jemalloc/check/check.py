"""Holds what jemalloc counts and links to what was walked, and to itself."""

from __future__ import annotations

from typing import Iterator, Sequence

from gdbext.heap.jemalloc.check.counts import check_bases, check_counts, check_current, check_slabs, check_states
from gdbext.heap.jemalloc.check.flux import Flux
from gdbext.heap.jemalloc.check.lists import check_lists
from gdbext.heap.jemalloc.check.tcaches import check_tcaches
from gdbext.heap.jemalloc.model import Jemalloc
from gdbext.heap.reading import bounded
from gdbext.report import Problem

_MISSING = ("absent-memory", "interrupted")


def check_heap(heap: Jemalloc) -> Sequence[Problem]:
    """Return everything that does not hold: what reading met, then each mismatch with both numbers.

    What was being changed at the stop is told as such and is no corruption. Where memory is absent or the walk was
    interrupted, only what needs no other extent is checked.
    """
    return [*_reading(heap), *bounded(_checks(heap))]


def _reading(heap: Jemalloc) -> Iterator[Problem]:
    """Iterate over what reading met; an extent being split or merged has another size than the tree for a moment."""
    flux = Flux(heap)
    for one in heap.problems:
        at = heap.extents.find_edata(one.address or 0) if one.kind == "extent-size" else None
        if at is None:
            yield one
        else:
            yield flux.problem(one.kind, one.address, one.message, flux.of_pages(int(heap.extents.arena[at])))


def _checks(heap: Jemalloc) -> Iterator[Problem]:
    flux = Flux(heap)
    whole = heap.complete and not any(one.kind in _MISSING for one in heap.problems)
    yield from check_states(heap, flux)
    yield from check_bases(heap, flux)
    if whole:
        yield from check_counts(heap, flux)
        yield from check_current(heap, flux)
        yield from check_lists(heap, flux)
    yield from check_slabs(heap, flux)
    yield from check_tcaches(heap, flux, whole)
