"""Fastbins: singly linked lists of small chunks that look like chunks in use.

They have no limit, so the kernel of chains walks them. A list that does not end in null there is followed on by the
careful walk of ``lists.follow_single``, which says why.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.read.lists import Chain, FreeList, ListMemory, follow_single
from gdbext.heap.glibc.read.segments import ArenaHead
from gdbext.heap.glibc.sizes import FLAG_BITS, Sizes
from gdbext.heap.model import U64
from gdbext.kernels import Chains
from gdbext.memory.intervals import slices
from gdbext.report import Problem
from gdbext.target import Target


def fastbin_heads(target: Target, location: Location, head: ArenaHead) -> List[Tuple[int, int]]:
    """Return index and first chunk of the fastbins of an arena that are not empty; none where the layout has none.

    :raises FaultError: when the malloc_state cannot be read.
    """
    if "fastbinsY" not in location.malloc_state:
        return []
    member = location.malloc_state.member("fastbinsY")
    heads = target.reader.words(head.address + member.offset, member.count or 0, "fastbinsY")
    return [(index, first) for index, first in enumerate(heads) if first]


def follow_fastbins(
    bins: Sequence[Tuple[int, int]], memory: ListMemory, safe_linking: Optional[bool]
) -> List[FreeList]:
    """Follow fastbins of an arena.

    :param bins: what :func:`fastbin_heads` found.
    :param safe_linking: whether ``fd`` is mangled; None takes the decoding that gives an aligned pointer.
    """
    chains = _walk(memory, [first for _, first in bins], safe_linking)
    ends = np.cumsum(chains.lengths).astype(np.int64)
    lists = []
    for row, (index, _) in enumerate(bins):
        nodes = chains.nodes[ends[row] - int(chains.lengths[row]) : ends[row]]
        lists.append(_judge(memory, index, nodes, int(chains.last[row]), safe_linking))
    return lists


def _walk(memory: ListMemory, firsts: List[int], safe_linking: Optional[bool]) -> Chains:
    heads = np.array(firsts, np.uint64)
    if safe_linking is None:  # each link must be judged by itself
        nothing = np.zeros(len(heads), np.uint64)
        return Chains(nothing, nothing.astype(np.uint8), heads, heads[:0], nothing)
    return memory.walk(heads, None, memory.sizes.header, safe_linking)


def _judge(
    memory: ListMemory, index: int, nodes: U64, link: int, safe_linking: Optional[bool]
) -> FreeList:
    """Return a list, its sizes held to its index, and followed on from ``link`` where that is not null."""
    sizes, place = memory.sizes, f"fastbin {index}"
    nodes, link = _aligned_part(sizes, nodes, link)
    problems: List[Problem] = []
    if link:
        chain = Chain(nodes.tolist())
        follow_single(memory.target, sizes, link, sizes.header, safe_linking, place, chain)
        nodes, problems = np.array(chain.nodes, np.uint64), list(chain.problems)
    for part in slices(len(nodes)):
        problems += _misplaced(memory, index, nodes[part])
    return FreeList("fastbin", index, nodes, tuple(problems))


def _aligned_part(sizes: Sizes, nodes: U64, link: int) -> "tuple[U64, int]":
    """Return the nodes up to the first where no chunk can begin, and the link to go on with."""
    odd = np.flatnonzero((nodes + np.uint64(sizes.header)) % np.uint64(sizes.alignment))
    return (nodes, link) if not len(odd) else (nodes[: odd[0]], int(nodes[odd[0]]))


def _misplaced(memory: ListMemory, index: int, nodes: U64) -> Iterator[Problem]:
    """Iterate over the chunks whose size is another bin's."""
    sizes = memory.sizes
    heads, known = memory.words(nodes + np.uint64(sizes.word))
    size = heads & ~np.uint64(FLAG_BITS)
    fits = (sizes.fastbin_indices(size) == index) & (size % np.uint64(sizes.alignment) == 0)
    for row in np.flatnonzero(known & ~fits).tolist():
        chunk = int(nodes[row])
        message = f"fastbin {index}: chunk {chunk:#x} of size {int(size[row]):#x} does not belong there"
        yield Problem("fastbin-size", chunk, message, corruption=True)
