"""Pthread objects decoded: what a lock's own memory says, and whether it can be one at all.

Each ``find_`` function reads the object at an address and returns its state, or None when the memory cannot be
such an object. Upstream of the rules: glibc ``nptl/pthread_mutex_lock.c``, ``pthread_rwlock_common.c``,
``pthread_cond_wait.c``, ``sem_waitcommon.c``, ``pthread_barrier_wait.c``; ``sysdeps/nptl/libc-lock.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional

from gdbext.errors import FaultError
from gdbext.layout import StructLayout
from gdbext.structures.locks import layouts
from gdbext.structures.locks.layouts import LockLayouts, layouts_for
from gdbext.structures.locks.model import LockState, Primitive
from gdbext.structures.locks.tids import Tids
from gdbext.target import Target
from gdbext.wording import count_text

_KINDS = {0: Primitive.MUTEX, 1: Primitive.RECURSIVE, 2: Primitive.ERRORCHECK, 3: Primitive.ADAPTIVE}
_MANY = 1 << 20  # more users of one lock than any process has threads
_HIGHEST_TID = 1 << 22
_OLDEST = 1 << 40  # waits at a condition variable since its last signal that found somebody
_HEAP = 1 << 20  # HEAP_MAX_SIZE of 32-bit machines; larger elsewhere
_DEAD_OWNERS = (layouts.INCONSISTENT, layouts.NOT_RECOVERABLE)


@dataclass(frozen=True)
class Objects:
    """Reads pthread objects of one target."""

    target: Target
    tids: Tids
    layouts: LockLayouts

    def find_mutex(self, address: int) -> Optional[LockState]:
        """Return the mutex at an address, or None when none can be there."""
        words = self._words(self.layouts.mutex, address)
        if words is None or not _is_mutex(words, self.tids.find_number(words["owner"]) is not None):
            return None
        kind = words["kind"]
        if kind != layouts.DESTROYED and kind & (layouts.KIND_ROBUST | layouts.KIND_PI):
            return self._kernel_mutex(address, words)
        return self._plain_mutex(address, words)

    def find_rwlock(self, address: int, waiting: Primitive) -> Optional[LockState]:
        """Return the read-write lock at an address, or None.

        :param waiting: whether somebody waits to read or to write.
        """
        words = self._words(self.layouts.rwlock, address)
        if words is None or address % self.target.abi.pointer_size or not _is_rwlock(words):
            return None
        readers, flags = words["readers"] >> layouts.READERS_SHIFT, words["readers"]
        writer, shared = words["cur_writer"] or None, bool(words["shared"])
        if writer:
            faults = self._faults_of_owner(writer, shared)
            return LockState(address, waiting, flags, "held by a writer", writer, shared=shared, faults=faults)
        held = readers and not flags & layouts.WRITE_PHASE
        meaning = f"{count_text(readers, 'reader')}" if held else "free, or being handed over"
        return LockState(address, waiting, flags, meaning, readers=readers if held else 0, shared=shared)

    def prefers_writers(self, address: int) -> bool:
        """Return whether a read-write lock is of the only kind whose readers wait at its first word."""
        words = self._words(self.layouts.rwlock, address)
        return words is not None and words["flags"] == layouts.PREFER_WRITER_NONRECURSIVE

    def find_condition(self, address: int, layout: StructLayout) -> Optional[LockState]:
        """Return the condition variable at an address, laid out so, or None."""
        words = self._words(layout, address)
        if words is None or address % self.target.abi.pointer_size:
            return None
        waiters = words["wrefs"] >> layouts.CONDITION_REFS_SHIFT
        if not 0 < waiters < _MANY or not _is_condition(words):
            return None
        meaning, shared = count_text(waiters, "waiter"), bool(words["wrefs"] & layouts.CONDITION_SHARED)
        return LockState(address, Primitive.CONDITION, words["wrefs"], meaning, waiters=waiters, shared=shared)

    def may_wait_in(self, address: int, layout: StructLayout, group: int, value: int) -> bool:
        """Return whether a waiter of a condition variable may sleep in a group, awaiting that value of its word.

        With ``__g_refs`` it has counted itself there, and the value is 0. Without, the word counts on from the
        group's start.
        """
        words = self._words(layout, address)
        if words is None:
            return False
        if "g_refs" in layout:
            return value == 0 and words[f"g_refs{group}"] >= 2
        return (words["g1_start0"] - value) & 0xFFFFFFFF < 1 << 31

    def find_semaphore(self, address: int) -> Optional[LockState]:
        """Return the semaphore at an address, or None."""
        words = self._words(self.layouts.semaphore, address)
        if words is None or not 0 < words["nwaiters"] < _MANY or words["private"] not in (0, 128):
            return None
        if address % self.target.abi.pointer_size:
            return None
        value = words["value"] if self.target.abi.pointer_size == 8 else words["value"] >> 1
        meaning = f"value {value}, {count_text(words['nwaiters'], 'waiter')}"
        shared, waiters = bool(words["private"]), words["nwaiters"]
        return LockState(address, Primitive.SEMAPHORE, words["value"], meaning, waiters=waiters, shared=shared)

    def find_barrier(self, address: int) -> Optional[LockState]:
        """Return the barrier at an address, or None."""
        words = self._words(self.layouts.barrier, address)
        if words is None or not 2 <= words["count"] < _MANY or words["shared"] not in (0, 128):
            return None
        arrived = words["in"] - words["current_round"]
        # A round is the number of threads that came before it; who has left is of an earlier one.
        whole = words["current_round"] % words["count"] == 0 and words["out"] <= words["current_round"]
        if not whole or not 0 < arrived < words["count"]:
            return None
        meaning, shared = f"{arrived} of {words['count']} have arrived", bool(words["shared"])
        return LockState(address, Primitive.BARRIER, words["in"], meaning, waiters=arrived, shared=shared)

    def find_word(self, address: int) -> Optional[int]:
        """Return a futex word, or None where memory ends."""
        try:
            return self.target.reader.sint(address, 4, "futex word") & 0xFFFFFFFF
        except FaultError:
            return None

    def find_pi_word(self, address: int) -> LockState:
        """Return a lock of the kernel's own protocol for priority inheritance, whatever it is part of.

        Upstream: Linux ``kernel/futex/pi.c``: the word holds the owner's id and two flags.
        """
        known = self.find_mutex(address)
        if known is not None and known.primitive is Primitive.PI:
            return known
        word = self.find_word(address)
        owner = (word or 0) & layouts.TID_MASK
        return _kernel_state(address, Primitive.PI, word, owner if 0 < owner < _HIGHEST_TID else None)

    def find_recursive(self, address: int) -> Optional[LockState]:
        """Return libc's own recursive lock (of stdio, and others) where a living thread holds it, or None."""
        words = self._words(self.layouts.recursive, address)
        if words is None or not 0 < words["lock"] <= 2 or words["cnt"] >= _MANY:
            return None
        owner = self.tids.find_descriptor(words["owner"])
        tid = None if owner is None else self.tids.inner.get(owner)
        if tid is None:
            return None
        meaning = "held, waiters queued" if words["lock"] == 2 else "held"
        return LockState(address, Primitive.LOW_LEVEL, words["lock"], meaning, tid)

    def is_arena_lock(self, address: int) -> bool:
        """Return whether an arena of malloc begins here: its first heap's header, just before, points to it.

        Upstream: ``malloc/arena.c``, ``heap_info``, 16 bytes larger since 2.35 on 64-bit machines.
        """
        word = self.target.abi.pointer_size
        starts = [address - size for size in ((4 * word, 6 * word) if word == 8 else (6 * word,))]
        return any(self._word(start) == address for start in starts if start > 0 and start % _HEAP == 0)

    def _word(self, address: int) -> Optional[int]:
        try:
            return self.target.reader.word(address, "heap header")
        except FaultError:
            return None

    def _plain_mutex(self, address: int, words: Mapping[str, int]) -> LockState:
        owner, destroyed = words["owner"] or None, words["kind"] == layouts.DESTROYED
        word = words["lock"] if destroyed or not words["kind"] & layouts.KIND_PROTECT else _below_ceiling(words["lock"])
        primitive = Primitive.MUTEX if destroyed else _KINDS[words["kind"] & layouts.KIND_MASK]
        shared = not destroyed and bool(words["kind"] & layouts.KIND_SHARED)
        faults = list(self._faults_of_owner(owner, shared) if owner and word else ())
        if destroyed:
            faults.append("it was destroyed (its kind is -1)")
        if owner and not word:
            faults.append(f"its word says free, but its owner field says {owner}")
        meaning = ("free", "held", "held, waiters queued")[min(word, 2)]
        holder = owner if word else None
        return LockState(address, primitive, words["lock"], meaning, holder, shared=shared, faults=tuple(faults))

    def _kernel_mutex(self, address: int, words: Mapping[str, int]) -> LockState:
        """Return a robust or PI mutex: the word itself holds the owner."""
        word = words["lock"]
        owner, shared = word & layouts.TID_MASK or None, bool(words["kind"] & layouts.KIND_SHARED)
        faults = list(self._faults_of_owner(owner, shared) if owner else ())
        if word & layouts.OWNER_DIED:
            faults.append("its owner died holding it")
        if words["owner"] == layouts.INCONSISTENT:
            faults.append("an earlier owner died holding it, and it was not made consistent yet")
        if words["owner"] == layouts.NOT_RECOVERABLE:
            faults.append("an earlier owner died holding it, and it can be used no more")
        primitive = Primitive.PI if words["kind"] & layouts.KIND_PI else Primitive.ROBUST
        return _kernel_state(address, primitive, word, owner, shared, tuple(faults))

    def _faults_of_owner(self, owner: int, shared: bool) -> "tuple[str, ...]":
        if shared or not self.tids.certain or self.tids.find_number(owner) is not None:
            return ()
        return (f"its owner, thread id {owner}, is not among the living threads",)

    def _words(self, layout: StructLayout, address: int) -> "Optional[dict[str, int]]":
        """Return the members of a structure, those of arrays numbered; None where memory ends."""
        if address % 4 or address <= 0:
            return None
        try:
            data = bytes(self.target.memory.read(address, layout.size))
        except FaultError:
            return None
        order = self.target.abi.byteorder
        words = {}
        for name, member in layout.members.items():
            for at in range(member.count or 1):
                start = member.offset + at * member.size
                key = name if member.count is None else f"{name}{at}"
                words[key] = int.from_bytes(data[start : start + member.size], order)
        return words


def objects_of(target: Target, tids: Tids) -> Objects:
    """Return the reader of a target's pthread objects."""
    return Objects(target, tids, layouts_for(target.abi))


def _kernel_state(
    address: int,
    primitive: Primitive,
    word: Optional[int],
    owner: Optional[int],
    shared: bool = False,
    faults: "tuple[str, ...]" = (),
) -> LockState:
    if word is None:
        return LockState(address, primitive, None, "unknown")
    queued = ", waiters queued" if word & layouts.WAITERS else ""
    meaning = f"held{queued}" if owner else f"free{queued}"
    return LockState(address, primitive, word, meaning, owner, shared=shared, faults=faults)


def _below_ceiling(word: int) -> int:
    return word & ~layouts.CEILING_MASK


def _is_mutex(words: Mapping[str, int], living: bool) -> bool:
    kind, robust = words["kind"], words["kind"] & layouts.KIND_ROBUST
    if words["nusers"] >= _MANY or words["count"] >= _MANY:
        return False
    if kind == layouts.DESTROYED:
        return words["owner"] < _HIGHEST_TID
    if kind & ~layouts.KINDS_KNOWN or not (words["owner"] < _HIGHEST_TID or robust and words["owner"] in _DEAD_OWNERS):
        return False
    if kind & (layouts.KIND_ROBUST | layouts.KIND_PI):
        return words["lock"] & layouts.TID_MASK < _HIGHEST_TID
    word = _below_ceiling(words["lock"]) if kind & layouts.KIND_PROTECT else words["lock"]
    return word <= 2 and _counts_are_right(words, living)


def _counts_are_right(words: Mapping[str, int], living: bool) -> bool:
    """A mutex with an owner has a user; only recursive ones count; only robust ones are in a list.

    :param living: whether its owner is a thread, which may be about to count itself.
    """
    kind = words["kind"]
    if any(words.get(f"list{at}") for at in range(4)):
        return False
    if words["owner"] and not words["nusers"] and not living:
        return False
    counts = kind & layouts.KIND_MASK == 1 or kind & layouts.KIND_PROTECT
    return bool(counts) or not words["count"]


def _is_condition(words: Mapping[str, int]) -> bool:
    sequence = words["wseq1"] << 32 | words["wseq0"]
    start = words["g1_start1"] << 32 | words["g1_start0"]
    # wseq counts in steps of two, and so does g1_start where g_refs are; a group starts before the newest waiter.
    behind = (sequence >> 1) - (start >> 1)
    # Waiters that gave up count against the size of the group that takes in new ones: it may be negative.
    small = all(size < _MANY or -size & 0xFFFFFFFF < behind + _MANY for size in (words["g_size0"], words["g_size1"]))
    return sequence >= 2 and 0 <= behind < _OLDEST and small and words["g1_orig_size"] >> 2 < _MANY


def _is_rwlock(words: Mapping[str, int]) -> bool:
    return (
        words["readers"] >> layouts.READERS_SHIFT < _MANY
        and words["writers"] & 0x7FFFFFFF < _MANY
        and words["wrphase_futex"] <= 3
        and words["writers_futex"] <= 3
        and words["cur_writer"] < _HIGHEST_TID
        and words["shared"] in (0, 1)
        and words["flags"] <= layouts.PREFER_WRITER_NONRECURSIVE
        and words["pad3"] == words["pad4"] == 0
    )
