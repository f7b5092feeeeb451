"""What a jemalloc test program said about itself, and what jemalloc's own statistics told it."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from tests.support.truth import Truth, address


class JeTruth(Truth):
    """A program's truth file; ``testprogs/jetruth.h`` writes it."""

    @property
    def version(self) -> str:
        """As x.y.z."""
        return str(self.raw["version"]).split("-")[0]

    @cached_property
    def stats(self) -> dict[str, Any]:
        """What ``malloc_stats_print`` said; from 5.3 on with its own print buffer, which is gone from memory."""
        return read_stats(self.raw["stats"])

    @property
    def after(self) -> dict[str, Any]:
        """Figures of ``mallctl``, taken last: ``allocated``, ``active``, … and ``arenas``."""
        after: dict[str, Any] = self.raw["after"]
        return after

    @property
    def arenas(self) -> dict[int, dict[str, int]]:
        """The figures of ``after`` of each initialised arena, by its index."""
        return {int(index): figures for index, figures in self.after["arenas"].items()}

    @property
    def arena_stats(self) -> dict[int, dict[str, Any]]:
        """What ``malloc_stats_print`` said of each arena, without the merged ones."""
        arenas = self.stats["stats.arenas"]
        return {int(index): figures for index, figures in arenas.items() if index.isdecimal()}

    @property
    def bin_sizes(self) -> list[int]:
        """Bytes of a region of each bin."""
        return [int(row["size"]) for row in self.stats["arenas"]["bin"]]

    @property
    def threads(self) -> list[dict[str, Any]]:
        """``tid``, ``name``, ``alive``, ``role``; where known ``arena``, ``allocated``, ``deallocated`` (bytes)."""
        threads: list[dict[str, Any]] = self.raw["threads"]
        return threads

    def tids_with(self, role: str) -> set[int]:
        """The thread ids of a role, those of ended threads too."""
        return {int(thread["tid"]) for thread in self.threads if thread["role"] == role}

    @property
    def live(self) -> dict[int, int]:
        """Address and usable bytes of the program's live blocks; libc has some more."""
        return _pairs(self.raw["live_blocks"])

    @property
    def cached(self) -> dict[int, int]:
        """Address and usable bytes of freed blocks that certainly are in a tcache."""
        return {address(text): size for text, size, _ in self.raw["cached_blocks"]}

    def cached_by(self, tid: int) -> dict[int, int]:
        """Those of one thread; a thread that has any has no others in its tcache."""
        return {address(text): size for text, size, owner in self.raw["cached_blocks"] if owner == tid}

    @property
    def freed(self) -> dict[int, int]:
        """Address and usable bytes of freed blocks that may be anywhere, handed out again at another size too."""
        taken = self.live.keys() | self.cached.keys()
        return {start: size for start, size in _pairs(self.raw["freed_blocks"]).items() if start not in taken}


def read_stats(text: str) -> dict[str, Any]:
    """Return the document that ``malloc_stats_print(…, "J")`` wrote."""
    stats: dict[str, Any] = json.loads(text)["jemalloc"]
    return stats


def _pairs(pairs: list[list[Any]]) -> dict[int, int]:
    return {address(text): size for text, size in pairs}
