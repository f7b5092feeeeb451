"""Blocks that no typed pointer leads to, by their similarity to those of the same size that one does lead to.

A leaked structure of C has nothing else that tells: it may be any that has this size. So it is named only where the
words of a block are of the same kinds as those of several blocks of one type, and of no other, and where that says
something: pointers do, numbers and zeros hardly. A hint and no more, so always of low confidence.
"""

from __future__ import annotations

from typing import Iterator, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.model import (
    CONTAINER,
    DEBUG_INFO,
    LOW,
    MEDIUM,
    NO_CONFIDENCE,
    POINTERS,
    SIMILARITY,
    TEXT,
)
from gdbext.heap.model import U8, U32, U64, Mask
from gdbext.kernels import SKIPPED, count_values, find_blocks
from gdbext.memory.intervals import Coverage, for_each_chosen, slices
from gdbext.progress import Progress

I64 = npt.NDArray[np.int64]

LEAST_ALIKE = 8  # blocks of the type
_LEAST_TOLD = 4  # what the words of a block must tell in all, by _TELLS
_LOOKED_AT = 24  # words of a block
_MOST = 1 << 19  # blocks that are compared
_MOST_COMPARED = 1 << 17  # with so many
_AT_ONCE = 1 << 17
_MOST_CHOSEN_FROM = 1 << 21
_LEAST_COMPARED = 1 << 10  # of each size
_SIZES = 256  # of blocks to be named
_PATTERNS = 16  # of one type
_MANY = 4  # one for so many of the type
_PARTS = (" buffer", " buckets", " text", "[]")  # of types: nothing but their size is alike in them

# Kinds of words, and what finding the same kind in two blocks tells.
_ZERO, _SMALL, _OTHER, _LETTERS, _MAPPED, _MODULE, _OWN, _BLOCK, _WITHIN = range(9)
_TELLS: U8 = np.array([0, 0, 0, 0, 1, 2, 2, 2, 2], np.uint8)
_IF_NAMED: U8 = np.array([SKIPPED, 0, *[SKIPPED] * 254], np.uint8)
_KIND = np.uint64(0xFF)
_SMALLEST_OTHER = np.uint64(1 << 16)
_LARGE = np.uint64(1024)  # where a pointer leads to in larger blocks differs: they are arrays


def put_similarity(words: Words, sheet: Sheet, leaked: Mask, progress: Progress) -> None:
    """Name leaked blocks of which nothing is known after those that they are like.

    Not those in use: where a program has no typed pointer to what it uses, that is of a type of its own.

    :param leaked: which rows leaked.
    """
    named = _can_name(sheet)
    asked = _asked(words, sheet, named, leaked)
    if not leaked[asked].any():
        return
    known = sheet.confidence > NO_CONFIDENCE
    known[asked] = False
    others = _some(_of_sizes(words, known, asked), _MOST_CHOSEN_FROM)
    others = others[np.argsort(words.index.size[others], kind="stable")]
    kinds = _Kinds(words, np.isin(sheet.code, [at for at, one in enumerate(sheet.types) if one.kind == TEXT]))
    found = np.zeros(len(asked), np.int64)
    sizes = list(_by_size(words, asked))
    for number, (size, mine) in enumerate(sizes):
        progress.at("comparing blocks", number, len(sizes))
        first, last = np.searchsorted(words.index.size[others], [size, size + np.uint64(1)]).tolist()
        theirs = _some(others[first:last], max(_MOST_COMPARED // len(sizes), _LEAST_COMPARED))
        like = kinds.of(theirs, size)
        for part in (mine[each] for each in slices(len(mine), _AT_ONCE)):
            wanted, in_use = kinds.of(asked[part], size), ~leaked[asked[part]]
            found[part] = _match(wanted, in_use, like, sheet.code[theirs], named[theirs])
    found[~leaked[asked]] = 0
    for one in np.unique(found[found > 0]).tolist():
        sheet.put(asked[found == one], sheet.code_of(f"like {sheet.types[one].name}", SIMILARITY), LOW)


def _by_size(words: Words, rows: I64) -> "Iterator[tuple[np.uint64, I64]]":
    """Iterate over the sizes of rows that most of them have, with the positions of those that do."""
    sizes, at, counts = np.unique(words.index.size[rows], return_inverse=True, return_counts=True)
    for number in np.argsort(-counts, kind="stable")[:_SIZES].tolist():
        yield sizes[number], np.flatnonzero(at == number)


def _can_name(sheet: Sheet) -> Mask:
    """Return which rows others may be named after: objects that are known well enough."""
    kinds = np.array(
        [one.kind in (DEBUG_INFO, CONTAINER) and not one.name.endswith(_PARTS) for one in sheet.types], np.bool_
    )
    named: Mask = kinds[sheet.code] & (sheet.confidence >= MEDIUM)
    return named


def _asked(words: Words, sheet: Sheet, named: Mask, leaked: Mask) -> I64:
    """Return the unknown rows of sizes that enough rows with a name have, leaked ones where there are too many."""
    looks = np.array([one.kind == POINTERS for one in sheet.types], np.bool_)
    unknown: Mask = (sheet.confidence == NO_CONFIDENCE) | looks[sheet.code]
    common = _common_sizes(words.index.size, named)
    parts = [some[np.isin(words.index.size[some], common)] for _, some in for_each_chosen(unknown)]
    rows = np.concatenate([np.empty(0, np.int64), *parts])
    if len(rows) > _MOST:
        rows = np.sort(rows[np.argsort(~leaked[rows], kind="stable")[:_MOST]])
    return rows


def _common_sizes(size: U64, named: Mask) -> U64:
    """Return the sizes of enough rows with a name."""
    parts = slices(len(size))
    counted = [count_values(size[part], named[part].view(np.uint8), _IF_NAMED, 1) for part in parts]
    sizes = np.concatenate([size[:0], *(values for values, _ in counted)])
    sizes, at = np.unique(sizes, return_inverse=True)
    counts = np.bincount(at, np.concatenate([np.empty(0, np.int64), *(number[:, 0] for _, number in counted)]))
    return sizes[counts >= LEAST_ALIKE]


def _of_sizes(words: Words, chosen: Mask, like: I64) -> U32:
    """Return the chosen rows of the same sizes as others."""
    sizes = np.unique(words.index.size[like])
    found = [np.empty(0, np.uint32)]
    for part in slices(len(chosen)):
        rows = part.start + np.flatnonzero(chosen[part])
        found.append(rows[np.isin(words.index.size[rows], sizes)].astype(np.uint32))
    return np.concatenate(found)


def _some(rows: "U32 | I64", most: int) -> I64:
    """Return about so many of the rows, spread by chance: types often take turns."""
    every, found = np.uint64(len(rows) // most + 1), [np.empty(0, np.int64)]
    for part in slices(len(rows)):
        number = np.arange(part.start, part.stop, dtype=np.uint64)
        chance = number * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        found.append(rows[part][chance % every == 0].astype(np.int64))
    return np.concatenate(found)


def _match(wanted: U64, in_use: Mask, known: U64, code: "npt.NDArray[np.uint32]", named: Mask) -> I64:
    """Return for each wanted block the code of the one type that it is like, 0 where there is none.

    Where many blocks that are in use and of which nothing is known look the same, the leaked may be of their type.

    :param wanted: kinds of the words of each, one row a block, like ``known``; all have the same size.
    :param in_use: which of them did not leak.
    :param code: of the known blocks' types.
    :param named: which of them may others be named after.
    """
    found = np.zeros(len(wanted), np.int64)
    telling = _TELLS[(wanted & _KIND).astype(np.uint8)].sum(axis=1) >= _LEAST_TOLD
    for one, count in zip(*(each.tolist() for each in np.unique(code[named], return_counts=True))):
        if count >= LEAST_ALIKE and telling.any():
            alike = telling & _are_like(wanted, known[named & (code == one)])
            if _MANY * int((alike & in_use).sum()) <= count:
                found[alike] = one
    rows = np.flatnonzero(found)
    for one in np.unique(code).tolist() if len(rows) else ():
        others = rows[found[rows] != one]
        found[others[_may_be(wanted[others], known[code == one])]] = 0
        rows = rows[found[rows] > 0]
    return found


def _are_like(wanted: U64, known: U64) -> Mask:
    """Return which blocks are as enough of the known ones are, each word of the same kind.

    No pointer may stand where these have one, and a smaller number where they have a larger: what leaked is often the
    last of its list.
    """
    patterns, counts = np.unique(known, axis=0, return_counts=True)
    usual = np.argsort(-counts, kind="stable")[:_PATTERNS]
    alike = np.zeros(len(wanted), np.bool_)
    for pattern in patterns[usual[counts[usual] >= LEAST_ALIKE]]:
        alike |= _same(wanted, pattern).all(axis=1)
    return alike


def _same(wanted: U64, pattern: U64) -> Mask:
    kind = pattern & _KIND
    absent = (wanted == _ZERO) & (kind >= _MAPPED)
    smaller = (wanted == _SMALL) & (kind == _OTHER)
    same: Mask = (wanted == pattern) | absent | smaller
    return same


def _may_be(wanted: U64, known: U64) -> Mask:
    """Return which blocks have in each word a kind that any of the known ones has there: they may be of that type."""
    possible = np.ones(len(wanted), np.bool_)
    for at in range(wanted.shape[1]):
        seen = np.unique(known[:, at])
        lesser = [_ZERO, _SMALL] if ((seen & _KIND) == _OTHER).any() else [_ZERO]
        possible &= np.isin(wanted[:, at], np.concatenate((seen, np.array(lesser, np.uint64))))
    return possible


class _Kinds:
    """Makes a number of the kinds of a block's words: equal where they are.

    :param text: which rows are text.
    """

    def __init__(self, words: Words, text: Mask) -> None:
        self._words = words
        self._text = text
        modules = sorted((module.base, module.end) for module in words.target.modules)
        self._modules = [Coverage(*(np.array([end], np.uint64) for end in pair)) for pair in modules]

    def of(self, rows: I64, size: np.uint64) -> U64:
        """Return a number for each of the first words of blocks of a size, equal where they are of one kind."""
        found = np.zeros((len(rows), min(int(size) // self._words.size, _LOOKED_AT)), np.uint64)
        for number in range(found.shape[1]):
            places = self._words.index.address[rows] + np.uint64(number * self._words.size)
            kind, detail = self._kinds(rows, self._words.in_blocks(places)[0])
            found[:, number] = (detail << np.uint64(8)) | kind
        return found

    def _kinds(self, rows: I64, values: U64) -> "Tuple[U8, U64]":
        """Return the kind of each word, and what else must be the same.

        That is of a pointer the size of the block, the offset in it, and whether it is text; in a module the address.
        """
        kind, detail = np.full(len(values), _OTHER, np.uint8), np.zeros(len(values), np.uint64)
        low, high = values & np.uint64(0xFFFFFFFF), values >> np.uint64(32)
        kind[(low < _SMALLEST_OTHER) & (high < _SMALLEST_OTHER)] = _SMALL
        kind[values == 0] = _ZERO
        kind[(kind == _OTHER) & _is_text(values, self._words.size)] = _LETTERS
        at = np.flatnonzero(self._words.mapped(values))
        kind[at] = _MAPPED
        for module in self._modules:
            own = at[module.holds(values[at])]
            kind[own], detail[own] = _MODULE, values[own]
        self._pointers(rows, values, at, kind, detail)
        return kind, detail

    def _pointers(self, rows: I64, values: U64, at: I64, kind: U8, detail: U64) -> None:
        """Tell pointers to blocks apart: by the block's size and the offset in it, or in the block itself."""
        index = self._words.index
        row = find_blocks(index, values[at])
        at, row = at[row >= 0], row[row >= 0]
        size, offset = index.size[row], values[at] - index.address[row]
        kind[at] = np.where(row == rows[at], _OWN, np.where(offset == 0, _BLOCK, _WITHIN))
        known = (size << np.uint64(12)) + (offset << np.uint64(1)) + self._text[row]
        detail[at] = np.where(size <= _LARGE, known, _LARGE)
        detail[at[row == rows[at]]] = offset[row == rows[at]]


def _is_text(values: U64, word: int) -> Mask:
    """Return which words are letters, the first four of them at least."""
    data = np.ascontiguousarray(values.astype("<u8")).view(np.uint8).reshape(len(values), 8)[:, :word]
    letters = ((data >= 0x20) & (data < 0x7F)) | (data == 0)
    found: Mask = letters.all(axis=1) & ((data != 0).sum(axis=1) >= 4)
    return found
