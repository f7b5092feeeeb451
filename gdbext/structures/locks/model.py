"""What the census of waiting threads is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Mapping, Optional, Sequence

from gdbext.process import Thread
from gdbext.report import Confidence


class State(Enum):
    """What a thread does at the stop."""

    RUNNING = "running"
    SPINNING = "spinning"
    FUTEX = "futex"
    SYSCALL = "syscall"  # any other
    UNKNOWN = "unknown"  # no registers, or a machine that is not known


class Primitive(Enum):
    """What a thread waits at. The words are those of the JSON."""

    MUTEX = "mutex"
    RECURSIVE = "recursive-mutex"
    ERRORCHECK = "errorcheck-mutex"
    ADAPTIVE = "adaptive-mutex"
    ROBUST = "robust-mutex"
    PI = "pi-mutex"
    RWLOCK_READ = "rwlock-read"
    RWLOCK_WRITE = "rwlock-write"
    CONDITION = "condition"
    SEMAPHORE = "semaphore"
    BARRIER = "barrier"
    JOIN = "join"
    SPINLOCK = "spinlock"
    ONCE = "once"  # pthread_once, std::call_once, a static that another thread initialises
    LOW_LEVEL = "low-level-lock"  # glibc's own, of malloc arenas, stdio and the loader
    FUTEX = "futex"  # of something else: Rust, Go, std::atomic::wait

    @property
    def has_owner(self) -> bool:
        """Whether the object itself says who holds it."""
        return self in _OWNED


_OWNED = {
    Primitive.MUTEX,
    Primitive.RECURSIVE,
    Primitive.ERRORCHECK,
    Primitive.ADAPTIVE,
    Primitive.ROBUST,
    Primitive.PI,
    Primitive.RWLOCK_READ,
    Primitive.RWLOCK_WRITE,
    Primitive.JOIN,
}


@dataclass(frozen=True)
class Syscall:
    """The system call that a thread is in.

    :param number: as the kernel numbers it on that machine.
    :param name: "futex", …; None when it is not one that we know.
    :param arguments: the first four, unsigned words; those that the machine's registers still hold.
    :param restarted: it shows as ``restart_syscall``: a timed wait that was interrupted before.
    """

    number: int
    name: Optional[str]
    arguments: Sequence[int]
    restarted: bool = False


@dataclass(frozen=True)
class FutexWait:
    """The arguments of a futex wait (``include/uapi/linux/futex.h``).

    :param operation: without the flags: WAIT 0, LOCK_PI 6, WAIT_BITSET 9, WAIT_REQUEUE_PI 11, LOCK_PI2 13.
    :param timed: whether a timeout was given; None when the register that says so is not known.
    """

    address: int
    operation: int
    private: bool
    value: int
    timed: Optional[bool] = None


@dataclass(frozen=True)
class LockState:
    """A lock's own memory, decoded.

    :param address: of the object (not of the futex word in it).
    :param word: the raw word that says whether it is held.
    :param meaning: the same in words: "held, waiters queued", "3 readers", "free".
    :param owner_tid: who holds it, in the process's own PID namespace, or None: nobody, or it does not say.
    :param waiters: its own count of waiters, or None.
    :param shared: whether other processes may use it: then its owner may be a thread of theirs.
    :param faults: what is wrong with it ("destroyed", "inconsistent": the word and the owner contradict), as sentences.
    """

    address: int
    primitive: Primitive
    word: Optional[int]
    meaning: str
    owner_tid: Optional[int] = None
    readers: Optional[int] = None
    waiters: Optional[int] = None
    shared: bool = False
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wait:
    """What one thread does, and what it waits for.

    :param tid: the thread's id in its own PID namespace, from ``struct pthread``, or None.
    :param lock: address of the object waited for, or None.
    :param alternatives: other things that the same futex could be, when nothing decides.
    :param because: why this is believed: "futex word at +8 of a plausible rwlock", "frame pthread_cond_wait".
    """

    thread: Thread
    state: State
    tid: Optional[int] = None
    syscall: Optional[str] = None
    primitive: Optional[Primitive] = None
    lock: Optional[int] = None
    state_of_lock: Optional[LockState] = None
    timed: Optional[bool] = None
    confidence: Optional[Confidence] = None
    because: tuple[str, ...] = ()
    alternatives: tuple[Primitive, ...] = ()


@dataclass(frozen=True)
class Mention:
    """A thread that may hold an ownerless lock, because it mentions its address.

    :param places: "r13", "stack+0x28": callee-saved registers and words near the top of its stack.
    """

    thread: int
    places: tuple[str, ...]
    confidence: Confidence = Confidence.LOW


@dataclass(frozen=True)
class Census:
    """All threads of a target at one stop.

    :param tids: thread numbers by inner tid.
    :param mentions: of each ownerless lock with waiters, by its address.
    :param complete: whether an id that is not in ``tids`` belongs to no living thread of the process.
    """

    waits: Sequence[Wait]
    tids: Mapping[int, int]
    mentions: Mapping[int, Sequence[Mention]]
    notes: tuple[str, ...] = ()
    complete: bool = True
