"""Which threads can make unused pages decay.

Until 5.2 a thread needs a ticker of its own, in ``arenas_tdata``; it is never made once ``arenas_tdata_bypass`` is
set, and a first call that is a free sets it for ever. Since 5.3 the ticker is a part of the tsd.

Source: ``tsd.c`` (``tsd_data_init_nocleanup``), ``arena_tdata_get_hard`` in ``jemalloc.c``, ``arena_inlines_b.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gdbext.heap.jemalloc.model import TsdKind, TsdState

FREED_FIRST = "its first call was a free: it never gets a ticker"
ONLY_FREED = "it has only ever freed: it has no ticker"
_UNUSED = "it has not used this jemalloc yet"
_EXITING = "it is ending, or is jemalloc's own background thread"


@dataclass(frozen=True)
class Ticker:
    """Whether a thread can make its arena's pages decay.

    :param exists: whether it has a ticker now; None when not known.
    :param can_fire: whether it has or can still get one; None when not known.
    :param why: in a few words.
    """

    tsd: TsdState
    exists: Optional[bool]
    can_fire: Optional[bool]
    why: str

    @property
    def stuck(self) -> bool:
        """Whether the thread works on, but can never purge."""
        return self.why in (FREED_FIRST, ONLY_FREED)

    @property
    def unused(self) -> bool:
        """Whether the thread has not used this jemalloc."""
        return self.tsd.state == TsdKind.UNINITIALIZED

    @property
    def freed_first(self) -> bool:
        """Whether it allocates, too, and can never purge."""
        return self.why == FREED_FIRST


def ticker_of(tsd: TsdState) -> Ticker:
    """Return what a thread's data say of its ticker."""
    return Ticker(tsd, *_judge(tsd))


def _judge(tsd: TsdState) -> tuple[Optional[bool], Optional[bool], str]:
    if tsd.state is None:
        return None, None, f"its state {tsd.raw_state} is none that is known"
    if tsd.state == TsdKind.UNINITIALIZED:
        return False, True, _UNUSED
    if tsd.ticks is not None:
        return True, True, _ticks_text(tsd.state, tsd.ticks)
    if tsd.bypass is None or tsd.arenas_tdata is None:
        return None, None, "where its ticker is kept is not known"
    if tsd.state == TsdKind.MINIMAL:
        return False, False, ONLY_FREED
    if not tsd.state.nominal:
        return False, False, _EXITING
    return _of_nominal(tsd)


def _of_nominal(tsd: TsdState) -> tuple[Optional[bool], Optional[bool], str]:
    if tsd.arenas_tdata:
        return True, True, "it has a ticker"
    if tsd.bypass:
        return False, False, FREED_FIRST
    return False, True, "it gets a ticker with its next work on an arena"


def _ticks_text(state: TsdKind, ticks: int) -> str:
    left = f"its ticker is part of its data; {f'{ticks} ticks are left' if ticks >= 0 else 'it is due'}"
    return f"{_EXITING}; {left}" if state in (TsdKind.PURGATORY, TsdKind.REINCARNATED) else left
