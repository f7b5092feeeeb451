"""Blocks in use by address, kept small, so that those of an earlier stop of the same process can be held against later.

Thirteen bytes a block. A block is the same one where address and size are the same and, where types are known, so is
the type: what was freed and given out again for the same purpose cannot be told from what was kept.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.model import CONTAINER, DEBUG_INFO, PYTHON, SHAPE, VTABLE, BlockTypes
from gdbext.files import private
from gdbext.heap.model import U8, U32, U64, USED_STATES, Heap, Mask
from gdbext.memory.intervals import I64, slices

_MOST_SIZE = 0xFFFFFFFF  # a block of 4 GiB and more counts as one of that size, here
_MOST_NAMES = 255  # groups that are told apart; the others are one
_AT_ONCE = 1 << 16  # blocks
_SURE = (VTABLE, DEBUG_INFO, CONTAINER, SHAPE, PYTHON)
_COLUMNS = ("address", "size", "group")

_Floats = npt.NDArray[np.float64]
_Came = Tuple[_Floats, _Floats, Sequence[str]]  # blocks and bytes by group, and the groups' names


@dataclass(frozen=True)
class Census:
    """The blocks in use at one stop, by address.

    :param size: usable bytes, 2**32 - 1 at most.
    :param group: position in ``names``.
    :param names: types, or sizes in bytes where types are not known; the first, "", is of all others.
    :param sure: whether such a block is surely no longer the same where it is of another type; what a block's contents
        look like changes.
    :param typed: whether names are of types.
    """

    address: U64
    size: U32
    group: U8
    names: Sequence[str]
    sure: Sequence[bool]
    typed: bool

    def __len__(self) -> int:
        return len(self.address)


def count_blocks(heaps: Sequence[Heap]) -> Census:
    """Return the blocks in use of all heaps, in groups by size."""
    parts = [heap.blocks.having(USED_STATES) for heap in heaps]
    address = np.concatenate([np.empty(0, np.uint64), *(h.blocks.address[part] for h, part in zip(heaps, parts))])
    size = np.concatenate([np.empty(0, np.uint32), *(_short(h.blocks.size[part]) for h, part in zip(heaps, parts))])
    if len(heaps) > 1:
        order = np.argsort(address, kind="stable")
        address, size = address[order], size[order]
    sizes, counts = np.unique(size, return_counts=True)
    group, chosen = _grouped(np.searchsorted(sizes, size), counts.astype(np.float64) * sizes.astype(np.float64))
    names = ["", *(str(int(sizes[at])) for at in chosen)]
    return Census(address, size, group, names, [False] * len(names), False)


def count_typed(reach: Reach, types: BlockTypes) -> Census:
    """Return the same in groups by type."""
    weight = np.bincount(types.code, reach.size, len(types.types)).astype(np.float64)
    group, chosen = _grouped(types.code, weight)
    kinds = [types.types[at].kind for at in chosen]
    names = ["", *(types.types[at].name for at in chosen)]
    return Census(reach.address, _short(reach.size), group, names, [False, *(kind in _SURE for kind in kinds)], True)


def _short(size: U64) -> U32:
    found = np.empty(len(size), np.uint32)
    for part in slices(len(size)):
        found[part] = np.minimum(size[part], np.uint64(_MOST_SIZE))
    return found


def _grouped(code: "npt.NDArray[Any]", weight: _Floats) -> Tuple[U8, List[int]]:
    """Return the group of each code, and which codes have a group of their own: those that weigh most."""
    chosen = [at for at in np.argsort(-weight, kind="stable")[:_MOST_NAMES].tolist() if weight[at] > 0]
    table = np.zeros(len(weight), np.uint8)
    table[chosen] = np.arange(1, len(chosen) + 1, dtype=np.uint8)
    return table[code], chosen


def write_census(census: Census, folder: str) -> None:
    """Write a census into a folder of ours.

    :raises OSError: there is no room.
    """
    for name in _COLUMNS:
        with open(_path(folder, name), "xb", opener=private) as stream:
            np.save(stream, getattr(census, name))
    with open(os.path.join(folder, "census.json"), "x", encoding="utf-8", opener=private) as stream:
        json.dump([list(census.names), list(census.sure), census.typed], stream)


def find_census(folder: str) -> Optional[Census]:
    """Return what :func:`write_census` wrote, mapped and not read; None where it wrote nothing."""
    try:
        with open(os.path.join(folder, "census.json"), encoding="utf-8") as stream:
            names, sure, typed = json.load(stream)
    except FileNotFoundError:
        return None
    address, size, group = (np.load(_path(folder, name), mmap_mode="r") for name in _COLUMNS)
    return Census(address, size, group, names, sure, typed)


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, f"{name}.npy")


def for_each_kept(earlier: Census, later: Census) -> Iterator[Tuple[I64, I64]]:
    """Iterate over the blocks that are in both of two stops of one process: rows of the earlier, and of the later."""
    same_name = _same_names(earlier, later)
    for part in slices(len(earlier), _AT_ONCE):
        rows, at = _find_all(np.asarray(earlier.address[part]), later.address)
        same = later.size[at] == earlier.size[part][rows]
        same &= same_name[earlier.group[part][rows], later.group[at]]
        yield part.start + rows[same], at[same]


def _find_all(address: U64, among: U64) -> Tuple[I64, I64]:
    """Return which of some addresses are among others, and where; both are in order."""
    first, last = np.searchsorted(among, address[[0, -1]]).tolist()
    window = np.asarray(among[first : last + 1])
    if len(window) == len(address) and np.array_equal(window, address):
        return np.arange(len(address)), np.arange(first, first + len(address))
    at = np.searchsorted(window, address)
    rows = np.flatnonzero(at < len(window))
    rows = rows[window[at[rows]] == address[rows]]
    return rows, first + at[rows]


def _same_names(earlier: Census, later: Census) -> Mask:
    """Return which groups of the two may be of the same blocks: all but two types that are sure, and differ."""
    mine, other = np.array(earlier.names), np.array(later.names)
    sure: Mask = np.array(earlier.sure)[:, None] & np.array(later.sure)[None, :]
    same: Mask = ~sure | (mine[:, None] == other[None, :])
    return same


@dataclass(frozen=True)
class Generation:
    """Blocks of one group that came between two samples.

    :param sample: number of the first sample that has them, from 0 on; 0: they are as old as that or older.
    :param came_blocks: how many that sample has that the one before has not.
    :param blocks: of them that all later samples have, too.
    """

    sample: int
    came_blocks: int
    came_bytes: int
    blocks: int
    bytes: int


@dataclass(frozen=True)
class Ages:
    """What became of blocks between the first and the last sample.

    :param generations: by group; one for each sample.
    :param typed: whether groups are types.
    """

    generations: Mapping[str, Sequence[Generation]]
    typed: bool


@dataclass(frozen=True)
class Exchange:
    """What all samples have, what the last has besides, and what of the first is gone."""

    new_blocks: int
    new_bytes: int
    gone_blocks: int
    gone_bytes: int
    kept_blocks: int
    kept_bytes: int


def _bytes(census: Census) -> int:
    return sum(int(np.asarray(census.size[part]).sum(dtype=np.uint64)) for part in slices(len(census)))


class Ageing:
    """Follows blocks from sample to sample, oldest first.

    :param every: one or more; each is read once.
    """

    def __init__(self, every: Iterable[Census]) -> None:
        others = iter(every)
        first = next(others)
        self._first = len(first), _bytes(first)
        self._came: List[_Came] = []
        self._last = first
        self._born = np.zeros(len(first), np.uint8)
        self._note(first, np.ones(len(first), np.bool_))
        for census in others:
            self.add(census)

    def _note(self, census: Census, new: Mask) -> None:
        group = np.asarray(census.group)[new]
        count = np.bincount(group, minlength=len(census.names)).astype(np.float64)
        size = np.bincount(group, np.asarray(census.size)[new], len(census.names)).astype(np.float64)
        self._came.append((count, size, census.names))

    def add(self, census: Census) -> None:
        """Take the next sample; of more than 255 the first ones are one."""
        born = np.full(len(census), min(len(self._came), 255), np.uint8)
        new = np.ones(len(census), np.bool_)
        for before, now in for_each_kept(self._last, census):
            born[now] = self._born[before]
            new[now] = False
        self._last, self._born = census, born
        self._note(census, new)

    @property
    def born(self) -> U8:
        """The sample that first has each block of the last."""
        return self._born

    def exchange(self) -> Exchange:
        """Return which blocks came and went between the first and the last sample."""
        old = self._born == 0
        kept, size = int(np.count_nonzero(old)), int(self._last.size.sum(where=old, dtype=np.uint64))
        count, before = self._first
        return Exchange(len(old) - kept, _bytes(self._last) - size, count - kept, before - size, kept, size)

    def ages(self) -> Ages:
        """Return the generations of each group of the last sample."""
        last, samples = self._last, len(self._came)
        key = np.asarray(last.group).astype(np.int64) * samples + self._born
        shape = len(last.names), samples
        count = np.bincount(key, minlength=shape[0] * samples).reshape(shape)
        size = np.bincount(key, last.size, shape[0] * samples).reshape(shape)
        made = {}
        for at, name in enumerate(last.names):
            came = [_of_name(one, name) for one in self._came]
            made[name] = [
                Generation(number, *came[number], int(count[at, number]), int(size[at, number]))
                for number in range(samples)
            ]
        return Ages(made, last.typed)


def _of_name(came: _Came, name: str) -> Tuple[int, int]:
    count, size, names = came
    at = names.index(name) if name in names else -1
    return (int(count[at]), int(size[at])) if at >= 0 else (0, 0)
