"""``lockwait``: what every thread waits for, what each lock says, and who holds up whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Iterator, Mapping, Optional, Sequence

from gdbext.analysis.locks.oddities import for_each_oddity
from gdbext.analysis.locks.pythonrows import PythonRow, PythonWaits
from gdbext.analysis.locks.unowned import UnownedWaits
from gdbext.analysis.locks.waitgraph import Convoy, Cycle, WaitGraph, build_graph
from gdbext.analysis.missing import Unexamined
from gdbext.debuginfo import Frame
from gdbext.report import Evidence, Finding, Kind, Problem, Report, column, hidden, line, table
from gdbext.structures.locks.frames import label_of
from gdbext.structures.locks.model import Census, LockState, Primitive, Wait
from gdbext.wording import count_text

RESTARTED = "restart_syscall"  # how the kernel names a timed call once somebody has interrupted it


@dataclass(frozen=True)
class Owner:
    """Who holds a lock, as JSON has it.

    :param number: None when it is no living thread of this process.
    """

    number: Optional[int]
    lwp: Optional[int]
    tid: Optional[int]
    alive: bool


@dataclass(frozen=True)
class Candidate:
    """A thread that may hold an ownerless lock.

    :param number: threads that mention the address of a lock that does not say who holds it; most likely first.
    :param places: where: registers, words from the stack pointer on.
    :param confidence: ``medium`` (a register that functions preserve), ``low``.
    :type confidence: word
    """

    number: int
    places: Sequence[str]
    confidence: str


@dataclass(frozen=True)
class Position:
    """Where in a known table or list a thread is.

    :param table: address of the table, or of the list's head.
    :param bin: index, None for a list.
    :param position: of the node that the thread points to, from 1; None where it points to the bin alone.
    :param length: nodes of the chain.
    :param place: the register or stack word that says so.
    """

    thread: int = line(None, Kind.COUNT)
    table: int = line(None, Kind.ADDRESS)
    table_name: Optional[str] = line(None)
    bin: Optional[int] = line(None, Kind.COUNT)
    position: Optional[int] = line(None, Kind.COUNT)
    length: int = line(None, Kind.COUNT)
    place: str = line(None)

    def __str__(self) -> str:
        where = f"in the chain of bin {self.bin}" if self.bin is not None else "in a list"
        name = f" of {self.table_name}" if self.table_name else ""
        if self.position is None:
            return f"{where}{name}, of {count_text(self.length, 'entry', 'entries')}"
        return f"{where}{name}, at entry {self.position} of {self.length}"


@dataclass(frozen=True)
class ThreadRow:
    """One thread.

    :param number: the debugger's.
    :param lwp: the kernel's id as the debugger sees it.
    :param tid: the id in the process's own PID namespace, which locks hold; None: not found.
    :param name: None on a core, which holds no thread names.
    :param state: ``running``, ``spinning``, ``futex``, ``syscall`` (any other), ``unknown`` (no registers, or of an
        unknown machine).
    :type state: word
    :param primitive: ``mutex``, ``recursive-mutex``, ``errorcheck-mutex``, ``adaptive-mutex``, ``robust-mutex``,
        ``pi-mutex``, ``rwlock-read``, ``rwlock-write``, ``condition``, ``semaphore``, ``barrier``, ``join``,
        ``spinlock``, ``once``, ``low-level-lock`` (libc's own), ``futex`` (of none of these); None: it waits for no
        lock.
    :type primitive: word
    :param syscall: the system call that it is in; None: none.
    :param lock: of the object that it waits for; of a join the thread's own structure in libc.
    :param lock_name: what is there: a table's lock, a symbol, a thread's stack, a block (where the heap was walked), a
        mapping.
    :param owner: who holds it, as the lock itself says; of a join the thread that is to end. None: it does not say.
    :type owner: owner
    :param timed: whether the wait ends by itself; None: it waits for nothing, or spins.
    :param confidence: ``high``, ``medium``, ``low``: that it is this lock, of this kind; None: it waits for none.
    :type confidence: word
    :param because: why.
    :param frame: the innermost function that is neither libc's nor a lock's; None: it has no name.
    :param frame_line: where in it, as ``FILE:LINE``; None: no debug info.
    :param frame_address: the same as an address; None: there is no such frame.
    """

    number: int = column("thread", Kind.NUMBER)
    lwp: Optional[int] = column("lwp", Kind.NUMBER)
    tid: Optional[int] = column(None, Kind.COUNT)
    name: Optional[str] = column("name")
    state: str = column("state")
    waits_at: str = column("waits at", json=False)
    primitive: Optional[str] = column(None)
    syscall: Optional[str] = column(None)
    lock_text: str = column("lock", json=False)
    lock: Optional[int] = column(None, Kind.ADDRESS)
    lock_name: Optional[str] = column(None)
    owner_text: str = column("held by", json=False)
    owner: Optional[Owner] = column(None, Kind.OBJECT)
    timed: Optional[bool] = column(None, Kind.FLAG)
    certainty: str = column("confidence", json=False)
    confidence: Optional[str] = column(None)
    because: Sequence[str] = column(None, Kind.OBJECT, default=())
    place: str = column("in", default="", json=False)
    frame: Optional[str] = column(None, default=None)
    frame_line: Optional[str] = column(None, default=None)
    frame_address: Optional[int] = column(None, Kind.ADDRESS, default=None)


@dataclass(frozen=True)
class LockRow:
    """One lock that somebody waits for.

    :param address: as ``threads[].lock``; those with most waiters first.
    :param name: as ``threads[].lock_name``.
    :param primitive: what is waited for, as in ``threads[].primitive``; of a read-write lock perhaps both, joined by a
        comma.
    :param waiters: threads that wait for it.
    :param waiting: which.
    :param word: the word that says whether it is held; None: not read.
    :type word: signed
    :param meaning: the same in words.
    :param owner: as ``threads[].owner``.
    :type owner: owner
    :param owner_waits: what the owner does, or the first candidate; None: neither is known.
    :param holder_position: where in a chain the owner, or the first candidate, is; None: nothing says so.
    :type holder_position: position
    :param faults: what the lock says against itself; each a problem ``lock-state`` too.
    """

    address: int = column("lock", Kind.ADDRESS)
    name: Optional[str] = column(None)
    primitive: str = column(None)
    waiters: int = column("waiters", Kind.COUNT)
    waiting: Sequence[int] = column(None, Kind.OBJECT)
    word: Optional[int] = column(None, Kind.COUNT)
    meaning: Optional[str] = column("state")
    owner_text: str = column("holder", json=False)
    owner: Optional[Owner] = column(None, Kind.OBJECT)
    title: str = column("what", json=False)
    owner_waits: Optional[str] = column(None, default=None)
    holder_candidates: Sequence[Candidate] = column(None, Kind.OBJECT, default=())
    holder_position: Optional[Position] = column(None, Kind.OBJECT, default=None)
    faults: Sequence[str] = column(None, Kind.OBJECT, default=())


@dataclass(frozen=True)
class ConvoyRow:
    """Threads held up by one, as JSON has it.

    :param lock: the lock of the root with most waiters; None: they wait for its end.
    :param holder: the root: it waits for no other thread. None: not known.
    :param waiters: threads that wait for it, through others too.
    :param count: how many.
    :param guessed: the holder is known by mention only.
    :param holder_is: what the root does.
    """

    lock: Optional[int] = column("lock", Kind.ADDRESS)
    holder: Optional[int] = column("root", Kind.NUMBER)
    waiters: Sequence[int] = column(None, Kind.OBJECT)
    count: int = column("threads held up", Kind.COUNT)
    guessed: bool = column("by mention", Kind.FLAG)
    holder_is: Optional[str] = column("the root is", default=None)


@dataclass(frozen=True)
class LockWaits:
    """What ``lockwait`` answers.

    :param sentences: every cycle and every queue in words, those of the findings too, and waits that nobody seems able
        to end.
    :param cycles: the threads of each cycle: each waits for the next, the last for the first.
    :param unowned: threads that wait in a known function for what no lock in memory names the owner of, by function; no
        findings.
    :type unowned: waits
    :param python: the threads of a CPython.
    """

    summary: str = line("locks", json=False)
    findings: Sequence[Finding] = table("Findings")
    sentences: Sequence[str] = table(None)
    more: Sequence[str] = table("Who waits for whom", json=False)
    threads: Sequence[ThreadRow] = table("Threads", equal_but=("number", "lwp", "name"))
    locks: Sequence[LockRow] = table("Locks")
    cycles: Sequence[Sequence[int]] = line(None, Kind.OBJECT)
    convoys: Sequence[ConvoyRow] = table(None)
    unowned: Sequence[UnownedWaits] = table(None, default=())
    python: Sequence[PythonRow] = table("Python", default=())


@dataclass(frozen=True)
class QuietLockWaits(LockWaits):
    """As :class:`LockWaits`, where nobody waits for anybody, or the findings say it all."""

    more: Sequence[str] = table(None, json=False)


@dataclass(frozen=True)
class Knowledge:
    """What others know about a census's locks and threads.

    :param name_of: an address's name, or None.
    :param positions: of threads in chains, by thread number.
    :param frames: the first frame of each thread that is no wrapper of a lock, by number.
    :param unowned: threads that wait where no lock in memory names the owner, grouped.
    :param evidence: what the tables behind names and positions are.
    :param unexamined: tables that were not searched for, or not walked.
    :param python: what Python's threads do; None: there is no interpreter.
    """

    name_of: Callable[[int], Optional[str]] = lambda address: None
    positions: Mapping[int, Position] = field(default_factory=dict)
    frames: Mapping[int, Frame] = field(default_factory=dict)
    unowned: Sequence[UnownedWaits] = ()
    evidence: Sequence[Evidence] = ()
    unexamined: Sequence[Unexamined] = ()
    python: Optional[PythonWaits] = None


def lockwait_report(
    census: Census,
    known: Knowledge = Knowledge(),
    findings: Sequence[Finding] = (),
    problems: Sequence[Problem] = (),
) -> Report:
    """Put a census on one page.

    :param findings: of ``find_lock_findings``; they decide the shell's exit status.
    """
    graph = build_graph(census)
    writer = _Writer(census, graph, known)
    sentences = (
        *writer.sentences(),
        *for_each_oddity(census, lambda wait: lock_text(wait, known.name_of)),
        *(group.sentence for group in known.unowned),
        *(known.python.sentences if known.python else ()),
    )
    summaries = {finding.summary for finding in findings}
    more = tuple(sentence for sentence in sentences if sentence not in summaries)
    data = (LockWaits if more else QuietLockWaits)(
        _summary(census, graph),
        tuple(findings),
        sentences,
        more,
        tuple(writer.thread_rows()),
        tuple(writer.lock_rows()),
        tuple(cycle.threads for cycle in graph.cycles),
        tuple(writer.convoy_rows()),
        known.unowned,
        known.python.rows if known.python else (),
    )
    problems = [*problems, *(one.problem for one in known.unexamined)]
    notes = [*census.notes, *(known.python.notes if known.python else ())]
    labels = {} if data.python else hidden(type(data), ["python"])
    return Report(data, known.evidence, problems, not known.unexamined, notes, bool(findings), labels=labels)


def _summary(census: Census, graph: WaitGraph) -> str:
    waiting = sum(wait.primitive is not None for wait in census.waits)
    parts = [f"{waiting} of {count_text(len(census.waits), 'thread')} wait for a lock or another thread"]
    if graph.cycles:
        parts.append(count_text(len(graph.cycles), "deadlock"))
    return "; ".join(parts)


class _Writer:
    """Makes the rows of one census."""

    def __init__(self, census: Census, graph: WaitGraph, known: Knowledge) -> None:
        self._census = census
        self._graph = graph
        self._known = known
        self._waits = {wait.thread.number: wait for wait in census.waits}

    def thread_rows(self) -> Iterator[ThreadRow]:
        """Iterate over the rows of all threads."""
        for wait in self._census.waits:
            yield self._thread_row(wait)

    def lock_rows(self) -> Iterator[LockRow]:
        """Iterate over the locks that are waited for, most waiters first."""
        queues: "dict[int, list[Wait]]" = {}
        for wait in self._census.waits:
            if wait.lock is not None:
                queues.setdefault(wait.lock, []).append(wait)
        for lock, queue in sorted(queues.items(), key=lambda item: (-len(item[1]), item[0])):
            yield self._lock_row(lock, queue)

    def convoy_rows(self) -> Iterator[ConvoyRow]:
        """Iterate over the convoys, most waiters first."""
        for convoy in self._graph.convoys:
            doing = None if convoy.holder is None else self.doing(convoy.holder)
            yield ConvoyRow(
                convoy.lock, convoy.holder, convoy.waiters, len(convoy.waiters), convoy.guessed, doing
            )

    def sentences(self) -> Iterator[str]:
        """Iterate over the cycles and convoys in words."""
        for cycle in self._graph.cycles:
            yield cycle_sentence(cycle, self._waits, self._known.name_of)
        for convoy in self._graph.convoys:
            yield convoy_sentence(convoy, self._waits, self._known)

    def doing(self, number: int) -> str:
        """Return what a thread does, in words."""
        return doing(number, self._waits, self._known)

    def name(self, lock: Optional[int]) -> str:
        """Return a lock's name, or its address."""
        return "unknown" if lock is None else self._known.name_of(lock) or f"{lock:#x}"

    def _name_of(self, wait: Wait) -> Optional[str]:
        """Return the name of what is waited for; the object of a join is the thread's own, which its number names."""
        unnamed = wait.lock is None or wait.primitive is Primitive.JOIN
        return None if unnamed else self._known.name_of(wait.lock or 0)

    def _thread_row(self, wait: Wait) -> ThreadRow:
        owner = self._owner(wait.state_of_lock)
        frame = self._known.frames.get(wait.thread.number)
        primitive = None if wait.primitive is None else wait.primitive.value
        return ThreadRow(
            wait.thread.number,
            wait.thread.lwp,
            wait.tid,
            wait.thread.name,
            wait.state.value,
            primitive or wait.syscall or "",
            primitive,
            wait.syscall,
            "" if wait.primitive in (None, Primitive.JOIN) else self.name(wait.lock),
            wait.lock,
            self._name_of(wait),
            self._owner_text(wait.state_of_lock, owner),
            owner,
            wait.timed,
            "" if wait.confidence is None else wait.confidence.value,
            None if wait.confidence is None else wait.confidence.value,
            wait.because,
            "" if frame is None else label_of(frame) if frame.function else f"{frame.pc:#x}",
            None if frame is None else frame.function,
            None if frame is None else frame.line,
            None if frame is None else frame.pc,
        )

    def _lock_row(self, lock: int, queue: Sequence[Wait]) -> LockRow:
        state = next((wait.state_of_lock for wait in queue if wait.state_of_lock), None)
        owner = self._owner(state)
        candidates = [
            Candidate(mention.thread, mention.places, mention.confidence.value)
            for mention in self._census.mentions.get(lock, ())
        ]
        holder = owner.number if owner else candidates[0].number if candidates else None
        kinds = sorted({wait.primitive.value for wait in queue if wait.primitive})
        return LockRow(
            lock,
            self._name_of(queue[0]),
            ", ".join(kinds),
            len(queue),
            tuple(wait.thread.number for wait in queue),
            None if state is None else state.word,
            None if state is None else state.meaning,
            self._owner_text(state, owner) or (f"thread {candidates[0].number}?" if candidates else ""),
            owner,
            f"{', '.join(kinds)} {self._name_of(queue[0]) or ''}",
            None if holder is None or holder not in self._waits else self.doing(holder),
            tuple(candidates),
            None if holder is None else self._known.positions.get(holder),
            () if state is None else state.faults,
        )

    def _owner_text(self, state: Optional[LockState], owner: Optional[Owner]) -> str:
        if state is None or owner is None:
            return ""
        if owner.alive:
            return f"thread {owner.number}"
        # A lock that processes share may be held in another; a debugger may have a part of the threads only.
        elsewhere = state.shared or not self._census.complete
        return f"tid {owner.tid}, elsewhere" if elsewhere else f"tid {owner.tid}, gone"

    def _owner(self, state: Optional[LockState]) -> Optional[Owner]:
        if state is None or state.owner_tid is None:
            return None
        number = self._census.tids.get(state.owner_tid)
        if number is None:
            return Owner(None, None, state.owner_tid, False)
        return Owner(number, self._waits[number].thread.lwp, state.owner_tid, True)


def cycle_sentence(
    cycle: Cycle, waits: Mapping[int, Wait], name_of: Callable[[int], Optional[str]]
) -> str:
    """Return a cycle in words: "thread 2 waits for mutex `a`, held by thread 3, which …"."""
    steps = []
    for at, number in enumerate(cycle.threads):
        wait, following = waits[number], cycle.threads[(at + 1) % len(cycle.threads)]
        start = f"thread {number}" if at == 0 else "which"
        if wait.primitive is Primitive.JOIN:
            steps.append(f"{start} waits for the end of thread {following}")
            continue
        held = "itself" if following == number else f"thread {following}"
        steps.append(f"{start} waits for {lock_text(wait, name_of)}, held by {held}")
    timed = "; one of the waits is timed, so it will end by itself" if cycle.timed else ""
    return ", ".join(steps) + timed


def convoy_sentence(convoy: Convoy, waits: Mapping[int, Wait], known: Knowledge) -> str:
    """Return a convoy in words, with what its root is doing."""
    count = count_text(len(convoy.waiters), "thread")
    verb = "waits" if len(convoy.waiters) == 1 else "wait"
    some = len(convoy.direct)
    if some != len(convoy.waiters):  # others wait for other locks of it, or for those that wait
        verb = f"{verb}, {some} of them"
    if convoy.lock is None:
        what, held = "the end of", f"thread {convoy.holder}"
        return f"{count} {verb} for {what} {held}, which is {doing(convoy.holder or 0, waits, known)}"
    name = lock_text(waits[convoy.direct[0]], known.name_of)
    if convoy.holder is None:
        return f"{count} {verb} for {name}, whose holder is not known"
    probably = "probably " if convoy.guessed else ""
    activity = doing(convoy.holder, waits, known)
    return f"{count} {verb} for {name}, {probably}held by thread {convoy.holder}, which is {activity}"


def lock_text(wait: Wait, name_of: Callable[[int], Optional[str]]) -> str:
    """Return what is waited for in a sentence: "the mutex queue_lock", "the lock of slab 3 of cache"."""
    name = (name_of(wait.lock) if wait.lock else None) or f"{wait.lock or 0:#x}"
    if name.startswith(("lock ", "in ")):
        return f"the {name}" if name.startswith("lock ") else f"a lock {name}"
    if wait.primitive in (Primitive.RWLOCK_READ, Primitive.RWLOCK_WRITE):
        return f"the rwlock {name}"
    return f"the {wait.primitive.value if wait.primitive else 'lock'} {name}"


def doing(number: int, waits: Mapping[int, Wait], known: Knowledge) -> str:
    """Return what a thread does: "running in find (table.c:90), in the chain of bin 7 of cache, at entry 3 of 90"."""
    wait, frame, position = waits[number], known.frames.get(number), known.positions.get(number)
    text = wait.state.value
    if wait.primitive is not None:
        article = "an" if wait.primitive.value[0] in "aeiou" else "a"
        text = f"waiting at {article} {wait.primitive.value}"
    elif wait.syscall:
        text = "in a timed system call" if wait.syscall == RESTARTED else f"in {wait.syscall}"
    if frame is not None and frame.function:
        text += f"{', called' if wait.syscall and not wait.primitive else ''} in {label_of(frame)}"
    return f"{text}, {position}" if position is not None else text
