"""jemalloc by structure alone: for stripped libraries that are not in the shipped table.

In the writable data of each module that holds jemalloc's words, or whose read-only part is not in the target:
1. the array of arenas: words that lead to structures whose ``base->ind`` is their position, and that lie in one of
   that base's own blocks;
2. the root of the radix tree: the slot from which the tree leads to a current slab's extent, for each geometry.

``narenas_total`` and ``tsd_nominal_tsds`` are not looked for: nothing marks a small number, and the array of arenas,
threads' pointers and the arenas' lists of caches tell what they would.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.find.invariants import MOST_ARENAS, arena_indices, current_slabs, follow
from gdbext.heap.jemalloc.find.moduledata import module_words
from gdbext.heap.jemalloc.find.named import Globals
from gdbext.heap.jemalloc.find.versions import find_versions
from gdbext.heap.jemalloc.layouts import Layout, for_version, recorded
from gdbext.heap.jemalloc.model import U64, Geometry
from gdbext.heap.jemalloc.read.records import gather, mapped
from gdbext.heap.jemalloc.read.rtree import edata_of, geometries
from gdbext.process import Module
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

_CACHELINE = 64  # alignment of arenas and of the tree's nodes (base_alloc)
_MOST_BLOCKS = 1 << 12
_BLOCK_UNIT = 4096  # blocks of bases are whole huge pages
_MOST_CANDIDATES = 1 << 12
_SLABS = 8  # slabs that the root is searched with


@dataclass(frozen=True, eq=False)
class Slots:
    """Words of a module's data.

    :param place: addresses of those that lead to mapped memory, as arenas and nodes are aligned.
    :param value: where they lead.
    :param used: addresses of all that are not 0, sorted.
    """

    place: U64
    value: U64
    used: U64


@dataclass(frozen=True)
class Seen:
    """An array of arenas and a root of a radix tree that fit one layout."""

    layout: Layout
    arenas: int
    votes: int
    root: int
    root_votes: int
    geometry: Geometry


def find_structural(
    target: Target, modules: Sequence[Module], progress: Progress
) -> tuple[list[Globals], list[Problem]]:
    """Return what looks like a jemalloc, at most one a module, and why there is none in a module that holds one.

    :param modules: those that may hold one.
    """
    found: list[Globals] = []
    problems: list[Problem] = []
    for done, module in enumerate(modules):
        progress.at("jemalloc by structure", done, len(modules))
        texts = find_versions(target, module)
        named = [layout for text in texts for layout in for_version(text)]
        slots = _slots(target, module)
        seen = [one for layout in named or recorded() for one in _in_module(target, module, slots, layout)]
        if seen:
            found.append(_globals(module, max(seen, key=lambda one: (one.root_votes, one.votes))))
        else:
            problems += _why_none(target, module, texts, bool(named))
    return found, problems


def _globals(module: Module, seen: Seen) -> Globals:
    symbols = {"arenas": seen.arenas, "rtree_root": seen.root}
    return Globals(None, module, symbols, "structure", (seen.layout,), 1 << seen.geometry.bits[0])


def _slots(target: Target, module: Module) -> Slots:
    """Return a module's writable words that may lead to an arena or to a node of the tree."""
    none = np.empty(0, np.uint64)
    places, values, used = [none], [none], [none]
    for start, words in module_words(target, module, writable=True):
        at = np.flatnonzero(words)
        used.append(np.uint64(start) + at.astype(np.uint64) * np.uint64(8))
        aligned = words[at] % np.uint64(_CACHELINE) == 0
        places.append(used[-1][aligned])
        values.append(words[at[aligned]])
    place, value = np.concatenate(places), np.concatenate(values)
    kept = mapped(target, value, 8)
    return Slots(place[kept], value[kept], np.concatenate(used))


def _in_module(target: Target, module: Module, slots: Slots, layout: Layout) -> Iterator[Seen]:
    array = _find_array(target, slots, layout)
    if array is None:
        return
    arenas, votes, addresses = array
    for geometry in geometries(layout.nsizes):
        root = _find_root(target, module, slots, layout, geometry, addresses)
        if root is not None:
            yield Seen(layout, arenas, votes, root[0], root[1], geometry)


# -- the array of arenas ------------------------------------------------------------------------------


def _find_array(target: Target, slots: Slots, layout: Layout) -> Optional[tuple[int, int, list[int]]]:
    """Return where the array of arenas is, how many arenas it has, and their addresses; or None."""
    starts: dict[int, list[int]] = {}
    for place, arena, index in _arena_slots(target, slots, layout):
        starts.setdefault(place - 8 * index, []).append(arena)
    best = max(
        starts, key=lambda at: (len(starts[at]), _free_after(slots, at, len(starts[at]))), default=None
    )
    return None if best is None else (best, len(starts[best]), starts[best])


def _arena_slots(target: Target, slots: Slots, layout: Layout) -> Iterator[tuple[int, int, int]]:
    """Iterate over words that lead to an arena: their address, the arena's, its index."""
    values, inverse = np.unique(slots.value, return_inverse=True)
    indices = np.full(len(values), -1, np.int64)
    whole = mapped(target, values, layout["arena"].size)
    indices[whole] = arena_indices(target, values[whole], layout)
    likely = np.flatnonzero((indices >= 0) & (indices < MOST_ARENAS))[:_MOST_CANDIDATES]
    sound = {int(one) for one in likely if _in_own_base(target, int(values[one]), layout)}
    for place, value in zip(slots.place.tolist(), inverse.tolist()):
        if value in sound:
            yield place, int(values[value]), int(indices[value])


def _in_own_base(target: Target, arena: int, layout: Layout) -> bool:
    """Whether an arena lies in a block of its own base: that is where arenas are allocated."""
    reader, block = target.reader, layout["base_block"]
    try:
        base = layout["arena"].read(reader, arena, "base")
        at = layout["base"].read(reader, base, "blocks")
        for _ in range(_MOST_BLOCKS):
            size = block.read(reader, at, "size") if at % _BLOCK_UNIT == 0 and at else 0
            if not size or size % _BLOCK_UNIT:
                return False
            if at <= arena < at + size:
                return True
            at = block.read(reader, at, "next")
    except FaultError:
        return False
    return False


def _free_after(slots: Slots, array: int, used: int) -> int:
    """Return how many words after the first arenas are 0: the array has thousands, a single variable few."""
    start = array + 8 * used
    at = int(np.searchsorted(slots.used, np.uint64(start)))
    end = int(slots.used[at]) if at < len(slots.used) else start + 8 * MOST_ARENAS
    return min((end - start) // 8, MOST_ARENAS)


# -- the radix tree -----------------------------------------------------------------------------------


def _find_root(
    target: Target,
    module: Module,
    slots: Slots,
    layout: Layout,
    geometry: Geometry,
    arenas: Sequence[int],
) -> Optional[tuple[int, int]]:
    """Return the root that most slabs speak for, and how many do; None when none does."""
    slabs = current_slabs(target, arenas, layout)[:_SLABS]
    rows, known = gather(target, slabs, [layout["extent"].offset("address")])
    votes: Counter[int] = Counter()
    for slab, address in zip(slabs[known].tolist(), rows[known, 0].tolist()):
        votes.update(set(_roots_for(target, slots, layout, geometry, slab, address)))
    inside = [(root, count) for root, count in votes.most_common(8) if module.base <= root < module.end]
    return inside[0] if inside else None


def _roots_for(
    target: Target, slots: Slots, layout: Layout, geometry: Geometry, slab: int, address: int
) -> list[int]:
    """Return the roots from which the tree would lead from ``address`` to ``slab``."""
    last = len(geometry.bits) - 1
    keys = [address >> geometry.shift(level) & ((1 << bits) - 1) for level, bits in enumerate(geometry.bits)]
    nodes = slots.value
    for level in range(1, last):
        nodes = follow(target, nodes, 8 * keys[level])
    leaf = follow(target, nodes, keys[last] * (8 if geometry.compact else 16))
    places = slots.place[edata_of(leaf, geometry, layout) == np.uint64(slab)]
    return [place - 8 * keys[0] for place in places.tolist()]


# -- why there is none --------------------------------------------------------------------------------


def _why_none(target: Target, module: Module, texts: Sequence[str], known: bool) -> Iterator[Problem]:
    """Say why no jemalloc was found in a module that has one.

    :param texts: versions that its words tell; none where they are not in the target, too.
    :param known: whether there is a table for one of them.
    """
    if not texts and not os.path.basename(module.path).startswith("libjemalloc"):
        return
    lead = f"{module.path} holds jemalloc {texts[0].split('-')[0]}" if texts else f"{module.path} holds a jemalloc"
    sources = _sources(target, module)
    if texts and not known:
        tables = ", ".join(layout.version for layout in reversed(recorded()))
        message = f"{lead}; without debug info only {tables} are known"
        yield Problem("no-layout", module.base, message)
    elif _lacks_data(target, module):
        yield Problem("absent-memory", module.base, f"{lead}, but its variables are not in the target")
    elif "absent" in sources:
        yield Problem(
            "absent-memory", module.base, f"{lead}, but what its variables lead to is not in the target"
        )
    elif sources:
        message = f"{lead}, but its data fit no table: without debug info only usual builds are known"
        yield Problem("no-layout", module.base, message)


def _lacks_data(target: Target, module: Module) -> bool:
    regions = target.index.within(module.base, module.end)
    return any(region.source == "absent" and region.writable for region in regions)


def _sources(target: Target, module: Module) -> set[str]:
    """Return the sources of the memory outside modules that a module's data lead to; none: it was never used."""
    found: set[str] = set()
    for _, words in module_words(target, module, writable=True):
        values = np.unique(words[(words != 0) & (words % np.uint64(_CACHELINE) == 0)])
        regions = map(target.index.find, values[:_MOST_CANDIDATES].tolist())
        found.update(one.source for one in regions if one and not target.find_module(one.start))
    return found
