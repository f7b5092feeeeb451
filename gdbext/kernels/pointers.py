"""Words that point into blocks, and what can be reached through them.

The definition that a native version must equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.kernels.chains import Span, gather_scalars
from gdbext.progress import check

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NOT_REACHED, MAYBE_REACHED, REACHED = range(3)

MOST_HEADERS = 8  # as in native/src/scan.rs

MOST_HITS = 1 << 20  # of one mebibyte: all
_AT_ONCE = 1 << 17  # words
_PIECE = 1 << 20  # bytes of which ``most`` is meant
_ROUNDS = 256  # of many blocks each; what leads on after so many is a list, or like one
_STEP = 1 << 16  # blocks between two questions whether to go on
_ALL = (1 << 64) - 1
_GIVEN, _GIVEN_PART = np.uint64(16), np.uint64(32)  # bytes; and of large blocks, which are whole pages
_MANGLING = np.uint64(12)  # glibc's PROTECT_PTR (malloc/malloc.c): a link's own address, shifted so


class PointerRules(NamedTuple):
    """How pointers are stored.

    :param word: bytes.
    :param byteorder: ``little`` or ``big``.
    :param clear: bits that are no part of the address: tags.
    :param mangled: whether a word that does not lead to a block as it stands is one XORed with its own address >> 12,
        as glibc's safe-linking stores links; ``clear`` is cleared of what that reveals.
    :param headers: bytes of the headers that blocks may have, at most :data:`MOST_HEADERS` different ones: a pointer so
        far into a block counts as one to its beginning.
    :param part: where headers grow with their blocks: one is the first such part of what was asked for (5: a fifth), at
        most 2^32 - 1; 0 for none.
    """

    word: int
    byteorder: str = "little"
    clear: int = 0
    mangled: bool = False
    headers: Tuple[int, ...] = ()
    part: int = 0

    def are_interior(self, into: U64, size: U64) -> Mask:
        """Return which pointers are interior, given how far each leads into its block, and the blocks' bytes."""
        interior: Mask = into != 0
        for header in self.headers:
            interior &= into != header
        return interior & ~are_behind_part(into, size, self.part) if self.part else interior


def are_behind_part(into: U64, size: U64, part: int) -> Mask:
    """Return which offsets are such a part of a block, but for what malloc gives beyond what was asked for."""
    fits = into <= size // np.uint64(part)
    asked = np.where(fits, into, np.uint64(0)) * np.uint64(part)
    behind: Mask = fits & (size - asked < _GIVEN + size // _GIVEN_PART)
    return behind


@dataclass(frozen=True)
class BlockIndex:
    """Blocks by address: sorted, disjoint. One of no bytes is pointed at by its own address alone.

    :param address: first bytes.
    :param size: bytes.
    :param built: what kernels make of it, kept for the next call: the columns must stay as they are.
    """

    address: U64
    size: U64
    built: Dict[object, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.address)

    def find(self, addresses: U64) -> I64:
        """Return for each address the row of the block that holds it, or -1."""
        at = np.searchsorted(self.address, addresses, side="right").astype(np.int64) - 1
        if not len(self.address):
            return at
        kept = np.maximum(at, 0)
        inside = addresses - self.address[kept] < np.maximum(self.size[kept], np.uint64(1))
        return np.where((at >= 0) & inside, at, -1)


@dataclass(frozen=True)
class Hits:
    """Words that point into blocks, by place.

    :param place: address of the word.
    :param row: of the block.
    :param interior: whether it points behind the block's beginning, and not to what follows a header.
    :param full: whether some were left out.
    """

    place: U64
    row: U32
    interior: Mask
    full: bool = False

    def __len__(self) -> int:
        return len(self.place)


def find_blocks(index: BlockIndex, addresses: U64, begins: bool = False) -> I64:
    """As :meth:`BlockIndex.find`; with ``begins`` only blocks that begin there."""
    rows = index.find(addresses)
    if begins and len(index):
        rows[index.address[rows] != addresses] = -1
    return rows


def follow_words(words: U64, places: U64, index: BlockIndex, rules: PointerRules) -> Followed:
    """Return what words stand for: what they are as they stand, tags cleared, wherever that leads to a block.

    :param places: the words' own addresses.
    """
    kept = np.uint64(_ALL & ~rules.clear)
    addresses = words & kept
    rows, mangled = _find_near(addresses, index), np.zeros(len(words), np.bool_)
    if rules.mangled:
        rest = np.flatnonzero(rows < 0)
        revealed = reveal(words[rest], places[rest]) & kept
        found = _find_near(revealed, index)
        rest, revealed, found = (column[found >= 0] for column in (rest, revealed, found))
        addresses[rest], rows[rest], mangled[rest] = revealed, found, True
    return Followed(addresses, rows, mangled)


def reveal(words: U64, places: U64) -> U64:
    """Return what words were before each was XORed with its own address >> 12."""
    plain: U64 = words ^ (places >> _MANGLING)
    return plain


class Followed(NamedTuple):
    """What words stand for.

    :param address: of each.
    :param row: of the block that holds it, or -1.
    :param mangled: whether it leads there only when it is revealed.
    """

    address: U64
    row: I64
    mangled: Mask


def scan_pointers(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, wanted: Optional[Mask] = None, most: int = MOST_HITS
) -> Hits:
    """Find every aligned word that points into a block.

    :param spans: the memory to look through, sorted, disjoint.
    :param wanted: which blocks count; None takes all.
    :param most: words that are kept of each mebibyte of memory.
    """
    parts, full = [], False
    for start, buffer in spans:
        first, words = _aligned_words(start, buffer, rules)
        step = _PIECE // rules.word
        for at in range(0, len(words), step):
            check()
            part = words[at : at + step].astype(np.uint64)
            places = np.arange(len(part), dtype=np.uint64) * np.uint64(rules.word) + np.uint64(first + at * rules.word)
            found = _hits_in(part, places, index, rules, wanted)
            full = full or len(found) > most
            parts.append(Hits(found.place[:most], found.row[:most], found.interior[:most]))
    return _joined(parts, full)


def _aligned_words(start: int, buffer: object, rules: PointerRules) -> Tuple[int, "npt.NDArray[np.generic]"]:
    """Return the address of the first aligned word, and all of them."""
    data = np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload]
    skipped = -start % rules.word
    order = "<" if rules.byteorder == "little" else ">"
    count = max(len(data) - skipped, 0) // rules.word
    words = data[skipped : skipped + count * rules.word].view(f"{order}u{rules.word}")
    return start + skipped, words


def _hits_in(words: U64, places: U64, index: BlockIndex, rules: PointerRules, wanted: Optional[Mask]) -> Hits:
    found = follow_words(words, places, index, rules)
    at = np.flatnonzero(found.row >= 0)
    if wanted is not None:
        at = at[wanted[found.row[at]]]
    rows = found.row[at]
    interior = rules.are_interior(found.address[at] - index.address[rows], index.size[rows])
    return Hits(places[at], rows.astype(np.uint32), interior)


def _find_near(values: U64, index: BlockIndex) -> I64:
    """As :meth:`BlockIndex.find`, at once for what is far from all blocks."""
    rows = np.full(len(values), -1, np.int64)
    if len(index):
        high = index.address[-1] + np.maximum(index.size[-1], np.uint64(1)) - np.uint64(1)
        likely = np.flatnonzero((values >= index.address[0]) & (values <= high))
        rows[likely] = index.find(values[likely])
    return rows


def _joined(parts: Sequence[Hits], full: bool) -> Hits:
    if not parts:
        return Hits(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.bool_), full)
    columns = [(part.place, part.row, part.interior) for part in parts]
    place, row, interior = (np.concatenate(each) for each in zip(*columns))
    return Hits(place, row, interior, full)


def mark_blocks(spans: Sequence[Span], index: BlockIndex, rules: PointerRules, live: Mask, roots: U8) -> U8:
    """Return what can be reached from roots.

    A block is REACHED when pointers to beginnings of blocks lead to it from a root, MAYBE_REACHED when a path
    there needs an interior pointer. Both are fixpoints.

    :param spans: the memory that the blocks lie in, beginning at aligned addresses; what is not there is not looked
        at.
    :param live: which blocks count: others are not reached and lead nowhere.
    :param roots: the state that roots give each block at once.
    """
    states = np.where(live, np.minimum(roots, REACHED), NOT_REACHED).astype(np.uint8)
    edges: Optional[Tuple[I64, Hits]] = None
    for level in (REACHED, MAYBE_REACHED):
        open_ = np.flatnonzero(states == level)
        for _ in range(_ROUNDS):
            if len(open_):
                open_ = _raise_from(spans, index, rules, (live, states), open_, level)
        if len(open_):
            edges = edges or hits_from_blocks(spans, index, rules, live)
            _raise_along(*edges, states, open_, level)
    return states


def hits_from_blocks(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, live: Mask
) -> Tuple[I64, Hits]:
    """Return the words that lie in a live block and point into another, and the rows of the former."""
    hits = scan_pointers(spans, index, rules, live)
    source = index.find(hits.place)
    size, ahead = index.size[source], hits.place - index.address[source]
    whole = (size >= np.uint64(rules.word)) & (ahead <= size - np.uint64(rules.word))
    kept = (source >= 0) & whole & (source != hits.row) & live[source]
    return source[kept], Hits(hits.place[kept], hits.row[kept], hits.interior[kept])


def _raise_along(source: I64, hits: Hits, states: U8, rows: I64, level: int) -> None:
    """Raise the states of all that some rows lead to, one at a time: a list would take a round a node."""
    kept = np.flatnonzero(~hits.interior) if level == REACHED else np.arange(len(hits))
    kept = kept[np.argsort(source[kept], kind="stable")]
    first = np.searchsorted(source[kept], np.arange(len(states) + 1)).data
    to, seen = hits.row[kept].data, bytearray(states >= level)
    queue = rows.tolist()
    for done, row in enumerate(queue):
        if done % _STEP == 0:
            check()
        for target in to[first[row] : first[row + 1]].tolist():
            if not seen[target]:
                seen[target] = 1
                queue.append(target)
    states[queue] = level
    if level == REACHED:
        held = hits.row[hits.interior & (states[source] == REACHED)]
        states[held] = np.maximum(states[held], MAYBE_REACHED)


def _raise_from(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, columns: Tuple[Mask, U8], rows: I64, level: int
) -> I64:
    """Raise the states of what some blocks point at; return the rows that must be looked at because of it."""
    live, states = columns
    raised: List[I64] = []
    for hits in _hits_of_blocks(spans, index, rules, live, rows):
        to = np.where(hits.interior, MAYBE_REACHED, level)
        for state in (MAYBE_REACHED, REACHED):
            targets = np.unique(hits.row[to == state].astype(np.int64))
            targets = targets[states[targets] < state]
            states[targets] = state
            if state == level:
                raised.append(targets)
    return np.concatenate(raised) if raised else np.empty(0, np.int64)


def _hits_of_blocks(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, live: Mask, rows: I64
) -> Iterator[Hits]:
    """Iterate over what some blocks point at, many blocks at a time."""
    word = np.uint64(rules.word)
    first = (index.address[rows] + word - np.uint64(1)) // word * word
    end = index.address[rows] + index.size[rows]
    counts = (np.maximum(end, first) - first) // word
    bounds = np.searchsorted(np.cumsum(counts), np.arange(0, int(counts.sum()), _AT_ONCE)[1:])
    for part in np.split(np.arange(len(rows)), np.unique(bounds)):
        check()
        many = counts[part].astype(np.int64)
        at = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        places = np.repeat(first[part], many) + at.astype(np.uint64) * word
        values, known = gather_scalars(spans, places, rules.word, rules.byteorder)
        yield _hits_in(values[known], places[known], index, rules, live)
