"""Blocks that an object of CPython has for itself: tables of dicts and sets, items of lists, values of instances."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Callable, Iterator, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.python.objects import I64, Objects
from gdbext.analysis.types.blockwords import Words
from gdbext.heap.cpython.objects.layouts import (
    BYTEARRAY_BUFFER,
    DICT_KEYS,
    DICT_SUBCLASS,
    DICT_VALUES,
    FREE_LOCAL,
    FREE_SHIFT,
    LIST_ITEMS,
    LIST_SUBCLASS,
    MANAGED_DICT,
    SET_SMALLTABLE,
    SET_TABLE,
    TAGGED,
    TYPE_SUBCLASS,
    UNICODE_SUBCLASS,
    VALUES_OR_DICT,
)
from gdbext.heap.model import U64, Mask
from gdbext.kernels import find_blocks
from gdbext.memory.intervals import slices
from gdbext.progress import Progress

I32 = npt.NDArray[np.int32]

DICT_OF_INSTANCE = ""  # it is an object itself
PARTS = (DICT_OF_INSTANCE, "dict keys", "dict values", "list items", "set table", "bytearray buffer", "str in UTF-8")
NOBODY = -1

Pointers = Tuple[I64, U64]  # rows of objects, and what a word of each holds


@dataclass(frozen=True)
class Owned:
    """Who owns each row.

    :param owner: row of the object, or -1.
    :param part: position in :data:`PARTS`; 0 where nobody owns it, and for dicts of instances.
    """

    owner: I32
    part: npt.NDArray[np.uint8]

    def roots(self) -> I32:
        """Return for each row the object that owns it in the end: itself, where nobody does."""
        found = np.where(self.owner == NOBODY, np.arange(len(self.owner), dtype=np.int32), self.owner)
        for _ in range(3):  # an instance, its dict, the dict's table
            found = found[found]
        return found


def find_owned(words: Words, objects: Objects, progress: Progress) -> Owned:
    """Return what objects own. What several share belongs to the first; keys that several dicts share to nobody."""
    owned = Owned(np.full(len(objects.code), NOBODY, np.int32), np.zeros(len(objects.code), np.uint8))
    if len(objects.types) == 1:
        return owned
    for number, (what, wanted, pointers) in enumerate(_rules(words, objects)):
        for part in slices(len(objects.code)):
            progress.at("finding what Python's objects own", number, None)
            rows = part.start + np.flatnonzero(wanted[part])
            if len(rows):
                _take(words, objects, owned, PARTS.index(what), pointers(rows))
    return owned


Rule = Tuple[str, Mask, Callable[[I64], Pointers]]


def _rules(words: Words, objects: Objects) -> Iterator[Rule]:
    """Iterate over what is owned: its name, whose it is, and how pointers to it are had from rows."""
    at = partial(_at_word, words, objects)
    dicts, layout = objects.having(DICT_SUBCLASS), objects.reader.layout
    yield "list items", objects.having(LIST_SUBCLASS), partial(at, LIST_ITEMS)
    yield "dict keys", dicts, partial(_keys, words, objects)
    yield "dict values", dicts, partial(at, DICT_VALUES)
    yield "set table", objects.named("set", "frozenset"), partial(_tables, words, objects)
    yield "bytearray buffer", objects.named("bytearray"), partial(at, BYTEARRAY_BUFFER)
    yield DICT_OF_INSTANCE, _with_dicts(objects), partial(_dicts, words, objects)
    if layout is not None:
        yield "str in UTF-8", objects.having(UNICODE_SUBCLASS), partial(_texts, words, objects)
        yield "dict keys", objects.having(TYPE_SUBCLASS), partial(_cached_keys, words, objects)
        managed = objects.having(MANAGED_DICT)
        if layout.attributes == VALUES_OR_DICT:
            yield "dict values", managed, partial(at, -4)
        if layout.attributes == TAGGED:
            yield "dict values", managed, partial(_tagged, words, objects)
        yield DICT_OF_INSTANCE, managed, partial(at, -3)


def _take(words: Words, objects: Objects, owned: Owned, part: int, found: Pointers) -> None:
    """Note what pointers lead to, but for what has an owner; a dict that somebody else holds too is no part.

    What looked like a freed object is none where a live one has it: the beginning of a table is not always written.
    """
    owners, values = found
    at = find_blocks(words.index, values)
    if PARTS[part] == DICT_OF_INSTANCE:
        kept = at >= 0
        kept[kept] = _are_lone_dicts(words, objects, at[kept], values[kept])
    else:
        kept = (at >= 0) & ((objects.code[at] == 0) | objects.kept[at])
    kept[kept] = (owned.owner[at[kept]] == NOBODY) & (at[kept] != owners[kept])
    owned.owner[at[kept]] = owners[kept]
    owned.part[at[kept]] = part
    if PARTS[part] != DICT_OF_INSTANCE:
        objects.forget(at[kept])


def _are_lone_dicts(words: Words, objects: Objects, rows: I64, values: U64) -> Mask:
    """Return which rows are dicts to which there is one reference."""
    size = np.uint64(words.size)
    head = np.uint64(objects.reader.head)
    begins = words.index.address[rows] + (objects.before[rows].astype(np.uint64) - head) * size == values
    found: Mask = objects.having(DICT_SUBCLASS)[rows] & begins
    at = values[found] + head * size
    counts, known = words.in_blocks(at)
    if head:
        local, read = words.in_blocks(at + np.uint64(FREE_LOCAL & (1 << 64) - 1), 4)
        counts, known = (counts >> np.uint64(FREE_SHIFT)) + local, known & read
    found[found] = known & (counts == 1)
    return found


def _places(words: Words, objects: Objects, rows: I64, at: int) -> U64:
    """Return the addresses of a word of objects, counted from where they begin."""
    offset = (objects.before[rows].astype(np.int64) + at) * words.size
    places: U64 = words.index.address[rows] + offset.astype(np.uint64)
    return places


def _at_word(words: Words, objects: Objects, at: int, rows: I64) -> Pointers:
    values, known = words.in_blocks(_places(words, objects, rows, at))
    kept = known & (values != 0)
    return rows[kept], values[kept]


def _keys(words: Words, objects: Objects, rows: I64) -> Pointers:
    """Return the keys of dicts, but for those that a class has for all its instances."""
    rows, values = _at_word(words, objects, DICT_KEYS, rows)
    counts, known = words.read(values)
    kept = known & (counts == 1)
    return rows[kept], values[kept]


def _cached_keys(words: Words, objects: Objects, rows: I64) -> Pointers:
    """Return the keys that classes have for all their instances."""
    room = words.index.size[rows].astype(np.int64) - objects.before[rows].astype(np.int64) * words.size
    parts = [
        _at_word(words, objects, one.cached_keys // words.size, rows[room >= one.heap_type])
        for one in objects.reader.layouts
    ]
    owners, values = zip(*parts)
    return np.concatenate(owners), np.concatenate(values)


def _tables(words: Words, objects: Objects, rows: I64) -> Pointers:
    """Return the tables of sets that do not lie in the set itself."""
    rows, values = _at_word(words, objects, SET_TABLE, rows)
    kept = values != _places(words, objects, rows, SET_SMALLTABLE)
    return rows[kept], values[kept]


def _tagged(words: Words, objects: Objects, rows: I64) -> Pointers:
    """Return the values of instances that have no dict: bit 0 says so."""
    rows, values = _at_word(words, objects, -3, rows)
    kept = values & np.uint64(1) != 0
    return rows[kept], values[kept] + np.uint64(1)


def _texts(words: Words, objects: Objects, rows: I64) -> Pointers:
    """Return the copies in UTF-8 of text that is compact and not ASCII."""
    layout = objects.reader.layout
    assert layout is not None
    states, known = words.in_blocks(_places(words, objects, rows, 4), 4)
    rows = rows[known & (states & np.uint64(0x60) == 0x20)]
    rows = rows[words.index.size[rows] >= np.uint64(layout.compact)]
    return _at_word(words, objects, layout.ascii // words.size + 1, rows)


def _with_dicts(objects: Objects) -> Mask:
    """Return the rows whose type has a pointer to a dict in the object itself."""
    wanted = [one is not None and 0 < one.dictoffset < 1 << 16 for one in objects.types]
    return objects.among(np.array(wanted, np.bool_))


def _dicts(words: Words, objects: Objects, rows: I64) -> Pointers:
    offsets: Sequence[int] = [0 if one is None else max(one.dictoffset, 0) for one in objects.types]
    places = _places(words, objects, rows, 0) + np.array(offsets, np.uint64)[objects.code[rows]]
    values, known = words.in_blocks(places)
    kept = known & (values != 0)
    return rows[kept], values[kept]
