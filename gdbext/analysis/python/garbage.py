"""``python garbage``: objects that only the collector still knows: cycles that nothing else leads to.

The collector's lists link all containers, so that everything is reached through them. Here their links do not count,
nor do those of weak references: what is unreachable then, the next full collection frees, unless it is switched off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Sequence, Tuple

import numpy as np

from gdbext.analysis.python.objects import I64, Objects, find_objects
from gdbext.analysis.python.owned import I32, PARTS, Owned, find_owned
from gdbext.analysis.reach.graph import MARKING, Reach, check_room
from gdbext.analysis.reach.model import RootHits, states_by_roots
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.analysis.types.blockwords import Words
from gdbext.errors import NoHeapError
from gdbext.heap.cpython.objects.layouts import GC_HEAD, HAVE_GC, LIST_ITEMS, OB_SIZE, WEAKREF_OBJECT
from gdbext.heap.model import U8, U64, Mask
from gdbext.kernels import NOT_REACHED, Hits, Span, mark_blocks
from gdbext.progress import Progress
from gdbext.report import Kind, Report, column, line, table

_FLAGS = 3  # of the collector's links: states of an object, and of a collection
_WEAK = ("weakref", "weakref.ReferenceType", "weakref.KeyedRef", "weakproxy", "weakref.ProxyType", "weakcallableproxy")
_PLAIN = ("str", "bytes", "int", "float", "complex")  # without references
_MOST_WORDS = 1 << 14  # of an object whose words are sorted out
_COPY = 3  # bytes of memory for each of a block: copies are made of most, and a list of words


@dataclass(frozen=True)
class GarbageRow:
    """The unreachable objects of one type.

    :param name: "module.Class"; of builtins without the module.
    :param objects: that the collector tracks.
    :param bytes: of their blocks and of what each has for itself, as ``total_bytes`` of ``python types``.
    :param sample: address of the first object, as Python's ``id`` has it.
    """

    name: str = column("type")
    objects: int = column("objects", Kind.COUNT)
    bytes: int = column("with what they own", Kind.BYTES)
    sample: int = column("sample", Kind.ADDRESS)


@dataclass(frozen=True)
class PythonGarbage:
    """What ``python garbage`` answers, the type with most bytes first.

    :param tracked: objects in the collector's lists.
    :param objects: of them, those that nothing else leads to.
    :param kept_bytes: of all blocks that are reached through these alone.
    """

    tracked: int = line("tracked by the collector", Kind.COUNT)
    objects: int = line("unreachable", Kind.COUNT)
    kept_bytes: int = line("bytes that only they keep", Kind.BYTES)
    types: Sequence[GarbageRow] = table("Types")


def garbage_report(reach: Reach, most_taken: int, progress: Progress) -> Report:
    """Return the objects that only the collector's lists lead to, by type.

    :param most_taken: bytes of our own memory that may be taken; 0 is nine tenths of what is free.
    :raises NoHeapError: there are no objects of CPython.
    :raises TooLargeError: there is not enough memory for a copy.
    """
    words = Words(reach)
    objects = find_objects(words, np.ones(len(reach), np.bool_), progress)
    if len(objects.types) == 1:
        raise NoHeapError("no objects of CPython in this target", "builds without the global lock are not read")
    each = MARKING + _COPY * int(reach.size.sum()) // max(len(reach), 1)
    check_room(len(reach), each, "copying objects and following pointers", most_taken)
    tracked, links = _tracked(words, objects)
    weak = np.flatnonzero(objects.named(*_WEAK))
    owned = find_owned(words, objects, progress)
    unused = _unused_words(words, objects, owned)
    hidden = np.concatenate((links, links + np.uint64(words.size), _weak_words(words, objects, weak), unused))
    progress.at("following pointers", 0, None)
    states = _states(reach, words, tracked, links, np.sort(hidden))
    lost = (states == NOT_REACHED) & (reach.states != NOT_REACHED)
    found = np.zeros(len(reach), np.bool_)
    found[tracked] = lost[tracked]
    rows = sorted(_rows(reach, objects, found, owned.roots()), key=lambda row: (-row.bytes, row.name))
    kept = int(reach.size[lost].sum())
    return report_on_reach(reach, PythonGarbage(len(tracked), int(np.count_nonzero(found)), kept, rows))


def _tracked(words: Words, objects: Objects) -> Tuple[I64, U64]:
    """Return the rows of the objects that are in the collector's lists, and where their links are."""
    rows = np.flatnonzero(objects.having(HAVE_GC))
    offset = (objects.before[rows].astype(np.int64) - GC_HEAD) * words.size
    links: U64 = words.index.address[rows] + offset.astype(np.uint64)
    values, known = words.in_blocks(links)
    kept = known & (values & np.uint64(~_FLAGS & (1 << 64) - 1) != 0)
    return rows[kept], links[kept]


def _weak_words(words: Words, objects: Objects, rows: I64) -> U64:
    """Return where weak references keep the object that they lead to."""
    offset = (objects.before[rows].astype(np.int64) + WEAKREF_OBJECT) * words.size
    places: U64 = words.index.address[rows] + offset.astype(np.uint64)
    return places


def _unused_words(words: Words, objects: Objects, owned: Owned) -> U64:
    """Return the words that no object uses: behind its end, in freed ones, and whatever numbers and text have in them.

    What was there before is not cleared, and may be a pointer to what has become garbage.
    """
    layout, size = objects.reader.layout, words.size
    plain = np.flatnonzero(objects.named(*_PLAIN) | objects.kept)
    fixed = np.flatnonzero(objects.among(np.array([one is not None and one.fixed for one in objects.types])))
    lengths = np.array([0 if one is None else -(-one.size // size) for one in objects.types], np.int64)
    tuples = np.flatnonzero(objects.named("tuple"))
    lists = np.flatnonzero(owned.part == PARTS.index("list items"))
    lists = lists[_begin(words, objects, owned, lists)]
    items = 3 if layout is None else layout.tuple_items // size
    ends = (
        objects.before[plain].astype(np.int64) + 2,
        objects.before[fixed].astype(np.int64) + lengths[objects.code[fixed]],
        objects.before[tuples].astype(np.int64) + items + _lengths(words, objects, tuples),
        _lengths(words, objects, owned.owner[lists].astype(np.int64)),
    )
    rows, end = np.concatenate((plain, fixed, tuples, lists)), np.concatenate(ends)
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


def _states(reach: Reach, words: Words, tracked: I64, links: U64, hidden: U64) -> U8:
    """Return the states of all rows where some words are no pointers.

    :param hidden: addresses of the words, sorted.
    """
    memory = reach.marked.hits.memory
    kept = ~_are_heads(words, memory, tracked, links)
    hits = RootHits(Hits(memory.place[kept], memory.row[kept], memory.interior[kept]), reach.marked.hits.words)
    live = np.ones(len(reach), np.bool_)
    spans = [_without(span, hidden, words.size) for span in reach.marked.spans]
    return mark_blocks(spans, reach.marked.blocks.index, reach.rules, live, states_by_roots(len(reach), hits))


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


def _rows(reach: Reach, objects: Objects, found: Mask, roots: I32) -> Iterator[GarbageRow]:
    rows = np.flatnonzero(found)
    size = reach.size.astype(np.int64)
    code = np.where(found, objects.code, 0)
    count = np.bincount(code, minlength=len(objects.types))
    bytes_ = np.bincount(code[roots], size, len(objects.types)).astype(np.int64)
    first: List[int] = [0] * len(objects.types)
    for row in rows[::-1].tolist():
        first[int(objects.code[row])] = row
    for number, one in enumerate(objects.types):
        if one is not None and count[number]:
            row = first[number]
            sample = int(reach.address[row]) + int(objects.before[row]) * reach.rules.word
            yield GarbageRow(one.name, int(count[number]), int(bytes_[number]), sample)
