"""What was read of one mimalloc, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Set, Tuple, Union

import numpy as np
import numpy.typing as npt

from gdbext.heap.freelists import Objects
from gdbext.heap.mimalloc.layouts import Layout, MapLayout
from gdbext.process import Module
from gdbext.report import Evidence, Problem
from gdbext.target import Target

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Piece = Tuple[int, int]  # start, end


@dataclass(frozen=True)
class Location:
    """The segments of one mimalloc (1.x and 2.x).

    :param cookie: the number of the process that all of them have in common.
    :param modules: one of which has its variables.
    """

    layout: Layout
    cookie: int
    segments: Sequence[int]
    modules: Sequence[Module] = ()
    evidence: Sequence[Evidence] = ()


@dataclass(frozen=True, eq=False)
class MapLocation:
    """The page map of one mimalloc (3.x).

    :param root: address of its first level.
    :param tables: addresses of the second level's parts that are used.
    :param pages: addresses of the pages that these lead to.
    """

    layout: MapLayout
    root: int
    tables: Sequence[int]
    pages: U64
    evidence: Sequence[Evidence] = ()


@dataclass(frozen=True, eq=False)
class Pages:
    """Pages that are in use, by their first block.

    :param at: address of the ``mi_page_t``.
    :param start: of its first block.
    :param each: bytes of a block.
    :param capacity: blocks that were ever handed out.
    :param used: blocks that its owner has not got back, those that wait in ``thread_free`` included.
    :param heap: address of the heap that owns it; 0 for none.
    :param thread: id of the thread that owns it; 0 for none.
    :param key: the first key of its free lists; 0 where these are not encoded.
    :param turned: the second.
    """

    at: U64
    start: U64
    each: U64
    capacity: I64
    used: U64
    free: U64
    local_free: U64
    thread_free: U64
    heap: U64
    thread: U64
    key: U64
    turned: U64

    def select(self, picked: "npt.NDArray[np.bool_]") -> "Pages":
        """Return the pages that a mask picks."""
        return Pages(*(getattr(self, name)[picked] for name in self.__dataclass_fields__))


@dataclass
class Mimalloc:
    """One mimalloc.

    :param objects: the blocks of all pages, and which list each is on.
    :param areas: the memory of each page, or the segments: what it took from the system and uses.
    :param own: of that, what it keeps for itself.
    :param owners: start and end of each segment, and the id of the thread that owns it, 0 for none.
    :param fresh: blocks whose padding is zeros: a thread inside may have been handing one out for the first time.
    :param reserves: what it has reserved and never written.
    :param sizes: bytes that the program asked for, of each block; None where it has no padding, which tells them.
    """

    target: Target
    location: Union[Location, MapLocation]
    pages: Pages
    objects: Objects
    areas: List[Piece] = field(default_factory=list)
    own: List[Piece] = field(default_factory=list)
    owners: List[Tuple[int, int, int]] = field(default_factory=list)
    fresh: Set[int] = field(default_factory=set)
    reserves: List[Piece] = field(default_factory=list)
    sizes: Optional[U64] = None
    problems: List[Problem] = field(default_factory=list)
    complete: bool = True

    @property
    def unit(self) -> str:
        """What it cuts its memory into."""
        return "segment" if isinstance(self.location, Location) else "area"


FREE, LOCAL, REMOTE, DELAYED = range(1, 5)
HOLDERS = ("in use", "free", "free, not yet offered", "freed by another thread", "freed by another thread, at its heap")
