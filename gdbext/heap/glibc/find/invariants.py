"""What must hold of a ``malloc_state`` if it is one, whatever the heap has gone through.

Upstream: ``malloc_init_state``, ``sysmalloc`` and ``arena_get2`` in malloc/. A damaged heap breaks a
few of these, a wrong address or layout nearly all: they are weighed, not demanded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from gdbext.errors import FaultError
from gdbext.heap.glibc.layouts import BIN_COUNT
from gdbext.layout import StructLayout
from gdbext.memory import Region
from gdbext.target import Target

ARENA_LIMIT = 1 << 16  # the kernel's default vm.max_map_count allows no more heaps
_BINS_NEEDED = BIN_COUNT - 24


class Probe:
    """A target with what speculative reads want at hand."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.abi = target.abi
        self.reader = target.reader
        self.index = target.index
        self.mapped = sum(region.size for region in self.index.regions)

    def find_word(self, address: int) -> Optional[int]:
        """Return the word at ``address``, or None when it cannot be read."""
        try:
            return self.reader.word(address)
        except FaultError:
            return None

    def find_words(self, address: int, count: int) -> Optional[Sequence[int]]:
        """Return ``count`` words, or None when they cannot all be read."""
        try:
            return self.reader.words(address, count)
        except FaultError:
            return None

    def find_member(self, layout: StructLayout, address: int, name: str) -> Optional[int]:
        """Return a scalar member, or None when it cannot be read."""
        try:
            return layout.read(self.reader, address, name)
        except FaultError:
            return None

    def region(self, address: int) -> Optional[Region]:
        """Return the region of an address, or None."""
        return self.index.find(address)

    def writable(self, address: int) -> bool:
        """Whether ``address`` is mapped for writing, its bytes known or not."""
        region = self.index.find(address)
        return region is not None and region.writable


@dataclass(frozen=True)
class ArenaCheck:
    """How well some memory fits a ``malloc_state``.

    :param bins: lists of the 127 that are empty or linked in both directions.
    :param pristine: whether no list was ever set up: nobody has called malloc.
    :param system_mem: as read.
    :param faults: what else does not hold, one line each.
    """

    bins: int
    pristine: bool
    system_mem: int
    faults: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether it is one, perhaps damaged."""
        return self.bins >= _BINS_NEEDED and len(self.faults) <= 1

    def __str__(self) -> str:
        faults = ", ".join(self.faults) or "top and system_mem sane"
        return f"{self.bins} of {BIN_COUNT} bins linked, {faults}"


def check_arena(
    probe: Probe, address: int, layout: StructLayout, alignment: int
) -> Optional[ArenaCheck]:
    """Weigh the memory at ``address`` as a ``malloc_state``; None when it cannot be read."""
    member = layout.member
    bins = probe.find_words(address + member("bins").offset, 2 * BIN_COUNT)
    values = {
        name: probe.find_member(layout, address, name)
        for name in ("mutex", "flags", "top", "system_mem", "max_system_mem")
    }
    if bins is None or None in values.values():
        return None
    known = {name: value for name, value in values.items() if value is not None}
    heads = address + member("bins").offset - 2 * probe.abi.pointer_size
    faults = (*_faults(probe, known, heads, alignment), *_bin_faults(probe, heads, bins))
    return ArenaCheck(
        _count_linked(probe, heads, bins), not any(bins), known["system_mem"], faults
    )


def _count_linked(probe: Probe, heads: int, bins: Sequence[int]) -> int:
    """Return how many bins are linked; as many as were, when too many are not for it to matter."""
    step, linked = 2 * probe.abi.pointer_size, 0
    for i in range(BIN_COUNT):
        linked += _is_linked(probe, heads + i * step, bins[2 * i], bins[2 * i + 1])
        if i - linked > BIN_COUNT - _BINS_NEEDED:
            break
    return linked


def _is_linked(probe: Probe, head: int, first: int, last: int) -> bool:
    if first == head or last == head:
        return first == last
    word = probe.abi.pointer_size
    return _points_back(probe, first, 3 * word, head) and _points_back(probe, last, 2 * word, head)


def _points_back(probe: Probe, chunk: int, offset: int, head: int) -> bool:
    """Whether a chunk's link leads to the list's head; the benefit of the doubt when it is absent."""
    link = probe.find_word(chunk + offset)
    return link == head if link is not None else probe.writable(chunk)


def _faults(
    probe: Probe, values: dict[str, int], heads: int, alignment: int
) -> Iterator[str]:
    top, system, flags = values["top"], values["system_mem"], values["flags"]
    if not 0 <= flags <= 7 or not -1 <= values["mutex"] <= 2:
        yield f"flags {flags:#x} and mutex {values['mutex']:#x} impossible"
    if top != heads and ((top + 2 * probe.abi.pointer_size) % alignment or not probe.writable(top)):
        yield f"top {top:#x} not a chunk"
    # Not always whole pages: what a static program's start-up took from brk leaves the first one odd.
    if not system <= values["max_system_mem"] or system > 2 * probe.mapped:
        yield f"system_mem {system:#x} impossible"


def _bin_faults(probe: Probe, heads: int, bins: Sequence[int]) -> Iterator[str]:
    # Empty bins look the same wherever one begins to count; what is before and behind them does not.
    step = 2 * probe.abi.pointer_size
    before = probe.find_words(heads, 2)
    if before == (heads - step, heads - step):
        yield "a bin before the first"
    if bins[-1] != heads + (BIN_COUNT - 1) * step:
        yield "no bin where the last should be"


@dataclass(frozen=True)
class Ring:
    """The arenas that ``next`` leads to from one of them.

    :param closed: whether the ring returned to the first.
    :param broken_at: the arena whose ``next`` led nowhere or back into the middle, or None.
    """

    arenas: tuple[int, ...]
    closed: bool
    broken_at: Optional[int] = None


def follow_ring(probe: Probe, start: int, layout: StructLayout, limit: int = ARENA_LIMIT) -> Ring:
    """Follow ``next`` from ``start`` on, as far as it leads to mapped memory."""
    seen: dict[int, None] = {}
    address = start
    while address not in seen and len(seen) < limit:
        seen[address] = None
        following = probe.find_member(layout, address, "next")
        if following is None or not probe.writable(following):
            return Ring(tuple(seen), False, address)
        address = following
    if address == start:
        return Ring(tuple(seen), True)
    return Ring(tuple(seen), False, next(reversed(seen)))
