"""What is at an address: the block that holds it with its neighbours, or the mapping it is in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Iterator, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.blocks import report_on
from gdbext.analysis.contents import contents_hint, pointer_namer
from gdbext.analysis.tally import arena_address
from gdbext.errors import GdbextError
from gdbext.heap.model import Heap, Span, State
from gdbext.memory import Region
from gdbext.report import Kind, Report, column, line, table
from gdbext.target import Target


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
class Found(Place):
    """The block that holds an address.

    :param block: its user pointer.
    :param offset: bytes from the user pointer to the address.
    :param contents: hint at the first bytes.
    """

    size: int = line("size", Kind.COUNT)
    offset: int = line("offset", Kind.COUNT)
    state: str = line("state")
    arena: Optional[int] = line("arena", Kind.ADDRESS)
    allocator: str = line("allocator")
    contents: str = line("contents")
    around: Sequence[Neighbour] = table("In memory order")


@dataclass(frozen=True)
class ExplainedFound(Found):
    """As :class:`Found`, in a heap of an allocator that says more."""

    details: Optional[str] = line("details")


def describe(heaps: Sequence[Heap], target: Target, address: int) -> Report:
    """Say what is at an address: the block that holds it, or the mapping.

    :raises GdbextError: when nothing is mapped there.
    """
    for heap in heaps:
        block = heap.blocks.find(address)
        if block is not None:
            return report_on([heap], _found(heap, heaps, target, address, block))
    region = target.index.find(address)
    if region is None:
        raise GdbextError(f"{address:#x} is not mapped", "`info proc mappings` lists what is")
    allocator, details = _explained(heaps, address)
    what = f"{allocator}, {details}" if details else _outside(heaps, target, region, address)
    return report_on(heaps, Place(address, None, f"{address:#x} is in no block: {what}", details))


def _explained(heaps: Sequence[Heap], address: int) -> Tuple[str, Optional[str]]:
    """Return the heap that has something to say of an address that is in no block, and what."""
    told = ((heap.allocator, _explain(heap, address)) for heap in heaps)
    return next(((name, words) for name, words in told if words), ("", None))


def _explain(heap: Heap, address: int) -> Optional[str]:
    return heap.explain(address) if heap.explain is not None else None


def _found(heap: Heap, heaps: Sequence[Heap], target: Target, address: int, block: int) -> Found:
    blocks = heap.blocks
    pointer = int(blocks.address[block])
    offset = address - pointer
    arena = arena_address(heap, int(blocks.owner[block]))
    around = list(_around(heap, heaps, target, block))
    where = "the start" if offset == 0 else f"{offset} bytes inside"
    details = _explain(heap, address)
    page = ExplainedFound if details else Found
    return page(
        address,
        pointer,
        f"{address:#x} is {where} of the block {pointer:#x}",
        details,
        int(blocks.size[block]),
        offset,
        State(int(blocks.state[block])).label,
        arena,
        heap.allocator,
        next(row.contents for row in around if row.place == "this"),
        around,
    )


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
