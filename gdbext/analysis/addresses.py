"""What is at an address: a block, an allocator's own memory, a stack, a module, a mapping. Callers choose the words.

What reachability and debug info add, variables, frames and members, is :mod:`gdbext.analysis.pins.naming`'s; tables
that shapes know are :mod:`gdbext.analysis.tables.places`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Optional, Sequence

from gdbext.analysis.blocks.sums import arena_address
from gdbext.heap.model import USED_STATES, Heap, Span, State
from gdbext.memory import Region
from gdbext.process import Module, Thread
from gdbext.target import Target
from gdbext.wording import count_text


@dataclass(frozen=True)
class BlockAt:
    """A block that holds an address.

    :param index: its position among the heap's blocks.
    :param start: its user pointer.
    :param size: usable bytes.
    :param offset: bytes from the user pointer to the address.
    """

    heap: Heap
    index: int
    start: int
    size: int
    state: State
    offset: int

    @property
    def used(self) -> bool:
        """Whether the program has it."""
        return self.state in USED_STATES


@dataclass(frozen=True)
class SpanAt:
    """Memory that an allocator took from the system.

    :param arena: address of the arena that it is of; None: it belongs to none.
    """

    heap: Heap
    arena: Optional[int]


@dataclass(frozen=True)
class StackAt:
    """A thread's stack.

    :param offset: bytes from the stack pointer to the address; below 0: of no frame.
    """

    thread: Thread
    offset: int


def find_block(heaps: Sequence[Heap], address: int) -> Optional[BlockAt]:
    """Return the block that holds an address, be it free, or None."""
    for heap in heaps:
        at = heap.blocks.find(address)
        if at is not None:
            return block_at(heap, at, address)
    return None


def block_at(heap: Heap, index: int, address: int) -> BlockAt:
    """Return a heap's block, and where in it an address is."""
    blocks, start = heap.blocks, int(heap.blocks.address[index])
    return BlockAt(heap, index, start, int(blocks.size[index]), State(int(blocks.state[index])), address - start)


class Addresses:
    """The addresses of one target; keep it where there are many."""

    def __init__(self, target: Target, heaps: Sequence[Heap] = ()) -> None:
        self.target = target
        self.heaps = heaps

    def at(self, address: int) -> "Address":
        """Return what is at an address; each fact is looked up when it is asked for."""
        return Address(self, address)

    def threads_in(self, region: Region) -> Sequence[Thread]:
        """Return the threads whose stack pointers are in a mapping, lowest first."""
        return self._threads.get(region.start, ())

    @cached_property
    def _threads(self) -> Dict[int, List[Thread]]:
        found: Dict[int, List[Thread]] = {}
        for thread in sorted(self.target.threads, key=lambda one: one.stack_pointer or 0):
            region = self.target.index.find(thread.stack_pointer) if thread.stack_pointer is not None else None
            if region is not None:
                found.setdefault(region.start, []).append(thread)
        return found


class Address:
    """One address; a fact that is None does not hold there."""

    def __init__(self, among: Addresses, address: int) -> None:
        self.address = address
        self._among = among

    @cached_property
    def region(self) -> Optional[Region]:
        """The mapping."""
        return self._among.target.index.find(self.address)

    @cached_property
    def block(self) -> Optional[BlockAt]:
        """The block, be it free."""
        return find_block(self._among.heaps, self.address)

    @cached_property
    def metadata(self) -> Optional[Heap]:
        """The allocator that keeps this for itself, outside of its spans or in a block."""
        heaps = self._among.heaps
        return next((heap for heap in heaps if any(a <= self.address < b for a, b in heap.metadata)), None)

    @cached_property
    def span(self) -> Optional[SpanAt]:
        """The allocator's memory."""
        for heap in self._among.heaps:
            span = find_span(heap, self.address)
            if span is not None:
                return SpanAt(heap, arena_address(heap, span.arena))
        return None

    @cached_property
    def stack(self) -> Optional[StackAt]:
        """The stack, as far as stack pointers show it: that of the nearest one below, else of the lowest above.

        A stack that the program allocated ends with its block.
        """
        near: Optional[StackAt] = None
        for thread in self._among.threads_in(self.region) if self.region is not None else ():
            pointer = thread.stack_pointer or 0
            if (near is None or pointer <= self.address) and self._shares_block(pointer):
                near = StackAt(thread, self.address - pointer)
        return near

    def _shares_block(self, pointer: int) -> bool:
        """Return whether another address is in this one's block; or neither is in one."""
        other = find_block(self._among.heaps, pointer)
        return (self.block and self.block.start) == (other and other.start)

    @cached_property
    def module(self) -> Optional[Module]:
        """The module whose mappings enclose it."""
        return self._among.target.find_module(self.address)

    @cached_property
    def symbol(self) -> Optional[str]:
        """The symbol there, with the offset from it."""
        return self._among.target.symbols.find_name(self.address)


def find_span(heap: Heap, address: int) -> Optional[Span]:
    """Return the stretch of an allocator's memory that holds an address, or None."""
    return next((span for span in heap.spans if span.start <= address < span.end), None)


def find_short_name(at: Address) -> Optional[str]:
    """Return "symbol+8", "stack of thread 3", "block of 320 bytes + 0x28", "libc.so.6 + 0x1d3c60"; None: no name.

    A stack comes before the block that it may have been allocated as.
    """
    if at.symbol is not None:
        return at.symbol
    if at.stack is not None and at.stack.offset >= 0:
        return f"stack of thread {at.stack.thread.number}"
    if at.block is not None:
        offset = f" + {at.block.offset:#x}" if at.block.offset else ""
        return f"{'' if at.block.used else 'freed '}block of {count_text(at.block.size, 'byte')}{offset}"
    return find_mapping_name(at)


def find_mapping_name(at: Address) -> Optional[str]:
    """Return "libc.so.6 + 0x1d3c60", of other mappings that have a name the same; None where there is no name."""
    if at.module is not None:
        return f"{base_name(at.module.path)} + {at.address - at.module.base:#x}"
    if at.region is None or not at.region.name:
        return None
    offset = at.address - at.region.start + (0 if at.region.anonymous else at.region.offset)
    return f"{base_name(at.region.name)} + {offset:#x}"


def base_name(path: str) -> str:
    """Return what follows the last slash."""
    return path.rpartition("/")[2]
