"""``jemalloc decay``: how unused pages go back to the system, and who can make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from gdbext.heap.jemalloc.decay.state import ArenaDecay, Decay, DecayView, Ticker, read_decay
from gdbext.heap.jemalloc.report.common import Part, parts_of, report_of, told_apart
from gdbext.heap.jemalloc.report.tcache import arena_index
from gdbext.heap.model import Heap
from gdbext.report import Finding, Kind, Report, column, table
from gdbext.wording import count_text


@dataclass(frozen=True)
class HeapRow:
    """What time it is for one jemalloc, as far as that can be known, and whether threads of its own purge.

    :param now: ns of the clock that jemalloc uses; None when nothing helps.
    :param exact: False where it may be later than ``now``.
    :param background: whether background threads are switched on; None when not known.
    """

    heap: str = column(None)
    now: Optional[int] = column("now (ns)", Kind.COUNT)
    exact: bool = column("exact", Kind.FLAG)
    background: Optional[bool] = column("background", Kind.FLAG)
    source: str = column("time known by")


@dataclass(frozen=True)
class KindDecay:
    """Decay of one kind of page. Times in ns, where the name does not say ms.

    :param decay_ms: decay time; 0 purges at once, -1 never.
    :param allowed_npages: by the decay curve at this moment, and until the next step what came since the last one;
        None when the clock is not known, as ``epoch_age_ns``.
    :param npages_limit: allowed at the last step; None before 5.3.
    :param new_npages: pages that the next step would note as new.
    :param advanced: whether the epoch ever moved on since the arena was made, or its decay time was set.
    :param advances: how often; None for more than 64, and where nothing decays by time.
    :param sweeps: as ``madvises`` and ``purged`` (pages) since the arena was made; None without statistics.
    """

    decay_ms: int = column("decay ms", Kind.COUNT)
    npages: int = column("pages", Kind.COUNT)
    allowed_npages: Optional[int] = column("allowed", Kind.COUNT)
    npages_limit: Optional[int] = column(None, Kind.COUNT)
    nunpurged: int = column(None, Kind.COUNT)
    new_npages: int = column(None, Kind.COUNT)
    epoch: int = column(None, Kind.COUNT)
    epoch_age_ns: Optional[int] = column(None, Kind.COUNT)
    interval: int = column(None, Kind.COUNT)
    deadline: int = column(None, Kind.COUNT)
    advanced: bool = column(None, Kind.FLAG)
    advances: Optional[int] = column(None, Kind.COUNT)
    purging: bool = column(None, Kind.FLAG)
    sweeps: Optional[int] = column(None, Kind.COUNT)
    madvises: Optional[int] = column(None, Kind.COUNT)
    purged: Optional[int] = column(None, Kind.COUNT)


@dataclass(frozen=True)
class ArenaDecayRow:
    """Both kinds of page of one arena."""

    heap: str = column(None)
    index: int = column(None, Kind.COUNT)
    dirty: KindDecay = column(None, Kind.OBJECT)
    muzzy: KindDecay = column(None, Kind.OBJECT)


@dataclass(frozen=True)
class DecayRow:
    """One kind of page of one arena, for text."""

    heap: str = column(None)
    index: int = column("arena", Kind.NUMBER)
    kind: str = column("kind")
    decay_ms: int = column("decay ms", Kind.COUNT)
    npages: int = column("pages", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    new: int = column("new", Kind.COUNT)
    allowed: Optional[int] = column("allowed", Kind.COUNT)
    epoch_age: Optional[int] = column("age ms", Kind.COUNT)
    advanced: bool = column("advanced", Kind.FLAG)
    sweeps: Optional[int] = column("sweeps", Kind.COUNT)
    madvises: Optional[int] = column("madvises", Kind.COUNT)
    purged: Optional[int] = column("purged", Kind.COUNT)


@dataclass(frozen=True)
class TickerRow:
    """One thread.

    :param state: of its ``tsd``; None when its number is none that is known.
    :param ticker: whether it has one now: not before it first uses jemalloc; None when not known.
    :param can_fire: whether it can ever make pages decay; None when not known.
    :param ticks: what is left on the ticker; None where there is none, or it is not kept in the ``tsd``.
    """

    heap: str = column(None)
    number: Optional[int] = column("thread", Kind.NUMBER)
    name: Optional[str] = column("name")
    lwp: Optional[int] = column(None, Kind.COUNT)
    tsd: int = column(None, Kind.ADDRESS)
    arena: Optional[int] = column("arena", Kind.NUMBER)
    state: Optional[str] = column("state")
    ticker: Optional[bool] = column("ticker", Kind.FLAG)
    can_fire: Optional[bool] = column("can fire", Kind.FLAG)
    ticks: Optional[int] = column(None, Kind.COUNT)
    why: str = column("why")


@dataclass(frozen=True)
class DecayReport:
    """``jemalloc decay``.

    :param threads: None when threads' data could not be found.
    :param told_threads: those that ever used the jemalloc that the row is about.
    """

    findings: Sequence[Finding] = table(None)
    heaps: Sequence[HeapRow] = table("Clock")
    arenas: Sequence[ArenaDecayRow] = table(None)
    shown: Sequence[DecayRow] = table("Unused pages", json=False)
    threads: Optional[Sequence[TickerRow]] = table(None)
    told_threads: Optional[Sequence[TickerRow]] = table("Threads", json=False)


@dataclass(frozen=True)
class StalledDecayReport(DecayReport):
    """As :class:`DecayReport`, with findings."""

    findings: Sequence[Finding] = table("Findings")


def decay(heaps: Sequence[Heap], findings: Sequence[Finding] = ()) -> Report:
    """Return ``jemalloc decay``: the clock, unused pages of every arena, and every thread's ticker.

    :param findings: of decay, those that are worth being told.
    """
    parts = parts_of(heaps)
    views = [(part, read_decay(part.heap)) for part in parts]
    heap_rows = _heap_rows(views)
    arenas = [
        ArenaDecayRow(part.name, one.arena.index, _kind_decay(one.dirty), _kind_decay(one.muzzy))
        for part, view in views
        for one in view.arenas
    ]
    row_type = told_apart(DecayRow, parts, "sweeps", "madvises")
    shown = [row for part, view in views for one in view.arenas for row in _decay_rows(part, one, row_type)]
    report = StalledDecayReport if findings else DecayReport
    data = report(findings, heap_rows, arenas, shown, _threads(views, True), _threads(views, False))
    return report_of(heaps, data, list(_notes(views)), bool(findings))


def _notes(views: Sequence[tuple[Part, DecayView]]) -> Iterator[str]:
    """Iterate over lines on what the tables leave out, and on who else purges."""
    for part, view in views:
        unused = sum(one.unused for one in view.tickers or ())
        if unused:
            yield f"never used {part.name}: {count_text(unused, 'thread')}"
        if view.background:
            yield f"{part.name} has background threads switched on: they purge, whatever the other threads do"


def _heap_rows(views: Sequence[tuple[Part, DecayView]]) -> list[HeapRow]:
    row_type = told_apart(HeapRow, views)
    return [
        row_type(part.name, view.clock.now, view.clock.exact, view.background, view.clock.source)
        for part, view in views
    ]


def _kind_decay(decay: Decay) -> KindDecay:
    state = decay.state
    return KindDecay(
        decay_ms=state.time_ms,
        npages=decay.npages,
        allowed_npages=decay.allowed_npages,
        npages_limit=state.npages_limit,
        nunpurged=state.nunpurged,
        new_npages=decay.new_npages,
        epoch=state.epoch,
        epoch_age_ns=decay.epoch_age,
        interval=state.interval,
        deadline=state.deadline,
        advanced=decay.advanced,
        advances=decay.advances,
        purging=state.purging,
        sweeps=state.npurge,
        madvises=state.nmadvise,
        purged=state.purged,
    )


def _decay_rows(part: Part, one: ArenaDecay, row_type: type[DecayRow]) -> Iterator[DecayRow]:
    for decay in (one.dirty, one.muzzy):
        yield row_type(
            heap=part.name,
            index=one.arena.index,
            kind=decay.kind,
            decay_ms=decay.state.time_ms,
            npages=decay.npages,
            bytes=decay.npages * one.arena.page,
            new=decay.new_npages,
            allowed=decay.allowed_npages,
            epoch_age=None if decay.epoch_age is None else decay.epoch_age // 1_000_000,
            advanced=decay.advanced,
            sweeps=decay.state.npurge,
            madvises=decay.state.nmadvise,
            purged=decay.state.purged,
        )


def _threads(views: Sequence[tuple[Part, DecayView]], unused: bool) -> Optional[list[TickerRow]]:
    """Return a row for each thread.

    :param unused: whether those that never used the jemalloc have one.
    """
    if all(view.tickers is None for _, view in views):
        return None
    row_type = told_apart(TickerRow, views)
    return [
        _ticker_row(part, ticker, row_type)
        for part, view in views
        for ticker in view.tickers or ()
        if unused or not ticker.unused
    ]


def _ticker_row(part: Part, ticker: Ticker, row_type: type[TickerRow]) -> TickerRow:
    tsd, thread = ticker.tsd, ticker.tsd.thread
    return row_type(
        heap=part.name,
        number=None if thread is None else thread.number,
        name=None if thread is None else thread.name,
        lwp=None if thread is None else thread.lwp,
        tsd=tsd.address,
        arena=arena_index(part, tsd.arena),
        state=None if tsd.state is None else tsd.state.name.lower().replace("_", "-"),
        ticker=ticker.exists,
        can_fire=ticker.can_fire,
        ticks=None if ticker.unused else tsd.ticks,
        why=ticker.why,
    )
