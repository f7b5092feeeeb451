"""Free lists of allocators that cut slabs into objects of one size: plain words, the first of each free object.

They are walked at once by the kernel of chains. What an object is, in use or on which list, follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.kernels import Chains, LinkRules, Span, walk_chains
from gdbext.memory.bulk import for_each_written_view
from gdbext.memory.intervals import joined
from gdbext.report import Problem
from gdbext.target import Target

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

COUNTED = "free-count"  # the kind of problem that a thread in the middle of its work may cause
PROGRAM = 0  # the holder of what is on no list

_WORD = 8
_NULL, _LIMIT, _CYCLE, _OUTSIDE = 0, 4, 5, 6  # why a chain ended, in the numbers of gdbext.kernels.chains


@dataclass
class Objects:
    """The objects of slabs, and who holds each.

    :param start: first object of each slab, by address.
    :param each: bytes of an object.
    :param count: objects; 0 for a slab that is cut into none.
    :param held: of each object :data:`PROGRAM`, or the number of the lists that it is on.
    """

    start: U64
    each: U64
    count: I64
    held: U8 = field(init=False)

    def __post_init__(self) -> None:
        self.held = np.full(int(self.first[-1]), PROGRAM, np.uint8)

    @cached_property
    def first(self) -> I64:
        """The position of each slab's first object among all, and their number."""
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(self.count)))

    @cached_property
    def columns(self) -> Tuple[U64, U64]:
        """Address and size of each object."""
        size = np.repeat(self.each, self.count)
        number = np.arange(len(size), dtype=np.uint64) - np.repeat(self.first[:-1].astype(np.uint64), self.count)
        return np.repeat(self.start, self.count) + number * size, size

    def find(self, nodes: U64) -> Tuple[I64, I64, Mask]:
        """Return for each address the slab and the object that begins there, and whether one does."""
        if not len(self.start):
            return np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.bool_)
        slab = np.maximum(np.searchsorted(self.start, nodes, side="right").astype(np.int64) - 1, 0)
        number, rest = np.divmod(nodes - self.start[slab], np.maximum(self.each[slab], np.uint64(1)))
        begins = (nodes >= self.start[slab]) & (rest == 0) & (number < self.count[slab].astype(np.uint64))
        return slab, self.first[:-1][slab] + np.where(begins, number, 0).astype(np.int64), begins

    def memory(self, target: Target) -> Iterator[Span]:
        """Iterate over the memory of all objects, as far as it was written."""
        picked = self.count > 0
        ends = self.start + self.each * self.count.astype(np.uint64)
        for low, high in zip(*(column.tolist() for column in joined((self.start[picked], ends[picked])))):
            yield from for_each_written_view(target.memory, low, high, target.abi.page_size)


@dataclass(frozen=True)
class FreeLists:
    """Lists of free objects that are alike.

    :param holder: their number, for :attr:`Objects.held`.
    :param name: of one, before the address of its owner.
    :param owner: address of what has each list.
    :param first: its first object, 0 for an empty one.
    :param each: bytes of its objects.
    :param count: how many its owner says that it has; None where it says nothing.
    :param slab: the slab that it stays in, or None.
    :param by_count: whether it ends by its count alone.
    """

    holder: int
    name: str
    owner: U64
    first: U64
    each: U64
    count: Optional[U64] = None
    slab: Optional[I64] = None
    by_count: bool = False


def follow(target: Target, objects: Objects, lists: FreeLists, memory: Sequence[Span]) -> List[Problem]:
    """Follow lists, mark their objects, and return what is wrong: each list once."""
    if not len(lists.first):
        return []
    total = len(objects.held) + len(lists.first)
    most = np.full(len(lists.first), total, np.uint64)
    if lists.count is not None:  # one more than is counted: what goes on is seen
        most = np.minimum(lists.count, np.uint64(total)) + np.uint64(not lists.by_count)
    chains = walk_chains(memory, lists.first, None, LinkRules(0, _WORD, target.abi.byteorder), most, total)
    chain = np.repeat(np.arange(len(lists.first)), chains.lengths.astype(np.intp))
    slab, row, sound = objects.find(chains.nodes)
    sound &= objects.each[slab] == lists.each[chain] if len(objects.each) else sound
    if lists.slab is not None:
        sound &= slab == lists.slab[chain]
    again = np.zeros(len(row), np.bool_)
    again[sound] = _seen(objects, row[sound])
    objects.held[row[sound & ~again]] = lists.holder
    wrong = {int(chain[at]): int(at) for at in np.flatnonzero(~sound | again)[::-1].tolist()}
    ended = np.isin(chains.ends, (_NULL, _LIMIT if lists.by_count else _NULL)) | (chains.lengths == 0)
    odd = ~ended if lists.count is None else ~ended | (chains.lengths != lists.count)
    return [
        _describe(
            target, lists, chains, at, *((int(chains.nodes[wrong[at]]), bool(again[wrong[at]])) if at in wrong else ())
        )
        for at in sorted({*np.flatnonzero(odd).tolist(), *wrong})
    ]


def _seen(objects: Objects, row: I64) -> Mask:
    """Return which objects stand in a list for a second time."""
    order = np.argsort(row, kind="stable")
    twice = np.zeros(len(row), np.bool_)
    twice[order[1:]] = row[order[1:]] == row[order[:-1]]
    again: Mask = twice | (objects.held[row] != PROGRAM)
    return again


def _describe(
    target: Target, lists: FreeLists, chains: Chains, at: int, node: Optional[int] = None, again: bool = False
) -> Problem:
    """Return what is wrong with a list.

    :param node: the first of its objects that is none, or that is free already.
    """
    where, last = f"{lists.name} {int(lists.owner[at]):#x}", int(chains.last[at])
    if node is not None and again:
        return Problem("double-free", node, f"{where} holds {node:#x}, which is free already: freed twice", True)
    if node is not None:
        return Problem("free-object", node, f"{where} holds {node:#x}, which begins no object of its size", True)
    if chains.ends[at] == _CYCLE:
        return Problem("double-free", last, f"{where} runs into a cycle at {last:#x}: freed twice", True)
    if chains.ends[at] == _OUTSIDE and target.lacks(last, _WORD):
        return Problem("absent-memory", last, f"{where} goes on at {last:#x}, which the core lacks")
    if chains.ends[at] == _OUTSIDE or lists.count is None:
        return Problem("free-object", last, f"{where} leads to {last:#x}, which is no object", True)
    found = "more" if chains.lengths[at] > lists.count[at] else str(int(chains.lengths[at]))
    message = f"{where} holds {found} objects of {int(lists.count[at])} that are counted"
    return Problem(COUNTED, int(lists.owner[at]), message, True)
