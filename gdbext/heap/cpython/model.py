"""An interpreter, and its allocator read into plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.heap.cpython.layouts import Geometry, Version
from gdbext.heap.model import U32, U64, Mask
from gdbext.process import Module
from gdbext.report import Problem

I64 = npt.NDArray[np.int64]
Records = npt.NDArray[np.void]  # structures as numpy has them, by member


@dataclass(frozen=True)
class Runtime:
    """One CPython in a target.

    :param module: that holds it.
    :param address: of ``_PyRuntime``; None where no name leads to it.
    :param version: None where nothing says which.
    :param exact: as ``Py_Version`` or the debug offsets have it ("3.11.2"), else "".
    :param free_threaded: whether it is a build without the global lock.
    :param found_by: what says so.
    """

    module: Module
    address: Optional[int]
    version: Optional[Version]
    exact: str
    free_threaded: bool
    found_by: str

    @property
    def label(self) -> str:
        """ "CPython 3.11.2", as far as that is known."""
        text = self.exact or (".".join(map(str, self.version)) if self.version else "")
        return f"CPython {text}".strip()


@dataclass(frozen=True)
class StatePlace:
    """Where the state of one allocator is.

    :param usedpools: address of the array of pool lists.
    :param arenas: address of the array of arena objects; 0: no arena was ever made.
    :param limit: its entries; None where only the array itself shows that.
    :param counted: ``narenas_currently_allocated``, ``raw_allocated_blocks`` by name, as far as they are known.
    :param found_by: "_PyRuntime", "symbols", "structure".
    """

    usedpools: int
    arenas: int
    limit: Optional[int]
    geometry: Geometry
    found_by: str
    counted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Arenas:
    """The arenas that are there, by address.

    :param index: in the array of arena objects.
    :param address: of the mapping.
    :param first: of the first pool.
    :param carved: first address behind the pools that were handed out at least once.
    :param total: pools.
    :param free: ``nfreepools``.
    :param freepools: the first of the list of free pools, or 0.
    """

    index: U32
    address: U64
    first: U64
    carved: U64
    total: U32
    free: U32
    freepools: U64

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True)
class Pools:
    """Every pool that was handed out at least once, by address.

    :param arena: position in :class:`Arenas`.
    :param header: the header as it is in the target; garbage where it could not be read.
    :param read: whether it could.
    :param sound: in use, and its header agrees with itself.
    :param empty: free: no block of it is in use.
    """

    address: U64
    arena: I64
    header: Records
    read: Mask
    sound: Mask
    empty: Mask

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True)
class FreeBlocks:
    """The blocks on the pools' free lists.

    :param address: of each, by pool.
    :param pool: position of its pool.
    :param length: of each pool's list.
    """

    address: U64
    pool: I64
    length: I64


@dataclass(frozen=True)
class DataStack:
    """A chunk of a thread's data stack, with the frames of Python functions (since 3.11).

    :param live: first address behind the frames; what follows is of calls that have ended.
    """

    address: int
    size: int
    live: int

    @property
    def end(self) -> int:
        """First address behind the chunk."""
        return self.address + self.size


@dataclass
class Pymalloc:
    """One allocator, read whole.

    :param stacks: chunks of threads' data stacks, which its arena allocator maps.
    :param complete: whether everything was read.
    """

    name: str
    runtime: Runtime
    place: StatePlace
    arenas: Arenas
    pools: Pools
    listed: FreeBlocks
    stacks: Sequence[DataStack] = ()
    problems: List[Problem] = field(default_factory=list)
    complete: bool = True

    @property
    def geometry(self) -> Geometry:
        """How its arenas are cut."""
        return self.place.geometry
