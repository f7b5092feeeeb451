"""Who waits for whom: edges, cycles, and the roots behind which others queue.

A thread waits for one thing, so it has at most one edge: to the owner that the lock itself names, or to the thread
that it joins. Guesses (a holder by mention) make no edge here: no deadlock ever follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Sequence

from gdbext.structures.locks.model import Census, Primitive, Wait

_UNHELD = (Primitive.CONDITION, Primitive.BARRIER, Primitive.JOIN)
_CANDIDATES = 8  # threads that mention one lock


@dataclass(frozen=True)
class Cycle:
    """Threads that wait for each other.

    :param threads: their numbers; each waits for the next, the last for the first. One: for itself.
    :param timed: whether one of the waits ends by itself.
    """

    threads: tuple[int, ...]
    timed: bool


@dataclass(frozen=True)
class Convoy:
    """Threads held up by one.

    :param lock: the lock that the root holds with most waiters behind it, or None (joins only).
    :param holder: number of the root, which itself waits for no thread; None where the holder is not known.
    :param waiters: all that wait for it, through others too, by number.
    :param direct: those that wait for ``lock`` itself.
    :param guessed: whether the holder is known only by mention.
    """

    lock: Optional[int]
    holder: Optional[int]
    waiters: tuple[int, ...]
    direct: tuple[int, ...]
    guessed: bool = False


@dataclass(frozen=True)
class WaitGraph:
    """The wait-for graph of a census.

    :param edges: waiter -> the thread that it waits for, by number.
    :param lost: waiters whose owner is not among the living, with the owner's id; a lock that processes share
        is not counted: its owner may live elsewhere. None where not all the living are known.
    """

    edges: Mapping[int, int]
    cycles: Sequence[Cycle]
    convoys: Sequence[Convoy]
    lost: Mapping[int, int]


def build_graph(census: Census) -> WaitGraph:
    """Draw the graph of a census."""
    waits = {wait.thread.number: wait for wait in census.waits}
    owners = {number: tid for number, wait in waits.items() if (tid := _owner_tid(wait)) is not None}
    edges = {number: census.tids[tid] for number, tid in owners.items() if tid in census.tids}
    gone = {number: tid for number, tid in owners.items() if tid not in census.tids}
    lost = {number: tid for number, tid in gone.items() if census.complete and not _is_shared(waits[number])}
    cycles = _find_cycles(edges, waits)
    convoys = [*_owned_convoys(edges, waits, cycles), *_ownerless_convoys(census, edges)]
    convoys.sort(key=lambda convoy: -len(convoy.waiters))
    return WaitGraph(edges, cycles, tuple(convoys), lost)


def find_holders(census: Census) -> "frozenset[int]":
    """Return the threads that hold what others wait for, or may hold it because they mention it.

    Whoever ends a wait otherwise is none: the signaller of a condition, the last at a barrier, a joined thread.
    """
    tids = (_owner_tid(wait) for wait in _for_held(census))
    owners = {census.tids[tid] for tid in tids if tid is not None and tid in census.tids}
    locks = {wait.lock for wait in _for_held(census) if wait.lock is not None}
    mentioned = {mention.thread for lock in locks for mention in census.mentions.get(lock, ())[:_CANDIDATES]}
    return frozenset(owners | mentioned)


def find_held_locks(census: Census) -> "frozenset[int]":
    """Return the locks that are waited for and that a thread holds; a semaphore may be none."""
    waits = (wait for wait in _for_held(census) if wait.primitive is not Primitive.SEMAPHORE)
    return frozenset(wait.lock for wait in waits if wait.lock is not None)


def _for_held(census: Census) -> Iterator[Wait]:
    for wait in census.waits:
        if wait.primitive is not None and wait.primitive not in _UNHELD:
            yield wait


def _owner_tid(wait: Wait) -> Optional[int]:
    state = wait.state_of_lock
    return None if state is None or state.owner_tid is None else state.owner_tid


def _is_shared(wait: Wait) -> bool:
    return wait.state_of_lock is not None and wait.state_of_lock.shared


def _find_cycles(edges: Mapping[int, int], waits: Mapping[int, Wait]) -> Sequence[Cycle]:
    seen: "dict[int, int]" = {}  # thread -> the start from which it was first passed
    cycles = []
    for start in sorted(edges):
        path, at = [], start
        while at in edges and at not in seen:
            seen[at] = start
            path.append(at)
            at = edges[at]
        if at in edges and seen[at] == start:
            ring = tuple(path[path.index(at) :])
            cycles.append(Cycle(ring, any(waits[number].timed for number in ring)))
    return tuple(cycles)


def _owned_convoys(
    edges: Mapping[int, int], waits: Mapping[int, Wait], cycles: Sequence[Cycle]
) -> Sequence[Convoy]:
    roots: "dict[int, Optional[int]]" = {number: None for cycle in cycles for number in cycle.threads}
    behind: "dict[int, list[int]]" = {}
    for number in edges:
        root = _root_of(number, edges, roots)
        if root is not None:
            behind.setdefault(root, []).append(number)
    return [_convoy(root, waiters, edges, waits) for root, waiters in behind.items()]


def _root_of(number: int, edges: Mapping[int, int], roots: "dict[int, Optional[int]]") -> Optional[int]:
    """Return the thread at the end of a chain of waits; None when the chain leads into a cycle.

    :param roots: those known, at first of the threads in cycles; the chain's are added.
    """
    path = []
    while number in edges and number not in roots:
        path.append(number)
        number = edges[number]
    root = roots.get(number, number)
    roots.update(dict.fromkeys(path, root))
    return root


def _convoy(root: int, waiters: Sequence[int], edges: Mapping[int, int], waits: Mapping[int, Wait]) -> Convoy:
    direct: "dict[Optional[int], list[int]]" = {}
    for number in waiters:
        if edges[number] == root:
            lock = None if waits[number].primitive is Primitive.JOIN else waits[number].lock
            direct.setdefault(lock, []).append(number)
    lock, queue = max(direct.items(), key=lambda item: (item[0] is not None, len(item[1])))
    return Convoy(lock, root, tuple(sorted(waiters)), tuple(sorted(queue)))


def _ownerless_convoys(census: Census, edges: Mapping[int, int]) -> Sequence[Convoy]:
    """Return one convoy for each ownerless lock that is certainly held: a spinlock, a reader-held lock."""
    queues: "dict[int, list[int]]" = {}
    for wait in census.waits:
        held = wait.primitive in (Primitive.SPINLOCK, Primitive.RWLOCK_READ, Primitive.RWLOCK_WRITE)
        if held and wait.lock is not None and wait.thread.number not in edges and _is_held(wait):
            queues.setdefault(wait.lock, []).append(wait.thread.number)
    behind: "dict[int, list[int]]" = {}
    for number, owner in edges.items():
        behind.setdefault(owner, []).append(number)
    return [_guessed(lock, queue, census, behind) for lock, queue in queues.items()]


def _is_held(wait: Wait) -> bool:
    state = wait.state_of_lock
    return state is not None and (state.meaning.startswith("held") or bool(state.readers))


def _guessed(lock: int, queue: Sequence[int], census: Census, behind: Mapping[int, Sequence[int]]) -> Convoy:
    mentions = census.mentions.get(lock, ())
    holder = mentions[0].thread if mentions else None
    waiters, found = set(queue), list(queue)
    while found:  # whoever waits for one of them waits here too
        more = [number for number in behind.get(found.pop(), ()) if number not in waiters]
        waiters.update(more)
        found += more
    return Convoy(lock, holder, tuple(sorted(waiters)), tuple(sorted(queue)), True)
