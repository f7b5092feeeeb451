"""The words of a block or of plain memory, one a row, each with what it looks like."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Callable, Iterator, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.blocks.contents import pointer_namer
from gdbext.analysis.blocks.livefacts import Live
from gdbext.analysis.blocks.sums import arena_address
from gdbext.analysis.hiding import quiet
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.reach.model import GLOBAL, STACK, STATE_NAMES, TLS
from gdbext.errors import FaultError
from gdbext.heap.model import CACHED_STATES, FREE_STATES, USED_STATES, Heap, State
from gdbext.report import Kind, Rows, column
from gdbext.target import Target

USUAL = 32  # words
_FOLDED = 3  # equal words that share a row
_LEAST_TEXT = 4
_SMALL = 1 << 31
_NEAR = 1 << 16  # of an arena's beginning: in it
_UNUSED_STATES = frozenset((*FREE_STATES, *CACHED_STATES))
_LISTED_STATES = (State.TCACHE, State.FASTBIN)  # of which glibc mangles the links
_MANGLING = 12  # glibc's PROTECT_PTR (malloc/malloc.c): the link's own address, shifted so


@dataclass(frozen=True)
class Word:
    """One word, or several equal ones that follow each other.

    :param offset: of the first from where the dump's offsets count.
    :param value: None where it cannot be read.
    :param block: that it points at or into.
    :param member: that begins or goes on there; "" where that is not known.
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
    :param heap: and ``block``: the block that is dumped; None outside of blocks.
    """

    start: int
    count: int
    base: int
    marked: int
    heap: Optional[Heap] = None
    block: Optional[int] = None


@dataclass(frozen=True)
class Knowledge:
    """What helps to name words.

    :param live: reachability and types, or None.
    :param places: names what is in roots, or None.
    :param member: names the member at an offset of the dumped block, or None.
    """

    live: Optional[Live] = None
    places: Optional[Places] = None
    member: Optional[Callable[[int], str]] = None


def block_window(heap: Heap, block: int, address: int, count: int, target: Target) -> Window:
    """Return the part of a block that is dumped: its beginning, or what is around an address further back.

    Damage may make a block larger than what is mapped there; that is where it ends then.

    :param block: its position.
    :param address: in it.
    :param count: words at most; 0: all.
    """
    base, size, word = int(heap.blocks.address[block]), int(heap.blocks.size[block]), target.abi.pointer_size
    whole = (mapped_end(target, base, base + size) - base) // word
    held = (address - base) // word
    first = 0 if not count or held < count else held - count // 2
    shown = min(count or whole, whole - first)
    return Window(base + first * word, max(shown, 0), base, address, heap, block)


def mapped_end(target: Target, start: int, end: int) -> int:
    """Return where what is mapped from an address on without a gap ends, ``end`` at most."""
    at = start
    for region in target.index.within(start, end):
        if region.start > at:
            break
        at = min(region.end, end)
    return at


def dump(heaps: Sequence[Heap], target: Target, window: Window, known: Knowledge = Knowledge()) -> Rows:
    """Return the rows of a dump; they are made while they are printed."""
    row_type = Word if known.member else quiet(Word, ("member",))
    return Rows(lambda: _rows(heaps, target, window, known, row_type), row_type, None)


def _rows(
    heaps: Sequence[Heap], target: Target, window: Window, known: Knowledge, row_type: "type[Word]"
) -> Iterator[Word]:
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
            yield row_type(shown, offset, step, value, block, namer.member(offset), folded)


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
        self._heaps = heaps
        self._target = target
        self._window = window
        self._known = known
        self._elsewhere = pointer_namer(target, ())
        state = None if window.heap is None or window.block is None else window.heap.blocks.state[window.block]
        self._state = None if state is None else State(int(state))
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
        found = self._find(pointed)
        if found is not None:
            text = f"-> {self._block_text(*found, pointed)}" + (", mangled" if mangled else "")
            return text, int(found[0].blocks.address[found[1]])
        link = self._link(address, value) if self._state in _UNUSED_STATES else None
        if link is not None:
            return link
        return self._place(pointed) or _plain(value, self._target), None

    def _find(self, address: int) -> Optional[Tuple[Heap, int]]:
        for heap in self._heaps:
            block = heap.blocks.find(address)
            if block is not None:
                return heap, block
        return None

    def _block_text(self, heap: Heap, block: int, address: int) -> str:
        start, size = int(heap.blocks.address[block]), int(heap.blocks.size[block])
        offset = f" +{address - start:#x}" if address != start else ""
        if heap is self._window.heap and block == self._window.block:
            return f"this block{offset}"
        state = State(int(heap.blocks.state[block]))
        if state not in USED_STATES:
            return f"{_unused(state)} block {start:#x}{offset} ({size} bytes)"
        return f"block {start:#x}{offset} ({', '.join([*self._live_words(start, size)])})"

    def _live_words(self, start: int, size: int) -> Iterator[str]:
        """Iterate over what is known of a live block: type, size, reachability."""
        live = self._known.live
        row = live.reach.find_row(start) if live else None
        if live and live.types and row is not None and live.types.code[row]:
            yield live.types.name(row)
        yield f"{size} bytes"
        if live and row is not None:
            yield STATE_NAMES[int(live.reach.states[row])]

    def _link(self, address: int, value: int) -> Optional[Tuple[str, Optional[int]]]:
        """Return what a link of a free list means: mangled, or to the header of a chunk, or both."""
        decoded = value ^ (address >> _MANGLING)
        if not decoded and self._state in _LISTED_STATES and address == self._window.base:
            return "end of the list (mangled)", None
        header = 2 * self._target.abi.pointer_size
        ways = ((decoded, "mangled"), (decoded + header, "its header, mangled"), (value + header, "its header"))
        for target, how in ways:
            found = self._find(target)
            if found is not None and self._begins_unused(*found, target):
                heap, block = found
                state = _unused(State(int(heap.blocks.state[block])))
                return f"-> {state} block {target:#x} ({how})", target
        return None

    def _begins_unused(self, heap: Heap, block: int, address: int) -> bool:
        return int(heap.blocks.address[block]) == address and int(heap.blocks.state[block]) in _UNUSED_STATES

    def _place(self, address: int) -> Optional[str]:
        """Return what else lies at an address, or None: no pointer."""
        places = self._known.places
        root = places.find_range(address) if places else None
        if places and root is not None and root.kind in (GLOBAL, STACK, TLS):
            return f"-> {places.of_address(address).text}"
        what = self._allocators(address) or self._elsewhere(address)
        return f"-> {what}" if what else None

    def _allocators(self, address: int) -> Optional[str]:
        for heap in self._heaps:
            span = next((span for span in heap.spans if span.start <= address < span.end), None)
            if span is not None:
                ended = _ended_before(heap, address)
                if ended is not None:
                    return f"end of block {ended:#x}"
                arena = arena_address(heap, span.arena)
                return f"{heap.allocator}'s own bytes{_of_arena(arena, address)}"
        return None


def _ended_before(heap: Heap, address: int) -> Optional[int]:
    """Return the block in use whose first byte behind it is there, as ends of arrays point; or None."""
    blocks = heap.blocks
    at = int(np.searchsorted(blocks.address, np.uint64(address))) - 1
    if at < 0 or int(blocks.address[at]) + int(blocks.size[at]) != address or int(blocks.state[at]) in _UNUSED_STATES:
        return None
    return int(blocks.address[at])


def _of_arena(arena: Optional[int], address: int) -> str:
    if arena is None:
        return ""
    offset = f" +{address - arena:#x}" if 0 <= address - arena < _NEAR else ""
    return f" of arena {arena:#x}{offset}"


def _unused(state: State) -> str:
    return "free" if state is State.FREE else f"{state.label}"


def _plain(value: int, target: Target) -> str:
    """Return a word that is no pointer as text or a number, where it looks like one."""
    size = target.abi.pointer_size
    data = value.to_bytes(size, target.abi.byteorder)
    text = data.rstrip(b"\0")
    if len(text) >= _LEAST_TEXT and all(0x20 <= byte < 0x7F for byte in text):
        return f'"{text.decode("ascii")}"'
    signed = value - (1 << 8 * size) if value >> (8 * size - 1) else value
    return str(signed) if -_SMALL < signed < _SMALL else ""
