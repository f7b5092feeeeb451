"""One target's reachability: marked at once, edges and all else when it is asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.reach.headers import offsets_of
from gdbext.analysis.reach.model import Marked, states_by_roots
from gdbext.errors import TooLargeError
from gdbext.heap.model import U8, U64, USED_STATES, Heap, Mask
from gdbext.kernels import NOT_REACHED, BlockIndex, Edges, PointerRules, block_edges, follow_words
from gdbext.memory.intervals import I64
from gdbext.memory.room import find_room, give_back
from gdbext.progress import Progress
from gdbext.target import Target
from gdbext.wording import count_text, size_text

# Bytes of our own that each block takes: what is known of it (address, size, state, arena), and besides that 24 for
# marking and 44 for edges of 6 million blocks (bench/chained.c), 22 and 43 of 60 million (bench/small.c).
KNOWN = 18
MARKING = 30
FINDING_EDGES = 50
# What marking leaves, and what types take besides that: 18 of 60 million blocks.
MARKED = 17
FINDING_TYPES = 24
_WORTH_ASKING = 1 << 28


def check_room(blocks: int, each: int, what: str, most: int, held: int = 0) -> None:
    """Check that there is memory for so many blocks.

    :param each: bytes for a block that will be taken.
    :param what: takes it.
    :param most: bytes that may be taken in all; 0 is nine tenths of what is free.
    :param held: bytes that are taken by now.
    :raises TooLargeError: when more is needed.
    """
    needed, bound = blocks * each, f"the {size_text(most)} allowed"
    if most:
        needed += held
    else:
        room = find_room() if needed > _WORTH_ASKING else None
        most = room.bytes * 9 // 10 if room else needed
        bound = f"{size_text(most)}, nine tenths of what is {room.why}" if room else ""
    if needed > most:
        taken = f"{what} among {count_text(blocks, 'block')} takes about {size_text(needed)} of memory"
        hint = "--max-memory SIZE (in gdb set gx max-memory SIZE) allows more"
        raise TooLargeError(f"{taken}, more than {bound}", hint)


def _among(edges: Edges, rows: I64) -> Edges:
    """Return edges that lead only from and to some rows by their positions."""
    place = np.zeros(len(edges.first) - 1, np.uint32)
    place[rows] = np.arange(len(rows), dtype=np.uint32)
    return Edges(np.append(edges.first[rows], edges.first[-1:]), place[edges.to], edges.interior)


class Reach:
    """What is reachable, and how; made by :func:`gdbext.analysis.reach.mark.read_reach`, kept by the session.

    :param rules: how pointers are stored in this target.
    """

    def __init__(
        self,
        target: Target,
        heaps: Sequence[Heap],
        marked: Marked,
        rules: PointerRules,
        progress: Progress,
        most: int = 0,
    ) -> None:
        self.target = target
        self.heaps = heaps
        self.marked = marked
        self.rules = rules
        self.progress = progress
        self._most = most

    def __len__(self) -> int:
        return len(self.marked.blocks)

    @property
    def address(self) -> U64:
        """First byte of each row."""
        return self.marked.blocks.index.address

    @property
    def size(self) -> U64:
        """Usable bytes of each row."""
        return self.marked.blocks.index.size

    @property
    def states(self) -> U8:
        """REACHED, MAYBE_REACHED or NOT_REACHED of each row."""
        return self.marked.states

    @property
    def whole(self) -> bool:
        """Whether nothing is missing that could point at a block; damage is told apart."""
        known = self.marked.roots.complete and all(heap.complete for heap in self.heaps)
        return self.marked.complete and known

    @property
    def any_leaked(self) -> bool:
        """Whether anything leaked."""
        return bool((self.states == NOT_REACHED).any())

    @cached_property
    def header_offsets(self) -> I64:
        """Of each row that is reached by an offset alone, the bytes of its header; 0 of every other."""
        marked = self.marked
        if marked.headers is None:
            return np.broadcast_to(np.int64(0), len(self))
        return offsets_of(marked.spans, marked.blocks.index, self.rules, marked.states, marked.headers)

    @cached_property
    def edges(self) -> Edges:
        """Which block points at which.

        :raises TooLargeError: there is not enough memory for it.
        """
        return self.find_edges()

    def find_edges(self) -> Edges:
        """Return the same, for one use: they take as much as the blocks themselves."""
        check_room(len(self), FINDING_EDGES, "which block points at which", self._most, self._known())
        index = self.marked.blocks.index
        edges = block_edges(self.marked.spans, index, self.rules, np.ones(len(index), np.bool_))
        give_back()
        return edges

    def check_types(self) -> None:
        """Check that there is memory for the types of all blocks.

        :raises TooLargeError: there is not enough.
        """
        check_room(len(self), FINDING_TYPES, "finding types", self._most, self._known() + MARKED * len(self))

    def _known(self) -> int:
        """Return the bytes that what is known of all blocks takes."""
        return KNOWN * sum(len(heap.blocks) for heap in self.heaps)

    @cached_property
    def leaked_edges(self) -> Edges:
        """As :attr:`edges`, among leaked blocks alone: cheap where little is leaked."""
        leaked: Mask = self.states == NOT_REACHED
        return block_edges(self.marked.spans, self.marked.blocks.index, self.rules, leaked)

    def find_leaked_edges(self, rows: I64) -> Edges:
        """Return :attr:`leaked_edges` by positions among the leaked rows: they take room for these, not for the heap.

        :param rows: all that leaked, in order.
        """
        if self.rules.mangled:  # what a word stands for depends on all blocks
            return _among(self.leaked_edges, rows)
        index = BlockIndex(self.address[rows], self.size[rows])
        return block_edges(self.marked.spans, index, self.rules, np.ones(len(rows), np.bool_))

    @cached_property
    def roots(self) -> U8:
        """What roots alone say of each row: REACHED where one points at its beginning, MAYBE_REACHED into it."""
        return states_by_roots(len(self), self.marked.hits)

    def meaning(self, word: int, place: int, index: Optional[BlockIndex] = None) -> Tuple[int, bool]:
        """Return the address that a word stands for, and whether it is mangled.

        :param place: the word's own address.
        :param index: the blocks that it may lead to; None is those in use.
        """
        if not self.rules.mangled:
            return word & ~self.rules.clear, False
        index = self.marked.blocks.index if index is None else index
        found = follow_words(np.array([word], np.uint64), np.array([place], np.uint64), index, self.rules)
        return int(found.address[0]), bool(found.mangled[0])

    def find_row(self, address: int) -> Optional[int]:
        """Return the row of the live block that holds an address, or None."""
        row = int(self.marked.blocks.index.find(np.array([address], np.uint64))[0])
        return row if row >= 0 else None

    def block_of(self, row: int) -> Tuple[Heap, int]:
        """Return a row's heap and its position among that heap's blocks."""
        heap = self.heaps[int(self.marked.blocks.heap[row])]
        at = int(np.searchsorted(heap.blocks.address, self.address[row]))
        while heap.blocks.state[at] not in USED_STATES:  # where damage lets blocks share an address
            at += 1
        return heap, at
