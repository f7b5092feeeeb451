"""What is wrong with the locks of a process: deadlocks, convoys, owners that are gone.

A busy lock is no finding: at any moment somebody waits for it. A convoy is one when its root is itself held up
by something slow (a system call other than a lock's, a long chain), or when very many wait.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from gdbext.analysis.locks.report import Knowledge, Position, convoy_sentence, cycle_sentence, lock_text
from gdbext.analysis.locks.unowned import UnownedWaits
from gdbext.analysis.locks.waitgraph import Convoy, Cycle, build_graph
from gdbext.report import Confidence, Finding, Problem, Settings, Severity
from gdbext.structures.locks.frames import label_of
from gdbext.structures.locks.model import Census, Primitive, State, Wait
from gdbext.wording import address_text, count_text

# Of `set gx`: waiters that make a convoy behind a slow holder, behind any holder, and the chain that is long.
SLOW, MANY, LONG = "convoy-waiters", "convoy-many", "hot-bin"
DEFAULTS = {SLOW: 3, MANY: 16, LONG: 20}
_LINES, _LISTED = 4, 12  # lines of evidence of one kind; threads in one
_RANK = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}


def find_lock_findings(census: Census, known: Knowledge, settings: Settings) -> Sequence[Finding]:
    """Return what is wrong, worst first.

    :param settings: of ``set gx``; those not given have their defaults.
    """
    graph = build_graph(census)
    judge = _Judge(census, known, {**DEFAULTS, **settings})
    found = [judge.of_cycle(cycle) for cycle in graph.cycles]
    found += judge.of_lost(graph.lost)
    found += [finding for convoy in graph.convoys for finding in judge.of_convoy(convoy)]
    return tuple(found)


def find_notable_waits(known: Knowledge, settings: Settings) -> Sequence[UnownedWaits]:
    """Return the waits without a known owner that belong on a page that is not about locks.

    Many threads (``convoy-many``), and not where idle threads wait: a pool without work is no news.
    """
    many = settings.get(MANY, DEFAULTS[MANY])
    return tuple(group for group in known.unowned if group.count >= many and not group.idle)


def check_locks(
    census: Census, name_of: "Callable[[int], Optional[str]]" = lambda address: None
) -> Sequence[Problem]:
    """Return what locks say about themselves that cannot be right: destroyed, contradicting."""
    seen = {}
    for wait in census.waits:
        state = wait.state_of_lock
        name = (name_of(wait.lock) if wait.lock else None) or ""
        for fault in state.faults if state else ():
            seen[wait.lock, fault] = Problem("lock-state", wait.lock, f"{_kind(wait)} {name}".rstrip() + f": {fault}")
    return tuple(seen.values())


class _Judge:
    """Turns edges into findings."""

    def __init__(self, census: Census, known: Knowledge, limits: Settings) -> None:
        self._waits = {wait.thread.number: wait for wait in census.waits}
        self._mentions = census.mentions
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
            cycle_sentence(cycle, self._waits, self._known.name_of),
            waiters=len(behind),
            evidence=tuple(self._evidence(number) for number in behind[:_LISTED]),
            remedy=_RELOCK if alone else _ORDER,
            details={"threads": behind, "locks": self._locks(behind), "timed": cycle.timed},
        )

    def of_lost(self, lost: Mapping[int, int]) -> Iterator[Finding]:
        """Iterate over locks whose owner no longer lives."""
        queues: "dict[tuple[Optional[int], int], list[int]]" = {}
        for number, tid in lost.items():
            queues.setdefault((self._waits[number].lock, tid), []).append(number)
        for (_, tid), queue in queues.items():
            if self._least(queue) is Confidence.LOW:  # what else than a mutex the word may be is not excluded
                continue
            yield Finding(
                "lost-owner",
                Severity.CRITICAL,
                self._least(queue),
                f"{_threads(queue)} for {lock_text(self._waits[queue[0]], self._known.name_of)}, whose owner, "
                f"thread id {tid}, is gone",
                waiters=len(queue),
                evidence=tuple(self._evidence(number) for number in queue[:4]),
                remedy="A thread ended, or was cancelled, without unlocking; use a robust mutex, or a cleanup handler.",
                details={"threads": queue, "locks": self._locks(queue[:1]), "owner_tid": tid},
            )

    def of_convoy(self, convoy: Convoy) -> Iterator[Finding]:
        """Return the finding of a convoy, if it is one."""
        spinning = any(self._waits[number].primitive is Primitive.SPINLOCK for number in convoy.direct)
        slow = self._is_slow(convoy)
        enough = self._limits[SLOW] if slow else self._limits[MANY]
        if convoy.lock is None or len(convoy.waiters) < enough or not (slow or self._is_the_programs(convoy)):
            return
        yield Finding(
            "spin-convoy" if spinning else "convoy",
            Severity.WARNING,
            self._confidence(convoy),
            convoy_sentence(convoy, self._waits, self._known),
            waiters=len(convoy.waiters),
            evidence=(*self._queue(convoy.direct), *self._holding(convoy)),
            remedy=self._remedy(convoy, spinning),
            details={
                "threads": list(convoy.waiters),
                "locks": self._locks(convoy.direct[:1]),
                "holder": convoy.holder,
                "holder_certain": not convoy.guessed,
            },
        )

    def _locks(self, numbers: Sequence[int]) -> Sequence[Mapping[str, Any]]:
        """Return the locks that threads wait for, in their order, for programs."""
        waits = [self._waits[number] for number in numbers]
        return [
            {
                "address": address_text(wait.lock),
                "name": None if wait.lock is None else self._known.name_of(wait.lock),
                "primitive": None if wait.primitive is None else wait.primitive.value,
            }
            for wait in waits
        ]

    def _is_the_programs(self, convoy: Convoy) -> bool:
        """Return whether the lock is not libc's own: many threads that print, or allocate, queue and go on."""
        return any(self._waits[number].primitive is not Primitive.LOW_LEVEL for number in convoy.direct)

    def _is_slow(self, convoy: Convoy) -> bool:
        """Return whether the root will not let go soon: it is in a long chain, waits itself, or is in the kernel."""
        if convoy.holder is None:
            return False
        wait, position = self._waits[convoy.holder], self._position(convoy.holder)
        if position is not None and position.length > self._limits[LONG]:
            return True
        if convoy.guessed and not self._is_likely(convoy):
            return False
        # A thread that aborts runs: what it was doing is what the core was taken for. A wait within libc, for malloc's
        # arena or a condition variable's group, is short.
        waits = wait.primitive not in (None, Primitive.LOW_LEVEL)
        return waits or (wait.state is State.SYSCALL and wait.syscall != "tgkill")

    def _is_likely(self, convoy: Convoy) -> bool:
        """Return whether more than a word of its stack, which may be stale, speaks for a holder by mention."""
        mentions = self._mentions.get(convoy.lock or 0, ())
        return any(one.thread == convoy.holder and one.confidence is not Confidence.LOW for one in mentions)

    def _remedy(self, convoy: Convoy, spinning: bool) -> str:
        position = None if convoy.holder is None else self._position(convoy.holder)
        long = position is not None and position.length > self._limits[LONG]
        return (_LONG if long else "") + (_SPIN if spinning else _SLOW)

    def _position(self, number: int) -> Optional[Position]:
        return self._known.positions.get(number)

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
        lock = f"{_kind(wait)} {self._place(wait.lock)}{self._where(number)}"
        return f"thread {number}: {lock} ({', '.join(wait.because)}){says}"

    def _where(self, number: int) -> str:
        """Return ", in flush_batch (main.c:212)" for a thread, or nothing."""
        frame = self._known.frames.get(number)
        return f", in {label_of(frame)}" if frame is not None and frame.function else ""

    def _queue(self, numbers: Sequence[int]) -> Iterator[str]:
        """Iterate over the evidence of threads that wait for one lock, those that do so at one place in one line."""
        places: "dict[tuple[str, ...], list[int]]" = {}
        for number in numbers:
            places.setdefault((*self._waits[number].because, self._where(number)), []).append(number)
        for group in list(places.values())[:_LINES]:
            first = self._evidence(group[0])
            more = ", ".join(map(str, group[1:_LISTED])) + (", …" if len(group) > _LISTED else "")
            yield first.replace(":", f" (and {more}):", 1) if more else first

    def _holding(self, convoy: Convoy) -> Iterator[str]:
        """Iterate over what speaks for the holder of a lock that names none, and for what it does."""
        mentions = self._mentions.get(convoy.lock or 0, ()) if convoy.guessed else ()
        for mention in mentions[:_LINES]:
            yield f"thread {mention.thread} has the lock's address in {', '.join(mention.places)}"
        position = None if convoy.holder is None else self._position(convoy.holder)
        if position is not None:
            what = "that bin" if position.position is None else "that entry"
            yield f"{position.place} of thread {position.thread} holds the address of {what}"

    def _place(self, lock: Optional[int]) -> str:
        if lock is None:
            return "?"
        name = self._known.name_of(lock)
        return f"{name} at {lock:#x}" if name else f"{lock:#x}"


_ORDER = "Take these locks in one order everywhere, or hold only one of them at a time."
_RELOCK = "The lock is taken again by the thread that holds it: use a recursive mutex, or split the function."
_SLOW = "Shorten what is done under the lock; `thread apply N bt` shows where its holder is."
_LONG = "`slabskew` says why the chain is so long: that comes first. "
_SPIN = "A spinlock burns a CPU for each waiter: shorten the holder's section, or use a mutex."


def _kind(wait: Wait) -> str:
    return wait.primitive.value if wait.primitive else "lock"


def _threads(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"thread {numbers[0]} waits"
    return f"{count_text(len(numbers), 'thread')} wait"
