"""The free lists of an arena: unsorted, small and large bins; and how to follow a singly linked one.

Links are gathered in bulk for all chunks that are free; a list is then followed from its header
through them. A chunk that is on a list but not among the free ones is read singly and reported.
Mirrors malloc/malloc.c: ``bin_at``, ``unlink_chunk``, and for fastbins ``REVEAL_PTR``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Set, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.location import Location
from gdbext.heap.glibc.rows import rows_of
from gdbext.heap.glibc.segments import ArenaHead
from gdbext.heap.glibc.sizes import FLAG_BITS, NBINS, UNSORTED_BIN, Sizes
from gdbext.heap.model import U64
from gdbext.memory.bulk import gather_words
from gdbext.report import Problem
from gdbext.target import Target

SAFE_LINKING_SHIFT = 12


@dataclass(frozen=True)
class FreeList:
    """One bin as it was followed.

    :param kind: ``fastbin``, ``unsorted``, ``small`` or ``large``.
    :param index: ``bin_index`` or ``fastbin_index``.
    :param chunks: addresses of the chunks on it, in list order.
    :param whole: whether it could be followed to its end and all links agree.
    """

    kind: str
    index: int
    chunks: Tuple[int, ...]
    problems: Tuple[Problem, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.problems


class Links:
    """``fd``, ``bk`` and size of all free chunks, from one gather."""

    def __init__(self, target: Target, sizes: Sizes, address: U64, size: U64) -> None:
        self.target, self.sizes = target, sizes
        header, word = np.uint64(sizes.header), np.uint64(sizes.word)
        self.address = address
        forward, known = gather_words(target.memory, target.abi, address + header)
        backward, known_too = gather_words(target.memory, target.abi, address + header + word)
        self._fd, self._bk = forward.data, backward.data
        self._size = np.ascontiguousarray(size).data
        self._row_of_fd = rows_of(address, forward).data
        self.known = (known & known_too).data

    def row(self, chunk: int) -> int:
        """Return the row of a chunk, or -1."""
        return int(rows_of(self.address, np.array([chunk], np.uint64))[0]) if chunk else -1

    def read(self, chunk: int, row: int) -> Tuple[int, int, int, int]:
        """Return fd, bk, size and the row of fd, from the columns or (row -1) from memory.

        :raises FaultError: when the chunk cannot be read.
        """
        if row >= 0 and self.known[row]:
            return self._fd[row], self._bk[row], self._size[row], self._row_of_fd[row]
        _, head, fd, bk = self.target.reader.words(chunk, 4, "free chunk")
        return fd, bk, head & ~FLAG_BITS, self.row(fd)


@dataclass
class _Follow:
    """One list being followed."""

    links: Links
    kind: str
    index: int
    header: int
    first_row: int = -1
    chunks: List[int] = field(default_factory=list)
    problems: List[Problem] = field(default_factory=list)
    seen: Set[int] = field(default_factory=set)

    def wrong(self, address: int, message: str, kind: str = "bin-link") -> None:
        place = f"{self.kind} bin {self.index}"
        self.problems.append(Problem(kind, address, f"{place}: {message}", corruption=True))

    def lose(self, address: int, message: str) -> None:
        self.problems.append(absent_link(f"{self.kind} bin {self.index}", address, message))

    def forwards(self, first: int) -> None:
        """Follow fd from the header until it comes back to it."""
        before, chunk, row = self.header, first, self.links.row(first)
        while chunk != self.header:
            if chunk in self.seen:
                self.wrong(chunk, f"cycle: fd of {before:#x} leads back to {chunk:#x}", "bin-cycle")
                return
            step = self._read(chunk, row, before)
            if step is None:
                return
            fd, bk, size, following = step
            if bk != before:
                self.wrong(chunk, f"bk of {chunk:#x} is {bk:#x}, expected {before:#x}, whose fd leads here")
            self._keep(chunk, size)
            before, chunk, row = chunk, fd, following

    def backwards(self, last: int) -> None:
        """After a broken fd: what bk still reaches from the other end."""
        chunk = last
        while chunk != self.header and chunk not in self.seen:
            step = self._read(chunk, self.links.row(chunk), self.header)
            if step is None:
                return
            self._keep(chunk, step[2])
            chunk = step[1]

    def _read(self, chunk: int, row: int, before: int) -> Optional[Tuple[int, int, int, int]]:
        if not self.links.sizes.aligned(chunk):
            self.wrong(before, f"fd of {before:#x} is {chunk:#x}, not the address of a chunk")
            return None
        try:
            return self.links.read(chunk, row)
        except FaultError as fault:
            if self.links.target.lacks(fault.address, fault.size):
                self.lose(chunk, f"goes on at {chunk:#x}")
            else:
                self.wrong(before, f"fd of {before:#x} is {chunk:#x}, which cannot be read")
            return None

    def _keep(self, chunk: int, size: int) -> None:
        self.seen.add(chunk)
        self.chunks.append(chunk)
        if self.index != UNSORTED_BIN and self.links.sizes.bin_index(size) != self.index:
            fits = self.links.sizes.bin_index(size) if self.links.sizes.valid(size) else "no bin"
            self.wrong(chunk, f"chunk {chunk:#x} of size {size:#x} belongs to {fits}", "bin-size")

    def done(self) -> FreeList:
        return FreeList(self.kind, self.index, tuple(self.chunks), tuple(dict.fromkeys(self.problems)))


def read_bins(target: Target, location: Location, head: ArenaHead, links: Links) -> List[FreeList]:
    """Follow all bins of an arena that are not empty.

    :raises FaultError: when the malloc_state cannot be read.
    """
    sizes = links.sizes
    start = head.address + location.malloc_state.offset("bins")
    ends = target.reader.words(start, 2 * NBINS - 2, "bins")
    lists = []
    for index in range(1, NBINS):
        header = start + 2 * (index - 1) * sizes.word - sizes.header
        first, last = ends[2 * index - 2], ends[2 * index - 1]
        if first == last == header:
            continue
        follow = _Follow(links, sizes.bin_kind(index), index, header)
        follow.forwards(first)
        if follow.problems:
            follow.backwards(last)
        elif (follow.chunks or [header])[-1] != last:
            expected = f"the last chunk {follow.chunks[-1]:#x}" if follow.chunks else "itself, as its fd"
            follow.wrong(header, f"its bk is {last:#x}, expected {expected}")
            if not follow.chunks:
                follow.backwards(last)
        lists.append(follow.done())
    return lists


@dataclass
class Chain:
    """A singly linked free list as it was followed."""

    nodes: List[int] = field(default_factory=list)
    problems: List[Problem] = field(default_factory=list)


def follow_single(
    target: Target,
    sizes: Sizes,
    first: int,
    link: int,
    safe_linking: Optional[bool],
    place: str,
    begun: Optional[Chain] = None,
) -> Chain:
    """Follow a list whose links may be mangled, to NULL, a repeated node or a bad pointer.

    :param first: first node, as the list head holds it (never mangled).
    :param link: offset of the link in the node, bytes.
    :param place: the list in words, for problems.
    :param begun: a chain to go on with; ``first`` is then the link of its last node.
    """
    chain = begun or Chain()
    seen = set(chain.nodes)
    node, before = first, chain.nodes[-1] if chain.nodes else 0
    while node:
        wrong = _node_fault(sizes, node, link, seen, before)
        if wrong is not None:
            chain.problems.append(Problem(wrong[0], node, f"{place}: {wrong[1]}", corruption=True))
            return chain
        try:
            stored = target.reader.word(node + link, "list link")
        except FaultError as fault:
            chain.problems.append(unreadable_node(target, place, node, fault, _behind(before)))
            return chain
        seen.add(node)
        chain.nodes.append(node)
        before, node = node, reveal(stored, node + link, safe_linking, sizes)
    return chain


def unreadable_node(target: Target, place: str, node: int, fault: FaultError, behind: str = "") -> Problem:
    """Return the problem of a node that cannot be read: damage, unless the core lacks it."""
    if target.lacks(fault.address, fault.size):
        return absent_link(place, node, f"goes on at {node:#x}")
    message = f"{place}: link to {node:#x}{behind}, which cannot be read"
    return Problem("list-link", node, message, corruption=True)


def absent_link(place: str, address: int, message: str) -> Problem:
    """Return the problem of a list that leads out of what the core holds."""
    return Problem("absent-memory", address, f"{place}: {message}, which is not in the core")


def _node_fault(
    sizes: Sizes, node: int, link: int, seen: Set[int], before: int
) -> Optional[Tuple[str, str]]:
    if node in seen:
        return "double-free", f"holds {node:#x} twice (double free): the link of {before:#x} leads back to it"
    if (node + link) % sizes.alignment:
        return "list-link", f"link{_behind(before)} decodes to {node:#x}, which is not aligned"
    return None


def _behind(before: int) -> str:
    return f" in {before:#x}" if before else " in the list head"


def reveal(stored: int, place: int, safe_linking: Optional[bool], sizes: Sizes) -> int:
    """Decode a link: ``REVEAL_PTR`` where safe-linking is in force.

    :param stored: word as it stands in memory.
    :param place: address of that word.
    :param safe_linking: None takes the decoding that gives an aligned pointer.
    """
    mangled = stored ^ (place >> SAFE_LINKING_SHIFT)
    if safe_linking is None:
        return mangled if mangled % sizes.alignment in (0, sizes.header % sizes.alignment) else stored
    return mangled if safe_linking else stored
