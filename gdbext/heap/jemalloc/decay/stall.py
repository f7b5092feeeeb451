"""Arenas whose unused pages nobody gives back, because no thread makes time pass for them (jemalloc 5.1 and 5.2).

What is held against each arena, so that a clock is not needed: how often its epoch advanced, which its deadline tells
(``decaycurve.count_advances``), and how often it must have, by the work that it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Sequence

from gdbext.heap.jemalloc.decay.state import ArenaDecay, Clock, Decay, DecayView
from gdbext.heap.jemalloc.decay.tickers import Ticker
from gdbext.heap.jemalloc.model import ArenaState, Jemalloc, TsdKind
from gdbext.report import Confidence, Finding, Severity, ThreadRef
from gdbext.wording import address_text, count_text, grouped, size_text

TICKS = 1000  # DECAY_NTICKS_PER_UPDATE: operations on an arena after which a thread looks at the clock
FASTEST = 100  # ns: no extent is made or freed faster, and an arena makes and frees one at a time
MISSED = 3  # so many steps must be missing for each one that was taken
SPARSE = 64  # the same where only operations speak, not the time that they take
SHOWN = 5
MS = 1_000_000

REMEDY = (
    "Upgrade to jemalloc 5.3: its threads have their ticker from the start. Until then, one of: call malloc once in"
    " each thread before its first free (compilers delete `free(malloc(1))`: keep the pointer in a volatile);"
    " MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0, which gives pages back at once and costs page faults;"
    " MALLOC_CONF=background_thread:true, which purges without the threads' help."
    ' mallctl("arena.N.purge") gives back what is kept now.'
)


@dataclass(frozen=True)
class Stall:
    """One arena that nobody makes decay.

    :param kinds: of its pages that are kept so.
    :param stuck: threads that can never purge it.
    :param confidence: HIGH with such threads, lower from counters alone.
    """

    decay: ArenaDecay
    kinds: tuple[Decay, ...]
    stuck: tuple[Ticker, ...]
    confidence: Confidence

    @property
    def npages(self) -> int:
        """Pages that are kept."""
        return sum(kind.npages for kind in self.kinds)

    @property
    def bytes(self) -> int:
        """The same in bytes."""
        return self.npages * self.decay.arena.page


# -- the work that an arena counts -------------------------------------------------------------------


def count_ticks(arena: ArenaState) -> int:
    """Return operations that tick (``arena_decay_tick``): large ones, fills and flushes of thread caches."""
    large = sum(one.nmalloc + one.ndalloc for one in arena.large)
    return large + sum(one.stats.nfills + one.stats.ndalloc for one in arena.bins)


def count_extents(arena: ArenaState) -> int:
    """Return how often an extent was made or freed: large blocks, and slabs."""
    large = sum(one.nmalloc + one.ndalloc for one in arena.large)
    return large + sum(2 * one.stats.nslabs - one.stats.curslabs for one in arena.bins)


def count_looks(arena: ArenaState) -> int:
    """Return how often threads must have looked at the clock for its operations, were there no more than now."""
    return count_ticks(arena) // (TICKS * (arena.nthreads[0] + 1))


def count_due(arena: ArenaState, kind: Decay) -> int:
    """Return the steps that were due at least, had the arena's threads ticked.

    The work took some time, and in that time each thread looked at the clock now and then.
    """
    steps = count_extents(arena) * FASTEST // max(kind.state.interval, 1)
    return min(steps, count_looks(arena))


# -- judging -----------------------------------------------------------------------------------------


def find_stalled(heap: Jemalloc, view: DecayView) -> Optional[Finding]:
    """Return the finding of all arenas that nobody makes decay, or None.

    None, too, for versions whose threads cannot lose their ticker, and where background threads purge.
    """
    if not heap.location.layout.has("tsd", "arenas_tdata_bypass") or view.background:
        return None
    stalls = [stall for decay in view.arenas for stall in _stalls(decay, view)]
    return _finding(view, sorted(stalls, key=lambda stall: -stall.bytes)) if stalls else None


def _stalls(decay: ArenaDecay, view: DecayView) -> Iterator[Stall]:
    tickers = view.tickers or ()
    stuck = tuple(one for one in tickers if one.freed_first and one.tsd.arena == decay.arena.address)
    judged = [(kind, _judge(decay, kind, stuck, view)) for kind in decay.kinds]
    kinds = tuple(kind for kind, confidence in judged if confidence)
    if kinds:
        rank = list(Confidence)
        yield Stall(decay, kinds, stuck, min((one for _, one in judged if one), key=rank.index))


def _judge(decay: ArenaDecay, kind: Decay, stuck: Sequence[Ticker], view: DecayView) -> Optional[Confidence]:
    """Return how sure it is that pages of one kind are kept, or None when they are not."""
    if not kind.npages or kind.advances is None or _is_young(decay, kind, view.clock):
        return None
    if kind.advances and view.background is None and _may_have_background(view.tickers):
        return None
    missed = count_due(decay.arena, kind) >= MISSED * (kind.advances + 1)
    if not stuck:
        return _by_counters(decay, kind, view.clock, missed)
    if missed or not kind.advances and (count_ticks(decay.arena) >= TICKS or not decay.arena.stats):
        return Confidence.HIGH
    return Confidence.MEDIUM if _is_sparse(decay, kind) else None


def _is_young(decay: ArenaDecay, kind: Decay, clock: Clock) -> bool:
    """Whether the pages are surely within their decay time."""
    begun = decay.arena.create_time if kind.advances else kind.state.epoch
    return clock.exact and clock.now is not None and clock.now - begun < kind.state.time_ms * MS


def _by_counters(decay: ArenaDecay, kind: Decay, clock: Clock, missed: bool) -> Optional[Confidence]:
    """Judge an arena whose threads are gone: hardly a step and hardly a sweep, where many were due."""
    if (kind.state.npurge or 0) > MISSED * ((kind.advances or 0) + 1):
        return None
    if missed:
        return Confidence.MEDIUM
    return Confidence.LOW if _never_in_time(decay, kind, clock) or _is_sparse(decay, kind) else None


def _never_in_time(decay: ArenaDecay, kind: Decay, clock: Clock) -> bool:
    """Whether a whole decay time went by without one step, and threads worked on the arena."""
    late = clock.now is not None and clock.now - kind.state.epoch > kind.state.time_ms * MS
    return not kind.advances and late and count_looks(decay.arena) >= 10


def _is_sparse(decay: ArenaDecay, kind: Decay) -> bool:
    """Whether steps were few for the arena's age and for its threads' work."""
    taken = (kind.advances or 0) + 1
    age = kind.state.epoch - decay.arena.create_time
    long = age > max(kind.state.time_ms * MS, SPARSE * taken * kind.state.interval)
    return long and count_looks(decay.arena) > SPARSE * taken


def _may_have_background(tickers: Optional[Sequence[Ticker]]) -> bool:
    # jemalloc's own threads stand as threads that are ending
    ending = (TsdKind.PURGATORY, TsdKind.REINCARNATED)
    return any(one.tsd.state in ending for one in tickers or ())


# -- telling -----------------------------------------------------------------------------------------


def _finding(view: DecayView, stalls: Sequence[Stall]) -> Finding:
    size = sum(stall.bytes for stall in stalls)
    named = any(stall.stuck for stall in stalls)
    return Finding(
        "decay-stalled",
        Severity.WARNING,
        stalls[0].confidence,
        _summary(view, stalls, size),
        bytes=size,
        evidence=(
            *(_arena_text(stall, view.clock) for stall in stalls[:SHOWN]),
            *_more(stalls),
            *_thread_lines(view, stalls),
        ),
        remedy=REMEDY,
        threads=None if view.tickers is None else threads_of(view, named),
        details={"arenas": [_details(stall) for stall in stalls]},
    )


def _details(stall: Stall) -> Dict[str, Any]:
    return {
        "index": stall.decay.arena.index,
        "address": address_text(stall.decay.arena.address),
        "bytes": stall.bytes,
        "pages": {kind.kind: kind.npages for kind in stall.kinds},
        "advances": {kind.kind: kind.advances for kind in stall.kinds},
        "stuck_threads": len(stall.stuck),
    }


def threads_of(view: DecayView, named: bool) -> tuple[ThreadRef, ...]:
    """Return the threads that can never purge; none where no arena is stalled by one that is still there."""
    stuck = (one for one in view.tickers or () if named and one.stuck)
    return tuple(one.tsd.thread for one in stuck if one.tsd.thread is not None)


def _summary(view: DecayView, stalls: Sequence[Stall], size: int) -> str:
    arenas = count_text(len(stalls), "arena")
    kept = f"{size_text(size)} of unused pages in {arenas} are never given back"
    stuck = [one for stall in stalls for one in stall.stuck]
    if stuck:
        return f"{kept}: {count_text(len(stuck), 'thread')} freed before ever allocating, and so can never purge"
    why = "threads' data could not be found" if view.tickers is None else "the threads that did the work are gone"
    return (
        f"{kept}: hardly any thread ever made them decay, as it is where threads free before they ever allocate"
        f" (by counters alone: {why})"
    )


def _arena_text(stall: Stall, clock: Clock) -> str:
    kinds = "; ".join(_kind_text(kind, clock) for kind in stall.kinds)
    return f"arena {stall.decay.arena.index}: {kinds}; {_work_text(stall)}"


def _kind_text(kind: Decay, clock: Clock) -> str:
    state = kind.state
    sweeps = "" if state.npurge is None else f"{count_text(state.npurge, 'sweep')}, "
    return (
        f"{grouped(kind.npages)} {kind.kind} pages ({kind.kind}_decay_ms:{state.time_ms}), "
        f"{sweeps}{_advance_text(kind, clock)}"
    )


def _advance_text(kind: Decay, clock: Clock) -> str:
    known = clock.exact and kind.epoch_age is not None
    since = f", {(kind.epoch_age or 0) / 1e9:.1f} s ago" if known else ""
    if not kind.advances:
        return f"epoch never advanced: its deadline is the first that was drawn{since}"
    return f"epoch advanced {'once' if kind.advances == 1 else f'{kind.advances} times'} only{since}"


def _work_text(stall: Stall) -> str:
    arena = stall.decay.arena
    if not arena.stats:
        return "this build counts nothing else"
    due = max(count_due(arena, kind) for kind in stall.kinds)
    text = f"it counts {grouped(count_ticks(arena))} operations, and threads look at the clock every {TICKS}"
    return f"{text}: in the time they took, at least {grouped(due)} steps were due" if due else text


def _more(stalls: Sequence[Stall]) -> Iterator[str]:
    if len(stalls) > SHOWN:
        rest = sum(stall.bytes for stall in stalls[SHOWN:])
        yield f"{count_text(len(stalls) - SHOWN, 'more arena')} with {size_text(rest)}"


def _thread_lines(view: DecayView, stalls: Sequence[Stall]) -> Iterator[str]:
    freed = [one for stall in stalls for one in stall.stuck]
    if not freed:
        if view.tickers is not None:
            yield "every thread that is left can purge: those that did the work have ended, and no trace names them"
        return
    yield f"nominal, arenas_tdata_bypass set, no arenas_tdata: {_names(freed)}"
    only = [one for one in view.tickers or () if one.stuck and not one.freed_first]
    if only:
        yield f"minimal, can never purge either: {_names(only)}"


def _names(tickers: Sequence[Ticker]) -> str:
    texts = [_name(one) for one in tickers[: 4 * SHOWN]]
    left = len(tickers) - len(texts)
    return ", ".join(texts) + (f" and {left} more" if left else "")


def _name(ticker: Ticker) -> str:
    thread = ticker.tsd.thread
    if thread is None:
        return f"the thread whose tsd is at {ticker.tsd.address:#x}"
    number = "" if thread.number is None else f"thread {thread.number} "
    name = "" if thread.name is None else f" {thread.name}"
    return f"{number}(LWP {thread.lwp}{name})".strip()
