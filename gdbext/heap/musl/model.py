"""What was read of one mallocng, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import List, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.heap.musl.layouts import CLASSES, PAGE, SINGLE, UNIT
from gdbext.layout import StructLayout
from gdbext.process import Module
from gdbext.report import Evidence, Problem
from gdbext.target import Target

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Location:
    """Where one mallocng is.

    :param context: address of ``__malloc_context``.
    :param module: that has it; None where it is in none that is known.
    """

    context: int
    layout: StructLayout
    secret: int
    module: Optional[Module]
    evidence: Sequence[Evidence] = ()


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups in use, by address.

    :param meta: address of the ``struct meta``.
    :param start: address of the ``struct group``.
    :param avail: slots that may be handed out now, as bits.
    :param freed: slots that were freed since, as bits.
    :param word: last_idx, freeable, sizeclass, maplen.
    """

    meta: U64
    start: U64
    avail: U64
    freed: U64
    word: U64

    def __len__(self) -> int:
        return len(self.meta)

    def select(self, picked: "Mask | I64") -> "Groups":
        """Return the groups that a mask or an index array picks."""
        return Groups(*(getattr(self, name)[picked] for name in self.__dataclass_fields__))

    @cached_property
    def slots(self) -> I64:
        """How many slots each has."""
        slots: I64 = (self.word & np.uint64(31)).astype(np.int64) + 1
        return slots

    @cached_property
    def sizeclass(self) -> I64:
        """Each one's size class."""
        sizeclass: I64 = (self.word >> np.uint64(6) & np.uint64(63)).astype(np.int64)
        return sizeclass

    @cached_property
    def mapped(self) -> U64:
        """Bytes of each one's own mapping; 0 for one inside of a slot or of a module."""
        mapped: U64 = (self.word >> np.uint64(12)) * np.uint64(PAGE)
        return mapped

    @cached_property
    def stride(self) -> U64:
        """Bytes from one slot to the next."""
        units = np.array([*CLASSES, *[0] * (SINGLE + 1 - len(CLASSES))], np.uint64)[self.sizeclass]
        alone = (self.slots == 1) & (self.mapped > 0)
        stride: U64 = np.where(alone, self.mapped - np.uint64(UNIT), units * np.uint64(UNIT))
        return stride

    @cached_property
    def end(self) -> U64:
        """The first address after each."""
        whole = np.uint64(UNIT) + self.stride * self.slots.astype(np.uint64)
        return self.start + np.where(self.mapped > 0, self.mapped, whole)


IN_USE, FREE, NESTED, ODD = range(4)


@dataclass
class Mallocng:
    """One mallocng. Of each slot of all groups, in their order:

    :param slot: first address of the slot.
    :param address: what the program holds, or where it would begin.
    :param size: bytes that the program asked for; of a free slot those that it has.
    :param what: in use, free, a group inside, or a header that cannot be one.
    :param group: index of its group.
    :param areas: addresses of the areas of metas.
    """

    target: Target
    location: Location
    groups: Groups
    areas: List[int]
    slot: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    address: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    size: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    what: U8 = field(default_factory=lambda: np.zeros(0, np.uint8))
    group: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    problems: List[Problem] = field(default_factory=list)
    complete: bool = True

    @cached_property
    def own(self) -> Mask:
        """The groups that lie in no slot of another."""
        starts, ends = self.groups.start, self.groups.end
        reach = np.maximum.accumulate(ends) if len(ends) else ends
        own: Mask = np.append(True, starts[1:] >= reach[:-1])[: len(starts)]
        return own
