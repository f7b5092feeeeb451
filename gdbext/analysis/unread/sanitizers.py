"""Sanitizers: shadow memory and allocators at addresses that each of them fixes, on x86-64.

From LLVM's ``compiler-rt/lib`` at 14 to 18 and gcc's ``libsanitizer`` at 12: ``asan_mapping.h``, ``tsan_platform.h``,
``msan.h``, ``asan_allocator.h``, ``sanitizer_allocator_secondary.h``.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Iterator, Mapping, Sequence, Tuple

from gdbext.analysis.unread.model import Claim, Ground, for_each_exporting
from gdbext.memory.intervals import columns

_ASAN, _TSAN, _MSAN, _LSAN = "__asan_init", "__tsan_init", "__msan_init", "__lsan_init"
_LARGE_WORDS = 3  # of LargeMmapAllocator's Header: map_beg, map_size, size
_HEAPS = ((0x600000000000, 0x640000000000), (0x500000000000, 0x540000000000))
Ranges = Sequence[Tuple[int, int]]
_RANGES: Mapping[str, Mapping[str, Ranges]] = {
    _ASAN: {"shadow": ((0x7FFF8000, 0x10007FFF8000),), "heap": _HEAPS},
    _LSAN: {"heap": _HEAPS},
    _TSAN: {
        "shadow": (
            (0x008000000000, 0x200000000000),
            (0x300000000000, 0x340000000000),
        ),
        "traces": ((0x600000000000, 0x620000000000),),
        "heap": ((0x7B0000000000, 0x7C0000000000), (0x720000000000, 0x730000000000)),
    },
    _MSAN: {
        "shadow": ((0x080000000000, 0x500000000000),),
        "heap": ((0x700000000000, 0x740000000000),),
    },
}


def _find(symbol: str, name: str, ground: Ground) -> Iterator[Claim]:
    for module, _ in for_each_exporting(ground.target, symbol):
        for part, ranges in _RANGES[symbol].items():
            evidence = f"{module.path} exports {symbol}, which has its {part} at {ranges[0][0]:#x}"
            yield Claim(f"{name} {part}", columns(ranges), evidence, part == "heap")
        large = list(_large(ground))
        if large:
            yield Claim(f"{name} heap", columns(large), f"{len(large)} large blocks that begin with their own bounds")
        return


def _large(ground: Ground) -> Iterator[Tuple[int, int]]:
    """Iterate over the mappings of large blocks: neighbours may have become one mapping."""
    page = ground.target.abi.page_size
    for start, end in ground.stretches:
        at = start
        while at < end:
            begin, size, used = ground.words(at, _LARGE_WORDS) or (0, 0, 0)
            if begin != at or size % page or not size or not 0 < used <= size:
                break
            yield at, at + size
            at += size


def finder(symbol: str, name: str) -> Callable[[Ground], Iterator[Claim]]:
    """Return what finds the memory of the sanitizer that defines a symbol."""
    return partial(_find, symbol, name)
