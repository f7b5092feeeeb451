"""``jemalloc extents`` and ``jemalloc large``: the stretches of pages, by the radix tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.errors import UsageError
from gdbext.heap.jemalloc.model import I64, Extents, ExtentState, Mask
from gdbext.heap.jemalloc.report.common import Part, parts_of, report_of, told_apart
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, Rows, column, line, table

_BATCH = 4096
UNKNOWN = "unknown"
STATES: Sequence[str] = (*(state.label for state in ExtentState), UNKNOWN)


@dataclass(frozen=True)
class StateRow:
    """All extents of one state, of those that were asked for."""

    state: str = column("state")
    extents: int = column("extents", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    share: Optional[float] = column("share", Kind.SHARE, json=False)


@dataclass(frozen=True)
class ExtentRow:
    """One extent. Sizes in bytes.

    :param edata: address of its ``extent_t`` or ``edata_t``.
    :param szind: size class index; None for what is not in use, as ``class_bytes``.
    :param class_bytes: of one region of a slab, or what the program may use of a large block.
    :param nfree: free regions; None for what is no slab, as ``nregs``.
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
    """``jemalloc extents``; the sums are over all that match."""

    matching: int = line("extents", Kind.COUNT)
    bytes: int = line("bytes", Kind.BYTES)
    states: Sequence[StateRow] = table("By state")
    extents: Rows = table("Extents")


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
    row_type = told_apart(ExtentRow, parts)
    count, size = sum(row.extents for row in summary), sum(row.bytes for row in summary)
    rows = Rows(lambda: _all_rows(parts, chosen, row_type), row_type, count, reads=0)
    return report_of(heaps, ExtentsReport(count, size, summary, rows))


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


def _all_rows(
    parts: Sequence[Part], chosen: Sequence[Extents], row_type: type[ExtentRow]
) -> Iterator[ExtentRow]:
    for part, found in zip(parts, chosen):
        for first in range(0, len(found), _BATCH):
            yield from _rows(part, found.select(np.arange(first, min(first + _BATCH, len(found)))), row_type)


_COLUMNS = ("address", "size", "arena", "szind", "usable", "slab", "nfree", "guarded", "hpa", "edata")


def _rows(part: Part, found: Extents, row_type: type[ExtentRow]) -> Iterator[ExtentRow]:
    infos = part.heap.location.bin_infos
    columns = (getattr(found, name).tolist() for name in _COLUMNS)
    for index, *row in zip(_state_index(found).tolist(), *columns):
        address, size, arena, szind, usable, slab, nfree, guarded, hpa, edata = row
        info = infos[szind] if slab and szind < len(infos) else None
        active = index == ExtentState.ACTIVE
        yield row_type(
            heap=part.name,
            address=address,
            size=size,
            state=STATES[index],
            arena=arena,
            szind=szind if active and (info or usable) else None,
            class_bytes=(info.reg_size if info else usable or None) if active else None,
            slab=slab,
            nregs=info.nregs if active and info else None,
            nfree=nfree if active and info else None,
            guarded=guarded,
            hpa=hpa,
            edata=edata,
            use=_use(info.reg_size, nfree, info.nregs) if active and info else _large(usable),
        )


def _use(size: int, nfree: int, nregs: int) -> str:
    return f"slab of {size} bytes, {nfree} of {nregs} free"


def _large(usable: int) -> str:
    return f"large, {usable} bytes" if usable else ""
