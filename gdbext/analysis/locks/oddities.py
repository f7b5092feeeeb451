"""What a census shows besides cycles and convoys, in sentences: waits that nobody seems able to end.

None of these is certain from one sample, so none is a finding.
"""

from __future__ import annotations

from typing import Callable, Iterator, Mapping, Sequence, Sized

from gdbext.structures.locks.model import Census, Primitive, State, Wait
from gdbext.wording import count_text

_IDLE = (State.FUTEX, State.SYSCALL)
_Text = Callable[[Wait], str]


def for_each_oddity(census: Census, text: _Text) -> Iterator[str]:
    """Iterate over the sentences.

    :param text: says what a thread waits for: "the mutex queue_lock".
    """
    queues: "dict[int, list[Wait]]" = {}
    for wait in census.waits:
        if wait.lock is not None:
            queues.setdefault(wait.lock, []).append(wait)
    yield from _unheld_spinlocks(census, queues, text)
    yield from _starved_writers(queues, text)
    yield from _lonely_waiters(census, queues, text)


def _unheld_spinlocks(census: Census, queues: Mapping[int, Sequence[Wait]], text: _Text) -> Iterator[str]:
    """Iterate over the spinlocks that are held, and that no thread can be seen to hold.

    On x86 a spinlock that is all zeros is held: pthread_spin_init writes 1.
    """
    for lock, queue in queues.items():
        state = queue[0].state_of_lock
        spinning = {wait.thread.number for wait in queue if wait.primitive is Primitive.SPINLOCK}
        others = [wait for wait in census.waits if wait.thread.number not in spinning]
        # Each has counted itself down from zero: none of them has just taken it.
        untaken = state is not None and state.word == -len(spinning)
        if not spinning or not untaken or census.mentions.get(lock):
            continue
        if all(wait.state in _IDLE for wait in others):
            yield (
                f"{_threads(spinning, 'spins', 'spin')} at {text(queue[0])}, but no thread mentions it, and no other "
                "runs: was it ever initialised? A spinlock of zeros is held, here, until pthread_spin_init"
            )


def _starved_writers(queues: Mapping[int, Sequence[Wait]], text: _Text) -> Iterator[str]:
    """Iterate over the read-write locks that readers hold while a writer waits, and further readers too."""
    for queue in queues.values():
        state = queue[0].state_of_lock
        writers = [wait for wait in queue if wait.primitive is Primitive.RWLOCK_WRITE]
        readers = [wait for wait in queue if wait.primitive is Primitive.RWLOCK_READ]
        if state is not None and state.readers and writers and readers:
            yield (
                f"{count_text(state.readers, 'reader')} {'holds' if state.readers == 1 else 'hold'} {text(queue[0])}, "
                f"{_threads(writers, 'waits', 'wait')} to write, and behind {'it' if len(writers) == 1 else 'them'} "
                f"{_threads(readers, 'waits', 'wait')} to read"
            )


def _lonely_waiters(census: Census, queues: Mapping[int, Sequence[Wait]], text: _Text) -> Iterator[str]:
    """Iterate over the conditions that are waited for when every thread of the process waits for another one."""
    if not all(wait.state is State.FUTEX and wait.timed is False and _is_inner(wait) for wait in census.waits):
        return
    for queue in queues.values():
        waiting = [wait for wait in queue if wait.primitive in (Primitive.CONDITION, Primitive.SEMAPHORE)]
        if waiting:
            yield (
                f"{_threads(waiting, 'waits', 'wait')} for {text(waiting[0])}, and nobody is left to wake "
                f"{'it' if len(waiting) == 1 else 'them'}: every thread waits"
            )


def _is_inner(wait: Wait) -> bool:
    """Return whether only a thread of this process can end a wait, as far as is known."""
    shared = wait.state_of_lock is not None and wait.state_of_lock.shared
    return wait.primitive is not None and wait.primitive is not Primitive.FUTEX and not shared


def _threads(waits: Sized, one: str, several: str) -> str:
    return f"{count_text(len(waits), 'thread')} {one if len(waits) == 1 else several}"
