"""What is reachable when only references count: no links of the collector's lists, no weak references, no old words.

The collector's lists link all containers, so that everything is reached through them, and a path along them says
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import numpy as np

from gdbext.analysis.python.objects import I64, Objects
from gdbext.analysis.python.owned import PARTS, Owned
from gdbext.analysis.reach.graph import MARKING, Reach, check_room
from gdbext.analysis.reach.model import Marked, RootHits, states_by_roots
from gdbext.analysis.types.blockwords import Words
from gdbext.heap.cpython.objects.layouts import (
    FREE_BITS,
    FREE_TRACKED,
    GC_HEAD,
    HAVE_GC,
    LIST_ITEMS,
    OB_SIZE,
    WEAKREF_OBJECT,
)
from gdbext.heap.model import U64, Mask
from gdbext.kernels import MOST_HEADERS, Hits, PointerRules, Span, mark_blocks
from gdbext.memory.intervals import columns, unite

_FLAGS = 3  # of the collector's links: states of an object, and of a collection
_WEAK = ("weakref", "weakref.ReferenceType", "weakref.KeyedRef", "weakproxy", "weakref.ProxyType", "weakcallableproxy")
_PLAIN = ("str", "bytes", "int", "float", "complex")  # without references
_MOST_WORDS = 1 << 14  # of an object whose words are sorted out
_COPY = 3  # bytes of memory for each of a block: copies are made of most, and a list of words


def strong_reach(reach: Reach, words: Words, objects: Objects, owned: Owned, most_taken: int = 0) -> Reach:
    """Return what is reachable by references alone.

    :param most_taken: bytes of our own memory that may be taken; 0 is nine tenths of what is free.
    :raises TooLargeError: there is not enough memory for a copy.
    """
    each = MARKING + _COPY * int(reach.size.sum()) // max(len(reach), 1)
    check_room(len(reach), each, "copying objects and following pointers", most_taken)
    tracked, links = find_tracked(words, objects)
    weak = _weak_words(words, objects, np.flatnonzero(objects.named(*_WEAK)))
    unused = _unused_words(words, objects, owned)
    hidden = np.sort(np.concatenate((links, links + np.uint64(words.size), weak, unused)))
    rules = _rules(reach, objects)
    hits = _without_unused(words, objects, _without_heads(reach, words, tracked, links))
    hits = _behind_headers(words, hits, rules)
    marked = _marked(reach, hits, rules, hidden)
    return Reach(reach.target, reach.heaps, marked, rules, reach.progress, most_taken)


def _rules(reach: Reach, objects: Objects) -> PointerRules:
    """Return the rules by which pointers to objects are start pointers, whatever stands before them in their blocks."""
    head = objects.reader.head
    before = [int(one) - head for one in np.unique(objects.before[objects.code > 0]).tolist()]
    known = [one * reach.rules.word for one in before if one]
    headers = dict.fromkeys([*known, *reach.rules.headers])
    return reach.rules._replace(headers=tuple(headers)[:MOST_HEADERS])


def _without_heads(reach: Reach, words: Words, tracked: I64, links: U64) -> RootHits:
    """Return the pointers of roots without the heads of the collector's lists."""
    memory = reach.marked.hits.memory
    kept = ~_are_heads(words, memory, tracked[: len(links)], links)
    return RootHits(_where(memory, kept), reach.marked.hits.words)


def _without_unused(words: Words, objects: Objects, hits: RootHits) -> RootHits:
    """Return the same without what is left behind the top of functions' evaluation stacks."""
    from gdbext.analysis.python.running import Running

    pieces = Running(words.target, objects.reader).for_each_unused()
    kept = ~unite([columns([piece for piece in pieces if piece[1]])]).covered.holds(hits.memory.place)
    return RootHits(_where(hits.memory, kept), hits.words)


def _where(memory: Hits, kept: Mask) -> Hits:
    return Hits(memory.place[kept], memory.row[kept], memory.interior[kept])


def _behind_headers(words: Words, hits: RootHits, rules: PointerRules) -> RootHits:
    """Return the same, where those to what follows a header are start pointers."""
    memory = hits.memory
    values, known = words.pointers(memory.place)
    into = values - words.index.address[memory.row]
    interior = memory.interior & (~known | rules.are_interior(into, words.index.size[memory.row]))
    return RootHits(Hits(memory.place, memory.row, interior), hits.words)


def find_tracked(words: Words, objects: Objects) -> Tuple[I64, U64]:
    """Return the rows of the objects that are in the collector's lists, and where their links are."""
    rows = np.flatnonzero(objects.having(HAVE_GC))
    if objects.reader.head:
        return rows[_have_bit(words, objects, rows)], np.empty(0, np.uint64)
    offset = (objects.before[rows].astype(np.int64) - GC_HEAD) * words.size
    links: U64 = words.index.address[rows] + offset.astype(np.uint64)
    values, known = words.in_blocks(links)
    kept = known & (values & np.uint64(~_FLAGS & (1 << 64) - 1) != 0)
    return rows[kept], links[kept]


def _have_bit(words: Words, objects: Objects, rows: I64) -> Mask:
    """Return which objects the collector tracks: without the global lock a bit says so, and there are no lists."""
    offset = objects.before[rows].astype(np.int64) * words.size + FREE_BITS
    bits, known = words.in_blocks(words.index.address[rows] + offset.astype(np.uint64), 1)
    found: Mask = known & (bits & np.uint64(FREE_TRACKED) != 0)
    return found


def _weak_words(words: Words, objects: Objects, rows: I64) -> U64:
    """Return where weak references keep the object that they lead to."""
    offset = (objects.before[rows].astype(np.int64) + WEAKREF_OBJECT) * words.size
    places: U64 = words.index.address[rows] + offset.astype(np.uint64)
    return places


def _unused_words(words: Words, objects: Objects, owned: Owned) -> U64:
    """Return the words that no object uses: behind its end, in freed ones, and whatever numbers and text have in them.

    What was there before is not cleared, and may be a pointer to what has become garbage. What instructions have cached
    is borrowed.
    """
    layout, size = objects.reader.layout, words.size
    plain = np.flatnonzero(objects.named(*_PLAIN) | objects.kept)
    fixed = np.flatnonzero(objects.among(np.array([one is not None and one.fixed for one in objects.types])))
    lengths = np.array([0 if one is None else -(-one.size // size) for one in objects.types], np.int64)
    tuples = np.flatnonzero(objects.named("tuple"))
    lists = np.flatnonzero(owned.part == PARTS.index("list items"))
    lists = lists[_begin(words, objects, owned, lists)]
    codes = np.flatnonzero(objects.named("code")) if layout is not None and layout.instructions else tuples[:0]
    items = 3 if layout is None else layout.tuple_items // size
    ends = (
        objects.before[plain].astype(np.int64) + 2,
        objects.before[fixed].astype(np.int64) + lengths[objects.code[fixed]],
        objects.before[tuples].astype(np.int64) + items + _lengths(words, objects, tuples),
        _lengths(words, objects, owned.owner[lists].astype(np.int64)),
        objects.before[codes].astype(np.int64) + (0 if layout is None else layout.instructions // size),
    )
    rows, end = np.concatenate((plain, fixed, tuples, lists, codes)), np.concatenate(ends)
    room = words.index.size[rows].astype(np.int64) // size
    count = np.where((room <= _MOST_WORDS) & (end >= 0), room - end, 0).clip(0)
    begin = words.index.address[rows] + (end * size).astype(np.uint64)
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    places: U64 = np.repeat(begin, count) + (within * size).astype(np.uint64)
    return places


def _begin(words: Words, objects: Objects, owned: Owned, lists: I64) -> Mask:
    """Return which blocks of items begin with the first: in debug mode a fence does."""
    owners = owned.owner[lists].astype(np.int64)
    offset = (objects.before[owners].astype(np.int64) + LIST_ITEMS) * words.size
    values, known = words.in_blocks(words.index.address[owners] + offset.astype(np.uint64))
    found: Mask = known & (values == words.index.address[lists])
    return found


def _lengths(words: Words, objects: Objects, rows: I64) -> I64:
    """Return ``ob_size`` of objects."""
    offset = (objects.before[rows].astype(np.int64) + OB_SIZE) * words.size
    values, known = words.in_blocks(words.index.address[rows] + offset.astype(np.uint64))
    return np.where(known & (values < np.uint64(1 << 40)), values, np.uint64(1 << 40)).astype(np.int64)


def _marked(reach: Reach, hits: RootHits, rules: PointerRules, hidden: U64) -> Marked:
    """Return the live blocks with their states where some words are no pointers.

    :param hidden: addresses of the words, sorted.
    """
    live = np.ones(len(reach), np.bool_)
    spans = [_without(span, hidden, rules.word) for span in reach.marked.spans]
    states = mark_blocks(spans, reach.marked.blocks.index, rules, live, states_by_roots(len(reach), hits))
    return replace(reach.marked, hits=hits, spans=spans, states=states)


def _are_heads(words: Words, memory: Hits, tracked: I64, links: U64) -> Mask:
    """Return which pointers of roots are heads of the collector's lists: what they lead to leads back to them."""
    place_of = np.full(len(words.index), np.uint64(0), np.uint64)
    place_of[tracked] = links
    link = place_of[memory.row]
    found = link != 0
    at, size = link[found], np.uint64(words.size)
    clear = np.uint64(~_FLAGS & (1 << 64) - 1)
    after, before = (words.in_blocks(places)[0] & clear for places in (at, at + size))
    places = memory.place[found]
    found[found] = (before == places) | (after + size == places)
    heads: Mask = found
    return heads


def _without(span: Span, hidden: U64, word: int) -> Span:
    """Return memory with zeros for some words; the same where it has none of them."""
    start, data = span
    size = memoryview(data).nbytes  # type: ignore[arg-type]
    low, high = np.searchsorted(hidden, np.array([start, start + max(size - word + 1, 0)], np.uint64)).tolist()
    if low == high:
        return span
    copy = np.frombuffer(data, np.uint8).copy()  # type: ignore[call-overload]
    at = (hidden[low:high] - np.uint64(start)).astype(np.int64)
    for step in range(word):
        copy[at + step] = 0
    return start, copy
