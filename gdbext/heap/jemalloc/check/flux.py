"""Whether something was being changed at the stop: then numbers that do not agree are no damage.

jemalloc changes a bin, a cache of extents or an arena's list of thread caches under its mutex (``mutex.h``), the pages
being purged while ``decay.purging`` is set, and its counters of pages and large blocks under none at all: for those
only the threads' places tell.
"""

from __future__ import annotations

from functools import cached_property
from typing import Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.inside import say_inside
from gdbext.heap.jemalloc.model import ExtentState, Jemalloc
from gdbext.report import Problem
from gdbext.wording import count_text

_MARK = "; in flux: "  # stands between what does not hold and why it need not
_REASONS = 3  # that are told where all are told in one


class Flux:
    """What was under way in one jemalloc. Each answer is a reason in words, "" for none."""

    def __init__(self, heap: Jemalloc) -> None:
        self.heap = heap
        self.target = heap.target
        self._arenas = {arena.index: arena for arena in heap.arenas}

    def problem(self, kind: str, address: Optional[int], message: str, reason: str) -> Problem:
        """Return a mismatch: damage, unless there is a reason why it need not be."""
        if not reason:
            return Problem(kind, address, message, corruption=True)
        return Problem(kind, address, f"{message}{_MARK}{reason}")

    def of_bin(self, arena: int, index: int) -> str:
        """Say whether a bin was being changed."""
        known = self._arenas.get(arena)
        shards = [one for own in known.bins if own.info.index == index for one in own.shards] if known else []
        held = any(self._is_held("bin", shard.address) for shard in shards)
        return f"the mutex of bin {index} is held" if held else self.inside

    def of_pages(self, arena: int) -> str:
        """Say whether an arena's extents were being changed."""
        known = self._arenas.get(arena)
        if known is None:
            return self.inside
        for kind in ("dirty", "muzzy", "retained"):
            if self._is_held("cache", getattr(known, kind).address):
                return f"the mutex of its {kind} extents is held"
        if known.decay_dirty.purging or known.decay_muzzy.purging:
            return "pages are being purged"
        return "extents are in transition" if arena in self._in_transition else self.inside

    def of_large(self, arena: int) -> str:
        """Say whether an arena's large blocks were being changed."""
        known = self._arenas.get(arena)
        held = known is not None and self._is_held("arena", known.address, "large_mutex")
        return "the mutex of its large blocks is held" if held else self.inside

    def of_base(self, address: int) -> str:
        """Say whether an arena's own data was being extended."""
        return "the mutex of its base is held" if self._is_held("base", address) else self.inside

    @cached_property
    def inside(self) -> str:
        """Say whether a thread was in jemalloc's code."""
        module = self.heap.location.module
        return "" if module is None else say_inside(self.target, module, "jemalloc")

    @cached_property
    def _in_transition(self) -> set[int]:
        extents, location = self.heap.extents, self.heap.location
        fields = location.layout.fields(location.geometry.lg_page)
        moving = np.isin(extents.state, (int(ExtentState.TRANSITION), int(ExtentState.MERGING)))
        if "guarded" in fields:  # the extent that guarded blocks are cut from is active always
            moving &= fields["state"].take(extents.bits) != 0
        return set(extents.arena[moving].tolist())

    def _is_held(self, struct: str, address: int, name: str = "mutex") -> bool:
        layout = self.heap.location.layout[struct]
        if name not in layout:
            return False  # a libc whose mutex is not known
        try:
            return layout.read(self.target.reader, address, name) != 0
        except FaultError:
            return False


def in_brief(problems: Sequence[Problem]) -> Sequence[Problem]:
    """Return problems with all that were in flux told in one, where they are several."""
    moving = [one for one in problems if _MARK in one.message]
    if len(moving) < 2:
        return problems
    reasons = list(dict.fromkeys(one.message.rpartition(_MARK)[2] for one in moving))
    more = [f"{len(reasons) - _REASONS} more"] if len(reasons) > _REASONS else []
    message = (
        f"jemalloc was stopped in the middle of its work ({'; '.join([*reasons[:_REASONS], *more])}): "
        f"{count_text(len(moving), 'figure')} that do not agree for that reason are no damage; "
        "`gx jemalloc check` lists them"
    )
    return [*(one for one in problems if _MARK not in one.message), Problem("in-flux", None, message)]
