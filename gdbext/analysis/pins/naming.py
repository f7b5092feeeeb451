"""What a word that points at a block is called: a variable with its member, a thread's frame, a register, a block.

Looked up only for what is shown: a lookup may cost gdb a millisecond.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Callable, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.addresses import Addresses, BlockAt
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.members import member_path, member_text
from gdbext.analysis.reach.model import ANONYMOUS, FILE, GLOBAL, REGISTER, STACK, TLS, RootRange, RootWord
from gdbext.analysis.types.model import DEBUG_INFO, PYTHON, UNKNOWN, VTABLE, BlockTypes, Runtime
from gdbext.debuginfo import RootNames
from gdbext.heap.detect import may_hold_cpython
from gdbext.heap.model import State
from gdbext.layout.types import Type
from gdbext.memory.elf.elfsymbols import Variables

_DESCRIPTOR = 0x2000  # bytes from the thread pointer on that may be the thread's descriptor

BLOCK, FREE_BLOCK, ALLOCATOR = ("block", "free block", "allocator")


@dataclass(frozen=True)
class Place:
    """A word that points at something.

    :param kind: one of :data:`gdbext.analysis.reach.model.ROOT_KINDS`, or :data:`BLOCK` (in use),
        :data:`FREE_BLOCK`, :data:`ALLOCATOR` (between blocks).
    :param text: in words.
    :param address: of the word; None for a register.
    :param block: beginning of the block that it lies in, or None.
    :param offset: in that block, or from the variable or module that the text names, or None.
    """

    kind: str
    text: str
    address: Optional[int]
    thread: Optional[int] = None
    block: Optional[int] = None
    size: Optional[int] = None
    type: Optional[str] = None
    offset: Optional[int] = None


class Places:
    """Names places of one target.

    :param types: makes the types of blocks, at the first use; None, or a function that returns None, where they are
        not known.
    """

    def __init__(
        self, reach: Reach, names: RootNames, types: Optional[Callable[[], Optional[BlockTypes]]] = None
    ) -> None:
        self._reach = reach
        self.names = names
        self._make_types = types
        self._ranges = reach.marked.roots.ranges
        self._starts = [one.start for one in self._ranges]
        self._addresses = Addresses(reach.target, reach.heaps)

    @cached_property
    def types(self) -> Optional[BlockTypes]:
        """The types of blocks, or None."""
        return self._make_types() if self._make_types else None

    def of_word(self, word: RootWord) -> Place:
        """Name a register, or another word that is no memory of its own."""
        whose = f" of thread {word.thread}" if word.thread is not None else ""
        text = f"{word.name}{whose}"
        if word.kind == REGISTER and word.thread is not None:
            held = self.names.find_in_register(word.thread, word.name, word.value)
            if held is not None and held.variable:
                text = f"{text}, variable {held.variable} of frame {held.level} {held.function or '??'}"
        return Place(word.kind, text, None, word.thread)

    def of_address(self, address: int) -> Place:
        """Name a word in memory."""
        root = self.find_range(address)
        if root is None:
            return self._in_heap(address)
        framed = self._framed(address)
        if framed:  # in a mapping of its own, or in one that the kernel has made with what lies before it
            return Place(ANONYMOUS, framed, address, offset=address - root.start)
        if root.kind in (STACK, TLS):
            return self._of_thread(root, address)
        if root.kind == GLOBAL:
            return self._global(root, address)
        offset = address - root.start
        if root.kind == FILE:
            return Place(FILE, f"{root.name} at {address:#x}", address, offset=offset)
        text = self._explained(address)
        return Place(ANONYMOUS, text or f"anonymous memory {root.name} +{offset:#x}", address, offset=offset)

    def frames(self) -> Sequence[Tuple[int, int]]:
        """Return start and end of the frames that a language has apart from the threads' stacks."""
        return () if self._runtime is None else self._runtime.frames()

    def is_framed(self, address: int) -> bool:
        """Whether a word lies in one of these, and has a name there."""
        return bool(self._framed(address))

    def _framed(self, address: int) -> str:
        return "" if self._runtime is None else self._runtime.name_outside(address)

    @cached_property
    def _runtime(self) -> Optional[Runtime]:
        """The language whose frames are named; the types of all blocks are not made for it where there can be none."""
        found = may_hold_cpython(self._reach.target) and self.types
        return found.runtime if found else None

    def _explained(self, address: int) -> Optional[str]:
        """Return what an allocator says of memory that it took for somebody else, or None."""
        for heap in self._reach.heaps:
            if heap.explain is not None and any(start <= address < end for start, end in heap.foreign):
                return heap.explain(address)
        return None

    def find_range(self, address: int) -> Optional[RootRange]:
        """Return the root memory that holds an address, or None."""
        at = bisect_right(self._starts, address) - 1
        return self._ranges[at] if at >= 0 and address < self._ranges[at].end else None

    # -- blocks

    def block_type(self, row: int) -> Optional[str]:
        """Return the type of a live block, or None."""
        if self.types is None:
            return None
        known = self.types.types[int(self.types.code[row])]
        return None if known.kind == UNKNOWN else known.name

    def of_block(self, row: int, offset: Optional[int] = None) -> Place:
        """Name a live block, and a word in it.

        :param offset: of the word; None for the block alone.
        """
        address, size = int(self._reach.address[row]), int(self._reach.size[row])
        kind = self.block_type(row)
        text = f"block {address:#x} ({f'{kind}, ' if kind else ''}{size} bytes)"
        if offset is None:
            return Place(BLOCK, text, address, None, address, size, kind)
        namer = self.member_namer(address)
        member = namer(offset) if namer else ""
        text += f" +{offset:#x}" + (f" {member}" if member else "")
        return Place(BLOCK, text, address + offset, None, address, size, kind, offset)

    def member_namer(self, address: int) -> Optional[Callable[[int], str]]:
        """Return what names the member at an offset of a live block, by debug info or as Python has it; or None.

        :param address: in the block.
        """
        row = self._reach.find_row(address)
        if row is None or self.types is None:
            return None
        known = self.types.types[int(self.types.code[row])]
        if known.kind == PYTHON:
            return None if self.types.runtime is None else partial(self.types.runtime.name, row)
        kind = self.names.find_type(known.name) if known.kind in (DEBUG_INFO, VTABLE) else None
        if kind is None or not kind.size:
            return None
        found, size = kind, int(self._reach.size[row])
        return lambda offset: member_text(found, size, offset)

    def _in_heap(self, address: int) -> Place:
        at = self._addresses.at(address)
        if at.metadata is not None:
            return Place(ALLOCATOR, f"{at.metadata.family}'s own memory at {address:#x}", address)
        row = self._reach.find_row(address)
        if row is not None:
            return self.of_block(row, address - int(self._reach.address[row]))
        block = at.block
        if block is None:
            return Place(ALLOCATOR, f"the allocator's own bytes at {address:#x}", address)
        text = f"{state_text(block)} block {block.start:#x} ({block.size} bytes) +{block.offset:#x}"
        return Place(FREE_BLOCK, text, address, None, block.start, block.size, None, block.offset)

    # -- roots

    def _global(self, root: RootRange, address: int) -> Place:
        module = self._reach.target.find_module(address)
        if module is None:  # the kernel has made one mapping of a module's end and what follows it
            return Place(ANONYMOUS, f"anonymous memory behind {root.name} at {address:#x}", address)
        found = self._find_variable(self.names.variables_of(module), address)
        if found is None:
            offset = address - module.base
            return Place(GLOBAL, f"data of {root.name} +{offset:#x}", address, offset=offset)
        variables, at = found
        named, offset = self._named(variables, at, address)
        word = "static" if variables.local[at] else "global"
        return Place(GLOBAL, f"{word} {named} of {root.name}", address, offset=offset)

    def _named(self, variables: Variables, at: int, address: int) -> Tuple[str, int]:
        """Return the variable with the member at an address, and the offset in it."""
        name, start = self.names.readable(variables.name(at)), int(variables.address[at])
        return _member_of(name, self.names.find_variable_type(name, start), address - start), address - start

    @staticmethod
    def _find_variable(variables: Optional[Variables], address: int) -> Optional[Tuple[Variables, int]]:
        at = -1 if variables is None else int(variables.find(np.array([address], np.uint64))[0])
        return None if variables is None or at < 0 else (variables, at)

    def _of_thread(self, root: RootRange, address: int) -> Place:
        local = self._thread_local(root, address)
        if local is not None:
            return local
        thread = self._reach.target.find_thread(root.thread) if root.thread is not None else None
        if root.kind == TLS and thread is not None and thread.tls and address > thread.tls + _DESCRIPTOR:
            return Place(ANONYMOUS, f"anonymous memory behind {root.name} at {address:#x}", address)
        if root.kind == TLS or is_descriptor(root, thread.tls if thread else None, address):
            base = thread.tls if thread is not None and thread.tls is not None else root.start
            offset = address - base
            text = f"tls of thread {root.thread} {offset:+#x} from the thread pointer"
            return Place(TLS, text, address, root.thread, offset=offset)
        frame = self.names.find_frame(root.thread, address) if root.thread is not None else None
        if frame is None:
            pointer = thread.stack_pointer if thread is not None else None
            offset = address - (root.start if pointer is None else pointer)
            return Place(STACK, f"{root.name} {offset:+#x} from the stack pointer", address, root.thread, offset=offset)
        where = f"frame {frame.level} {frame.function or '??'}"
        if frame.variable is None:
            return Place(STACK, f"{root.name}, {where}", address, root.thread)
        return Place(STACK, f"thread {root.thread}, {where}, variable {frame.variable}", address, root.thread)

    def _thread_local(self, root: RootRange, address: int) -> Optional[Place]:
        if root.thread is None:
            return None
        for module in self._reach.target.modules:
            found = self._find_variable(self.names.thread_locals_of(module, root.thread), address)
            if found is not None:
                named, offset = self._named(*found, address)
                return Place(TLS, f"thread-local {named} of thread {root.thread}", address, root.thread, offset=offset)
        return None


def is_descriptor(root: RootRange, tls: Optional[int], address: int) -> bool:
    """Return whether an address on a thread's stack is in what lies above the stack: its descriptor."""
    return tls is not None and root.start <= tls <= address < root.end


def _member_of(name: str, kind: Optional[Type], offset: int) -> str:
    """Return "cache.head (+0x18)", or "cache +0x18" where the type is not known."""
    path, rest = member_path(kind, offset) if kind is not None and offset < max(kind.size, 1) else ("", offset)
    if not path:
        return f"{name} +{offset:#x}" if offset else name
    beyond = f"+{rest:#x}" if rest else ""
    return f"{name}{path}{beyond}" + (f" (+{offset:#x})" if offset else "")


def state_text(block: BlockAt) -> str:
    """Return a block's state in a word or two: "in use", "free (tcache)"."""
    if block.used:
        return block.state.label
    return "free" if block.state is State.FREE else f"free ({block.state.label})"
