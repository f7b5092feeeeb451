"""What a futex word belongs to.

The arguments of a futex wait, the memory around the word and, where known, the names of the innermost frames
are held against each kind of object. What is certain by itself (a joined thread's id, a PI lock) comes first; of
the others those remain whose memory is possible; a name decides between several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Sequence

from gdbext.report import Confidence
from gdbext.structures.locks import layouts
from gdbext.structures.locks.model import Frame, FutexWait, LockState, Primitive
from gdbext.structures.locks.objects import Objects
from gdbext.target import Module

_LOCK_PI = (6, 13)
_WAIT, _WAIT_BITSET = 0, 9
_USED = 2  # PTHREAD_RWLOCK_FUTEX_USED
_PTHREAD, _JOINABLE = 0x900, 2  # size of struct pthread, about; THREAD_STATE_JOINABLE of nptl/descr.h

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
    "pthread_barrier": (Primitive.BARRIER,),
    "pthread_join": (Primitive.JOIN,),
    "pthread_timedjoin": (Primitive.JOIN,),
    "pthread_clockjoin": (Primitive.JOIN,),
    "sem_": (Primitive.SEMAPHORE,),
    "new_sem_": (Primitive.SEMAPHORE,),
    "pthread_spin": (Primitive.SPINLOCK,),
}
# Within libc these wait for locks of its own; which function called them says nothing about pthread objects.
_LOW_LEVEL = ("lll_lock", "malloc", "calloc", "realloc", "free", "_int_", "arena_get", "fork", "exit", "_IO_")


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


def classify(
    wait: FutexWait,
    objects: Objects,
    frames: Sequence[Frame],
    pointers: Mapping[int, int],
    libc: Optional[Module] = None,
) -> Classified:
    """Say what a futex wait is for.

    :param frames: the innermost ones, or none.
    :param pointers: thread numbers by thread pointer.
    :param libc: the module of libc, whose own locks are no pthread objects.
    """
    certain = _find_certain(wait, objects, pointers)
    if certain is not None:
        return certain
    named, function = _find_named(frames)
    candidates = list(_candidates(wait, objects))
    agreeing = [one for one in candidates if one.state.primitive in named]
    if agreeing:
        return _told(agreeing[0], Confidence.HIGH, (agreeing[0].because, f"frame {function}"))
    own = _find_low_level(wait, frames, candidates, libc)
    if own is not None:
        return own
    if not candidates:
        return _unknown(wait, objects, named, function)
    chosen = next((one for one in candidates if one.strong), candidates[0])
    others = tuple(one.state.primitive for one in candidates if one is not chosen)
    confidence = _confidence(chosen, others)
    return _told(chosen, confidence, (chosen.because,), others)


def _confidence(chosen: _Candidate, others: Sequence[Primitive]) -> Confidence:
    if chosen.strong:
        return Confidence.HIGH if not others else Confidence.MEDIUM
    return Confidence.LOW if others else Confidence.MEDIUM


def _told(
    one: _Candidate, confidence: Confidence, because: "tuple[str, ...]", others: "tuple[Primitive, ...]" = ()
) -> Classified:
    return Classified(one.state.primitive, one.state.address, one.state, confidence, because, others)


def _find_certain(wait: FutexWait, objects: Objects, pointers: Mapping[int, int]) -> Optional[Classified]:
    joined = _find_joined(wait, objects, pointers)
    if joined is not None:
        return joined
    if wait.operation in _LOCK_PI:
        state = objects.find_mutex(wait.address) or LockState(wait.address, Primitive.PI, None, "unknown")
        return Classified(Primitive.PI, wait.address, state, Confidence.HIGH, ("futex operation LOCK_PI",))
    return None


def _find_joined(wait: FutexWait, objects: Objects, pointers: Mapping[int, int]) -> Optional[Classified]:
    """Return a wait for a thread's end: at its id until glibc 2.42, at ``joinstate`` in struct pthread since.

    Upstream: nptl/pthread_join_common.c; 2.43 waits while the state is "joinable".
    """
    pointer = max((at for at in pointers if at <= wait.address), default=None)
    if pointer is None or not 0 < wait.address - pointer < _PTHREAD:
        return None
    number = pointers[pointer]
    tid = objects.tids.inner.get(number)
    by_id = wait.address - pointer == objects.tids.offset and wait.value == tid
    by_state = wait.operation == _WAIT_BITSET and wait.value == _JOINABLE
    if tid is None or not (by_id or by_state):
        return None
    word = "id" if by_id else "join state"
    state = LockState(pointer, Primitive.JOIN, wait.value, "not ended", tid)
    because = f"the word is the {word} of thread {number}, in its own struct pthread"
    return Classified(Primitive.JOIN, pointer, state, Confidence.HIGH, (because,))


def _find_named(frames: Sequence[Frame]) -> "tuple[Sequence[Primitive], Optional[str]]":
    """Return what the innermost telling frame waits for, and its function."""
    for frame in frames:
        bare = (frame.function or "").lstrip("_")
        matches = [name for name in _NAMED if bare.startswith(name)]
        if matches:
            return _NAMED[max(matches, key=len)], frame.function
    return (), None


def _candidates(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    """Iterate over the objects that the word can belong to, the most telling first."""
    waits = wait.operation in (_WAIT, _WAIT_BITSET)
    if waits:
        yield from _mutexes(wait, objects)
        yield from _rwlocks(wait, objects)
        yield from _conditions(wait, objects)
        yield from _barriers(wait, objects)
        yield from _semaphores(wait, objects)


def _mutexes(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    robust = bool(wait.value & layouts.WAITERS)
    if not robust and wait.value != 2:
        return
    state = objects.find_mutex(wait.address)
    if state is None or robust != (state.primitive is Primitive.ROBUST):
        return
    if robust:
        yield _Candidate(state, "the word awaited is a robust mutex's: waiters and the owner's id", True)
    elif state.word and (state.owner_tid or state.faults):
        strong = state.owner_tid is not None and objects.tids.find_number(state.owner_tid) is not None
        yield _Candidate(state, "word 2, kind and owner of a held mutex", strong)
    elif state.faults:
        yield _Candidate(state, "a destroyed mutex")


def _rwlocks(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    rwlock = objects.layouts.rwlock
    if wait.value in (_USED, _USED | 1):
        waiting = Primitive.RWLOCK_READ if wait.value & 1 else Primitive.RWLOCK_WRITE
        state = objects.find_rwlock(wait.address - rwlock.offset("wrphase_futex"), waiting)
        if state is not None and (state.owner_tid or state.readers or (state.word or 0) >> 3):
            yield _Candidate(state, "the wrphase word of a held read-write lock", bool(state.owner_tid))
    if wait.value == _USED | 1:
        state = objects.find_rwlock(wait.address - rwlock.offset("writers_futex"), Primitive.RWLOCK_WRITE)
        if state is not None and (state.owner_tid or state.readers):
            yield _Candidate(state, "the writers word of a held read-write lock", bool(state.owner_tid))


def _conditions(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    seen = set()
    for layout in objects.layouts.conditions:
        member = layout.member("g_signals")
        for group in (0, 1):
            address = wait.address - member.offset - group * member.size
            state = objects.find_condition(address, layout)
            if state is not None and address not in seen:
                seen.add(address)
                yield _Candidate(state, f"a signal word of a condition variable as of {layout.origin}")


def _semaphores(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    address = wait.address - objects.layouts.semaphore.offset("value")
    sound = wait.operation == _WAIT_BITSET and wait.value in (0, 1)  # 1: on 32-bit machines, the flag of waiters
    state = objects.find_semaphore(address) if sound else None
    if state is not None:
        yield _Candidate(state, "the value of a semaphore that counts its waiters")


def _barriers(wait: FutexWait, objects: Objects) -> Iterator[_Candidate]:
    state = objects.find_barrier(wait.address - objects.layouts.barrier.offset("current_round"))
    if state is not None and wait.operation == _WAIT:
        yield _Candidate(state, "the round of a barrier that lacks arrivals")


def _find_low_level(
    wait: FutexWait, frames: Sequence[Frame], candidates: Sequence[_Candidate], libc: Optional[Module]
) -> Optional[Classified]:
    if wait.value != 2 or wait.operation != _WAIT or any(one.strong for one in candidates):
        return None
    inside = libc is not None and libc.base <= wait.address < libc.end
    names = [(frame.function or "").lstrip("_") for frame in frames[:6]]
    named = next((name for name in names if name.startswith(_LOW_LEVEL)), None)
    if not inside and named is None and candidates:
        return None
    if not inside and named is None:
        because = ("word 2 awaited, no mutex around it",)
        return Classified(Primitive.LOW_LEVEL, wait.address, None, Confidence.LOW, because, (Primitive.FUTEX,))
    because = ("the word lies in libc's own data" if inside else f"frame {named}",)
    return Classified(Primitive.LOW_LEVEL, wait.address, None, Confidence.MEDIUM, because)


def _unknown(
    wait: FutexWait, objects: Objects, named: Sequence[Primitive], function: Optional[str]
) -> Classified:
    if named:
        because = (f"frame {function}", "its memory looks like no such object")
        return Classified(named[0], wait.address, None, Confidence.LOW, because)
    return Classified(Primitive.FUTEX, wait.address, None, Confidence.MEDIUM, ("no pthread object around the word",))
