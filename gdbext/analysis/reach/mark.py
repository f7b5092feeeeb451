"""From heaps and roots to the state of every live block."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, Sequence, Tuple

import numpy as np

from gdbext.analysis.blocks.summary import require_heaps
from gdbext.analysis.reach.code import scan_code
from gdbext.analysis.reach.graph import KNOWN, MARKING, Reach, check_room
from gdbext.analysis.reach.headers import Header, Headers, Leads, find_headers, leads_of, with_headers
from gdbext.analysis.reach.model import (
    STACK,
    LiveBlocks,
    Marked,
    Missing,
    Reading,
    RootHits,
    RootRange,
    Roots,
    states_by_roots,
)
from gdbext.analysis.reach.roots import read_roots
from gdbext.errors import FaultError, TooLargeError
from gdbext.heap.model import U8, U64, USED_STATES, Heap
from gdbext.kernels import (
    REACHED,
    BlockIndex,
    Hits,
    PointerRules,
    Span,
    mark_blocks,
    scan_pointers,
)
from gdbext.memory import for_each_written, knows_written, view
from gdbext.memory.bulk import closed, for_each_view, for_each_written_view
from gdbext.memory.intervals import I64, Coverage, columns, slices, subtract, unite
from gdbext.memory.room import give_back
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target
from gdbext.wording import count_text, size_text

_GAP = 1 << 16  # bytes between two blocks that are not worth a span of their own
_AT_ONCE = 1 << 28  # bytes of one span: what is not lent is copied


def read_reach(
    target: Target,
    heaps: Sequence[Heap],
    reading: Reading,
    progress: Progress,
    most_copied: int = 0,
    most_taken: int = 0,
) -> Reach:
    """Return what can be reached from the roots of a target.

    :param reading: what counts as a pointer.
    :param most_copied: bytes of memory that may be copied; 0 is any number. A core that is mapped is not copied.
    :param most_taken: bytes of our own memory that may be taken; 0 is nine tenths of what is free.
    :raises NoHeapError: when there is no heap.
    :raises TooLargeError: when more would have to be copied, or taken.
    :raises KeyboardInterrupt: when stopped: half a marking would call leaked what is not.
    """
    require_heaps(heaps)
    if any(heap.interrupted for heap in heaps):
        raise KeyboardInterrupt
    rules = PointerRules(target.abi.pointer_size, target.abi.byteorder, reading.clear, reading.mangled)
    _check_unknown(target, most_copied)
    progress.at("looking for roots", 0, None)
    roots = read_roots(target, heaps)
    known = sum(len(heap.blocks) for heap in heaps)
    check_room(known, MARKING, "following pointers", most_taken, KNOWN * known)
    blocks, problems = live_blocks(heaps)
    _check_bytes(copied_bytes(target, roots, blocks.index) if most_copied else 0, most_copied)
    hits, leads, unread = _hits(target, roots, blocks.index, rules)
    spans, lost = _block_spans(target, heaps, blocks.index)
    progress.at("following pointers", 0, None)
    live = np.broadcast_to(np.bool_(True), len(blocks))
    states = mark_blocks(spans, blocks.index, rules, live, states_by_roots(len(blocks), hits))
    whole = Roots(roots.ranges, roots.words, [*roots.missing, *unread, *lost])
    marked = Marked(blocks, whole, hits, spans, states, problems)
    found = find_headers(spans, blocks.index, rules, states, leads) if reading.headers else ()
    if found:
        rules = with_headers(rules, found)
        marked = _marked_with_headers(marked, rules, found, leads)
    give_back()
    return Reach(target, heaps, marked, rules, progress, most_taken)


def _marked_with_headers(marked: Marked, rules: PointerRules, found: Sequence[Header], leads: Leads) -> Marked:
    """Return the same where pointers behind headers are start pointers; what is leaked stays so."""
    memory, index = marked.hits.memory, marked.blocks.index
    interior = rules.are_interior(leads.into, index.size[leads.row])
    words = [(at, row, bool(inside)) for (at, row, _), inside in zip(marked.hits.words, interior[len(memory) :])]
    hits = RootHits(Hits(memory.place, memory.row, interior[: len(memory)]), words)
    live = np.broadcast_to(np.bool_(True), len(index))
    states = mark_blocks(marked.spans, index, rules, live, states_by_roots(len(index), hits))
    headers = Headers(found, leads, (states == REACHED) & (marked.states != REACHED))
    return replace(marked, hits=hits, states=states, headers=headers)


def copied_bytes(target: Target, roots: Roots, index: BlockIndex) -> int:
    """Return how many bytes of a target's memory a search must copy: 0 where the memory lends them."""
    first = next((one for one in roots.ranges), None)
    try:
        lent = first is None or isinstance(view(target.memory, first.start, 1), memoryview)
    except FaultError:
        lent = False
    if lent:
        return 0
    wanted = [*((one.start, one.end) for one in roots.ranges), *_stretches(index)]
    return sum(high - low for part in wanted for low, high in closed(for_each_written(target.memory, *part)))


def _check_unknown(target: Target, most: int) -> None:
    """Refuse what is too large before roots are looked for, where nobody knows what was never touched."""
    if most and target.live and not knows_written(target.memory):
        regions = target.memory.regions()
        _check_bytes(sum(one.size for one in regions if one.anonymous and one.writable and one.readable), most)


def _check_bytes(wanted: int, most: int) -> None:
    if wanted > most:
        hint = "let the process go on and ask a core of it (gcore), or set gx copied-memory higher (0: no limit)"
        raise TooLargeError(f"{size_text(wanted)} of the process would be copied to be searched for pointers", hint)


def live_blocks(heaps: Sequence[Heap]) -> Tuple[LiveBlocks, Sequence[Problem]]:
    """Return the blocks in use of all heaps in address order, and what is wrong with them."""
    parts = [_live_of(heap) for heap in heaps]
    address, size = parts[0] if len(parts) == 1 else (np.concatenate(each) for each in zip(*parts))
    number: U8 = np.broadcast_to(np.uint8(0), len(address))
    if len(heaps) > 1:
        number = np.repeat(np.arange(len(heaps), dtype=np.uint8), [len(each) for each, _ in parts])
        order = np.argsort(address, kind="stable")
        address, size, number = address[order], size[order], number[order]
    kept = np.ones(len(address), np.bool_)
    kept[1:] = address[1:] > address[:-1]
    if not kept.all():
        address, size, number = address[kept], size[kept], number[kept]
    cut = _cut_short(address, size)
    odd = len(cut) + len(kept) - len(address)
    if not odd:
        return LiveBlocks(BlockIndex(address, size), number), []
    where = int(address[cut[0]]) if len(cut) else None
    message = f"{count_text(odd, 'block')} taken for shorter than the heap says: they overlap what follows"
    problem = Problem("overlapping-blocks", where, message)
    return LiveBlocks(BlockIndex(address, size), number), [problem]


def _live_of(heap: Heap) -> Tuple[U64, U64]:
    """Return address and size of a heap's blocks in use."""
    used = heap.blocks.having(USED_STATES)
    return heap.blocks.address[used], heap.blocks.size[used]


def _cut_short(address: U64, size: U64) -> I64:
    """Let every block end where the next begins, at the latest; return those that did not."""
    cut: List[I64] = [np.empty(0, np.int64)]
    for part in slices(len(address)):
        nexts = np.append(address[part.start + 1 : part.stop + 1], ~np.uint64(0))[: part.stop - part.start]
        room = nexts - address[part]
        over = np.flatnonzero(size[part] > room)
        size[part][over] = room[over]
        cut.append(over + part.start)
    return np.concatenate(cut)


def _hits(
    target: Target, roots: Roots, index: BlockIndex, rules: PointerRules
) -> Tuple[RootHits, Leads, Sequence[Missing]]:
    spans, lost = _root_spans(target, [one for one in roots.ranges if not one.code])
    code, lost_code = _root_spans(target, [one for one in roots.ranges if one.code])
    plain, immediates = scan_pointers(spans, index, rules), scan_code(code, index, rules, target.abi.machine)
    values = np.array([word.value & ~rules.clear for word in roots.words], np.uint64)
    rows = index.find(values)
    at = np.flatnonzero(rows >= 0)
    of_words = Leads(rows[at], values[at] - index.address[rows[at]])
    words = [(int(word), int(row), bool(into)) for word, row, into in zip(at, of_words.row, of_words.into)]
    leads = leads_of(spans, plain, index, rules) + leads_of(code, immediates, index, rules._replace(mangled=False))
    return RootHits(_joined(plain, immediates), words), leads + of_words, [*lost, *lost_code]


def _joined(one: Hits, other: Hits) -> Hits:
    place, row = np.concatenate((one.place, other.place)), np.concatenate((one.row, other.row))
    return Hits(place, row, np.concatenate((one.interior, other.interior)))


def _root_spans(target: Target, ranges: Sequence[RootRange]) -> Tuple[List[Span], List[Missing]]:
    spans: List[Span] = []
    missing = []
    for one in ranges:
        unread = sum(end - start for start, end in _add_spans(target, spans, one.start, one.end))
        if unread and not (target.live and unread < one.size):  # a process may have a guard in the midst of a mapping
            missing.append(Missing(f"{one.name} (not readable)", unread, one.start))
        elif one.kind == STACK and not target.live and _is_blank(target, one):  # gdb's gcore of such a mapping
            missing.append(Missing(f"{one.name} (only zeros in the core)", one.size, one.start))
    return spans, missing


def _is_blank(target: Target, one: RootRange) -> bool:
    parts = for_each_written_view(target.memory, one.start, one.end, target.abi.page_size)
    return not any(np.frombuffer(data, np.uint8).any() for _, data in parts)


def _block_spans(
    target: Target, heaps: Sequence[Heap], index: BlockIndex
) -> Tuple[List[Span], List[Missing]]:
    """Return the memory that blocks lie in, without what lies far from any, and what allocators have for themselves."""
    spans: List[Span] = []
    word = target.abi.pointer_size
    own = unite([columns([piece for heap in heaps for piece in heap.metadata])]).covered
    starts, ends, _ = subtract(Coverage(*columns(_stretches(index))), own)
    lost = [
        part
        for start, end in zip(starts.tolist(), ends.tolist())
        for part in _add_spans(target, spans, start - start % word, end)
    ]
    unread = _unread_bytes(lost, index, own) if lost else 0  # between blocks other memory may be, or none
    if not unread:
        return spans, []
    return spans, [Missing(f"{size_text(unread)} of the heap's own memory", unread)]


def _unread_bytes(lost: Sequence[Tuple[int, int]], index: BlockIndex, own: Coverage) -> int:
    """Return how many bytes of blocks are lost; those that allocators have for themselves do not count."""
    starts, ends, _ = subtract(unite([columns(lost)]).covered, own)
    return Coverage(starts, ends).within(index.address, index.address + index.size)


def _stretches(index: BlockIndex) -> List[Tuple[int, int]]:
    if not len(index):
        return []
    found = []
    for part in slices(len(index) - 1):
        gaps = index.address[part.start + 1 : part.stop + 1] - (index.address[part] + index.size[part])
        found.append(np.flatnonzero(gaps > np.uint64(_GAP)) + part.start)
    lasts = np.append(np.concatenate([np.empty(0, np.int64), *found]), len(index) - 1)
    firsts = np.append(0, lasts[:-1] + 1)
    return list(zip(index.address[firsts].tolist(), (index.address[lasts] + index.size[lasts]).tolist()))


def _add_spans(target: Target, spans: List[Span], start: int, end: int) -> List[Tuple[int, int]]:
    """Add what the target may have written in an interval to ``spans``; return what of it cannot be read."""
    lost, at = [], start
    for region in target.index.within(start, end):
        low, high = max(region.start, start), min(region.end, end)
        lost += [(at, low)] if at < low else []
        at = high
        if not region.readable:
            lost.append((low, high))
            continue
        for first, behind in closed(for_each_written(target.memory, low, high)):
            lost += _read_into(target, spans, first, behind)
    return [*lost, (at, end)] if at < end else lost


def _read_into(target: Target, spans: List[Span], start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Add what can be read of a stretch to ``spans``; iterate over what cannot."""
    done = start
    for at in range(start, end, _AT_ONCE):
        for place, data in for_each_view(target.memory, at, min(at + _AT_ONCE, end), target.abi.page_size):
            if done < place:
                yield done, place
            spans.append((place, data))
            done = place + len(memoryview(data))
    if done < end:
        yield done, end
