"""What is wrong with the locks of a process: deadlocks, convoys, owners that are gone.

A busy lock is no finding: at any moment somebody waits for it. A convoy is one when its root is itself held up
by something slow (a system call other than a lock's, a long chain), or when very many wait.
"""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Sequence

from gdbext.analysis.lockwait import Knowledge, Position, cycle_sentence
from gdbext.analysis.waitgraph import Convoy, Cycle, build_graph
from gdbext.report import Confidence, Finding, Problem, Settings, Severity
from gdbext.structures.locks.model import Census, Primitive, State, Wait
from gdbext.wording import count_text

# Of `set gx`: waiters that make a convoy behind a slow holder, behind any holder, and the chain that is long.
SLOW, MANY, LONG = "convoy-waiters", "convoy-many", "hot-bin"
DEFAULTS = {SLOW: 3, MANY: 16, LONG: 20}
_RANK = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}


def find_lock_findings(census: Census, known: Knowledge, settings: Settings) -> Sequence[Finding]:
    """Return what is wrong, worst first.

    :param settings: of ``set gx``; those not given have their defaults.
    """
    graph = build_graph(census)
    waits = {wait.thread.number: wait for wait in census.waits}
    judge = _Judge(waits, known, {**DEFAULTS, **settings})
    found = [judge.of_cycle(cycle) for cycle in graph.cycles]
    found += judge.of_lost(graph.lost)
    found += [finding for convoy in graph.convoys for finding in judge.of_convoy(convoy)]
    return tuple(found)


def check_locks(census: Census) -> Sequence[Problem]:
    """Return what locks say about themselves that cannot be right: destroyed, contradicting."""
    seen = {}
    for wait in census.waits:
        state = wait.state_of_lock
        for fault in state.faults if state else ():
            seen[wait.lock, fault] = Problem("lock-state", wait.lock, f"{_kind(wait)}: {fault}")
    return tuple(seen.values())


class _Judge:
    """Turns edges into findings."""

    def __init__(self, waits: Mapping[int, Wait], known: Knowledge, limits: Settings) -> None:
        self._waits = waits
        self._known = known
        self._limits = limits

    def of_cycle(self, cycle: Cycle) -> Finding:
        """Return the finding of threads that wait for each other."""
        alone = len(cycle.threads) == 1
        behind = list(cycle.threads)
        return Finding(
            "self-deadlock" if alone else "deadlock",
            Severity.WARNING if cycle.timed else Severity.CRITICAL,
            self._least(behind),
            cycle_sentence(cycle, self._waits, self._known.name_of)
            + ("; one of the waits is timed, so it will end by itself" if cycle.timed else ""),
            waiters=len(behind),
            evidence=tuple(self._evidence(number) for number in behind),
            remedy=_RELOCK if alone else _ORDER,
        )

    def of_lost(self, lost: Mapping[int, int]) -> Iterator[Finding]:
        """Iterate over locks whose owner no longer lives."""
        queues: "dict[tuple[Optional[int], int], list[int]]" = {}
        for number, tid in lost.items():
            queues.setdefault((self._waits[number].lock, tid), []).append(number)
        for (lock, tid), queue in queues.items():
            yield Finding(
                "lost-owner",
                Severity.CRITICAL,
                self._least(queue),
                f"{_threads(queue)} for the {_kind(self._waits[queue[0]])} {self._name(lock)}, whose owner, "
                f"thread id {tid}, is gone",
                waiters=len(queue),
                evidence=tuple(self._evidence(number) for number in queue[:4]),
                remedy="A thread ended, or was cancelled, without unlocking; use a robust mutex, or a cleanup handler.",
            )

    def of_convoy(self, convoy: Convoy) -> Iterator[Finding]:
        """Return the finding of a convoy, if it is one."""
        spinning = self._spins(convoy)
        reason = self._slowness(convoy)
        enough = self._limits[SLOW] if reason else self._limits[MANY]
        if convoy.lock is None or len(convoy.waiters) < enough:
            return
        held = "whose holder is not known"
        if convoy.holder is not None:
            probably = "probably " if convoy.guessed else ""
            held = f"{probably}held by thread {convoy.holder}, {reason or 'which runs'}"
        yield Finding(
            "spin-convoy" if spinning else "convoy",
            Severity.WARNING,
            self._confidence(convoy),
            f"{_threads(convoy.waiters)} for {self._name(convoy.lock)}, {held}",
            waiters=len(convoy.waiters),
            evidence=tuple(self._evidence(number) for number in convoy.direct[:4]),
            remedy=_SPIN if spinning else _SLOW,
        )

    def _slowness(self, convoy: Convoy) -> str:
        """Return why the root will not let go soon, or "" when nothing says so."""
        if convoy.holder is None:
            return ""
        wait, position = self._waits[convoy.holder], self._position(convoy.holder)
        if position is not None and position.length > self._limits[LONG]:
            return f"which is {position}"
        if wait.primitive is not None:
            return f"which waits at a {wait.primitive.value} itself"
        if wait.state is State.SYSCALL and wait.syscall != "tgkill":
            return f"which is in {wait.syscall}"
        return ""

    def _position(self, number: int) -> Optional[Position]:
        return self._known.positions.get(number)

    def _spins(self, convoy: Convoy) -> bool:
        return any(self._waits[number].primitive is Primitive.SPINLOCK for number in convoy.direct)

    def _confidence(self, convoy: Convoy) -> Confidence:
        if not convoy.guessed:
            return self._least(convoy.direct)
        known = convoy.holder is not None and self._position(convoy.holder) is not None
        return Confidence.MEDIUM if known else Confidence.LOW

    def _least(self, numbers: Sequence[int]) -> Confidence:
        grades = [self._waits[number].confidence or Confidence.LOW for number in numbers]
        return max(grades, key=lambda grade: _RANK[grade])

    def _evidence(self, number: int) -> str:
        wait = self._waits[number]
        state = wait.state_of_lock
        says = f"; the lock says: {state.meaning}" if state else ""
        return f"thread {number}: {_kind(wait)} {self._name(wait.lock)} ({', '.join(wait.because)}){says}"

    def _name(self, lock: Optional[int]) -> str:
        return "?" if lock is None else self._known.name_of(lock) or f"{lock:#x}"


_ORDER = "Take these locks in one order everywhere, or hold only one of them at a time."
_RELOCK = "The lock is taken again by the thread that holds it: use a recursive mutex, or split the function."
_SLOW = "Shorten what is done under the lock; `thread apply N bt` shows where its holder is."
_SPIN = "A spinlock burns a CPU for each waiter: shorten the holder's section, or use a mutex."


def _kind(wait: Wait) -> str:
    return wait.primitive.value if wait.primitive else "lock"


def _threads(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"thread {numbers[0]} waits"
    return f"{count_text(len(numbers), 'thread')} wait"
