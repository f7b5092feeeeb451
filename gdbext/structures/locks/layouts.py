"""The pthread objects of glibc, as data.

Upstream: ``sysdeps/nptl/bits/struct_mutex.h``, ``struct_rwlock.h`` (x86-64 and aarch64 have flags of their own),
``bits/thread-shared-types.h`` (condition variables), ``internaltypes.h`` (barriers, semaphores), ``libc-lock.h``.
All the same from 2.25 to 2.44 but for condition variables, which lost ``__g_refs`` in 2.41 (commit c36fc50781) and
in the release branches of 2.38 to 2.40: a version does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from gdbext.abi import Abi
from gdbext.layout import StructLayout, declare

_MUTEX_64 = (
    "u32 lock", "u32 count", "u32 owner", "u32 nusers", "u32 kind", "u32 spins", "u32 list[4]",
)  # fmt: skip
_MUTEX_32 = ("u32 lock", "u32 count", "u32 owner", "u32 kind", "u32 nusers")
_RWLOCK = ("u32 readers", "u32 writers", "u32 wrphase_futex", "u32 writers_futex", "u32 pad3", "u32 pad4")
_RWLOCK_64 = (*_RWLOCK, "u32 cur_writer", "u32 shared", "u32 pad1[2]", "u32 pad2[2]", "u32 flags")
_WIDE_RWLOCKS = ("x86-64", "aarch64")
_RWLOCK_32 = (*_RWLOCK, "u8 flags", "u8 shared", "u8 rwelision", "u8 pad2", "u32 cur_writer")
_RWLOCK_32_BIG = (*_RWLOCK, "u8 pad2", "u8 rwelision", "u8 shared", "u8 flags", "u32 cur_writer")
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
_SEMAPHORE_32 = ("u32 value", "u32 private", "u32 pad", "u32 nwaiters")
_RECURSIVE = ("u32 lock", "u32 cnt", "ptr owner")  # __libc_lock_recursive_t, _IO_lock_t

# __kind: bits of sysdeps/nptl/pthreadP.h.
KIND_MASK, KIND_ROBUST, KIND_PI, KIND_PROTECT, KIND_SHARED = 3, 16, 32, 64, 128
KINDS_KNOWN = KIND_MASK | KIND_ROBUST | KIND_PI | KIND_PROTECT | KIND_SHARED | 256 | 512
DESTROYED = 0xFFFFFFFF
CEILING_MASK = 0xFFF80000  # of the word of a mutex with a priority ceiling
# __owner of a robust mutex whose owner died: not yet made consistent, and never made so.
INCONSISTENT, NOT_RECOVERABLE = 0x7FFFFFFF, 0x7FFFFFFE

# The futex word of robust and PI mutexes: the owner's tid, with flags (linux/futex.h).
TID_MASK, OWNER_DIED, WAITERS = 0x3FFFFFFF, 0x40000000, 0x80000000

# rwlock's __readers: flags below the count.
READERS_SHIFT, WRITE_PHASE, WRITE_LOCKED, READERS_WAIT = 3, 1, 2, 4
PREFER_WRITER_NONRECURSIVE = 2  # of __flags

CONDITION_REFS_SHIFT, CONDITION_SHARED = 3, 1


@dataclass(frozen=True)
class LockLayouts:
    """The objects' structures for one ABI.

    :param conditions: the variants, that which has more to hold against memory first.
    :param recursive: libc's own recursive lock, of stdio and others.
    """

    mutex: StructLayout
    rwlock: StructLayout
    conditions: Sequence[StructLayout]
    barrier: StructLayout
    semaphore: StructLayout
    recursive: StructLayout


def layouts_for(abi: Abi) -> LockLayouts:
    """Return the layouts for an ABI."""
    wide, big = abi.pointer_size == 8, abi.byteorder == "big"
    semaphore = _SEMAPHORE_64_BIG if big else _SEMAPHORE_64
    rwlock = _RWLOCK_64 if abi.machine in _WIDE_RWLOCKS else _RWLOCK_32_BIG if big else _RWLOCK_32
    return LockLayouts(
        declare("pthread_mutex_t", _MUTEX_64 if wide else _MUTEX_32, abi, "glibc 2.25"),
        declare("pthread_rwlock_t", rwlock, abi, "glibc 2.25"),
        (
            declare("pthread_cond_t", _CONDITION_225, abi, "glibc 2.25 (ed19993b5b)"),
            declare("pthread_cond_t", _CONDITION_241, abi, "glibc 2.41 (c36fc50781)"),
        ),
        declare("pthread_barrier_t", _BARRIER, abi, "glibc 2.24"),
        declare("sem_t", semaphore if wide else _SEMAPHORE_32, abi, "glibc 2.21"),
        declare("__libc_lock_recursive_t", _RECURSIVE, abi, "glibc 2.25"),
    )
