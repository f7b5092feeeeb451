"""``mp_`` without a symbol: ``malloc_par`` is in the same data segment as ``main_arena``.

Candidates are where ``sbrk_base`` would equal the main arena's start, and where ``n_mmaps_max`` has
its default; each is weighed by the inequalities that ``sysmalloc``, ``munmap_chunk`` and the tunables
of malloc/malloc.c keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.heap.glibc.find.invariants import Probe
from gdbext.heap.glibc.layouts import alignments, malloc_pars
from gdbext.heap.glibc.sizes import FLAG_BITS, sizes_for
from gdbext.layout import StructLayout
from gdbext.memory import Region, view

_DEFAULT_MMAPS_MAX = 65536
_CANDIDATE_LIMIT = 4096
_SEGMENT_LIMIT = 64 << 20
_PAGE_LIMIT = 1 << 40


@dataclass(frozen=True)
class Par:
    """A ``malloc_par`` that fits, with the votes for it."""

    address: int
    layout: StructLayout
    score: int


def find_par(probe: Probe, main_arena: int, state: StructLayout) -> Optional[Par]:
    """Return the ``mp_`` that belongs to ``main_arena``, or None when nothing near it fits."""
    bases = sbrk_bases(probe, main_arena, state)
    found = [par for region in data_segment(probe, main_arena) for par in _pars_in(probe, region, bases)]
    # Where layouts tie, the newest, which comes first.
    return max(found, key=lambda par: (par.score, -abs(par.address - main_arena))) if found else None


def sbrk_bases(probe: Probe, main_arena: int, state: StructLayout) -> tuple[int, ...]:
    """Return where brk may have begun: top's end less ``system_mem``, and the start of top's mapping."""
    top = probe.find_member(state, main_arena, "top")
    system = probe.find_member(state, main_arena, "system_mem")
    if top is None or system is None or not probe.writable(top):
        return ()
    region = probe.region(top)
    size = probe.find_word(top + probe.abi.pointer_size)
    derived = () if size is None else (top + (size & ~FLAG_BITS) - system,)
    return (*derived, *(() if region is None else (region.start,)))


def data_segment(probe: Probe, address: int) -> Iterator[Region]:
    """Iterate over the adjacent writable mappings around ``address``: .data, perhaps .bss; vast ones are left out."""
    regions = probe.index.regions
    at = next((i for i, region in enumerate(regions) if address in region), None)
    if at is None:
        return
    first = last = at
    while first > 0 and regions[first - 1].end == regions[first].start and regions[first - 1].writable:
        first -= 1
    while last + 1 < len(regions) and regions[last + 1].start == regions[last].end:
        last += 1
    for region in regions[first : last + 1]:
        if region.writable and region.readable and region.size <= _SEGMENT_LIMIT:
            yield region


def _pars_in(probe: Probe, region: Region, bases: Sequence[int]) -> Iterator[Par]:
    try:
        # A truncated core may end a region anywhere.
        size = region.size - region.size % probe.abi.pointer_size
        data = view(probe.target.memory, region.start, size)
    except FaultError:
        return
    words = np.frombuffer(data, dtype=probe.abi.word_dtype)
    halves = np.frombuffer(data, dtype=f"{probe.abi.order_mark}u4")
    wanted = np.array([base & probe.abi.word_mask for base in bases], dtype=np.uint64)
    by_base = np.flatnonzero(np.isin(words, wanted)) * probe.abi.pointer_size
    by_limit = np.flatnonzero(halves == _DEFAULT_MMAPS_MAX) * 4
    for layout in malloc_pars(probe.abi):
        starts = set((by_base - layout.offset("sbrk_base")).tolist()[:_CANDIDATE_LIMIT])
        starts |= set((by_limit - layout.offset("n_mmaps_max")).tolist()[:_CANDIDATE_LIMIT])
        for start in sorted(starts):
            score = weigh_par(probe, region.start + start, layout, bases)
            if start % probe.abi.pointer_size == 0 and score is not None:
                yield Par(region.start + start, layout, score)


def weigh_par(probe: Probe, address: int, layout: StructLayout, bases: Sequence[int]) -> Optional[int]:
    """Return how many votes speak for a ``malloc_par`` at ``address``; None when a member speaks against."""
    values: dict[str, int] = {}
    for name in layout.members:
        value = probe.find_member(layout, address, name)
        if value is None:
            return None
        values[name] = value
    if not _is_possible(values, probe.abi.page_size):
        return None
    return sum((*_votes(values, bases, probe.abi.pointer_size), *_tcache_votes(values, probe.abi)))


# Since glibc commit 921e251e8f ("malloc: Support hugepages in mremap_chunk") (in 2.43) each mremap adds a
# chunk header to mmapped_mem that no mapping has; before that it was whole pages, and 0 without blocks.
_DRIFT = 4096


def _is_possible(values: dict[str, int], page: int) -> bool:
    """Whether the members keep what malloc keeps between them."""
    count, most = values["n_mmaps"], values["max_n_mmaps"]
    mapped, mapped_most = values["mmapped_mem"], values["max_mmapped_mem"]
    huge = [values.get("thp_pagesize", 0), values.get("hp_pagesize", 0)]
    return (
        0 <= count <= most
        and mapped <= mapped_most
        and (most == 0) == (mapped_most == 0)
        and mapped % page < _DRIFT
        and mapped >= count * page
        and values["n_mmaps_max"] >= 0
        and values["no_dyn_threshold"] in (0, 1)
        and all(size & (size - 1) == 0 and size < _PAGE_LIMIT for size in huge)
        and 0 <= values.get("thp_mode", 0) <= 3
        and 1 <= values.get("tcache_bins", 1) <= 76  # the tunable for the largest size leaves one
        and values.get("tcache_count", 0) <= 0xFFFF
        and values.get("tcache_max_bytes", 0) <= 8 << 20
    )


def _votes(values: dict[str, int], bases: Sequence[int], word: int) -> Iterator[int]:
    """Iterate over what speaks for it: what is so in most processes, and what hardly is by chance."""
    yield 2 * (values["sbrk_base"] in bases)
    yield 2 * (values["n_mmaps_max"] == _DEFAULT_MMAPS_MAX)
    yield values["max_n_mmaps"] <= values["n_mmaps_max"]
    yield 2 * (values["mmapped_mem"] > 0)
    yield (values["n_mmaps"] == 0) == (values["mmapped_mem"] == 0)
    yield values["arena_test"] == (8 if word == 8 else 2)
    yield values["arena_max"] < 1 << 16
    yield values["trim_threshold"] >= values["mmap_threshold"]
    yield values["mmap_threshold"] >= 4096
    yield values["top_pad"] == 0x20000
    yield values["top_pad"] % 16 == 0


def _tcache_votes(values: dict[str, int], abi: Abi) -> Iterator[int]:
    """Iterate over how well ``tcache_bins`` and ``tcache_max_bytes``, which are set together, agree."""
    if "tcache_bins" in values:
        sizes = sizes_for(abi, alignments(abi)[0])
        largest = values["tcache_bins"] - 1
        chunk = sizes.minimum + largest * sizes.alignment
        limit = values["tcache_max_bytes"]
        # A request up to 2.41, then a chunk size, then one beyond a chunk size.
        yield 3 * (chunk - sizes.word - sizes.alignment < limit <= chunk + 1)
        yield values["tcache_count"] in (7, 16)
