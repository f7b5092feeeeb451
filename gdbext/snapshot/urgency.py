"""What is copied first where there may not be time for all: what an analysis cannot do without.

Roots first: registers' stacks and thread-local memory, writable memory of modules with their ``.bss``. Then what
allocators know of their heaps, as far as its place is known without reading: glibc has it in ``main_arena`` (a
variable), at the head of the brk heap and of each 64 MiB of another arena (``malloc/arena.c``, ``HEAP_MAX_SIZE``), next
to what each first allocated; others at the head of mappings, or where their variables point to: arenas of jemalloc,
nodes of radix trees, and descriptors of memory, to which those point.
"""

from __future__ import annotations

from typing import Iterator, Sequence, Tuple

import numpy as np

from gdbext.memory.elf.corenotes import NT_386_TLS, NT_ARM_TLS, NT_PRSTATUS
from gdbext.memory.intervals import (
    U64,
    Coverage,
    Intervals,
    columns,
    distinct,
    joined,
    merged,
    shared,
    subtract,
)
from gdbext.memory.live.copying import CopyFile, copy_pages
from gdbext.memory.live.mappings import PAGE, Mapping
from gdbext.tracing.tracer import StoppedThread

_SMALL = 4 << 20  # bytes in RAM: an arena's head, tables of an allocator
_HEAD = 64 << 10  # bytes of a head: the arena, and the first blocks of a thread, its tcache among them
_STEP = 64 << 20  # bytes between the heaps of glibc's arenas; other allocators' are multiples or parts of it
_BELOW, _CLOSE, _ABOVE = 16 << 10, 128 << 10, 1 << 20  # bytes around what a register points to, a frame or not
_ARENA, _NODE = 96 << 10, 2 << 20  # bytes of an arena of jemalloc, a page behind its base_t, and of a node of its tree
_PART, _MOST = 4, 64 << 20  # of all pages, and bytes, that may go before others because something points to them
_ADDRESS = np.uint64((1 << 48) - 1)  # what of a word is an address: radix trees have more in it
_LAST = float(1 << 62)

_Row = Tuple[int, int]  # start and end


def find_pointed(pid: int, file: CopyFile, placed: Intervals, mappings: Sequence[Mapping]) -> Sequence[Coverage]:
    """Return pages that variables point to, and what these point to, as it is while the process runs.

    :param file: whose places for pages are used to read them, before they are copied.
    :param placed: pages that are there and have a place.
    :returns: what is needed most first.
    """
    writable = columns((one.start, one.end) for one in mappings if "w" in one.permissions)
    there = Coverage(*shared(Coverage(*placed), Coverage(*writable))[:2])
    direct = _addresses(pid, file, shared(there, _covered([*_variables(mappings)]))[:2])
    found = [_near(direct, there, _ARENA, PAGE), _near(direct, there, _NODE)]
    indirect = _addresses(pid, file, (found[0].starts, found[0].ends))
    return [*found, _near(indirect, there, PAGE)]


def _addresses(pid: int, file: CopyFile, pages: Intervals) -> U64:
    """Return the words of pages as addresses."""
    copy_pages(pid, file, [pages])
    words = [np.frombuffer(file.at(low, high), np.uint64) for low, high in zip(*(one.tolist() for one in pages))]
    found: U64 = np.concatenate([np.empty(0, np.uint64), *words]) & _ADDRESS
    return found


def _near(addresses: U64, there: Coverage, size: int, before: int = 0) -> Coverage:
    """Return the pages up to so many bytes behind addresses, and before them; none where these are too many."""
    pages = distinct(addresses[there.holds(addresses)] // np.uint64(PAGE) * np.uint64(PAGE))
    near = joined(merged((pages - np.uint64(before), pages + np.uint64(size))))
    found = Coverage(*joined(shared(there, Coverage(*near))[:2]))
    return found if found.bytes <= min(there.bytes // _PART, _MOST) else Coverage(*columns([]))


def in_order(
    pages: Intervals, mappings: Sequence[Mapping], threads: Sequence[StoppedThread], pointed: Sequence[Coverage]
) -> Intervals:
    """Return runs of pages in the order in which they are to be copied.

    Roots come first, then heads of mappings, what is pointed to, and the others, those with less in RAM before. More of
    what registers point to than is close waits for arenas: it may be blocks. Memory that cannot be written to is last:
    files have it.
    """
    home, left = Coverage(*columns((one.start, one.end) for one in mappings)), Coverage(*pages)
    close, wide = _around(_words(threads), home, mappings)
    roots, arenas, others = _covered([*_variables(mappings), *close]), pointed[:1], pointed[1:]
    parts = []
    for first in (roots, _heads(pages, mappings), *arenas, _covered(wide), *others):
        parts.append(shared(left, first)[:2])
        left = Coverage(*subtract(left, first)[:2])
    starts, ends, _ = shared(left, home)
    rank = np.array([_rank(one) for one in mappings], np.float64)
    order = np.argsort(rank[home.index(starts)], kind="stable")
    parts.append((starts[order], ends[order]))
    return np.concatenate([one[0] for one in parts]), np.concatenate([one[1] for one in parts])


def _covered(rows: Sequence[_Row]) -> Coverage:
    return Coverage(*joined(merged(columns(rows))))


def _variables(mappings: Sequence[Mapping]) -> Iterator[_Row]:
    """Iterate over stacks that have the name, writable memory of files, and what is zeros at first behind it."""
    end, bare = 0, False
    for one in mappings:
        bare = one.start == end and bare and not one.inode and one.name in ("", "[anon:.bss]")
        of_file = one.inode and not one.shared
        if "w" in one.permissions and (of_file or bare or one.name == "[stack]"):
            yield one.start, one.end
        end, bare = one.end, bool(of_file)


def _words(threads: Sequence[StoppedThread]) -> U64:
    """Return what may be an address in the registers of threads; of 32 bits, where the program may be of such."""
    data = [one.sets.get(kind, b"") for one in threads for kind in (NT_PRSTATUS, NT_ARM_TLS, NT_386_TLS)]
    wide = [np.frombuffer(one[: len(one) // 8 * 8], np.uint64) for one in data]
    narrow = [np.frombuffer(one[: len(one) // 4 * 4], np.uint32).astype(np.uint64) for one in data]
    found: U64 = np.unique(np.concatenate([np.empty(0, np.uint64), *wide, *narrow]))
    return found


def _around(words: U64, home: Coverage, mappings: Sequence[Mapping]) -> "Tuple[Sequence[_Row], Sequence[_Row]]":
    """Return what is close to where registers point to, and more of it: small mappings as a whole."""
    close, wide = [], []
    at = home.index(words)
    for address, number in zip(words[at >= 0].tolist(), at[at >= 0].tolist()):
        one = mappings[number]
        if "w" in one.permissions:
            close.append(_cut(one, address, _CLOSE))
            wide.append((one.start, one.end) if one.rss <= _SMALL else _cut(one, address, _ABOVE))
    return close, wide


def _cut(mapping: Mapping, address: int, above: int) -> _Row:
    low, high = (address - _BELOW) // PAGE * PAGE, (address + above) // PAGE * PAGE
    return max(mapping.start, low), min(mapping.end, high)


def _heads(pages: Intervals, mappings: Sequence[Mapping]) -> Coverage:
    """Return the heads of memory that is no file's, and of what is aligned as heaps of arenas are where pages are."""
    own = np.array([one.start for one in mappings if "w" in one.permissions and not one.inode], np.uint64)
    step = np.uint64(_STEP)
    first = pages[0] // step
    counts = ((pages[1] - np.uint64(1)) // step - first + np.uint64(1)).astype(np.int64)
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    aligned = (np.repeat(first, counts) + number.astype(np.uint64)) * step
    places = distinct(np.concatenate((own, aligned)))
    return Coverage(*joined(merged((places, places + np.uint64(_HEAD)))))


def _rank(mapping: Mapping) -> float:
    return float(mapping.rss) if "w" in mapping.permissions else _LAST
