"""Fastbins: singly linked lists of small chunks that look like chunks in use.

They have no limit, so their links are gathered in bulk for all chunks that could be on one. A link out of those
columns, or a repeated node, is left to the careful walk of ``lists.follow_single``.
"""

from __future__ import annotations

from functools import cached_property
from typing import List, Optional, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.lists import SAFE_LINKING_SHIFT, Chain, FreeList, follow_single, unreadable_node
from gdbext.heap.glibc.location import Location
from gdbext.heap.glibc.rows import rows_of
from gdbext.heap.glibc.segments import ArenaHead
from gdbext.heap.glibc.sizes import FLAG_BITS, Sizes
from gdbext.heap.model import U64
from gdbext.memory.bulk import gather_words
from gdbext.report import Problem
from gdbext.target import Target

UNKNOWN = 1  # no link: chunks are aligned


class SmallLinks:
    """The decoded ``fd`` of every chunk in use that is small enough for a fastbin, gathered at first use.

    :param address: of all chunks in use, sorted.
    :param size: their chunk sizes.
    :param largest: bytes; 0 leaves the columns empty, and each link is then read by itself.
    """

    def __init__(
        self, target: Target, sizes: Sizes, address: U64, size: U64, largest: int, safe_linking: Optional[bool]
    ) -> None:
        self._target, self._sizes, self._safe_linking = target, sizes, safe_linking
        small = size <= np.uint64(largest if safe_linking is not None else 0)
        self.address, self.size = address[small], size[small]

    @cached_property
    def _links(self) -> Tuple[U64, "np.typing.NDArray[np.int64]"]:
        """Return each chunk's link, and the row that it leads to, or -1."""
        place = self.address + np.uint64(self._sizes.header)
        stored, known = gather_words(self._target.memory, self._target.abi, place)
        link = stored ^ (place >> np.uint64(SAFE_LINKING_SHIFT)) if self._safe_linking else stored
        return np.where(known, link, np.uint64(UNKNOWN)), np.where(known, rows_of(self.address, link), -1)

    def follow(self, first: int) -> Tuple[List[int], int]:
        """Follow a list as far as the columns go: return its nodes, and the link that ended it.

        A link that could not be gathered ends it before its node.
        """
        link_of, row_of = self._links
        rows: List[int] = []
        append, passed, following = rows.append, bytearray(len(self.address)), row_of.data
        row = int(rows_of(self.address, np.array([first], np.uint64))[0])
        while row >= 0 and not passed[row]:
            passed[row] = 1
            append(row)
            row = following[row]
        if rows and link_of[rows[-1]] == UNKNOWN:
            return self.address[rows[:-1]].tolist(), int(self.address[rows[-1]])
        return self.address[rows].tolist(), int(link_of[rows[-1]]) if rows else first

    def sizes_of(self, nodes: List[int]) -> U64:
        """Return the chunk sizes of nodes that :meth:`follow` returned."""
        sizes: U64 = self.size[rows_of(self.address, np.array(nodes, np.uint64))]
        return sizes


def read_fastbins(
    target: Target, location: Location, sizes: Sizes, head: ArenaHead, links: SmallLinks, safe_linking: Optional[bool]
) -> List[FreeList]:
    """Follow all fastbins of an arena that are not empty; none where the layout has none.

    :param safe_linking: whether ``fd`` is mangled; None takes the decoding that gives an aligned pointer.
    :raises FaultError: when the malloc_state cannot be read.
    """
    if "fastbinsY" not in location.malloc_state:
        return []
    member = location.malloc_state.member("fastbinsY")
    heads = target.reader.words(head.address + member.offset, member.count or 0, "fastbinsY")
    return [
        _read_fastbin(target, sizes, index, first, links, safe_linking) for index, first in enumerate(heads) if first
    ]


def _read_fastbin(
    target: Target, sizes: Sizes, index: int, first: int, links: SmallLinks, safe_linking: Optional[bool]
) -> FreeList:
    place = f"fastbin {index}"
    nodes, link = links.follow(first)
    chain = Chain(list(nodes))
    if link:
        follow_single(target, sizes, link, sizes.header, safe_linking, place, chain)
    problems = list(chain.problems)
    wrong = sizes.fastbin_indices(links.sizes_of(nodes)) != index
    problems += [_misplaced(place, nodes[row], int(links.sizes_of([nodes[row]])[0])) for row in np.flatnonzero(wrong)]
    for chunk in chain.nodes[len(nodes) :]:
        problems += _check_size(target, sizes, index, chunk)
    return FreeList("fastbin", index, tuple(chain.nodes), tuple(problems))


def _check_size(target: Target, sizes: Sizes, index: int, chunk: int) -> List[Problem]:
    place = f"fastbin {index}"
    try:
        size = target.reader.word(chunk + sizes.word, "fastbin chunk") & ~FLAG_BITS
    except FaultError as fault:
        return [unreadable_node(target, place, chunk, fault)]
    if sizes.valid(size) and sizes.fastbin_index(size) == index:
        return []
    return [_misplaced(place, chunk, size)]


def _misplaced(place: str, chunk: int, size: int) -> Problem:
    message = f"{place}: chunk {chunk:#x} of size {size:#x} does not belong there"
    return Problem("fastbin-size", chunk, message, corruption=True)
