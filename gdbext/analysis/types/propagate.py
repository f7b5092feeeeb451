"""From typed places through their pointers to blocks, and from those on: breadth first, the surest first.

All objects of a type are looked at together, one column a pointer. A block takes the type that a pointer to its
beginning has when it is large enough; ``void *`` and ``char *`` say nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain, islice
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types import chains
from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.chains import Objects
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.fits import Fits
from gdbext.analysis.types.flattened import BUCKETS, NODE, OBJECT, RANGE, STRING, Layout, Layouts, Link
from gdbext.analysis.types.model import CONTAINER, HIGH, LOW, MEDIUM
from gdbext.heap.model import U32, U64, Mask
from gdbext.memory.intervals import for_each_chosen, slices
from gdbext.progress import Progress

I64 = npt.NDArray[np.int64]

_AT_ONCE = 1 << 16  # pointers
_FEW = 1 << 15  # rows that are sorted
_MOST_OBJECTS = 1 << 24  # of one round: sizes may be anything in damaged memory
_LOOKED_AT = 16  # objects of what may be an array
_LONG_CHAIN = 48  # rounds of one type after which its own links are followed all at once; later after twice as many


@dataclass(frozen=True)
class _Lot:
    """Pointers of one kind, one for each object.

    :param place: where the pointers stand.
    :param value: what they are.
    """

    link: Link
    place: U64
    value: U64
    confidence: int

    def of(self, whole: Mask) -> "_Lot":
        """Return those of some objects alone."""
        if whole.all():
            return self
        kept = whole if self.link.count == 1 else np.repeat(whole, self.link.count)
        return _Lot(self.link, self.place[kept], self.value[kept], self.confidence)


class _Rows:
    """Rows as they are met, each once: in a mask where they are many.

    :param rows: how many there may be.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._few: List[I64] = [np.empty(0, np.int64)]
        self._mask: Optional[Mask] = None

    def add(self, rows: I64) -> None:
        """Add rows; each may come several times."""
        if self._mask is None:
            self._few.append(rows)
            if sum(map(len, self._few)) <= _FEW:
                return
            self._mask, rows = np.zeros(self._rows, np.bool_), np.concatenate(self._few)
        self._mask[rows] = True

    def parts(self) -> Iterator[I64]:
        """Iterate over the rows in order."""
        if self._mask is None:
            yield np.unique(np.concatenate(self._few))
            return
        for part in slices(self._rows, _AT_ONCE):
            yield part.start + np.flatnonzero(self._mask[part])


class Propagation:
    """Work on one target.

    :param most: objects that are looked at; what is left then stays.
    :ivar complete: False when there were more.
    """

    def __init__(
        self, words: Words, sheet: Sheet, layouts: Layouts, fits: Fits, most: int, progress: Progress
    ) -> None:
        self.words = words
        self.sheet = sheet
        self.layouts = layouts
        self.fits = fits
        self.complete = True
        self._most = most
        self._progress = progress
        self._queues: Dict[int, "OrderedDict[Layout, List[Objects]]"] = {
            level: OrderedDict() for level in (HIGH, MEDIUM, LOW)
        }
        self._rounds: Dict[Layout, int] = {}
        self._due: Dict[Tuple[Layout, int], int] = {}

    def add(self, layout: Layout, address: U64, count: I64, confidence: int) -> None:
        """Have objects looked at.

        :param address: of the first of each row of objects.
        :param count: how many there are.
        """
        if not len(address) or not layout.links:
            return
        self._queues[confidence].setdefault(layout, []).append((address, count))

    def add_pointed(self, layout: Layout, values: U64, confidence: int) -> None:
        """Have what pointers lead to be of a type: blocks, where it is blocks."""
        self._claim_objects(layout, [values], confidence)

    def run(self) -> None:
        """Look at everything that was added and at what that leads to."""
        done = 0
        for level in (HIGH, MEDIUM, LOW):
            queue = self._queues[level]
            while queue:
                if done >= self._most:
                    self.complete = False
                    return
                layout, batch = queue.popitem(last=False)
                self._progress.at("following typed pointers", done, None)
                done += sum(int(np.minimum(count, _MOST_OBJECTS).sum()) for _, count in batch)
                self._visit(layout, batch, level)

    def _visit(self, layout: Layout, batch: Sequence[Objects], level: int) -> None:
        self._rounds[layout] = self._rounds.get(layout, 0) + 1
        if self._rounds[layout] > self._due.get((layout, level), _LONG_CHAIN):
            self._due[layout, level] = 2 * self._rounds[layout]
            self._follow_chains(layout, batch, level)
        few = list(islice(self._unrolled(layout, batch), 2))
        if len(few) > 1:
            self._visit_many(layout, batch, level)
        elif few:
            self._visit_objects(layout, few[0], level)

    def _unrolled(self, layout: Layout, batch: Sequence[Objects]) -> Iterator[U64]:
        return chains.unrolled(batch, layout.size, _step(layout), _MOST_OBJECTS)

    def _follow_chains(self, layout: Layout, batch: Sequence[Objects], level: int) -> None:
        """Type all blocks that a type's links to itself lead to: lists would need a round for each of their nodes."""
        own = [link for link in layout.links if self._is_own(layout, link)]
        begun = np.zeros(len(self.words.index), np.bool_)
        for places in self._unrolled(layout, batch):
            lots, sound = self._pointers(layout, places, level)
            for lot in lots:
                if self._is_own(layout, lot.link):
                    begun[self._rows(lot.value[sound])[0]] = True
        held = self.fits.tight if level == HIGH or layout.only_links else self.fits.holds
        parts = (rows[held(rows, layout.size)] for _, rows in for_each_chosen(self.sheet.unknown()))
        among = np.concatenate([np.empty(0, np.uint32), *(part.astype(np.uint32) for part in parts)])
        offsets = [link.offset for link in own]
        rows = chains.follow(self.words, among, begun[among], self._sound(layout, among), offsets)
        for part in slices(max(len(rows), 1)):  # where there are none, too, the type has its number
            some = rows[part].astype(np.int64)
            if layout.only_links:
                self._take(layout, some, LOW)
            else:
                self._claim_records(layout, some, level, any(link.kind == NODE for link in own))

    def _sound(self, layout: Layout, rows: U32) -> Mask:
        """Return which blocks have pointers where an object has them."""
        sound = np.ones(len(rows), np.bool_)
        for part in slices(len(rows), _step(layout)):
            sound[part] = self._pointers(layout, self.words.index.address[rows[part]], LOW)[1]
        return sound

    def _is_own(self, layout: Layout, link: Link) -> bool:
        if link.target is None or link.kind not in (OBJECT, NODE) or link.count != 1 or not link.sure:
            return False
        return layout.is_record and self.layouts.of(link.target, link.label) is layout

    def _visit_objects(self, layout: Layout, places: U64, level: int) -> None:
        lots, sound = self._pointers(layout, places, level)
        self._doubt(places[~sound])
        for lot in lots:
            self._lead_on(lot.link, lot.confidence, [lot.of(sound)])

    def _visit_many(self, layout: Layout, batch: Sequence[Objects], level: int) -> None:
        """The same link by link through many objects, so that each block is seen once, in the order of addresses."""
        first = self._first_lots(layout, batch, level)
        sound = [] if len(layout.links) == 1 else [whole for _, whole in first]
        for link in layout.links:
            parts = zip(self._unrolled(layout, batch), sound)
            lots = (self._lot(link, places, level)[0].of(whole) for places, whole in parts)
            alone = (lot.of(whole) for lot, whole in first)  # nothing where there are others
            self._lead_on(link, level if link.sure else LOW, chain(lots, alone))
        for _ in first:  # a link that leads to nothing known has not asked for them: what they say of objects counts
            pass

    def _first_lots(self, layout: Layout, batch: Sequence[Objects], level: int) -> "Iterator[tuple[_Lot, Mask]]":
        """Iterate over the pointers of the first link and which objects have pointers where they should."""
        for places in self._unrolled(layout, batch):
            lots, sound = self._pointers(layout, places, level)
            self._doubt(places[~sound])
            yield lots[0], sound

    def _doubt(self, places: U64) -> None:
        rows = self.words.rows_at(places)
        self.sheet.doubt(rows[rows >= 0])

    def _pointers(self, layout: Layout, places: U64, level: int) -> "tuple[list[_Lot], Mask]":
        """Return the pointers of objects, and which objects have pointers where they should."""
        sound = np.ones(len(places), np.bool_)
        lots = []
        for link in layout.links:
            lot, known = self._lot(link, places, level)
            if link.sure:
                plausible = ~known | (lot.value == 0)
                plausible[~plausible] = self.words.mapped(lot.value[~plausible])
                sound &= plausible.reshape(len(places), link.count).all(axis=1)
            lots.append(lot)
        return lots, sound

    def _lot(self, link: Link, places: U64, level: int) -> "tuple[_Lot, Mask]":
        """Return the pointers of one link, 0 where they cannot be read, and which can."""
        steps = np.arange(link.count, dtype=np.uint64) * np.uint64(self.words.size) + np.uint64(link.offset)
        at = (places[:, None] + steps).ravel()
        values, known = self.words.pointers(at)
        values[~known] = 0
        return _Lot(link, at, values, level if link.sure else LOW), known

    # ---- what pointers lead to ----

    def _lead_on(self, link: Link, confidence: int, lots: Iterable[_Lot]) -> None:
        claim = {RANGE: self._claim_ranges, STRING: self._claim_strings, BUCKETS: self._claim_buckets}.get(link.kind)
        if claim is not None:
            for lot in lots:
                claim(lot)
        elif link.target is not None:
            layout = self.layouts.of(link.target, link.label if link.kind == NODE else "")
            if layout is not None:
                self._claim_objects(layout, (lot.value for lot in lots), confidence, link.kind == NODE)

    def _rows(self, values: U64) -> "tuple[I64, I64]":
        """Return the rows of blocks that values point to the beginning of, each once, and which value each is."""
        rows = self.words.rows_at(values)
        at = np.flatnonzero(rows >= 0)
        distinct, first = np.unique(rows[at], return_index=True)
        return distinct, at[first]

    def _code(self, layout: Layout, ending: str = "") -> int:
        return self.sheet.code_of(layout.name + ending, layout.kind, layout.starts)

    def _claim_objects(self, layout: Layout, parts: Iterable[U64], confidence: int, node: bool = False) -> None:
        """Type the blocks that values point to the beginning of, or to where what ``new X[n]`` made has its first."""
        begun, counted = _Rows(len(self.words.index)), _Rows(len(self.words.index))
        for values in parts:
            rows = self.words.rows_at(values)
            begun.add(rows[rows >= 0])
            if layout.is_record and not node:  # a word before where a block begins none larger than a word does
                rest = values[rows < 0]
                rows = self.words.rows_at(rest[rest > 0] - np.uint64(self.words.size))
                counted.add(rows[rows >= 0])
        for rows in counted.parts():
            self._claim_counted(layout, rows, confidence)
        for rows in begun.parts():
            self._claim_blocks(layout, rows, confidence, node)

    def _claim_blocks(self, layout: Layout, rows: I64, confidence: int, node: bool) -> None:
        rows = rows[self.fits.holds(rows, max(layout.size, 1))]
        if not len(rows):
            return
        if layout.is_pointer:
            self._claim_pointers(layout, rows, confidence)
        elif not layout.is_record:
            self._take(layout, rows, min(confidence, MEDIUM), "[]")
        elif layout.only_links:
            self._take(layout, rows[self.fits.tight(rows, layout.size)], LOW)
        else:
            self._claim_records(layout, rows, confidence, node)

    def _claim_records(self, layout: Layout, rows: I64, confidence: int, node: bool) -> None:
        tight = self.fits.tight(rows, layout.size)
        self._take(layout, rows[tight], confidence, yields=node)
        loose = rows[~tight]
        if len(loose) and not layout.flexible:
            self.sheet.note_larger(self._code(layout))
        if not layout.flexible:
            self.sheet.note_size(self._code(layout), layout.size)
        if layout.flexible or node:
            self._take(layout, loose, min(confidence, MEDIUM), yields=node)
            return
        several = self._several(layout, loose)
        self._take(layout, loose[~several], min(confidence, MEDIUM))
        self._take(layout, loose[several], min(confidence, MEDIUM), "[]")

    def _take(self, layout: Layout, rows: I64, confidence: int, ending: str = "", yields: bool = False) -> None:
        taken = rows[self.sheet.claim(rows, self._code(layout, ending), confidence, yields)]
        count: I64 = np.broadcast_to(np.int64(1), len(taken))
        if ending:
            count = (self.words.index.size[taken] // np.uint64(max(layout.size, 1))).astype(np.int64)
        self.add(layout, self.words.index.address[taken], count, confidence)

    def _several(self, layout: Layout, rows: I64) -> Mask:
        """Return which blocks hold more objects behind the first: all their pointers are, and one is not null."""
        links = [link for link in layout.links if link.sure]
        good = np.full(len(rows), bool(links))
        some = np.zeros(len(rows), np.bool_)
        rest, address, size = np.flatnonzero(good), self.words.index.address[rows], self.words.index.size[rows]
        for number in range(1, _LOOKED_AT):
            rest = rest[good[rest] & (size[rest] >= np.uint64((number + 1) * layout.size))]
            if not len(rest):
                break
            places = address[rest] + np.uint64(number * layout.size)
            for link in links:
                values, _ = self.words.pointers(places + np.uint64(link.offset))
                mapped = self.words.mapped(values)
                good[rest] &= mapped | (values == 0)
                some[rest] |= mapped
        return good & some

    def _claim_counted(self, layout: Layout, rows: I64, confidence: int) -> None:
        """Type what ``new X[n]`` made of objects with destructors: their number stands before the first."""
        word = np.uint64(self.words.size)
        count, known = self.words.in_blocks(self.words.index.address[rows])
        good = known & (count > 0) & (count <= self.words.index.size[rows] // np.uint64(layout.size))
        needed = np.where(good, count, np.uint64(0)) * np.uint64(layout.size) + word
        good &= self.fits.tight_each(rows, needed)
        rows, count = rows[good], count[good]
        taken = self.sheet.claim(rows, self._code(layout, "[]"), confidence)
        begin = self.words.index.address[rows[taken]] + word
        self.add(layout, begin, count[taken].astype(np.int64), confidence)

    def _claim_pointers(self, layout: Layout, rows: I64, confidence: int) -> None:
        """Type blocks that are arrays of pointers, by whether their first words are.

        What lies behind the part in use may be of an earlier owner: what they lead to is never more than probable.
        """
        good, some = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for at in range(_LOOKED_AT):
            offset = np.uint64(at * self.words.size)
            rest = np.flatnonzero(self.words.index.size[rows] >= offset + np.uint64(self.words.size))
            values, _ = self.words.pointers(self.words.index.address[rows[rest]] + offset)
            good[rest] &= self.words.mapped(values) | (values == 0)
            some[rest] |= self.words.rows_at(values) >= 0
        for those, level in ((good & some, confidence), (good & ~some, min(confidence, MEDIUM)), (~good, LOW)):
            taken = rows[those][self.sheet.claim(rows[those], self._code(layout, "[]"), level)]
            count = self.words.index.size[taken] // np.uint64(layout.size)
            self.add(layout, self.words.index.address[taken], count.astype(np.int64), min(level, MEDIUM))

    # ---- containers ----

    def _claim_ranges(self, lot: _Lot) -> None:
        """Type buffers of vectors: three words in order, the first a block's beginning."""
        target = lot.link.target
        if target is None or not target.size:
            return
        word = np.uint64(self.words.size)
        rows, at = self._rows(lot.value)
        begin = lot.value[at]
        end, end_known = self.words.pointers(lot.place[at] + word)
        cap, cap_known = self.words.pointers(lot.place[at] + word * np.uint64(2))
        size = np.uint64(target.size)
        good = end_known & cap_known & (begin <= end) & (end <= cap)
        good &= (cap - begin <= self.words.index.size[rows]) & ((cap - begin) % size == 0) & ((end - begin) % size == 0)
        rows, begin, count = rows[good], begin[good], ((end - begin) // size)[good].astype(np.int64)
        code = self.sheet.code_of(f"{lot.link.label} buffer", CONTAINER)
        self._put_firm(rows, code, lot.confidence)
        layout = self.layouts.of(target)
        if layout is not None:
            self.add(layout, begin, count, lot.confidence)

    def _put_firm(self, rows: I64, code: int, confidence: int) -> None:
        """Type rows that begin with an object but are a buffer of many: the container knows its own bounds."""
        weaker = self.sheet.confidence[rows] <= confidence
        self.sheet.put(rows[weaker], code, confidence)

    def _claim_strings(self, lot: _Lot) -> None:
        """Type buffers of strings: the capacity fits, and a NUL stands behind the text."""
        word = np.uint64(self.words.size)
        rows, at = self._rows(lot.value)
        length, _ = self.words.read(lot.place[at] + word)
        room, known = self.words.read(lot.place[at] + word * np.uint64(2))
        good = known & (length <= room) & (room < self.words.index.size[rows])
        rows, length = rows[good], length[good]
        last, known = self.words.in_blocks(self.words.index.address[rows] + length, 1)
        rows = rows[known & (last == 0)]
        self.sheet.claim(rows, self.sheet.code_of("std::string text", CONTAINER), lot.confidence)

    def _claim_buckets(self, lot: _Lot) -> None:
        """Type the bins of hash tables: as many words as the table says."""
        rows, at = self._rows(lot.value)
        count, known = self.words.read(lot.place[at] + np.uint64(self.words.size))
        good = known & (count <= self.words.index.size[rows] // np.uint64(self.words.size))
        code = self.sheet.code_of(f"{lot.link.label} buckets", CONTAINER)
        self.sheet.claim(rows[good], code, lot.confidence)


def _step(layout: Layout) -> int:
    """Return how many objects are examined together."""
    return max(_AT_ONCE // max(link.count for link in layout.links), 1)
