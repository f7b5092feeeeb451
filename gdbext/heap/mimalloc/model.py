"""What was read of one mimalloc, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.heap.freelists import Objects
from gdbext.heap.mimalloc.layouts import Layout
from gdbext.report import Evidence, Problem
from gdbext.target import Target

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Location:
    """The segments of one mimalloc.

    :param cookie: the number of the process that all of them have in common.
    """

    layout: Layout
    cookie: int
    segments: Sequence[int]
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


@dataclass
class Mimalloc:
    """One mimalloc.

    :param segments: start, end, and the end of its own data, of each segment.
    :param objects: the blocks of all pages, and which list each is on.
    """

    target: Target
    location: Location
    pages: Pages
    objects: Objects
    segments: List[tuple[int, int, int]] = field(default_factory=list)
    problems: List[Problem] = field(default_factory=list)
    complete: bool = True


FREE, LOCAL, REMOTE, DELAYED = range(1, 5)
HOLDERS = ("in use", "free", "free, not yet offered", "freed by another thread", "freed by another thread, at its heap")
