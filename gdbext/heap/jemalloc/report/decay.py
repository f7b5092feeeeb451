"""``jemalloc decay``: how unused pages go back to the system, and who can make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from gdbext.heap.jemalloc.decay.state import ArenaDecay, Decay, DecayView, Ticker, read_decay
from gdbext.heap.jemalloc.report.common import NO_THREAD, Part, named_heaps, parts_of, report_of
from gdbext.heap.jemalloc.report.tcache import arena_index
from gdbext.heap.model import Heap
from gdbext.report import Finding, Kind, Labels, Report, column, hidden, table
from gdbext.wording import count_text


@dataclass(frozen=True)
class HeapRow:
    """What time it is for one jemalloc, as far as that can be known, and whether threads of its own purge.

    :param heap: which jemalloc.
    :param now: None: nothing in memory says what time it was.
    :param exact: false: it may be later than ``now``; what is allowed may be less.
    :param background: background threads are switched on; None: not known.
    :param source: how the time is known, or why not.
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
    :type decay_ms: signed
    :param npages: pages now.
    :param allowed_npages: what jemalloc would leave now: by the decay curve, and until the next step what came since
        the last one; None when the time is not known.
    :param npages_limit: what it allowed at the last step; None before 5.3.
    :param nunpurged: pages that the last step left or saw.
    :param new_npages: pages beyond these: the next step notes them as new.
    :param epoch: when the last step was.
    :param epoch_age_ns: how long ago; None when the time is not known.
    :param interval: of one step.
    :param deadline: when the next step is due.
    :param advanced: there was a step since the arena was made, or its decay time was set.
    :param advances: how many steps; None: more than 64, or nothing decays by time.
    :param purging: a thread is about it.
    :param sweeps: since the arena was made; None, as the next two, in a build without statistics.
    :param madvises: calls.
    :param purged: pages.
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
    """Both kinds of page of one arena.

    :param heap: which jemalloc.
    :param index: as ``mallctl`` has it.
    """

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

    :param heap: ``threads`` is None when the threads' data could not be found.
    :param number: the debugger's number.
    :param name: None on a core, which holds no thread names.
    :param lwp: the kernel's id.
    :param tsd: of its ``tsd_t``.
    :param arena: index of the arena it allocates from; None: none yet.
    :param state: ``nominal``, ``nominal-slow``, ``nominal-recompute``, ``minimal`` (it has only ever freed),
        ``purgatory`` and ``reincarnated`` (it is ending), ``uninitialized``; None: the number is none of these.
    :type state: word
    :param ticker: it has a ticker now, which no thread has before it first uses jemalloc; None: not known.
    :param can_fire: it can make pages decay, now or later; None: not known.
    :param ticks: left on the ticker; None before 5.3, and where there is none.
    :type ticks: signed
    :param why: what ``can_fire`` follows from.
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

    findings: Sequence[Finding] = table("Findings")
    heaps: Sequence[HeapRow] = table("Clock")
    arenas: Sequence[ArenaDecayRow] = table(None)
    shown: Sequence[DecayRow] = table("Unused pages", json=False)
    threads: Optional[Sequence[TickerRow]] = table(None)
    told_threads: Optional[Sequence[TickerRow]] = table("Threads", json=False)


def decay(heaps: Sequence[Heap], findings: Sequence[Finding] = ()) -> Report:
    """Return ``jemalloc decay``: the clock, unused pages of every arena, and every thread's ticker.

    :param findings: of decay, those that are worth being told.
    """
    parts = parts_of(heaps)
    views = [(part, read_decay(part.heap)) for part in parts]
    heap_rows = [
        HeapRow(part.name, view.clock.now, view.clock.exact, view.background, view.clock.source)
        for part, view in views
    ]
    arenas = [
        ArenaDecayRow(part.name, one.arena.index, _kind_decay(one.dirty), _kind_decay(one.muzzy))
        for part, view in views
        for one in view.arenas
    ]
    shown = [row for part, view in views for one in view.arenas for row in _decay_rows(part, one)]
    data = DecayReport(findings, heap_rows, arenas, shown, _threads(views, True), _threads(views, False))
    labels = {**named_heaps(parts, HeapRow, DecayRow, TickerRow), **_left_out(parts, findings)}
    return report_of(heaps, data, list(_notes(views)), findings=bool(findings), labels=labels)


def _left_out(parts: Sequence[Part], findings: Sequence[Finding]) -> Labels:
    """Return what the text leaves out: findings where there are none, and what there is no room for beside names."""
    return {
        **hidden(DecayReport, () if findings else ("findings",)),
        **hidden(DecayRow, ("sweeps", "madvises") if len(parts) > 1 else ()),
    }


def _notes(views: Sequence[tuple[Part, DecayView]]) -> Iterator[str]:
    """Iterate over lines on what the tables leave out, and on who else purges."""
    for part, view in views:
        unused = sum(one.unused for one in view.tickers or ())
        if unused:
            yield f"never used {part.name}: {count_text(unused, 'thread')}"
        if view.background:
            yield f"{part.name} has background threads switched on: they purge, whatever the other threads do"


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


def _decay_rows(part: Part, one: ArenaDecay) -> Iterator[DecayRow]:
    for decay in (one.dirty, one.muzzy):
        yield DecayRow(
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
    return [
        _ticker_row(part, ticker)
        for part, view in views
        for ticker in view.tickers or ()
        if unused or not ticker.unused
    ]


def _ticker_row(part: Part, ticker: Ticker) -> TickerRow:
    tsd, thread = ticker.tsd, ticker.tsd.thread or NO_THREAD
    return TickerRow(
        heap=part.name,
        number=thread.number,
        name=thread.name,
        lwp=thread.lwp,
        tsd=tsd.address,
        arena=arena_index(part, tsd.arena),
        state=None if tsd.state is None else tsd.state.name.lower().replace("_", "-"),
        ticker=ticker.exists,
        can_fire=ticker.can_fire,
        ticks=None if ticker.unused else tsd.ticks,
        why=ticker.why,
    )
