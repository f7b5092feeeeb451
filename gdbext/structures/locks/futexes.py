"""What a futex word belongs to.

The arguments of a futex wait, the memory around the word and, where known, the names of the innermost frames
are held against each kind of object. What is certain by itself (a joined thread's id, a PI lock) comes first; of
the others those remain whose memory is possible; a name decides between several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator, Mapping, Optional, Sequence

from gdbext.debuginfo import Frame
from gdbext.process import Module
from gdbext.report import Confidence
from gdbext.structures.locks import layouts
from gdbext.structures.locks.frames import is_library
from gdbext.structures.locks.model import FutexWait, LockState, Primitive
from gdbext.structures.locks.objects import Objects

_LOCK_PI = (6, 13)
_WAIT, _WAIT_BITSET = 0, 9
_USED = 2  # PTHREAD_RWLOCK_FUTEX_USED
_JOINABLE = (1, 2)  # THREAD_STATE_EXITING, THREAD_STATE_JOINABLE of nptl/descr.h
_IN_PROGRESS = 1  # __PTHREAD_ONCE_INPROGRESS; the bits above the second count forks
# The guard of a C++ static whose initialisation others await, libstdc++'s libsupc++/guard.cc, little-endian.
_GUARD = 0x10100

# Functions that wait, by how their names begin without underscores; longest match wins.
_NAMED: Mapping[str, Sequence[Primitive]] = {
    "pthread_mutex": (
        Primitive.MUTEX,
        Primitive.RECURSIVE,
        Primitive.ERRORCHECK,
        Primitive.ADAPTIVE,
        Primitive.ROBUST,
        Primitive.PI,
    ),
    "pthread_rwlock_rd": (Primitive.RWLOCK_READ,),
    "pthread_rwlock_timedrd": (Primitive.RWLOCK_READ,),
    "pthread_rwlock_clockrd": (Primitive.RWLOCK_READ,),
    "pthread_rwlock_wr": (Primitive.RWLOCK_WRITE,),
    "pthread_rwlock_timedwr": (Primitive.RWLOCK_WRITE,),
    "pthread_rwlock_clockwr": (Primitive.RWLOCK_WRITE,),
    "pthread_rwlock": (Primitive.RWLOCK_READ, Primitive.RWLOCK_WRITE),
    "pthread_cond": (Primitive.CONDITION,),
    "pthread_cond_signal": (Primitive.LOW_LEVEL,),
    "pthread_cond_broadcast": (Primitive.LOW_LEVEL,),
    "pthread_cond_destroy": (Primitive.LOW_LEVEL,),
    "condvar_": (Primitive.LOW_LEVEL,),
    "pthread_barrier": (Primitive.BARRIER,),
    "pthread_join": (Primitive.JOIN,),
    "pthread_timedjoin": (Primitive.JOIN,),
    "pthread_clockjoin": (Primitive.JOIN,),
    "thrd_join": (Primitive.JOIN,),
    "sem_wait": (Primitive.SEMAPHORE,),
    "sem_timedwait": (Primitive.SEMAPHORE,),
    "sem_clockwait": (Primitive.SEMAPHORE,),
    "new_sem_wait": (Primitive.SEMAPHORE,),
    "pthread_once": (Primitive.ONCE,),
    "cxa_guard_acquire": (Primitive.ONCE,),
}
# Within libc these wait for locks of its own; which function called them says nothing about pthread objects.
_LOW_LEVEL = {
    "malloc", "calloc", "realloc", "free", "libc_malloc", "libc_calloc", "libc_realloc", "libc_free", "fork",
    "libc_fork", "exit", "abort", "malloc_trim",
}  # fmt: skip
_LOW_LEVELS = ("int_", "arena_get", "IO_", "run_exit_handlers")
# On the way from a function that waits to the kernel.
_INNER = ("futex", "lll_", "do_futex_wait", "syscall")


@dataclass(frozen=True)
class Classified:
    """What a waiting thread waits at.

    :param lock: address of the object, or of the futex word where it is nothing known.
    """

    primitive: Primitive
    lock: int
    state: Optional[LockState]
    confidence: Confidence
    because: tuple[str, ...]
    alternatives: tuple[Primitive, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    state: LockState
    because: str
    strong: bool = False  # hardly anything else looks like it
    faint: bool = False  # much else looks like it: only a name makes it one


def classify(
    wait: FutexWait, objects: Objects, frames: Sequence[Frame], libc: Optional[Module] = None
) -> Classified:
    """Say what a futex wait is for.

    :param frames: the innermost ones, or none.
    :param libc: the module of libc, whose own locks are no pthread objects.
    """
    certain = _find_certain(wait, objects, frames, libc)
    if certain is not None:
        return certain
    named, function = _find_named(frames)
    candidates = list(_candidates(wait, objects))
    agreeing = [one for one in candidates if one.state.primitive in named]
    if agreeing:
        return _told(agreeing[0], Confidence.HIGH, (agreeing[0].because, f"frame {function}"))
    if Primitive.MUTEX in named and not candidates and objects.find_word(wait.address) is not None:
        because = (f"frame {function}", "its memory is that of no mutex")
        return Classified(Primitive.MUTEX, wait.address, _overwritten(wait, objects), Confidence.MEDIUM, because)
    own = _find_low_level(wait, objects, frames, candidates, libc)
    if own is not None and not (named and own.confidence is Confidence.LOW):
        return own
    firm = [one for one in candidates if not one.faint]
    chosen = next((one for one in firm if one.strong), None)
    if chosen is None and (named or not firm):
        return _unknown(wait, named, function)
    chosen = chosen or firm[0]
    others = tuple(dict.fromkeys(one.state.primitive for one in firm if one.state.primitive != chosen.state.primitive))
    return _told(chosen, _confidence(chosen, others), (chosen.because,), others)


def may_wait_for(wait: FutexWait, lock: int, objects: Objects) -> bool:
    """Return whether a futex wait is, or may be, for the object at an address."""
    at_word = wait.address == lock
    return at_word or any(one.state.address == lock for one in _candidates(wait, objects))


def _confidence(chosen: _Candidate, others: Sequence[Primitive]) -> Confidence:
    if chosen.strong:
        return Confidence.HIGH if not others else Confidence.MEDIUM
    return Confidence.LOW if others else Confidence.MEDIUM


def _told(
    one: _Candidate, confidence: Confidence, because: "tuple[str, ...]", others: "tuple[Primitive, ...]" = ()
) -> Classified:
    return Classified(one.state.primitive, one.state.address, one.state, confidence, because, others)


def _find_certain(
    wait: FutexWait, objects: Objects, frames: Sequence[Frame], libc: Optional[Module]
) -> Optional[Classified]:
    joined = _find_joined(wait, objects)
    if joined is not None:
        return joined
    if wait.operation in _LOCK_PI:
        state = objects.find_pi_word(wait.address)
        return Classified(Primitive.PI, wait.address, state, Confidence.HIGH, ("futex operation LOCK_PI",))
    if wait.operation == _WAIT and not wait.private and wait.value == _GUARD:
        guard = ("the word awaited is the guard of a C++ static in initialisation",)
        return Classified(Primitive.ONCE, wait.address, _once(wait, objects), Confidence.HIGH, guard)
    because = _find_raw(frames, libc)
    if because is not None:
        return Classified(Primitive.FUTEX, wait.address, None, Confidence.HIGH, (because,))
    return None


def _find_raw(frames: Sequence[Frame], libc: Optional[Module]) -> Optional[str]:
    """Return why a wait is the program's own: libc's functions make their system calls in place."""
    if not frames:
        return None
    if (frames[0].function or "").lstrip("_") == "syscall":
        return "frame syscall: no wait of libc's"
    if libc is not None and frames[0].module is not None and not is_library(frames[0]):
        return f"the system call is made in {frames[0].module}"
    return None


def _once(wait: FutexWait, objects: Objects) -> LockState:
    word = objects.find_word(wait.address)
    return LockState(wait.address, Primitive.ONCE, word, "in progress" if word == wait.value else "unknown")


def _find_joined(wait: FutexWait, objects: Objects) -> Optional[Classified]:
    """Return a wait for a thread's end: at its id until glibc 2.42, at ``joinstate`` in struct pthread since.

    Upstream: nptl/pthread_join_common.c; 2.43 waits while the state is not "exited". Never a private futex: the
    kernel wakes it.
    """
    number = None if wait.private else objects.tids.find_descriptor(wait.address)
    thread = None if number is None else objects.target.find_thread(number)
    if number is None or thread is None or thread.tls is None:
        return None
    tid = objects.tids.inner.get(number)
    by_id = wait.address - thread.tls == objects.tids.offset and wait.value == tid
    by_state = wait.operation == _WAIT_BITSET and wait.value in _JOINABLE
    if tid is None or not (by_id or by_state):
        return None
    word = "id" if by_id else "join state"
    state = LockState(thread.tls, Primitive.JOIN, wait.value, "not ended", tid)
    because = f"the word is the {word} of thread {number}, in its own struct pthread"
    return Classified(Primitive.JOIN, thread.tls, state, Confidence.HIGH, (because,))


def _find_named(frames: Sequence[Frame]) -> "tuple[Sequence[Primitive], Optional[str]]":
    """Return what the innermost telling frame waits for, and its function."""
    for frame in frames:
        bare = (frame.function or "").lstrip("_")
        matches = [name for name in _NAMED if bare.startswith(name)]
        if matches:
            return _NAMED[max(matches, key=len)], frame.function
        if bare and not is_library(frame) and not bare.startswith(_INNER):
            break  # whoever called the program's own code waits for nothing yet
    return (), None


def _candidates(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    """Iterate over the objects that the word can belong to, the most telling first."""
    if wait.operation not in (_WAIT, _WAIT_BITSET):
        return
    for find in (_mutexes, _rwlocks, _conditions, _signallers, _barriers, _semaphores):
        for one in find(wait, objects):
            # An object says whether processes share it, and so does a wait; robust mutexes always do.
            if one.state.primitive is Primitive.ROBUST or one.state.shared != wait.private:
                yield one
    if wait.operation == _WAIT and wait.private and wait.value & 3 == _IN_PROGRESS:
        yield _Candidate(_once(wait, objects), "the word awaited is one of pthread_once", faint=True)


def _mutexes(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    robust = bool(wait.value & layouts.WAITERS)
    if not robust and wait.value & ~layouts.CEILING_MASK != 2:
        return
    state = objects.find_mutex(wait.address)
    if state is None or robust != (state.primitive is Primitive.ROBUST):
        return
    if robust:
        yield _Candidate(state, "the word awaited is a robust mutex's: waiters and the owner's id", True)
    elif ((state.word or 0) ^ wait.value) & layouts.CEILING_MASK:
        return
    elif state.owner_tid:
        living = objects.tids.find_number(state.owner_tid) is not None
        yield _Candidate(state, "word 2, kind and owner of a held mutex", living or state.shared)
    elif state.faults:
        yield _Candidate(state, "a destroyed mutex")
    else:
        yield _Candidate(state, "a mutex without an owner at this moment", faint=True)


def _rwlocks(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    """Iterate over read-write locks.

    Upstream: nptl/pthread_rwlock_common.c. Readers wait in a write phase, writers for the readers or the writer
    before them; the bits that say so are off only for a moment. Since 2.41 a condition variable's word counts its
    signals and takes all these values.
    """
    if wait.operation != _WAIT_BITSET:
        return
    rwlock = objects.layouts.rwlock
    if wait.value in (_USED, _USED | 1):
        waiting = Primitive.RWLOCK_READ if wait.value & 1 else Primitive.RWLOCK_WRITE
        bit = layouts.WRITE_PHASE if wait.value & 1 else layouts.WRITE_LOCKED
        state = objects.find_rwlock(wait.address - rwlock.offset("wrphase_futex"), waiting)
        if state is not None and (state.owner_tid or state.readers or (state.word or 0) >> layouts.READERS_SHIFT):
            yield _held_rwlock(state, bit, "the wrphase word of a held read-write lock")
    if wait.value == _USED | 1:
        state = objects.find_rwlock(wait.address - rwlock.offset("writers_futex"), Primitive.RWLOCK_WRITE)
        if state is not None and (state.owner_tid or state.readers):
            yield _held_rwlock(state, layouts.WRITE_LOCKED, "the writers word of a held read-write lock")
    flags = wait.value & (layouts.WRITE_PHASE | layouts.WRITE_LOCKED | layouts.READERS_WAIT)
    if flags == layouts.WRITE_LOCKED | layouts.READERS_WAIT and wait.value >> layouts.READERS_SHIFT:
        state = objects.find_rwlock(wait.address - rwlock.offset("readers"), Primitive.RWLOCK_READ)
        held = state is not None and (state.owner_tid or state.readers)
        if state is not None and held and objects.prefers_writers(state.address):
            yield _Candidate(state, "the readers word of a read-write lock that prefers a waiting writer", True)


def _held_rwlock(state: LockState, bit: int, because: str) -> _Candidate:
    sound = bool((state.word or 0) & bit)
    return _Candidate(state, because, sound and bool(state.owner_tid), not sound)


def _conditions(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    seen = set()
    for layout in objects.layouts.conditions:
        member = layout.member("g_signals")
        for group in (0, 1):
            address = wait.address - member.offset - group * member.size
            state = objects.find_condition(address, layout)
            fits = state is not None and objects.may_wait_in(address, layout, group, wait.value)
            if state is not None and fits and address not in seen:
                seen.add(address)
                yield _Candidate(state, f"a signal word of a condition variable as of {layout.origin}")


def _signallers(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    """Iterate over condition variables within which a signaller waits: for their lock, or for woken waiters to leave.

    Upstream: nptl/pthread_cond_common.c, ``__condvar_acquire_lock``, and until 2.40
    ``__condvar_quiesce_and_switch_g1``. Both are short, and no waits for a signal.
    """
    for layout in objects.layouts.conditions if wait.operation == _WAIT else ():
        if wait.value & 3 == 2:
            offsets, because = [layout.offset("g1_orig_size")], "the lock within a condition variable"
        elif wait.value & 1 and wait.value >= 3 and "g_refs" in layout:
            member = layout.member("g_refs")
            offsets = [member.offset, member.offset + member.size]
            because = "the count of a condition variable's group that is being closed"
        else:
            continue
        for offset in offsets:
            state = objects.find_condition(wait.address - offset, layout)
            if state is not None:
                yield _Candidate(replace(state, primitive=Primitive.LOW_LEVEL, meaning="in flux"), because)


def _semaphores(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    address = wait.address - objects.layouts.semaphore.offset("value")
    awaited = 0 if objects.target.abi.pointer_size == 8 else 1  # on 32-bit machines the flag of waiters is in it
    sound = wait.operation == _WAIT_BITSET and wait.value == awaited
    state = objects.find_semaphore(address) if sound else None
    if state is not None:
        yield _Candidate(state, "the value of a semaphore that counts its waiters")


def _barriers(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    if wait.operation != _WAIT:
        return
    state = objects.find_barrier(wait.address - objects.layouts.barrier.offset("current_round"))
    if state is not None and objects.find_word(wait.address) == wait.value:
        yield _Candidate(state, "the round of a barrier with arrivals missing")


def _find_low_level(
    wait: FutexWait,
    objects: Objects,
    frames: Sequence[Frame],
    candidates: Sequence[_Candidate],
    libc: Optional[Module],
) -> Optional[Classified]:
    """Return a lock of libc's own, or what looks like none of the others and waits as those do."""
    if wait.value != 2 or wait.operation != _WAIT or any(one.strong for one in candidates):
        return None
    recursive = objects.find_recursive(wait.address)
    if recursive is not None:
        because = ("libc's recursive lock (of stdio, or another): word 2, and a thread's descriptor as the owner",)
        return Classified(Primitive.LOW_LEVEL, wait.address, recursive, Confidence.HIGH, because)
    if objects.is_arena_lock(wait.address):
        because = ("the word is the first of a malloc arena",)
        return Classified(Primitive.LOW_LEVEL, wait.address, None, Confidence.HIGH, because)
    inside = libc is not None and libc.base <= wait.address < libc.end
    named = next((frame.function for frame in frames[:6] if _is_low_level(frame)), None)
    if inside or named is not None:
        because = ("the word lies in libc's own data" if inside else f"frame {named}",)
        return Classified(Primitive.LOW_LEVEL, wait.address, None, Confidence.MEDIUM, because)
    if any(not one.faint for one in candidates):
        return None
    faint = tuple(one.state.primitive for one in candidates)
    because = ("word 2 awaited, and no mutex with an owner around it",)
    return Classified(
        Primitive.LOW_LEVEL, wait.address, None, Confidence.LOW, because, (*faint, Primitive.FUTEX)
    )


def _overwritten(wait: FutexWait, objects: Objects) -> LockState:
    """Return the state of what a function took for a mutex, and is none, or none any more."""
    word, kind = objects.find_word(wait.address), objects.find_word(wait.address + objects.layouts.mutex.offset("kind"))
    read = "" if word is None or kind is None else f": its word is {word:#x}, its kind {kind:#x}"
    return LockState(wait.address, Primitive.MUTEX, word, "overwritten", faults=(f"it is no mutex (any more){read}",))


def _is_low_level(frame: Frame) -> bool:
    name = (frame.function or "").lstrip("_")
    if name.startswith("lll_lock"):
        return True
    return (is_library(frame) or frame.module is None) and (name in _LOW_LEVEL or name.startswith(_LOW_LEVELS))


def _unknown(wait: FutexWait, named: Sequence[Primitive], function: Optional[str]) -> Classified:
    if named:
        because = (f"frame {function}", "its memory is absent, or looks like no such object")
        return Classified(named[0], wait.address, None, Confidence.LOW, because)
    return Classified(Primitive.FUTEX, wait.address, None, Confidence.MEDIUM, ("no pthread object around the word",))
