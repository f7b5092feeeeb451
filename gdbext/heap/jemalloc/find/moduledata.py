"""Searches in a module's own data: tables that look the same in every build."""

from __future__ import annotations

from typing import Iterator, Optional

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.find.invariants import read_bin_infos
from gdbext.heap.jemalloc.layouts import Layout
from gdbext.heap.jemalloc.model import U64, BinInfo
from gdbext.heap.jemalloc.sizes import size_classes
from gdbext.memory import Region
from gdbext.memory.bulk import words_at
from gdbext.process import Module
from gdbext.target import Target

_MOST = 64 << 20  # bytes of one region that are searched
_FIRST = 4  # size classes that must stand in a row before a place is looked at


def module_words(target: Target, module: Module, writable: bool) -> Iterator[tuple[int, U64]]:
    """Iterate over a module's data as words, with the address of the first; what cannot be read is left out."""
    for region in target.index.within(module.base, module.end):
        if region.readable and (region.writable or not writable):
            yield from _words_of(target, region)


def _words_of(target: Target, region: Region) -> Iterator[tuple[int, U64]]:
    try:
        yield region.start, words_at(target.memory, target.abi, region.start, min(region.size, _MOST) // 8)
    except FaultError:
        return


def find_bin_infos(target: Target, module: Module, layout: Layout) -> Optional[tuple[BinInfo, ...]]:
    """Return the table of small size classes that lies in a module, or None."""
    stride = layout["bin_info"].size // 8
    sizes = size_classes(_FIRST)
    for start, words in module_words(target, module, writable=False):
        end = len(words) - stride * _FIRST
        if end <= 0:
            continue
        match = np.ones(end, np.bool_)
        for index, size in enumerate(sizes):
            match &= words[index * stride : index * stride + end] == np.uint64(size)
        for at in np.flatnonzero(match).tolist():
            found = read_bin_infos(target, start + 8 * at, layout)
            if found is not None:
                return found
    return None
