"""What is at an address: the block that holds it with its neighbours, or the mapping it is in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Iterator, Optional, Sequence, Union

import numpy as np

from gdbext.analysis.addresses import Address, Addresses, BlockAt, find_span
from gdbext.analysis.blocks.contents import contents_hint, pointer_namer
from gdbext.analysis.blocks.dump import NOTHING_KNOWN, USUAL, Knowledge, Window, Word, block_window, dump, labels_of
from gdbext.analysis.blocks.livefacts import report_on_live
from gdbext.analysis.blocks.summary import report_on
from gdbext.analysis.blocks.sums import arena_address
from gdbext.analysis.pins.refs import refs
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.types.model import CONFIDENCE_NAMES
from gdbext.errors import GdbextError
from gdbext.heap.model import Heap, State
from gdbext.memory import Region
from gdbext.report import Kind, Labels, Report, Rows, column, hidden, line, table
from gdbext.target import Target
from gdbext.wording import grouped

_FEW = 5  # pointers that are named


@dataclass(frozen=True)
class Neighbour:
    """A block around the one that was found.

    :param place: ``before``, ``this``, ``after``.
    :type place: word
    :param address: user pointer.
    :param size: usable bytes.
    :type size: bytes
    :param state: as above: ``in use``, ``mmapped``, ``tcache``, ``fastbin``, ``unsorted``, ``small``, ``large``,
        ``top``, ``free``, ``fencepost``, ``dirty``, ``muzzy``.
    :type state: word
    :param contents: as ``contents``.
    """

    place: str = column("place")
    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    state: str = column("state")
    contents: str = column("contents")


@dataclass(frozen=True)
class Place:
    """An address in no block: which mapping it is in.

    :param address: the one that was asked for.
    :param block: user pointer of the block that holds it; None: no block does.
    :param place: the same in words; outside of blocks what ``details`` says, or which mapping it is in.
    :param details: what is there in the allocator's own terms: slab and region, large block, unused extent, metadata;
        None: it has no more to say (glibc).
    """

    address: int = column(None, Kind.ADDRESS)
    block: Optional[int] = column(None, Kind.ADDRESS)
    place: str = line("place")
    details: Optional[str] = line(None)


@dataclass(frozen=True)
class DumpedPlace(Place):
    """As :class:`Place`, with the words there."""

    dump: Rows[Word] = table("Words")


@dataclass(frozen=True)
class Pointer:
    """A word that points at the block.

    :param address: of the word, of the first five; None: a register.
    :param into: bytes behind the block's beginning that it points to; None: it cannot be read any more.
    :param place: where the word is, as in ``blocks refs``.
    """

    address: Optional[int] = column(None, Kind.ADDRESS)
    at: str = column("word", json=False)
    into: Optional[int] = column("into", Kind.COUNT)
    place: str = column("from")


@dataclass(frozen=True)
class Found(Place):
    """The block that holds an address. What is only known of live blocks is None elsewhere, or where nobody asked.

    :param size: usable bytes of the block.
    :type size: bytes
    :param offset: from the user pointer to the address.
    :type offset: bytes
    :param state: ``in use``, ``mmapped``, ``tcache``, ``fastbin``, ``unsorted``, ``small``, ``large``, ``top``,
        ``free``, ``fencepost``, ``dirty``, ``muzzy``.
    :type state: word
    :param reach: ``reached``, ``possibly leaked``, ``leaked``; None: not in use, or reachability was not worked out
        (``--reach``).
    :type reach: word
    :param reached_by_offset: bytes of the header behind which alone start pointers lead to it; None: no.
    :param type: what the block is, as in ``blocks types``; None as ``reach``.
    :param confidence: of the type: ``high``, ``medium``, ``low``; None as ``reach``, and of an unknown type.
    :type confidence: word
    :param pointers: words of blocks in use and of roots that are start pointers to it; None: not worked out.
    :param interior: words that are interior pointers.
    :param arena: None: it belongs to none.
    :param allocator: as in ``blocks summary``.
    :param contents: what its first bytes look like: a hint.
    :param references: the first of them.
    """

    size: int = line("size", Kind.COUNT)
    offset: int = line("offset", Kind.COUNT)
    state: str = line("state")
    reach: Optional[str] = line("reach")
    reached_by_offset: Optional[int] = line("reached by offset", Kind.COUNT)
    type: Optional[str] = line("type")
    confidence: Optional[str] = line("confidence")
    pointers: Optional[int] = line("start pointers", Kind.COUNT)
    interior: Optional[int] = line("interior pointers", Kind.COUNT)
    arena: Optional[int] = line("arena", Kind.ADDRESS)
    allocator: str = line("allocator")
    contents: str = line("contents")
    details: Optional[str] = line("details")
    around: Sequence[Neighbour] = table("In memory order")
    references: Sequence[Pointer] = table("Pointers")
    dump: Union[Rows[Word], Sequence[Word]] = table("Words")


_LIVE = ("reach", "reached_by_offset", "type", "confidence", "pointers", "interior")
_OFTEN_UNKNOWN = (*_LIVE, "details", "references")


def describe(
    heaps: Sequence[Heap],
    target: Target,
    address: int,
    words: Optional[int] = None,
    known: Knowledge = NOTHING_KNOWN,
    notes: Sequence[str] = (),
) -> Report:
    """Say what is at an address: the block that holds it, or the mapping.

    :param words: how many are dumped at most; 0: all of a block; None: no dump.
    :param known: reachability and what follows from it, of these very heaps.
    :raises GdbextError: when nothing is mapped there.
    """
    at = Addresses(target, heaps).at(address)
    if at.block is not None:
        if known.places is not None:
            known = replace(known, member=known.places.member_namer(at.block.start))
        rows: Union[Rows[Word], Sequence[Word]] = ()
        if words is not None:
            rows = dump(heaps, target, block_window(at.block, words, target), known)
        page = _found(at.block, heaps, target, rows, known)
        report = report_on_live([at.block.heap], page, known.live, [*notes, *_left_out(page, words, target)])
        return replace(report, labels={**labels_of(known), **_labels(page, words)})
    if at.region is None:
        raise GdbextError(f"{address:#x} is not mapped", "`info proc mappings` lists what is")
    explained = ((heap.allocator, heap.explain(address)) for heap in heaps if heap.explain is not None)
    allocator, details = next((each for each in explained if each[1]), ("", None))
    what = f"{allocator}, {details}" if details else _outside(at, at.region)
    place = (address, None, f"{address:#x} is in no block: {what}", details)
    if words is None:
        return report_on(heaps, Place(*place))
    dumped = DumpedPlace(*place, dump(heaps, target, _window(target, at.region, address, words), known))
    return replace(report_on_live(heaps, dumped, known.live, notes), labels=labels_of(known))


def _labels(page: Found, words: Optional[int]) -> Labels:
    """Return what the text shows otherwise: nothing of what is not known, where "?" would be noise."""
    unknown = [name for name in _OFTEN_UNKNOWN if getattr(page, name) is None or getattr(page, name) == ()]
    return hidden(Found, (*unknown, *(("dump",) if words is None else ())))


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


def _found(
    at: BlockAt,
    heaps: Sequence[Heap],
    target: Target,
    words: Union[Rows[Word], Sequence[Word]],
    known: Knowledge,
) -> Found:
    heap, address = at.heap, at.start + at.offset
    around = list(_around(at, heaps, target))
    where = "the start" if at.offset == 0 else f"{at.offset} bytes inside"
    return Found(
        address=address,
        block=at.start,
        place=f"{address:#x} is {where} of the block {at.start:#x}",
        details=heap.explain(address) if heap.explain is not None else None,
        size=at.size,
        offset=at.offset,
        state=at.state.label,
        arena=arena_address(heap, int(heap.blocks.owner[at.index])),
        allocator=heap.allocator,
        contents=next(row.contents for row in around if row.place == "this"),
        around=around,
        **_facts_of_live(at.start, known),
        dump=words,
    )


def _facts_of_live(pointer: int, known: Knowledge) -> "dict[str, Any]":
    """Return reachability, type and pointers of a block as far as they are known."""
    facts: "dict[str, Any]" = {**dict.fromkeys(_LIVE), "references": ()}
    if known.live is None or known.places is None:
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


def _around(at: BlockAt, heaps: Sequence[Heap], target: Target) -> Iterator[Neighbour]:
    blocks, reader, namer = at.heap.blocks, target.reader, pointer_namer(target, heaps)
    span = find_span(at.heap, at.start)
    for place, index in (("before", at.index - 1), ("this", at.index), ("after", at.index + 1)):
        if not 0 <= index < len(blocks):
            continue
        address, size = int(blocks.address[index]), int(blocks.size[index])
        if index == at.index or (span is not None and span.start <= address < span.end):
            hint = contents_hint(reader, address, size, namer)
            yield Neighbour(place, address, size, State(int(blocks.state[index])).label, hint)


def _outside(at: Address, region: Region) -> str:
    """Say in words what lies at an address that no block holds."""
    if at.span is not None:
        where = "" if at.span.arena is None else f" in arena {at.span.arena:#x},"
        return f"{at.span.heap.allocator}'s own bytes,{where} {_after(at.span.heap, at.address)}"
    bounds = f"{region.start:#x}-{region.end:#x} {region.permissions}"
    if not region.anonymous:
        name = at.symbol or f"file offset {region.offset + at.address - region.start:#x}"
        return f"{region.name} ({bounds}, {name})"
    stack = f"stack of thread {at.stack.thread.number}" if at.stack is not None else ""
    return f"{stack or region.name or 'anonymous memory'} ({bounds})"


def _after(heap: Heap, address: int) -> str:
    following = int(np.searchsorted(heap.blocks.address, np.uint64(address)))
    if following == len(heap.blocks):
        return "behind the last block"
    gap = int(heap.blocks.address[following]) - address
    return f"{gap} bytes before the block {int(heap.blocks.address[following]):#x}"
