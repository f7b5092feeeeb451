"""How unused pages decay, at this moment: what the curve allows, and which threads can never purge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.decay.clock import Clock, read_clock
from gdbext.heap.jemalloc.decay.curve import allowed_pages, count_advances, new_pages
from gdbext.heap.jemalloc.decay.tickers import Ticker, ticker_of
from gdbext.heap.jemalloc.model import ArenaState, DecayState, Jemalloc

__all__ = ["ArenaDecay", "Clock", "Decay", "DecayView", "Ticker", "find_background", "read_decay"]

MOST_ADVANCES = 64  # more are as good as any number


@dataclass(frozen=True)
class Decay:
    """One kind of page of one arena.

    :param kind: "dirty" or "muzzy".
    :param npages: pages now.
    :param allowed_npages: what jemalloc allows now: by the decay curve, and until the next step what came since the
        last one, too; None when the clock is not known.
    :param epoch_age: ns since the last step; None when the clock is not known, or says that it is yet to come.
    :param advanced: whether the epoch ever moved on since the arena was made, or its decay time was set.
    :param advances: how often; None for more than :data:`MOST_ADVANCES`, and where nothing decays by time.
    """

    kind: str
    state: DecayState
    npages: int
    allowed_npages: Optional[int]
    epoch_age: Optional[int]
    advanced: bool
    advances: Optional[int] = None

    @property
    def new_npages(self) -> int:
        """Pages that the next step would note as new: those beyond what the last one left or saw."""
        return new_pages(self.state, self.npages)


@dataclass(frozen=True)
class ArenaDecay:
    """Both kinds of page of an arena."""

    arena: ArenaState
    dirty: Decay
    muzzy: Decay

    @property
    def kinds(self) -> tuple[Decay, Decay]:
        """Dirty and muzzy."""
        return self.dirty, self.muzzy


@dataclass(frozen=True)
class DecayView:
    """All of it for one jemalloc.

    :param tickers: of every thread; None when threads' data could not be found.
    :param background: whether background threads purge; None when not known.
    """

    clock: Clock
    arenas: Sequence[ArenaDecay]
    tickers: Optional[Sequence[Ticker]]
    background: Optional[bool] = None


def read_decay(heap: Jemalloc) -> DecayView:
    """Return how pages of every arena decay, and who can make them."""
    clock = read_clock(heap.target, heap.arenas)
    arenas = [
        ArenaDecay(
            arena,
            _decay("dirty", arena.decay_dirty, arena.dirty.npages, clock),
            _decay("muzzy", arena.decay_muzzy, arena.muzzy.npages, clock),
        )
        for arena in heap.arenas
    ]
    tickers = None if heap.tsds is None else [ticker_of(tsd) for tsd in heap.tsds]
    return DecayView(clock, arenas, tickers, find_background(heap))


def _decay(kind: str, state: DecayState, npages: int, clock: Clock) -> Decay:
    advances = count_advances(state, MOST_ADVANCES)
    age = None if clock.now is None or clock.now < state.epoch else clock.now - state.epoch
    return Decay(
        kind=kind,
        state=state,
        npages=npages,
        allowed_npages=allowed_pages(state, npages, clock.now),
        epoch_age=age,
        advanced=state.time_ms > 0 and advances != 0,
        advances=advances,
    )


def find_background(heap: Jemalloc) -> Optional[bool]:
    """Return whether jemalloc's background threads are switched on; None when that cannot be read."""
    address = heap.location.symbols.get("background_thread_enabled_state")
    if address is None:
        return None
    try:
        return heap.target.reader.uint(address, 1) != 0
    except FaultError:
        return None
