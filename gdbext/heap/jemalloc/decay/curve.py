"""The curve by which unused pages are given back, and how often an arena has moved along it.

Source: ``smoothstep.h``, ``prng.h``; ``arena.c`` of 5.1 and 5.2, ``decay.c`` since 5.3.
"""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

from gdbext.heap.jemalloc.model import DecayState

STEPS = 200  # SMOOTHSTEP_NSTEPS
_FRACTION_BITS = 24  # SMOOTHSTEP_BFP
_WORD = (1 << 64) - 1
_PRNG_A, _PRNG_C = 6364136223846793005, 1442695040888963407
_MOST_TRIES = 64  # each fails with a chance below a half


def _height(step: int) -> int:
    """Return the curve's height after that many of its steps: 6x^5 - 15x^4 + 10x^3, as a fixed-point number."""
    over = 6 * step**5 - 15 * STEPS * step**4 + 10 * STEPS**2 * step**3
    return (over << _FRACTION_BITS) // STEPS**5


HEIGHTS = tuple(_height(step) for step in range(1, STEPS + 1))


def limit_of(backlog: Sequence[int]) -> int:
    """Return the pages that the curve allows (``decay_backlog_npages_limit``).

    :param backlog: pages that became unused in each step, oldest first.
    """
    return sum(pages * height for pages, height in zip(backlog, HEIGHTS)) >> _FRACTION_BITS


def allowed_pages(state: DecayState, npages: int, now: Optional[int]) -> Optional[int]:
    """Return the pages that jemalloc would leave at ``now`` (``decay_maybe_advance_epoch``).

    Before the deadline that is the limit of the last step and whatever came since: nothing is purged between two
    steps, and what is there beyond the limit came after the last one. Afterwards it is what a step taken now would
    leave, for which all pages that came since count as new: nobody knows when they came.

    :param npages: pages there are.
    :param now: ns; None when not known.
    :returns: None when ``now`` is needed and not known, or the state makes no sense.
    """
    if state.time_ms <= 0:
        return 0 if state.time_ms == 0 else npages
    if now is None or state.interval == 0:
        return None
    moved = min(max(now - state.epoch, 0) // state.interval, STEPS)
    if now < state.deadline or not moved:
        return max(limit_of(state.backlog), npages)
    return limit_of([*state.backlog[moved:], *([0] * (moved - 1)), new_pages(state, npages)])


def new_pages(state: DecayState, npages: int) -> int:
    """Return the pages that the next step would note as new: those beyond what the last one left or saw."""
    return max(npages - state.nunpurged, 0)


def _draws(seed: int, bound: int) -> Iterator[Optional[int]]:
    """Iterate over what ``prng_range_u64`` gives; None when it comes to no end."""
    bits = max((bound - 1).bit_length(), 1)
    state = seed
    while True:
        for _ in range(_MOST_TRIES):
            state = (state * _PRNG_A + _PRNG_C) & _WORD
            drawn = state >> (64 - bits)
            if drawn < bound:
                yield drawn
                break
        else:
            yield None


def count_advances(state: DecayState, most: int) -> Optional[int]:
    """Return how often the epoch has moved on since the decay was set up.

    Each time a deadline is drawn at random, and the generator starts from the structure's own address
    (``decay_reinit``, ``decay_deadline_init``): so the deadline tells which draw it was.

    :param most: advances that are told apart.
    :returns: None when there were more, when nothing decays by time, or when the deadline is none that is drawn.
    """
    jitter = state.deadline - state.epoch - state.interval
    if state.time_ms <= 0 or not 0 <= jitter < state.interval:
        return None
    for count, drawn in zip(range(most + 1), _draws(state.address, state.interval)):
        if drawn == jitter:
            return count
    return None


def is_drawn(state: DecayState) -> bool:
    """Whether epoch and deadline fit each other, so that the epoch is a moment that can be believed."""
    return state.time_ms > 0 and 0 <= state.deadline - state.epoch - state.interval < state.interval
