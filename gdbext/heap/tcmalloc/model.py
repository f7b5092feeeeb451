"""What was read of one tcmalloc, as plain data: unknown is None, never 0. Pages are its own, not the machine's."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import List, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.errors import FaultError
from gdbext.heap.freelists import PROGRAM, Objects
from gdbext.heap.reading import mapped_ranges
from gdbext.heap.tcmalloc.layouts import IN_USE, LOCATION, Layouts, Sizes
from gdbext.layout import StructLayout
from gdbext.process import Module
from gdbext.report import Evidence, Problem
from gdbext.target import Target

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Location:
    """Where one tcmalloc keeps what.

    :param shift: ``kPageShift``.
    :param classes: ``class_to_size_`` as far as it is used: bytes by size class, 0 for class 0.
    :param moved: ``num_objects_to_move_``: objects in a slot of the transfer cache, by class.
    :param root: address of the page map's root.
    :param stats: address of ``PageHeap::Stats``.
    :param central: address of ``central_cache_[0]``.
    :param caches: addresses of all thread caches; None where they could not be found.
    :param cache: their layout.
    """

    module: Module
    sizes: Sizes
    layouts: Layouts
    shift: int
    classes: Sequence[int]
    moved: Sequence[int]
    root: int
    stats: int
    central: int
    caches: Optional[Sequence[int]] = None
    cache: Optional[StructLayout] = None
    evidence: Sequence[Evidence] = ()

    @property
    def page(self) -> int:
        """Bytes of one of its pages."""
        return 1 << self.shift


@dataclass(frozen=True, eq=False)
class Spans:
    """The spans of the page map, by address.

    :param at: address of the ``Span``.
    :param start: first address of its memory.
    :param size: bytes.
    """

    at: U64
    start: U64
    size: U64
    objects: U64
    refcount: U64
    sizeclass: U64
    flags: U64

    def __len__(self) -> int:
        return len(self.at)

    def select(self, picked: "Mask | I64") -> "Spans":
        """Return the spans that a mask or an index array picks."""
        return Spans(*(getattr(self, name)[picked] for name in self.__dataclass_fields__))

    @cached_property
    def location(self) -> U64:
        """In use, on the list of free spans, or on that of returned ones."""
        location: U64 = self.flags & np.uint64(LOCATION)
        return location

    @cached_property
    def slabs(self) -> Mask:
        """Those that are cut into objects of a size class."""
        cut: Mask = (self.location == IN_USE) & (self.sizeclass > 0)
        return cut


@dataclass
class Tcmalloc:
    """One tcmalloc.

    :param leaves: addresses of the page map's leaves, each of ``leaf_bytes``.
    :param objects: what spans are cut into, and where each object is: one of :data:`HOLDERS`.
    """

    target: Target
    location: Location
    spans: Spans
    leaves: U64
    leaf_bytes: int
    objects: Objects
    problems: List[Problem] = field(default_factory=list)
    complete: bool = True

    def drop_unsound(self) -> None:
        """Leave out spans that reach into one before, or beyond what is mapped, with a problem."""
        spans = self.spans
        ends = spans.start + spans.size
        wrong = ~mapped_ranges(self.target.index).holds_whole(spans.start, ends)
        reach = np.maximum.accumulate(np.where(wrong, 0, ends).astype(np.uint64)) if len(spans) else ends
        wrong[1:] |= spans.start[1:] < reach[:-1]
        if wrong.any():
            first = int(spans.at[wrong][0])
            message = f"{int(wrong.sum())} spans overlap one before or memory that is not mapped, the first {first:#x}"
            self.problems.append(Problem("page-map", first, f"{message}: they were left out", corruption=True))
            self.spans = spans.select(~wrong)

    @property
    def system_bytes(self) -> Optional[int]:
        """What the page heap says that it took from the system, bytes; None where that cannot be read."""
        try:
            return self.location.layouts.stats.read(self.target.reader, self.location.stats, "system_bytes")
        except FaultError:
            return None


IN_SPAN, IN_TRANSFER, IN_THREAD = range(PROGRAM + 1, PROGRAM + 4)
HOLDERS = ("in use", "on its span's list", "in the transfer cache", "in a thread cache")
