"""Roots, and what they reach, as plain data.

A block is *reached* when start pointers lead to it from a root, *possibly leaked* when every path there needs an
interior pointer, else *leaked*: unreachable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.reach.headers import Headers
from gdbext.heap.model import U8, USED_STATES, Heap
from gdbext.kernels import MAYBE_REACHED, NOT_REACHED, REACHED, BlockIndex, Hits, Span, rows_of
from gdbext.memory.intervals import I64, slices
from gdbext.report import Problem

NO_HEAP = 0xFF

STATE_NAMES = {REACHED: "reached", MAYBE_REACHED: "possibly leaked", NOT_REACHED: "leaked"}

# Kinds of roots, as reports print them, in the order in which they are told.
REGISTER, STACK, TLS, GLOBAL, FILE, ANONYMOUS = ("register", "stack", "tls", "global", "file", "anonymous")
ROOT_KINDS = (REGISTER, STACK, TLS, GLOBAL, FILE, ANONYMOUS)


@dataclass(frozen=True)
class Reading:
    """What counts as a pointer, beyond words as they stand; see :class:`gdbext.kernels.PointerRules`.

    :param clear: bits of a pointer that are tags.
    :param mangled: whether words XORed with their own address >> 12 count, where they lead nowhere as they stand.
    :param headers: whether headers before what a program's own allocator hands out are recognised.
    """

    clear: int = 0
    mangled: bool = False
    headers: bool = True


PLAIN = Reading()


@dataclass(frozen=True)
class RootRange:
    """Memory whose words are roots.

    :param kind: one of :data:`ROOT_KINDS`: ``stack`` from the stack pointer (less the red zone) up; ``tls`` a thread's
        static thread-local storage, where it is known apart from the stack it lies in; ``global`` writable data of a
        module (.data, .bss); ``file`` any other mapped file; ``anonymous`` any other memory.
    :param name: which one: "stack of thread 3", the module's file name, the region's bounds.
    :param thread: its debugger number, of stacks and tls.
    :param code: whether it is executable and written by the program, so that pointers may lie at any byte.
    """

    kind: str
    name: str
    start: int
    end: int
    thread: Optional[int] = None
    code: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


class RootWord(NamedTuple):
    """A word that is no memory, or that the ABI says to be a pointer to the beginning of something.

    :param name: the register's name, or what the word is ("dtv").
    :param value: of which :attr:`PointerRules.clear` is not yet cleared.
    """

    kind: str
    name: str
    value: int
    thread: Optional[int] = None


@dataclass(frozen=True)
class Missing:
    """Memory that should be looked at and is not there: what only it points at looks leaked.

    :param what: in words ("stack of thread 3", "libfoo.so data", "4 mappings without a file").
    :param bytes: None when not known (registers).
    """

    what: str
    bytes: Optional[int]
    start: Optional[int] = None


@dataclass(frozen=True)
class Roots:
    """All roots.

    :param ranges: sorted by address, disjoint.
    :param missing: what makes an answer unsafe: see :attr:`complete`.
    """

    ranges: Sequence[RootRange]
    words: Sequence[RootWord]
    missing: Sequence[Missing] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing that could hold a pointer is missing."""
        return not self.missing


@dataclass(frozen=True)
class RootHits:
    """Pointers from roots into blocks.

    :param memory: those in root memory; ``place`` is where the pointer lies.
    :param words: pairs of a position in :attr:`Roots.words` and a row; ``interior`` as in :class:`Hits`.
    """

    memory: Hits
    words: Sequence[Tuple[int, int, bool]] = ()


@dataclass(frozen=True)
class LiveBlocks:
    """The blocks in use of all heaps, in address order; a *row* everywhere in reachability is a position here.

    :param index: addresses and usable sizes.
    :param heap: which of the heaps, a position.
    """

    index: BlockIndex
    heap: U8

    def __len__(self) -> int:
        return len(self.index)

    def for_each_of(self, heap: Heap, number: int) -> Iterator[Tuple[I64, I64]]:
        """Iterate over the rows of one heap's blocks and their positions among these, many at a time.

        :param number: which of the heaps it is.
        """
        blocks = heap.blocks
        for part in slices(len(self)):
            rows = part.start + np.flatnonzero(self.heap[part] == number)
            at = rows_of(blocks.address, self.index.address[rows])
            while (other := ~np.isin(blocks.state[at], USED_STATES)).any():  # where blocks share an address
                at[other] += 1
            yield rows, at


@dataclass(frozen=True)
class Marked:
    """Live blocks with their states.

    :param spans: the memory that live blocks lie in, as far as it is there.
    :param states: REACHED, MAYBE_REACHED or NOT_REACHED of each row.
    :param problems: what could not be read, or was left out.
    :param headers: None where no header was recognised.
    """

    blocks: LiveBlocks
    roots: Roots
    hits: RootHits
    spans: Sequence[Span]
    states: U8
    problems: Sequence[Problem] = ()
    complete: bool = True
    headers: Optional[Headers] = None


def states_by_roots(count: int, hits: RootHits) -> U8:
    """Return what roots alone say of each of ``count`` rows."""
    states = np.full(count, NOT_REACHED, np.uint8)
    states[hits.memory.row[hits.memory.interior]] = MAYBE_REACHED
    for _, row, interior in hits.words:
        if interior:
            states[row] = MAYBE_REACHED
    states[hits.memory.row[~hits.memory.interior]] = REACHED
    for _, row, interior in hits.words:
        if not interior:
            states[row] = REACHED
    return states
