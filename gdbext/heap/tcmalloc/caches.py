"""Which objects are free, and where they wait: on their span's list, in the transfer cache, in threads' caches.

All lists are plain words, the first of each free object; they are walked at once by the kernel of chains. A span's own
count is of the objects that are not on its list: in use, or in one of the caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.tcmalloc.layouts import CENTRAL_STRIDE
from gdbext.heap.tcmalloc.model import (
    I64,
    IN_SPAN,
    IN_THREAD,
    IN_TRANSFER,
    PROGRAM,
    U64,
    Mask,
    Tcmalloc,
)
from gdbext.kernels import Chains, LinkRules, walk_chains
from gdbext.memory.bulk import for_each_written_view
from gdbext.memory.intervals import Intervals, joined
from gdbext.progress import Progress
from gdbext.report import Problem

COUNTED = "free-count"  # the kind of problem that a thread in the middle of its work may cause

_WORD = 8
_NULL, _LIMIT, _OUTSIDE, _CYCLE = 0, 4, 6, 5  # why a chain ended, in the numbers of gdbext.kernels.chains


@dataclass(frozen=True)
class Lists:
    """Lists of free objects that are alike.

    :param where: which holder they are of.
    :param owner: address of each list's owner: its span, central list or thread cache.
    :param sizeclass: of each.
    :param first: its first object.
    :param count: how many its owner says it holds.
    """

    where: int
    owner: U64
    sizeclass: U64
    first: U64
    count: U64


def read_caches(heap: Tcmalloc, progress: Progress) -> None:
    """Find out where each object is, and what is wrong with the lists."""
    spans = heap.spans
    sizes = np.array(heap.location.classes, np.uint64)
    known = np.minimum(spans.sizeclass, len(sizes) - 1)
    capacity = np.where(spans.slabs, spans.size // np.maximum(sizes[known], 8), 0).astype(np.int64)
    heap.first = np.concatenate((np.zeros(1, np.int64), np.cumsum(capacity)))
    heap.held = np.full(int(heap.first[-1]), PROGRAM, np.uint8)
    memory = list(_memory(heap))
    for done, lists in enumerate((_of_spans(heap, capacity), _of_transfer(heap), _of_threads(heap))):
        progress.at("tcmalloc free objects", done, 3)
        _walk(heap, lists, memory)


def _memory(heap: Tcmalloc) -> Iterator[Tuple[int, object]]:
    """Iterate over the memory of all objects, as far as it was written."""
    slabs: Intervals = (heap.spans.start[heap.spans.slabs], (heap.spans.start + heap.spans.size)[heap.spans.slabs])
    for low, high in zip(*(column.tolist() for column in joined(slabs))):
        yield from for_each_written_view(heap.target.memory, low, high, heap.target.abi.page_size)


def _of_spans(heap: Tcmalloc, capacity: I64) -> Lists:
    picked = np.flatnonzero(capacity)
    spans = heap.spans.select(picked)
    count = capacity[picked].astype(np.uint64) - np.minimum(spans.refcount, capacity[picked].astype(np.uint64))
    return Lists(IN_SPAN, spans.at, spans.sizeclass, spans.objects, count)


def _of_transfer(heap: Tcmalloc) -> Lists:
    """Return the slots of the transfer cache: each holds as many objects as its class moves at once."""
    location, layout, reader = heap.location, heap.location.layouts.central, heap.target.reader
    rows: List[Tuple[int, int, int, int]] = []
    for number in range(1, len(location.classes)):
        central = location.central + CENTRAL_STRIDE * number
        try:
            slots = layout.read(reader, central, "used_slots")
            for at in range(min(slots, 64)):
                head = reader.word(central + layout.offset("tc_slots") + 2 * _WORD * at)
                rows.append((central, number, head, location.moved[number]))
        except FaultError as fault:
            _lose(heap, fault, f"the central list of class {number}")
    return _lists(IN_TRANSFER, rows)


def _of_threads(heap: Tcmalloc) -> Lists:
    rows: List[Tuple[int, int, int, int]] = []
    for cache in heap.location.caches or ():
        try:
            words = heap.target.reader.words(cache, 4 * len(heap.location.classes), "tcmalloc's ThreadCache")
        except FaultError as fault:
            _lose(heap, fault, f"the thread cache {cache:#x}")
            continue
        used = (number for number in range(1, len(heap.location.classes)) if words[4 * number])
        rows += [(cache, number, words[4 * number], words[4 * number + 1] & 0xFFFFFFFF) for number in used]
    return _lists(IN_THREAD, rows)


def _lists(where: int, rows: List[Tuple[int, int, int, int]]) -> Lists:
    table = np.array(rows, np.uint64).reshape(-1, 4)
    return Lists(where, *(table[:, column].copy() for column in range(4)))


def _lose(heap: Tcmalloc, fault: FaultError, what: str) -> None:
    lacks = heap.target.lacks(fault.address, fault.size)
    heap.complete = False
    kind = "absent-memory" if lacks else "free-object"
    heap.problems.append(Problem(kind, fault.address, f"{what} cannot be read", corruption=not lacks))


def _walk(heap: Tcmalloc, lists: Lists, memory: "List[Tuple[int, object]]") -> None:
    """Follow some lists and mark their objects."""
    if not len(lists.first):
        return
    rules = LinkRules(0, _WORD, heap.target.abi.byteorder)
    # One more than its owner counts: what goes on is seen. A slot of the transfer cache ends by its count alone.
    most = lists.count + np.uint64(0 if lists.where == IN_TRANSFER else 1)
    chains = walk_chains(memory, lists.first, None, rules, most, len(heap.held) + len(lists.first))
    row, sound = _rows(heap, chains.nodes, np.repeat(lists.sizeclass, chains.lengths.astype(np.intp)))
    again = np.zeros(len(row), np.bool_)
    again[sound] = _seen(heap, row[sound])
    heap.held[row[sound & ~again]] = lists.where
    _check(heap, lists, chains, sound, again)


def _rows(heap: Tcmalloc, nodes: U64, sizeclass: U64) -> Tuple[I64, Mask]:
    """Return for each object of a list its position among all, and whether it begins one of its list's class."""
    spans = heap.spans
    at = np.maximum(np.searchsorted(spans.start, nodes, side="right").astype(np.int64) - 1, 0)
    sizes = np.array(heap.location.classes, np.uint64)
    size = np.maximum(sizes[np.minimum(sizeclass, len(sizes) - 1)], 8)
    number, rest = np.divmod(nodes - spans.start[at], size)
    capacity = (heap.first[1:] - heap.first[:-1])[at]
    sound = (nodes >= spans.start[at]) & (rest == 0) & (number < capacity.astype(np.uint64))
    sound &= spans.sizeclass[at] == sizeclass
    return heap.first[:-1][at] + number.astype(np.int64), sound


def _seen(heap: Tcmalloc, row: I64) -> Mask:
    """Return which objects stand in a list for a second time."""
    order = np.argsort(row, kind="stable")
    twice = np.zeros(len(row), np.bool_)
    twice[order[1:]] = row[order[1:]] == row[order[:-1]]
    again: Mask = twice | (heap.held[row] != PROGRAM)
    return again


_NAMES = {IN_SPAN: "the list of the span", IN_TRANSFER: "a transfer slot of", IN_THREAD: "the thread cache"}


def _check(heap: Tcmalloc, lists: Lists, chains: Chains, sound: Mask, again: Mask) -> None:
    """Add a problem for each list that its owner counts otherwise, or that leads to what is no object of it."""
    chain = np.repeat(np.arange(len(lists.first)), chains.lengths.astype(np.intp))
    wrong = {int(chain[at]): int(at) for at in np.flatnonzero(~sound | again)[::-1].tolist()}
    ended = np.isin(chains.ends, (_NULL, _LIMIT if lists.where == IN_TRANSFER else _NULL))
    odd = (chains.lengths != lists.count) | (~ended & (chains.lengths > 0))
    for at in sorted({*np.flatnonzero(odd).tolist(), *wrong}):
        where = f"{_NAMES[lists.where]} {int(lists.owner[at]):#x}"
        node = wrong.get(at)
        _add(heap, lists, chains, at, where, None if node is None else (int(chains.nodes[node]), bool(again[node])))


def _add(heap: Tcmalloc, lists: Lists, chains: Chains, at: int, where: str, node: "Optional[Tuple[int, bool]]") -> None:
    last = int(chains.last[at])
    kind = "free-object"
    if node is not None and node[1]:
        kind, address = "double-free", node[0]
        message = f"{where} holds {address:#x}, which is free already: freed twice"
    elif node is not None:
        message, address = f"{where} holds {node[0]:#x}, which begins no object of its class", node[0]
    elif chains.ends[at] == _CYCLE:
        kind, message, address = "double-free", f"{where} runs into a cycle at {last:#x}: freed twice", last
    elif chains.ends[at] == _OUTSIDE and heap.target.lacks(last, _WORD):
        heap.complete = False
        heap.problems.append(Problem("absent-memory", last, f"{where} goes on at {last:#x}, which the core lacks"))
        return
    elif chains.ends[at] == _OUTSIDE:
        message, address = f"{where} leads to {last:#x}, which is in no span", last
    else:
        found = "more" if chains.lengths[at] > lists.count[at] else str(int(chains.lengths[at]))
        message = f"{where} holds {found} objects of {int(lists.count[at])} that are counted"
        heap.problems.append(Problem(COUNTED, int(lists.owner[at]), message, corruption=True))
        return
    heap.problems.append(Problem(kind, address, message, corruption=True))
