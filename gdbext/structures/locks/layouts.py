"""The pthread objects of glibc, as data.

Upstream: ``sysdeps/nptl/bits/struct_mutex.h``, ``struct_rwlock.h``, ``bits/thread-shared-types.h``
(condition variables), ``internaltypes.h`` (barriers, semaphores). All the same from 2.25 to 2.44 but for
condition variables, which lost ``__g_refs`` in 2.41 (commit c36fc50781).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from gdbext.abi import Abi
from gdbext.layout import StructLayout, declare

_MUTEX_64 = ("u32 lock", "u32 count", "u32 owner", "u32 nusers", "u32 kind")
_MUTEX_32 = ("u32 lock", "u32 count", "u32 owner", "u32 kind", "u32 nusers")
_RWLOCK_64 = (
    "u32 readers", "u32 writers", "u32 wrphase_futex", "u32 writers_futex", "u32 pad3", "u32 pad4",
    "u32 cur_writer", "u32 shared",
)  # fmt: skip
_RWLOCK_32 = (
    "u32 readers", "u32 writers", "u32 wrphase_futex", "u32 writers_futex", "u32 pad3", "u32 pad4",
    "u8 flags", "u8 shared", "u8 rwelision", "u8 pad2", "u32 cur_writer",
)  # fmt: skip
_CONDITION_225 = (
    "u32 wseq[2]", "u32 g1_start[2]", "u32 g_refs[2]", "u32 g_size[2]", "u32 g1_orig_size", "u32 wrefs",
    "u32 g_signals[2]",
)  # fmt: skip
_CONDITION_241 = (
    "u32 wseq[2]", "u32 g1_start[2]", "u32 g_size[2]", "u32 g1_orig_size", "u32 wrefs", "u32 g_signals[2]",
)  # fmt: skip
_BARRIER = ("u32 in", "u32 current_round", "u32 count", "u32 shared", "u32 out")
_SEMAPHORE_64 = ("u32 value", "u32 nwaiters", "u32 private")  # one 64-bit word, little-endian
_SEMAPHORE_64_BIG = ("u32 nwaiters", "u32 value", "u32 private")
_SEMAPHORE_32 = ("u32 value", "u32 private", "u32 nwaiters")

# __kind: bits of sysdeps/nptl/pthreadP.h.
KIND_MASK, KIND_ROBUST, KIND_PI, KIND_PROTECT, KIND_SHARED = 3, 16, 32, 64, 128
KINDS_KNOWN = KIND_MASK | KIND_ROBUST | KIND_PI | KIND_PROTECT | KIND_SHARED | 256 | 512
DESTROYED = 0xFFFFFFFF

# The futex word of robust and PI mutexes: the owner's tid, with flags (linux/futex.h).
TID_MASK, OWNER_DIED, WAITERS = 0x3FFFFFFF, 0x40000000, 0x80000000

# rwlock's __readers: flags below the count.
READERS_SHIFT, WRITE_PHASE, WRITE_LOCKED = 3, 1, 2

CONDITION_REFS_SHIFT = 3


@dataclass(frozen=True)
class LockLayouts:
    """The objects' structures for one ABI.

    :param conditions: the variants, newest first.
    """

    mutex: StructLayout
    rwlock: StructLayout
    conditions: Sequence[StructLayout]
    barrier: StructLayout
    semaphore: StructLayout


def layouts_for(abi: Abi) -> LockLayouts:
    """Return the layouts for an ABI."""
    wide = abi.pointer_size == 8
    semaphore = _SEMAPHORE_64 if abi.byteorder == "little" else _SEMAPHORE_64_BIG
    return LockLayouts(
        declare("pthread_mutex_t", _MUTEX_64 if wide else _MUTEX_32, abi, "glibc 2.25"),
        declare("pthread_rwlock_t", _RWLOCK_64 if wide else _RWLOCK_32, abi, "glibc 2.25"),
        (
            declare("pthread_cond_t", _CONDITION_241, abi, "glibc 2.41 (c36fc50781)"),
            declare("pthread_cond_t", _CONDITION_225, abi, "glibc 2.25 (ed19993b5b)"),
        ),
        declare("pthread_barrier_t", _BARRIER, abi, "glibc 2.24"),
        declare("sem_t", semaphore if wide else _SEMAPHORE_32, abi, "glibc 2.21"),
    )
