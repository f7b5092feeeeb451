"""The free lists of an arena: unsorted, small and large bins; and how to follow a singly linked one.

All lists are walked at once by the kernel of chains. One whose links and sizes all agree is done with that; any
other is followed again chunk by chunk, with a word on everything that is wrong.
Mirrors malloc/malloc.c: ``bin_at``, ``unlink_chunk``, and for fastbins ``REVEAL_PTR``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Iterator, List, Optional, Sequence, Set, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.read.segments import ArenaHead
from gdbext.heap.glibc.sizes import FLAG_BITS, NBINS, UNSORTED_BIN, Sizes
from gdbext.heap.model import U64, Blocks, Mask, State
from gdbext.kernels import MOST_NODES, Chains, LinkRules, Span, Spans, hold_spans, walk_chains
from gdbext.memory.intervals import slices
from gdbext.report import Problem
from gdbext.target import Target

_HEAD = 1  # why a chain ended, in the numbers of gdbext.kernels.chains: at its header
_AT_ONCE = 1 << 16  # nodes
SAFE_LINKING_SHIFT = 12


@dataclass(frozen=True, eq=False)
class FreeList:
    """One bin as it was followed.

    :param kind: ``fastbin``, ``unsorted``, ``small`` or ``large``.
    :param index: ``bin_index`` or ``fastbin_index``.
    :param chunks: addresses of the chunks on it, in list order.
    :param whole: whether it could be followed to its end and all links agree.
    """

    kind: str
    index: int
    chunks: U64
    problems: Tuple[Problem, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.problems


@dataclass(frozen=True)
class ListMemory:
    """The memory of the chunks of some arenas, for walks along their lists.

    :param spans: what of it can be read, sorted, disjoint.
    """

    target: Target
    sizes: Sizes
    spans: Sequence[Span]

    def walk(self, firsts: U64, headers: Optional[U64], link: int, mangled: bool) -> Chains:
        """Walk lists to where they end; those that are cut short have ended with LIMIT.

        :param headers: the node that ends each; None where only null does.
        :param link: offset of the link in a node, bytes.
        """
        word = self.sizes.word
        rules = LinkRules(link, word, self.target.abi.byteorder, mangled=mangled)
        # No two sound lists share a chunk: together they cannot be longer than this.
        held = sum(memoryview(buffer).nbytes for _, buffer in self.spans)  # type: ignore[arg-type, misc]
        return walk_chains(self.spans, firsts, headers, rules, MOST_NODES, held // self.sizes.minimum + len(firsts))

    def words(self, places: U64) -> Tuple[U64, Mask]:
        """Return the word at each place, and whether the spans hold it."""
        return self._held.gather(places, self.sizes.word)

    @cached_property
    def _held(self) -> Spans:
        return hold_spans(self.spans, self.target.abi.byteorder)


@dataclass
class _Follow:
    """One list being followed."""

    target: Target
    sizes: Sizes
    kind: str
    index: int
    header: int
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
        before, chunk = self.header, first
        while chunk != self.header:
            if chunk in self.seen:
                self.wrong(chunk, f"cycle: fd of {before:#x} leads back to {chunk:#x}", "bin-cycle")
                return
            step = self._read(chunk, before)
            if step is None:
                return
            fd, bk, size = step
            if bk != before:
                self.wrong(chunk, f"bk of {chunk:#x} is {bk:#x}, expected {before:#x}, whose fd leads here")
            self._keep(chunk, size)
            before, chunk = chunk, fd

    def backwards(self, last: int) -> None:
        """After a broken fd: what bk still reaches from the other end."""
        chunk = last
        while chunk != self.header and chunk not in self.seen:
            step = self._read(chunk, self.header)
            if step is None:
                return
            self._keep(chunk, step[2])
            chunk = step[1]

    def _read(self, chunk: int, before: int) -> Optional[Tuple[int, int, int]]:
        """Return fd, bk and size of a chunk."""
        if not self.sizes.aligned(chunk):
            self.wrong(before, f"fd of {before:#x} is {chunk:#x}, not the address of a chunk")
            return None
        try:
            _, head, fd, bk = self.target.reader.words(chunk, 4, "free chunk")
            return fd, bk, head & ~FLAG_BITS
        except FaultError as fault:
            if self.target.lacks(fault.address, fault.size):
                self.lose(chunk, f"goes on at {chunk:#x}")
            else:
                self.wrong(before, f"fd of {before:#x} is {chunk:#x}, which cannot be read")
            return None

    def _keep(self, chunk: int, size: int) -> None:
        self.seen.add(chunk)
        self.chunks.append(chunk)
        if self.index != UNSORTED_BIN and self.sizes.bin_index(size) != self.index:
            fits = self.sizes.bin_index(size) if self.sizes.valid(size) else "no bin"
            self.wrong(chunk, f"chunk {chunk:#x} of size {size:#x} belongs to {fits}", "bin-size")

    def done(self) -> FreeList:
        chunks = np.array(self.chunks, np.uint64)
        return FreeList(self.kind, self.index, chunks, tuple(dict.fromkeys(self.problems)))


@dataclass(frozen=True)
class Bin:
    """A bin that is not empty: where its header is, as a chunk, and what that holds."""

    index: int
    header: int
    first: int
    last: int


def follow_bins(memory: ListMemory, bins: Sequence[Bin]) -> List[FreeList]:
    """Follow bins, those of many arenas at once."""
    sizes = memory.sizes
    headers = np.array([one.header for one in bins], np.uint64)
    firsts = np.array([one.first for one in bins], np.uint64)
    chains = memory.walk(firsts, headers, sizes.header, False)
    sound = _sound_lists(memory, bins, chains)
    ends = np.cumsum(chains.lengths).astype(np.int64)
    lists = []
    for row, one in enumerate(bins):
        if sound[row]:
            nodes = chains.nodes[ends[row] - int(chains.lengths[row]) : ends[row]]
            lists.append(FreeList(sizes.bin_kind(one.index), one.index, nodes))
        else:
            lists.append(_follow(memory, one))
    return lists


def read_bins(target: Target, sizes: Sizes, location: Location, head: ArenaHead) -> List[Bin]:
    """Return the bins of an arena that are not empty.

    :raises FaultError: when the malloc_state cannot be read.
    """
    start = head.address + location.malloc_state.offset("bins")
    data = target.reader.bytes(start, (2 * NBINS - 2) * sizes.word, "bins")
    ends = np.frombuffer(data, target.abi.word_dtype).astype(np.uint64).reshape(-1, 2)
    headers = np.arange(NBINS - 1, dtype=np.uint64) * np.uint64(2 * sizes.word) + np.uint64(start - sizes.header)
    rows = np.flatnonzero((ends != headers[:, None]).any(axis=1))
    return [Bin(row + 1, int(headers[row]), *ends[row].tolist()) for row in rows.tolist()]


def _sound_lists(memory: ListMemory, bins: Sequence[Bin], chains: Chains) -> Mask:
    """Return which lists came back to their headers with every link, size and place as it should be."""
    nodes, lengths = chains.nodes, chains.lengths.astype(np.int64)
    header, index, last = (
        np.array([getattr(one, name) for one in bins], np.uint64) for name in ("header", "index", "last")
    )
    ends, filled = np.cumsum(lengths), lengths > 0
    bad = np.zeros(len(bins), np.int64)
    for part in slices(len(nodes), _AT_ONCE):
        at = np.arange(part.start, part.stop)
        row = np.searchsorted(ends, at, side="right")
        before = np.where(at == (ends - lengths)[row], header[row], nodes[at - 1])
        bad += np.bincount(row[~_fits(memory, nodes[part], before, index[row])], minlength=len(bins))
    sound: Mask = (chains.ends == _HEAD) & (bad == 0) & filled
    sound[filled] &= nodes[(ends - 1)[filled]] == last[filled]
    return sound


def _fits(memory: ListMemory, nodes: U64, before: U64, index: U64) -> Mask:
    """Return which chunks are aligned, point back at what is before them, and are of a size for their bin."""
    sizes = memory.sizes
    back, _ = memory.words(nodes + np.uint64(sizes.header + sizes.word))
    heads, _ = memory.words(nodes + np.uint64(sizes.word))
    aligned = (nodes + np.uint64(sizes.header)) % np.uint64(sizes.alignment) == 0
    bins = sizes.bin_indices(heads & ~np.uint64(FLAG_BITS))
    fits: Mask = (back == before) & aligned & ((index == UNSORTED_BIN) | (bins == index.astype(np.int64)))
    return fits


def _follow(memory: ListMemory, one: Bin) -> FreeList:
    """Follow one list chunk by chunk, and say what is wrong with it."""
    follow = _Follow(memory.target, memory.sizes, memory.sizes.bin_kind(one.index), one.index, one.header)
    follow.forwards(one.first)
    if follow.problems:
        follow.backwards(one.last)
    elif (follow.chunks or [one.header])[-1] != one.last:
        expected = f"the last chunk {follow.chunks[-1]:#x}" if follow.chunks else "itself, as its fd"
        follow.wrong(one.header, f"its bk is {one.last:#x}, expected {expected}")
        if not follow.chunks:
            follow.backwards(one.last)
    return follow.done()


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


def links(blocks: Blocks, sizes: Sizes, block: int, place: int, stored: int) -> Iterator[Tuple[int, str]]:
    """Iterate over what the word at ``place`` in an unused block may be as a link, as ``Heap.links`` has it."""
    mangled = stored ^ (place >> SAFE_LINKING_SHIFT)
    single = blocks.state[block] in (State.TCACHE, State.FASTBIN)
    if mangled or (single and place == blocks.address[block]):
        yield mangled, "mangled"
    for header, how in ((mangled, "its header, mangled"), (stored, "its header")):
        if header + sizes.header < 1 << 8 * sizes.word:
            yield header + sizes.header, how


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
