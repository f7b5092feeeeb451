"""What a test program said about itself, and what malloc_info told it.

``malloc_info`` adds up the size fields of the chunks in bins, flag bits included (each free chunk there has
PREV_INUSE set): its "rest" is too large by one for each chunk that it lists. The sums here are corrected.
It counts chunks in tcaches as in use.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Optional


@dataclass(frozen=True)
class InfoArena:
    """What malloc_info says about one arena, in bytes of chunks; the first is the main arena.

    :param rest_bytes: chunks in bins, and top.
    :param rest_chunks: their number; top counts as one.
    """

    system_bytes: int
    fast_bytes: int
    fast_chunks: int
    rest_bytes: int
    rest_chunks: int

    @property
    def used_bytes(self) -> int:
        """Everything else: chunks in use and in tcaches, the allocator's own overhead, foreign gaps."""
        return self.system_bytes - self.fast_bytes - self.rest_bytes


@dataclass(frozen=True)
class MallocInfo:
    """All of malloc_info; ``mmap_bytes`` are ``mp_.mmapped_mem``."""

    arenas: tuple[InfoArena, ...]
    mmap_blocks: int
    mmap_bytes: int

    @property
    def system_bytes(self) -> int:
        """The sum over all arenas, without mmapped blocks."""
        return sum(arena.system_bytes for arena in self.arenas)


@dataclass(frozen=True)
class Truth:
    """A program's truth file; ``raw`` is the JSON as it stands there (docs/testing.md describes it)."""

    raw: dict[str, Any]

    @property
    def details(self) -> dict[str, Any]:
        """What this program alone states."""
        details: dict[str, Any] = self.raw["details"]
        return details

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self.raw["pid"])

    @property
    def glibc(self) -> str:
        """The version that the running libc gave."""
        return str(self.raw["glibc"])

    @property
    def tids(self) -> dict[int, str]:
        """Thread ids with their names; the kernel keeps 15 characters of one."""
        return {thread["tid"]: thread["name"][:15] for thread in self.raw["threads"]}

    @property
    def allocating_threads(self) -> int:
        """How many living threads ever allocated: at most that many tcache structures exist."""
        return int(self.raw["allocating_threads"])

    @property
    def ledger(self) -> dict[str, Any]:
        """Every block that anybody ever got from malloc in this process, tcache structures excepted."""
        ledger: dict[str, Any] = self.raw["ledger"]
        return ledger

    @property
    def live(self) -> dict[int, int]:
        """Address and usable bytes of live blocks; all of them where ``ledger["all_listed"]``."""
        return _blocks(self.ledger["live_blocks"])

    @property
    def freed(self) -> dict[int, int]:
        """Address and former usable bytes of blocks that were freed and not handed out again."""
        return _blocks(self.ledger["freed_blocks"])

    @property
    def malloc_info(self) -> Optional[MallocInfo]:
        """What malloc_info said; None where the program did not ask it."""
        text = self.raw["malloc_info"]
        return parse_malloc_info(text) if text else None


def address(text: str) -> int:
    """Return the number that a truth's or a report's "0x…" stands for."""
    return int(text, 16)


def addresses(texts: Iterable[str]) -> list[int]:
    """Return the numbers of many "0x…"."""
    return [address(text) for text in texts]


def read_truth(path: Path) -> Truth:
    """Return the truth in a file."""
    return Truth(json.loads(path.read_text()))


def parse_malloc_info(text: str) -> MallocInfo:
    """Return malloc_info's XML as exact sums."""
    document = ElementTree.fromstring(text)
    count, size = _total(document, "mmap")
    return MallocInfo(tuple(_arena(heap) for heap in document.iter("heap")), count, size)


def _arena(heap: ElementTree.Element) -> InfoArena:
    fast_chunks, fast_bytes = _total(heap, "fast")
    rest_chunks, rest_bytes = _total(heap, "rest")
    flagged = rest_chunks - 1  # all but top
    system = heap.find("system[@type='current']")
    assert system is not None
    return InfoArena(int(system.get("size", "")), fast_bytes, fast_chunks, rest_bytes - flagged, rest_chunks)


def _total(element: ElementTree.Element, kind: str) -> tuple[int, int]:
    """Count and size; glibc 2.43 has no fastbins and no line for them."""
    total = element.find(f"total[@type='{kind}']")
    if total is None and kind == "fast":
        return 0, 0
    assert total is not None, f"malloc_info has no total of {kind}"
    return int(total.get("count", "")), int(total.get("size", ""))


def _blocks(pairs: Iterable[tuple[str, int]]) -> dict[int, int]:
    return {address(text): size for text, size in pairs}
