"""``jemalloc extents`` and ``jemalloc large``: the stretches of pages, by the radix tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.columns import ROWS_AT_ONCE, Batch, Column, constant
from gdbext.errors import UsageError
from gdbext.heap.jemalloc.model import I64, U64, Extents, ExtentState, Mask
from gdbext.heap.jemalloc.report.common import Part, named_heaps, parts_of, report_of
from gdbext.heap.model import Heap
from gdbext.memory.intervals import slices
from gdbext.report import Kind, Report, Rows, column, line, table

UNKNOWN = "unknown"
STATES: Sequence[str] = (*(state.label for state in ExtentState), UNKNOWN)


@dataclass(frozen=True)
class StateRow:
    """All extents of one state, of those that were asked for.

    :param state: ``active``, ``dirty``, ``muzzy``, ``retained``, ``transition``, ``merging``, ``cached`` (unused, in
        the huge page allocator's cache), ``unknown`` (damaged).
    :type state: word
    :param extents: in that state.
    :param bytes: of them.
    """

    state: str = column("state")
    extents: int = column("extents", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    share: Optional[float] = column("share", Kind.SHARE, json=False)


@dataclass(frozen=True)
class ExtentRow:
    """One extent. Sizes in bytes.

    :param heap: which jemalloc.
    :param address: of its first page.
    :param size: of all its pages.
    :param state: as above: ``active``, ``dirty``, ``muzzy``, ``retained``, ``transition``, ``merging``, ``cached``,
        ``unknown``.
    :type state: word
    :param arena: index.
    :param szind: size class; None: it is not in use.
    :param class_bytes: of a region of a slab; of a large block what the program may use; None as above.
    :param slab: it is cut into regions of one size.
    :param nregs: regions of a slab; None: it is none, or not in use.
    :param nfree: free ones, by its own count; None as above.
    :param guarded: it has guard pages.
    :param hpa: it came from the huge page allocator.
    :param edata: of the ``extent_t``, since 5.3 ``edata_t``.
    :param use: the same in words.
    """

    heap: str = column(None)
    address: int = column("extent", Kind.ADDRESS)
    size: int = column("bytes", Kind.BYTES)
    state: str = column("state")
    arena: int = column("arena", Kind.NUMBER)
    szind: Optional[int] = column(None, Kind.COUNT)
    class_bytes: Optional[int] = column(None, Kind.BYTES)
    slab: bool = column(None, Kind.FLAG)
    nregs: Optional[int] = column(None, Kind.COUNT)
    nfree: Optional[int] = column(None, Kind.COUNT)
    guarded: bool = column(None, Kind.FLAG)
    hpa: bool = column(None, Kind.FLAG)
    edata: int = column("extent_t", Kind.ADDRESS)
    use: str = column("use", json=False)


@dataclass(frozen=True)
class ExtentsReport:
    """``jemalloc extents``; the sums are over all that match.

    :param matching: extents that pass the filter, whatever ``--limit`` says.
    :param bytes: of them.
    """

    matching: int = line("extents", Kind.COUNT)
    bytes: int = line("bytes", Kind.BYTES)
    states: Sequence[StateRow] = table("By state")
    extents: Rows[ExtentRow] = table("Extents")


def states_named(text: str) -> tuple[str, ...]:
    """Return the states that comma-separated words name.

    :raises UsageError: for a word that is no state.
    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in STATES:
            raise UsageError(f'no state "{word}"', f"the states are {', '.join(STATES)}")
    return tuple(words)


def extents(
    heaps: Sequence[Heap], states: Optional[Sequence[str]] = None, arena: Optional[int] = None
) -> Report:
    """Return ``jemalloc extents``: every extent that passes the filters, in address order.

    :param states: words of :data:`STATES`; None takes all.
    :param arena: index or address of the one arena wanted; None takes all.
    :raises UsageError: when there is no such arena.
    """
    parts = parts_of(heaps, arena)
    picked = [(part, _picked(part, states, arena is not None)) for part in parts]
    chosen = [part.heap.extents.select(rows) for part, rows in picked]
    summary = tuple(_summary(chosen))
    count, size = sum(row.extents for row in summary), sum(row.bytes for row in summary)
    rows = Rows.of_columns(partial(_columns, parts, chosen), ExtentRow, count, reads=0)
    data = ExtentsReport(count, size, summary, rows)
    return report_of(heaps, data, labels=named_heaps(parts, ExtentRow))


def _picked(part: Part, states: Optional[Sequence[str]], one_arena: bool) -> I64:
    found = part.heap.extents
    mask: Mask = np.ones(len(found), np.bool_)
    if states is not None:
        mask &= np.isin(_state_index(found), [STATES.index(state) for state in states])
    if one_arena:
        mask &= found.arena == part.arenas[0].index
    return np.flatnonzero(mask).astype(np.int64)


def _state_index(found: Extents) -> I64:
    """Return for each extent the index of its state in :data:`STATES`."""
    return np.minimum(found.state, len(ExtentState)).astype(np.int64)


def _summary(chosen: Sequence[Extents]) -> Iterator[StateRow]:
    at = np.concatenate([_state_index(found) for found in chosen])
    size = np.concatenate([found.size for found in chosen])
    whole = int(size.sum())
    for index, label in enumerate(STATES):
        mine = size[at == index]
        if len(mine):
            used = int(mine.sum())
            yield StateRow(label, len(mine), used, used / whole if whole else None)


def _columns(parts: Sequence[Part], chosen: Sequence[Extents], names: Sequence[str]) -> Iterator[Batch]:
    for part, found in zip(parts, chosen):
        for at in slices(len(found), ROWS_AT_ONCE):
            some = found.select(np.arange(at.start, at.stop))
            yield _batch(part, some, "use" in names)


def _batch(part: Part, found: Extents, use: bool) -> Batch:
    infos = part.heap.location.bin_infos
    index, szind = _state_index(found), np.minimum(found.szind, len(infos))
    active = index == ExtentState.ACTIVE
    slab = active & found.slab & (szind < len(infos))
    used = slab | (active & (found.usable > 0))
    region = np.array([*(info.reg_size for info in infos), 0], np.uint64)[szind]
    nregs = np.array([*(info.nregs for info in infos), 0], np.uint64)[szind]
    return {
        "heap": constant(part.name, len(found)),
        "address": Column(found.address),
        "size": Column(found.size),
        "state": Column(index, words=STATES),
        "arena": Column(found.arena),
        "szind": Column(found.szind, used),
        "class_bytes": Column(np.where(slab, region, found.usable), used),
        "slab": Column(found.slab),
        "nregs": Column(nregs, slab),
        "nfree": Column(found.nfree, slab),
        "guarded": Column(found.guarded),
        "hpa": Column(found.hpa),
        "edata": Column(found.edata),
        "use": Column(list(_uses(found, slab, region, nregs))) if use else constant("", len(found)),
    }


def _uses(found: Extents, slab: Mask, region: U64, nregs: U64) -> Iterator[str]:
    columns = (found.usable, found.nfree, slab, region, nregs)
    for usable, nfree, is_slab, size, regions in zip(*(each.tolist() for each in columns)):
        large = f"large, {usable} bytes" if usable else ""
        yield f"slab of {size} bytes, {nfree} of {regions} free" if is_slab else large
