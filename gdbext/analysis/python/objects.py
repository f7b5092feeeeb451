"""Which blocks hold objects of CPython, by the type object that each points to; works without symbols.

A type object is one whose own type is ``type``, or a metaclass; how many words stand before its instances, it says
itself. Builds that trace references have other objects and are not recognised; of those without the global lock 3.13
is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.heap.cpython.objects.layouts import (
    FENCE,
    FREE_HEAD,
    FREE_LOCAL,
    FREE_SHIFT,
    GC_HEAD,
    MANAGED,
    OB_TYPE,
    TP_FLAGS,
    TYPE_SUBCLASS,
)
from gdbext.heap.cpython.objects.objects import PythonObjects, TypeInfo, fitting_layouts, is_its_own_type
from gdbext.heap.detect import is_free_threaded
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import slices
from gdbext.progress import Progress

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]

_SAMPLE = 1 << 17  # rows that are examined first
_MOST_TYPES = (1 << 16) - 1
_MOST_KINDS = 64  # that are their own type: there is one in an interpreter
_MOST_REFERENCES = 1 << 32  # immortal objects of 3.12 have 2**32 - 1, those of 3.14 fewer
_COUNT = (1 << 48) - 1  # of the word: above it 3.14 has flags
_BEFORE = (0, GC_HEAD, GC_HEAD + MANAGED, MANAGED, GC_HEAD + MANAGED + FENCE)
_BEFORE_FREE = (FREE_HEAD, FREE_HEAD + MANAGED, FREE_HEAD + MANAGED + FENCE)
_SPARE = 64  # bytes that a block may have beyond an object of fixed size: what allocators round up to, and fences
_FENCED = 0xFD  # Objects/obmalloc.c, PYMEM_FORBIDDENBYTE: seven of them behind a letter, in the second word of a fence


@dataclass(frozen=True)
class Objects:
    """The objects among the rows of a search.

    :param types: ``types[0]`` is none.
    :param code: position in ``types`` of each row's; 0: no object.
    :param before: words in the block before the object.
    :param kept: rows whose object is freed and kept by the interpreter for the next of its type.
    :param reader: of single objects.
    """

    types: Sequence[Optional[TypeInfo]]
    code: U16
    before: npt.NDArray[np.uint8]
    kept: Mask
    reader: PythonObjects

    def forget(self, rows: I64) -> None:
        """Note that rows hold no object after all."""
        self.code[rows], self.before[rows], self.kept[rows] = 0, 0, False

    def place_of(self, row: int) -> int:
        """Return how many bytes behind the beginning of its block an object is, as Python's ``id`` has it."""
        return (int(self.before[row]) - self.reader.head) * self.reader.word

    def having(self, flag: int) -> Mask:
        """Return which rows are of a type with a flag."""
        return self.among(np.array([one is not None and bool(one.flags & flag) for one in self.types], np.bool_))

    def named(self, *names: str) -> Mask:
        """Return which rows are of a type of such a name."""
        return self.among(np.array([one is not None and one.name in names for one in self.types], np.bool_))

    def among(self, wanted: Mask) -> Mask:
        """Return which rows are of the wanted types, and live."""
        found: Mask = wanted[self._live_code]
        return found

    @cached_property
    def _live_code(self) -> U16:
        """The same as ``code``, with 0 for what is freed and kept; 0 is of no type that is wanted."""
        return np.where(self.kept, np.uint16(0), self.code)


def find_objects(words: Words, among: Mask, progress: Progress) -> Objects:
    """Return the objects in those rows that ``among`` has.

    Nothing is searched where a sample shows no interpreter behind millions of blocks.
    """
    search = _Search(words, among)
    step = len(among) // _SAMPLE
    if step > 1 and not search.take(np.arange(0, len(among), step)):
        return search.result()
    for part in slices(len(among)):
        progress.at("recognising Python's objects", part.start, len(among))
        search.take(np.arange(part.start, part.stop))
    return search.result()


class _Search:
    def __init__(self, words: Words, among: Mask) -> None:
        self._words, self._among = words, among
        self._types: List[Optional[TypeInfo]] = [None]
        self._codes: Dict[int, int] = {}
        head = FREE_HEAD if is_free_threaded(words.target) else 0
        self._objects = PythonObjects(words.target.reader, head=head)
        self._kinds: "dict[int, bool]" = {}
        self._code = np.zeros(len(among), np.uint16)
        self._before = np.zeros(len(among), np.uint8)
        self._kept = np.zeros(len(among), np.bool_)

    def result(self) -> Objects:
        """Return what was found."""
        return Objects(self._types, self._code, self._before, self._kept, self._objects)

    def take(self, rows: I64) -> bool:
        """Examine rows; return whether any type object was found so far."""
        for before in _BEFORE_FREE if self._objects.head else _BEFORE:
            left = rows[self._among[rows] & (self._code[rows] == 0)]
            self._take_part(left, before)
        return len(self._types) > 1

    def _take_part(self, rows: I64, before: int) -> None:
        rows, counts, types = self._with_types(rows, before)
        distinct, inverse = np.unique(types, return_inverse=True)
        codes = self._codes_of(distinct)[inverse.ravel()]
        least = np.array([0 if one is None else one.before * self._words.size for one in self._types], np.uint64)
        sizes = np.array([0 if one is None else one.size for one in self._types], np.uint64)
        needed, held = least[codes] + sizes[codes], self._words.index.size[rows]
        fixed = np.array([one is not None and one.fixed for one in self._types], np.bool_)
        good = (codes > 0) & (needed <= held) & (~fixed[codes] | (held < needed + np.uint64(_SPARE)))
        expected = least[codes] // np.uint64(self._words.size)
        fenced = good & (expected + np.uint64(FENCE) == before)
        good &= expected == before
        if fenced.any():
            at = np.flatnonzero(fenced)
            good[at] = self._are_fenced(rows[at])
        self._code[rows[good]] = codes[good]
        self._before[rows[good]] = before
        self._kept[rows[good]] = counts[good] == 0

    def _with_types(self, rows: I64, before: int) -> Tuple[I64, U64, U64]:
        """Return the rows with a count of references, it, and what stands where the type's address would."""
        words = self._words
        at = np.uint64(before * words.size)
        rows = rows[words.index.size[rows] >= at + np.uint64(2 * words.size)]
        places = words.index.address[rows] + at
        counts, known = self._counts(places)
        held: Mask = known & (counts <= np.uint64(_MOST_REFERENCES))
        rows, counts = rows[held], counts[held]
        types, known = words.in_blocks(places[held] + np.uint64(OB_TYPE * words.size))
        held = known & (types % np.uint64(words.size) == 0)
        held[held] = words.mapped(types[held])
        return rows[held], counts[held], types[held]

    def _counts(self, places: U64) -> Tuple[U64, Mask]:
        """Return counts of references, and which are known; what cannot be one is large."""
        counts, known = self._words.in_blocks(places)
        if not self._objects.head:
            return counts & np.uint64(_COUNT), known
        local, read = self._words.in_blocks(places + np.uint64(FREE_LOCAL & (1 << 64) - 1), 4)
        shared = counts.astype(np.int64) >> FREE_SHIFT
        return (local.astype(np.int64) + shared).astype(np.uint64), known & read

    def _are_fenced(self, rows: I64) -> Mask:
        values, known = self._words.in_blocks(self._words.index.address[rows] + np.uint64(self._words.size))
        wanted = int.from_bytes(bytes([0] + [_FENCED] * 7), self._words.target.abi.byteorder)
        letter = 0xFF if self._words.target.abi.byteorder == "little" else 0xFF << 56
        found: Mask = known & (values & np.uint64(~letter & (1 << 64) - 1) == np.uint64(wanted))
        return found

    # ---- type objects ----

    def _codes_of(self, types: U64) -> I64:
        """Return for each distinct address its code, 0 where no type object is."""
        found = np.zeros(len(types), np.int64)
        for at in np.flatnonzero(self._are_types(types)).tolist():
            address = int(types[at])
            if address not in self._codes:
                self._codes[address] = self._new_type(address)
            found[at] = self._codes[address]
        return found

    def _new_type(self, address: int) -> int:
        info = self._objects.find_type(address) if len(self._types) < _MOST_TYPES else None
        if info is None:
            return 0
        self._types.append(info)
        return len(self._types) - 1

    def _are_types(self, types: U64) -> Mask:
        """Return which are objects whose type is ``type``, or a metaclass whose type is."""
        words = self._words
        left = np.arange(len(types))
        above: List[U64] = [types]
        for _ in range(3):
            values, known = words.read(above[-1] + np.uint64((self._objects.head + OB_TYPE) * words.size))
            known &= words.mapped(values)
            left, above = left[known], [*(one[known] for one in above), values[known]]
        held: Mask = above[2] == above[3]  # ``type`` is the only one that is its own type
        named = np.array([kind for kind in np.unique(above[2][held]).tolist() if self._is_type(kind)], np.uint64)
        held &= np.isin(above[2], named)
        good = np.zeros(len(types), np.bool_)
        good[left[held & self._makes_types(above[1], held)]] = True
        return good

    def _makes_types(self, kinds: U64, among: Mask) -> Mask:
        """Return which addresses are of ``type`` or a metaclass: where types of objects are, these are a step away."""
        flags = {kind: self._objects.find_of(kind, TP_FLAGS) or 0 for kind in np.unique(kinds[among]).tolist()}
        found: Mask = np.isin(kinds, np.array([kind for kind, one in flags.items() if one & TYPE_SUBCLASS], np.uint64))
        return found

    def _is_type(self, address: int) -> bool:
        if address not in self._kinds and len(self._kinds) < _MOST_KINDS:
            reader = self._words.target.reader
            head = self._objects.head
            self._kinds[address] = is_its_own_type(reader, address, head)
            if self._kinds[address] and not self._objects.layouts:
                self._objects.layouts = fitting_layouts(reader, address, head)
            self._kinds[address] &= not head or bool(self._objects.layouts)
        return self._kinds.get(address, False)
