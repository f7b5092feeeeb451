"""What is at an address: the block that holds it with its neighbours, or the mapping it is in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.blocks.contents import contents_hint, pointer_namer
from gdbext.analysis.blocks.dump import USUAL, Knowledge, Window, block_window, dump
from gdbext.analysis.blocks.livefacts import Live, report_on_live
from gdbext.analysis.blocks.summary import report_on
from gdbext.analysis.blocks.sums import arena_address
from gdbext.analysis.hiding import quiet
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.refs import refs
from gdbext.analysis.reach.members import member_text
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.types.model import CONFIDENCE_NAMES, DEBUG_INFO, VTABLE
from gdbext.debuginfo import Types
from gdbext.errors import GdbextError
from gdbext.heap.model import Heap, Span, State
from gdbext.memory import Region
from gdbext.report import Kind, Report, Rows, column, line, table
from gdbext.target import Target
from gdbext.wording import grouped

_FEW = 5  # pointers that are named


@dataclass(frozen=True)
class Neighbour:
    """A block around the one that was found."""

    place: str = column("place")
    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    state: str = column("state")
    contents: str = column("contents")


@dataclass(frozen=True)
class Place:
    """An address in no block: which mapping it is in.

    :param place: what it is in the allocator's own terms, else file or kind of memory, permissions, bounds.
    :param details: the first of these alone; None where the allocator says no more.
    """

    address: int = column(None, Kind.ADDRESS)
    block: Optional[int] = column(None, Kind.ADDRESS)
    place: str = line("place")
    details: Optional[str] = line(None)


@dataclass(frozen=True)
class DumpedPlace(Place):
    """As :class:`Place`, with the words there."""

    dump: Rows = table("Words")


@dataclass(frozen=True)
class Pointer:
    """A word that points at the block.

    :param into: bytes behind its beginning; None where that cannot be read any more.
    """

    address: Optional[int] = column(None, Kind.ADDRESS)
    at: str = column("word", json=False)
    into: Optional[int] = column("into", Kind.COUNT)
    place: str = column("from")


@dataclass(frozen=True)
class Found(Place):
    """The block that holds an address. What is only known of live blocks is None elsewhere, or where nobody asked.

    :param block: its user pointer.
    :param offset: bytes from the user pointer to the address.
    :param contents: hint at the first bytes.
    :param reached_by_offset: bytes of the header behind which alone start pointers lead to it.
    :param pointers: words in use or in roots that are start pointers to it.
    :param interior: those that point further back.
    :param references: the first of them.
    """

    size: int = line("size", Kind.COUNT)
    offset: int = line("offset", Kind.COUNT)
    state: str = line("state")
    reach: Optional[str] = line("reach")
    reached_by_offset: Optional[int] = line("reached by offset", Kind.COUNT)
    type: Optional[str] = line("type")
    confidence: Optional[str] = line("confidence")
    pointers: Optional[int] = line("pointers to it", Kind.COUNT)
    interior: Optional[int] = line("pointers into it", Kind.COUNT)
    arena: Optional[int] = line("arena", Kind.ADDRESS)
    allocator: str = line("allocator")
    contents: str = line("contents")
    details: Optional[str] = line("details")
    around: Sequence[Neighbour] = table("In memory order")
    references: Sequence[Pointer] = table("Pointers")
    dump: Sequence[Any] = table("Words")


_LIVE = ("reach", "reached_by_offset", "type", "confidence", "pointers", "interior")
_OFTEN_UNKNOWN = (*_LIVE, "details", "references")


@dataclass(frozen=True)
class Known:
    """What is known beyond the heaps.

    :param places: names words that point at blocks.
    :param types: finds the members of types, or None.
    """

    live: Live
    places: Places
    types: Optional[Types] = None


def describe(
    heaps: Sequence[Heap],
    target: Target,
    address: int,
    words: Optional[int] = None,
    known: Optional[Known] = None,
    notes: Sequence[str] = (),
) -> Report:
    """Say what is at an address: the block that holds it, or the mapping.

    :param words: how many are dumped at most; 0: all of a block; None: no dump.
    :param known: reachability and what follows from it, of these very heaps.
    :raises GdbextError: when nothing is mapped there.
    """
    live = known.live if known else None
    for heap in heaps:
        block = heap.blocks.find(address)
        if block is not None:
            page = _found(heap, heaps, target, address, block, words, known)
            return report_on_live([heap], page, live, [*notes, *_left_out(page, words, target)])
    region = target.index.find(address)
    if region is None:
        raise GdbextError(f"{address:#x} is not mapped", "`info proc mappings` lists what is")
    allocator, details = _explained(heaps, address)
    what = f"{allocator}, {details}" if details else _outside(heaps, target, region, address)
    place = (address, None, f"{address:#x} is in no block: {what}", details)
    if words is None:
        return report_on(heaps, Place(*place))
    rows = dump(heaps, target, _window(target, region, address, words), _knowledge(known, None))
    return report_on_live(heaps, DumpedPlace(*place, rows), live, notes)


def _left_out(page: Found, words: Optional[int], target: Target) -> Iterator[str]:
    """Iterate over one line on the words that are not dumped, if there are any."""
    whole = page.size // target.abi.pointer_size
    if words and words < whole:
        yield f"{words} of the block's {grouped(whole)} words are shown; --words 0 shows all"


def _window(target: Target, region: Region, address: int, words: int) -> Window:
    """Return what is dumped outside of blocks: from the word that holds an address to the end of what is mapped."""
    word = target.abi.pointer_size
    start = address - address % word
    left = (region.end - start) // word
    return Window(start, min(words or USUAL, left), start, address)


def _knowledge(known: Optional[Known], member: Optional[Callable[[int], str]]) -> Knowledge:
    return Knowledge(known.live, known.places, member) if known else Knowledge()


def _explained(heaps: Sequence[Heap], address: int) -> Tuple[str, Optional[str]]:
    """Return the heap that has something to say of an address that is in no block, and what."""
    told = ((heap.allocator, _explain(heap, address)) for heap in heaps)
    return next(((name, words) for name, words in told if words), ("", None))


def _explain(heap: Heap, address: int) -> Optional[str]:
    return heap.explain(address) if heap.explain is not None else None


def _found(
    heap: Heap,
    heaps: Sequence[Heap],
    target: Target,
    address: int,
    block: int,
    words: Optional[int],
    known: Optional[Known],
) -> Found:
    blocks = heap.blocks
    pointer = int(blocks.address[block])
    offset = address - pointer
    around = list(_around(heap, heaps, target, block))
    where = "the start" if offset == 0 else f"{offset} bytes inside"
    facts = {
        "address": address,
        "block": pointer,
        "place": f"{address:#x} is {where} of the block {pointer:#x}",
        "details": _explain(heap, address),
        "size": int(blocks.size[block]),
        "offset": offset,
        "state": State(int(blocks.state[block])).label,
        "arena": arena_address(heap, int(blocks.owner[block])),
        "allocator": heap.allocator,
        "contents": next(row.contents for row in around if row.place == "this"),
        "around": around,
        **_facts_of_live(pointer, known),
        "dump": _dump(heap, heaps, target, address, block, words, known),
    }
    left_out = [name for name in _OFTEN_UNKNOWN if facts[name] is None or facts[name] == ()]
    page: Found = quiet(Found, (*left_out, *(("dump",) if words is None else ())))(**facts)
    return page


def _facts_of_live(pointer: int, known: Optional[Known]) -> "dict[str, Any]":
    """Return reachability, type and pointers of a block as far as they are known."""
    facts: "dict[str, Any]" = {**dict.fromkeys(_LIVE), "references": ()}
    if known is None:
        return facts
    found = refs(known.live.reach, known.places, pointer, interior=True).data
    facts["pointers"], facts["interior"] = found.pointers, found.interior
    facts["references"] = [
        Pointer(one.address, one.at, one.into, one.place) for one in islice(found.references, _FEW)
    ]
    row, types = known.live.reach.find_row(pointer), known.live.types
    if row is not None:
        facts["reach"] = STATE_NAMES[int(known.live.reach.states[row])]
        facts["reached_by_offset"] = int(known.live.reach.header_offsets[row]) or None
    if row is not None and types is not None:
        facts["type"] = types.name(row)
        facts["confidence"] = CONFIDENCE_NAMES[int(types.confidence[row])] or None
    return facts


def _dump(
    heap: Heap,
    heaps: Sequence[Heap],
    target: Target,
    address: int,
    block: int,
    words: Optional[int],
    known: Optional[Known],
) -> Sequence[Any]:
    if words is None:
        return ()
    window = block_window(heap, block, address, words, target)
    member = _member_namer(int(heap.blocks.address[block]), int(heap.blocks.size[block]), known)
    return dump(heaps, target, window, _knowledge(known, member))  # type: ignore[return-value]


def _member_namer(pointer: int, size: int, known: Optional[Known]) -> Optional[Callable[[int], str]]:
    """Return what names the members of a block whose type debug info knows, or None."""
    types = known.live.types if known else None
    row = known.live.reach.find_row(pointer) if known and types else None
    if known is None or types is None or row is None or known.types is None:
        return None
    name = types.types[int(types.code[row])]
    kind = known.types.find_type(name.name) if name.kind in (DEBUG_INFO, VTABLE) else None
    if kind is None or not kind.size:
        return None
    return lambda offset: member_text(kind, size, offset)


def _around(heap: Heap, heaps: Sequence[Heap], target: Target, block: int) -> Iterator[Neighbour]:
    blocks, reader, namer = heap.blocks, target.reader, pointer_namer(target, heaps)
    span = _span_of(heap, int(blocks.address[block]))
    for place, index in (("before", block - 1), ("this", block), ("after", block + 1)):
        if not 0 <= index < len(blocks):
            continue
        address, size = int(blocks.address[index]), int(blocks.size[index])
        if index == block or (span is not None and span.start <= address < span.end):
            hint = contents_hint(reader, address, size, namer)
            yield Neighbour(place, address, size, State(int(blocks.state[index])).label, hint)


def _outside(heaps: Sequence[Heap], target: Target, region: Region, address: int) -> str:
    """Say in words what lies at an address that no block holds."""
    for heap in heaps:
        span = _span_of(heap, address)
        if span is not None:
            arena = arena_address(heap, span.arena)
            where = "" if arena is None else f" in arena {arena:#x},"
            return f"{heap.allocator}'s own bytes,{where} {_after(heap, address)}"
    return _mapping_text(target, region, address)


def _span_of(heap: Heap, address: int) -> Optional[Span]:
    return next((span for span in heap.spans if span.start <= address < span.end), None)


def _after(heap: Heap, address: int) -> str:
    following = int(np.searchsorted(heap.blocks.address, np.uint64(address)))
    if following == len(heap.blocks):
        return "behind the last block"
    gap = int(heap.blocks.address[following]) - address
    return f"{gap} bytes before the block {int(heap.blocks.address[following]):#x}"


def _mapping_text(target: Target, region: Region, address: int) -> str:
    bounds = f"{region.start:#x}-{region.end:#x} {region.permissions}"
    if not region.anonymous:
        symbol = target.symbols.find_name(address)
        name = f", {symbol}" if symbol else f", file offset {region.offset + address - region.start:#x}"
        return f"{region.name} ({bounds}{name})"
    users = (
        thread.number
        for thread in target.threads
        if thread.stack_pointer is not None and thread.stack_pointer in region
    )
    owners = list(islice(users, 1))
    what = f"stack of thread {owners[0]}" if owners else region.name or "anonymous memory"
    return f"{what} ({bounds})"
