"""Layouts of CPython's allocator and runtime, as data; all for 64-bit builds with the global lock.

Include/internal/pycore_obmalloc.h and Objects/obmalloc.c, Include/internal/pycore_runtime.h, pycore_interp.h and
Include/cpython/pystate.h of the tags v3.9.18, v3.10.13, v3.11.7, v3.12.1, v3.13.0 and v3.14.0; offsets are those that
the debug info of such builds has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

import numpy as np

from gdbext.abi import Abi

Version = Tuple[int, int]

POOL_OVERHEAD = 48  # sizeof(struct pool_header), rounded up to the alignment
CLASSES = 32
DUMMY_SIZE_IDX = 0xFFFF  # of a pool that an arena gave away and that has no size class yet
INITIAL_ARENA_OBJECTS = 16
LINK = 16  # of nextpool, in a pool's header

ARENA_OBJECT = {
    "address": (0, "u8"),
    "pool_address": (8, "u8"),
    "nfreepools": (16, "u4"),
    "ntotalpools": (20, "u4"),
    "freepools": (24, "u8"),
    "nextarena": (32, "u8"),
    "prevarena": (40, "u8"),
}
POOL_HEADER = {
    "count": (0, "u4"),
    "freeblock": (8, "u8"),
    "nextpool": (16, "u8"),
    "prevpool": (24, "u8"),
    "arenaindex": (32, "u4"),
    "szidx": (36, "u4"),
    "nextoffset": (40, "u4"),
    "maxnextoffset": (44, "u4"),
}


def dtype_of(members: Mapping[str, Tuple[int, str]], abi: Abi) -> "np.dtype[np.void]":
    """Return a structure of 48 bytes, in the target's byte order, for numpy."""
    offsets, formats = zip(*members.values())
    ordered = [f"{abi.order_mark}{one}" for one in formats]
    return np.dtype({"names": list(members), "formats": ordered, "offsets": list(offsets), "itemsize": 48})


@dataclass(frozen=True)
class Geometry:
    """How arenas are cut.

    :param origin: which builds have it.
    :param arena: bytes of one, ``ARENA_SIZE``.
    :param pool: bytes of one, ``POOL_SIZE``.
    :param alignment: of blocks, which is also the step from size class to size class.
    """

    origin: str
    arena: int
    pool: int
    alignment: int = 16

    def size(self, szidx: int) -> int:
        """Return the bytes of a size class."""
        return (szidx + 1) * self.alignment

    def capacity(self, szidx: int) -> int:
        """Return how many blocks of a size class a pool has."""
        return (self.pool - POOL_OVERHEAD) // self.size(szidx)


# Since "Add radix tree implementation for obmalloc address_in_range()" (bpo-37448, in 3.10) arenas have 1 MiB; builds
# without WITH_PYMALLOC_RADIX_TREE stay as before.
GEOMETRIES = (
    Geometry("arenas of 1 MiB, pools of 16 KiB (since 3.10)", 1 << 20, 1 << 14),
    Geometry("arenas of 256 KiB, pools of 4 KiB (before 3.10)", 1 << 18, 1 << 12),
)

# struct _obmalloc_state (since 3.12); pools.used is its first member.
ARENAS_IN_STATE = 512
MAXARENAS_IN_STATE = 520
NARENAS_IN_STATE = 1064
RAW_BLOCKS_IN_STATE = 1088


@dataclass(frozen=True)
class RuntimeLayout:
    """Where the interpreters of one version are, and what of theirs matters here; offsets in bytes.

    :param interpreters: ``interpreters.head`` in ``_PyRuntime``.
    :param next: in ``PyInterpreterState``, as the next three.
    :param threads: the first of its thread states.
    :param obmalloc: the allocator's state; None: it is static in the module.
    :param obmalloc_is_pointer: else it lies there itself.
    :param datastack: ``datastack_chunk`` in ``PyThreadState``, ``datastack_top`` follows; None: frames are objects.
    """

    interpreters: int
    next: int
    threads: int
    obmalloc: Optional[int] = None
    obmalloc_is_pointer: bool = False
    datastack: Optional[int] = None


THREAD_NEXT, THREAD_INTERPRETER = 8, 16  # PyThreadState.next and interp, all versions
CHUNK_PREVIOUS, CHUNK_SIZE, CHUNK_TOP, CHUNK_DATA = 0, 8, 16, 24  # struct _stack_chunk

_OLD = RuntimeLayout(32, 0, 8)
RUNTIMES: Mapping[Version, RuntimeLayout] = {
    (3, 8): _OLD,
    (3, 9): _OLD,
    (3, 10): _OLD,
    (3, 11): RuntimeLayout(40, 0, 16, datastack=296),
    (3, 12): RuntimeLayout(40, 0, 72, obmalloc=3960, datastack=232),
    (3, 13): RuntimeLayout(632, 7264, 7344, obmalloc=10800, obmalloc_is_pointer=True, datastack=232),
    (3, 14): RuntimeLayout(808, 7272, 7344, obmalloc=10904, obmalloc_is_pointer=True, datastack=232),
}

# struct _Py_DebugOffsets, the first member of _PyRuntime since 3.13.
COOKIE = b"xdebugpy"
COOKIE_VERSION, COOKIE_FREE_THREADED = 8, 16
