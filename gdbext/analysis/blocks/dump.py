"""The words of a block or of plain memory, one a row, each with what it looks like."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Callable, Iterator, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.addresses import Address, Addresses, BlockAt
from gdbext.analysis.blocks.contents import find_pointed
from gdbext.analysis.blocks.livefacts import Live
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.reach.model import GLOBAL, STACK, STATE_NAMES, TLS
from gdbext.errors import FaultError
from gdbext.heap.model import CACHED_STATES, FREE_STATES, Heap
from gdbext.report import Kind, Labels, Rows, column, hidden
from gdbext.target import Target

USUAL = 32  # words
_FOLDED = 3  # equal words that share a row
_LEAST_TEXT = 4
_SMALL = 1 << 31
_NEAR = 1 << 16  # of an arena's beginning: in it
_UNUSED_STATES = frozenset((*FREE_STATES, *CACHED_STATES))


@dataclass(frozen=True)
class Word:
    """One word, or several equal ones that follow each other.

    :param offset: bytes from the block's beginning; outside of blocks from the word of the address.
    :param words: equal words from there on that this row represents.
    :param value: the word; None: it cannot be read.
    :param block: the block that it points at or into.
    :param member: the member that lies there; empty: not known.
    :param what: what it looks like: a pointer to what, text, a number; empty: nothing known.
    """

    at: str = column("offset", json=False)
    offset: int = column(None, Kind.COUNT)
    words: int = column(None, Kind.COUNT)
    value: Optional[int] = column("value", Kind.ADDRESS)
    block: Optional[int] = column(None, Kind.ADDRESS)
    member: str = column("member")
    what: str = column("what")


@dataclass(frozen=True)
class Window:
    """What is dumped.

    :param start: address of the first word.
    :param count: words.
    :param base: where offsets count from: the block's start.
    :param marked: an address whose word is marked.
    :param block: that is dumped; None outside of blocks.
    """

    start: int
    count: int
    base: int
    marked: int
    block: Optional[BlockAt] = None


@dataclass(frozen=True)
class Knowledge:
    """What is known beyond the heaps, and helps to name words.

    :param live: reachability and types, or None.
    :param places: names what is in roots, or None.
    :param member: names the member at an offset of the dumped block, or None.
    """

    live: Optional[Live] = None
    places: Optional[Places] = None
    member: Optional[Callable[[int], str]] = None


NOTHING_KNOWN = Knowledge()


def block_window(block: BlockAt, count: int, target: Target) -> Window:
    """Return the part of a block that is dumped: its beginning, or what is around an address further back.

    Damage may make a block larger than what is mapped there; that is where it ends then.

    :param count: words at most; 0: all.
    """
    base, word = block.start, target.abi.pointer_size
    whole = (mapped_end(target, base, base + block.size) - base) // word
    held = block.offset // word
    first = 0 if not count or held < count else held - count // 2
    shown = min(count or whole, whole - first)
    return Window(base + first * word, max(shown, 0), base, base + block.offset, block)


def mapped_end(target: Target, start: int, end: int) -> int:
    """Return where what is mapped from an address on without a gap ends, ``end`` at most."""
    at = start
    for region in target.index.within(start, end):
        if region.start > at:
            break
        at = min(region.end, end)
    return at


def dump(heaps: Sequence[Heap], target: Target, window: Window, known: Knowledge = NOTHING_KNOWN) -> Rows[Word]:
    """Return the rows of a dump; they are made while they are printed."""
    return Rows(lambda: _rows(heaps, target, window, known), Word, None)


def labels_of(known: Knowledge) -> Labels:
    """Return what the text of a dump shows otherwise: no members where none are known."""
    return {} if known.member else hidden(Word, ("member",))


def _rows(heaps: Sequence[Heap], target: Target, window: Window, known: Knowledge) -> Iterator[Word]:
    namer = _Namer(heaps, target, window, known)
    word = target.abi.pointer_size
    end = window.start
    for value, run in groupby(_words(target, window)):
        first, count = end, sum(1 for _ in run)
        end += count * word
        alone = value and (namer.by_place or namer.member(first - window.base))
        step = count if count >= _FOLDED and not alone else 1
        for address in range(first, end, step * word):
            offset = address - window.base
            what, block = namer.name(address, value)
            folded = f"{what} ({step} words)".lstrip() if step > 1 else what
            marked = address <= window.marked < address + step * word
            shown = f"+{offset:#x}" + (" *" if marked else "")
            yield Word(shown, offset, step, value, block, namer.member(offset), folded)


def _words(target: Target, window: Window) -> Iterator[Optional[int]]:
    """Iterate over values, read by pages; that of what cannot be read is None."""
    word, page = target.abi.pointer_size, target.abi.page_size
    at, end = window.start, window.start + window.count * word
    while at < end:
        count = min(max((page - at % page) // word, 1), (end - at) // word)
        yield from _values(target, at, count)
        at += count * word


def _values(target: Target, at: int, count: int) -> "Sequence[Optional[int]]":
    try:
        data = target.reader.bytes(at, count * target.abi.pointer_size, "dump")
    except FaultError:
        return [None] * count
    values: "Sequence[Optional[int]]" = np.frombuffer(data, target.abi.word_dtype).tolist()
    return values


class _Namer:
    """Says what the words of one dump are."""

    def __init__(self, heaps: Sequence[Heap], target: Target, window: Window, known: Knowledge) -> None:
        self._addresses = Addresses(target, heaps)
        self._target = target
        self._window = window
        self._known = known
        self._reach = known.live.reach if known.live else None

    @property
    def by_place(self) -> bool:
        """Whether equal words may mean different things."""
        return self._reach is not None and self._reach.rules.mangled

    def member(self, offset: int) -> str:
        return self._known.member(offset) if self._known.member else ""

    def name(self, address: int, value: Optional[int]) -> Tuple[str, Optional[int]]:
        """Return what a word is, and the block that it points at or into."""
        if value is None:
            absent = self._target.lacks(address)
            return ("not in the core" if absent else "not readable"), None
        if not value:
            return "0", None
        pointed, mangled = self._reach.meaning(value, address) if self._reach else (value, False)
        at = self._addresses.at(pointed)
        if at.block is not None:
            return f"-> {self._block_text(at.block)}" + (", mangled" if mangled else ""), at.block.start
        of = self._window.block
        link = self._link(of, address, value) if of is not None and of.state in _UNUSED_STATES else None
        if link is not None:
            return link
        place = self._place(at)
        return f"-> {place}" if place else _plain(value, self._target), None

    def _block_text(self, at: BlockAt) -> str:
        offset = f" +{at.offset:#x}" if at.offset else ""
        if self._window.block is not None and at.start == self._window.block.start:
            return f"this block{offset}"
        if not at.used:
            return f"{at.state.label} block {at.start:#x}{offset} ({at.size} bytes)"
        return f"block {at.start:#x}{offset} ({', '.join([*self._live_words(at)])})"

    def _live_words(self, at: BlockAt) -> Iterator[str]:
        """Iterate over what is known of a live block: type, size, reachability."""
        live = self._known.live
        row = live.reach.find_row(at.start) if live else None
        if live and live.types and row is not None and live.types.code[row]:
            yield live.types.name(row)
        yield f"{at.size} bytes"
        if live and row is not None:
            yield STATE_NAMES[int(live.reach.states[row])]

    def _link(self, of: BlockAt, address: int, value: int) -> Optional[Tuple[str, Optional[int]]]:
        """Return what a link of a free list means, and the block that it points at; None where it can be none."""
        for target, how in of.heap.links(of.index, address, value) if of.heap.links else ():
            if not target:
                return f"end of the list ({how})", None
            to = self._addresses.at(target).block
            if to is not None and not to.offset and to.state in _UNUSED_STATES:
                return f"-> {to.state.label} block {target:#x} ({how})", target
        return None

    def _place(self, at: Address) -> Optional[str]:
        """Return what else lies at an address, or None: no pointer."""
        places = self._known.places
        root = places.find_range(at.address) if places else None
        if places and root is not None and root.kind in (GLOBAL, STACK, TLS):
            return places.of_address(at.address).text
        if at.span is None:
            return find_pointed(at)
        ended = _ended_before(at.span.heap, at.address)
        if ended is not None:
            return f"end of block {ended:#x}"
        text = f"{at.span.heap.allocator}'s own bytes"
        if at.span.arena is None:
            return text
        offset = at.address - at.span.arena
        return f"{text} of arena {at.span.arena:#x}" + (f" +{offset:#x}" if 0 <= offset < _NEAR else "")


def _ended_before(heap: Heap, address: int) -> Optional[int]:
    """Return the block in use whose first byte behind it is there, as ends of arrays point; or None."""
    blocks = heap.blocks
    at = int(np.searchsorted(blocks.address, np.uint64(address))) - 1
    if at < 0 or int(blocks.address[at]) + int(blocks.size[at]) != address or int(blocks.state[at]) in _UNUSED_STATES:
        return None
    return int(blocks.address[at])


def _plain(value: int, target: Target) -> str:
    """Return a word that is no pointer as text or a number, where it looks like one."""
    size = target.abi.pointer_size
    data = value.to_bytes(size, target.abi.byteorder)
    text = data.rstrip(b"\0")
    if len(text) >= _LEAST_TEXT and all(0x20 <= byte < 0x7F for byte in text):
        return f'"{text.decode("ascii")}"'
    signed = value - (1 << 8 * size) if value >> (8 * size - 1) else value
    return str(signed) if -_SMALL < signed < _SMALL else ""
