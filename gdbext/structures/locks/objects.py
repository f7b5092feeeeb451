"""Pthread objects decoded: what a lock's own memory says, and whether it can be one at all.

Each ``find_`` function reads the object at an address and returns its state, or None when the memory cannot be
such an object. Upstream of the rules: glibc ``nptl/pthread_mutex_lock.c``, ``pthread_rwlock_common.c``,
``pthread_cond_wait.c``, ``sem_waitcommon.c``, ``pthread_barrier_wait.c``.
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


@dataclass(frozen=True)
class Objects:
    """Reads pthread objects of one target."""

    target: Target
    tids: Tids
    layouts: LockLayouts

    def find_mutex(self, address: int) -> Optional[LockState]:
        """Return the mutex at an address, or None when none can be there."""
        words = self._words(self.layouts.mutex, address)
        if words is None or not _is_mutex(words):
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
        if words is None or not _is_rwlock(words):
            return None
        readers, flags = words["readers"] >> layouts.READERS_SHIFT, words["readers"]
        writer, shared = words["cur_writer"] or None, bool(words["shared"])
        if writer:
            faults = self._faults_of_owner(writer, shared)
            return LockState(address, waiting, flags, "held by a writer", writer, shared=shared, faults=faults)
        held = readers and not flags & layouts.WRITE_PHASE
        meaning = f"{count_text(readers, 'reader')}" if held else "free, or being handed over"
        return LockState(address, waiting, flags, meaning, readers=readers if held else 0, shared=shared)

    def find_condition(self, address: int, layout: StructLayout) -> Optional[LockState]:
        """Return the condition variable at an address, laid out so, or None."""
        words = self._words(layout, address)
        if words is None or address % 8:
            return None
        waiters = words["wrefs"] >> layouts.CONDITION_REFS_SHIFT
        sane = 0 < waiters < _MANY and max(words["g_size0"] >> 1, words["g_size1"] >> 1) < _MANY
        sequence = words["wseq1"] << 32 | words["wseq0"]
        start = words["g1_start1"] << 32 | words["g1_start0"]
        # Both count in steps of two; a group starts before the newest waiter.
        if not sane or sequence < 2 or sequence >> 1 < start >> 1 or words["g1_orig_size"] >> 2 > _MANY:
            return None
        meaning = f"{count_text(waiters, 'waiter')}"
        return LockState(address, Primitive.CONDITION, words["wrefs"], meaning, waiters=waiters)

    def find_semaphore(self, address: int) -> Optional[LockState]:
        """Return the semaphore at an address, or None."""
        words = self._words(self.layouts.semaphore, address)
        if words is None or not 0 < words["nwaiters"] < _MANY or words["private"] not in (0, 128):
            return None
        value = words["value"] if self.target.abi.pointer_size == 8 else words["value"] >> 1
        meaning = f"value {value}, {count_text(words['nwaiters'], 'waiter')}"
        return LockState(address, Primitive.SEMAPHORE, words["value"], meaning, waiters=words["nwaiters"])

    def find_barrier(self, address: int) -> Optional[LockState]:
        """Return the barrier at an address, or None."""
        words = self._words(self.layouts.barrier, address)
        if words is None or not 2 <= words["count"] < _MANY or words["shared"] not in (0, 128):
            return None
        arrived = words["in"] - words["current_round"]
        if not 0 < arrived < words["count"]:
            return None
        meaning = f"{arrived} of {words['count']} have arrived"
        return LockState(address, Primitive.BARRIER, words["in"], meaning, waiters=arrived)

    def _plain_mutex(self, address: int, words: Mapping[str, int]) -> LockState:
        word, owner = words["lock"], words["owner"] or None
        primitive = _KINDS[words["kind"] & layouts.KIND_MASK] if words["kind"] != layouts.DESTROYED else Primitive.MUTEX
        shared = words["kind"] != layouts.DESTROYED and bool(words["kind"] & layouts.KIND_SHARED)
        faults = list(self._faults_of_owner(owner, shared) if owner and word else ())
        if words["kind"] == layouts.DESTROYED:
            faults.append("it was destroyed (its kind is -1)")
        if owner and not word:
            faults.append(f"its word says free, but its owner field says {owner}")
        meaning = ("free", "held", "held, waiters queued")[min(word, 2)]
        holder = owner if word else None
        return LockState(address, primitive, word, meaning, holder, shared=shared, faults=tuple(faults))

    def _kernel_mutex(self, address: int, words: Mapping[str, int]) -> LockState:
        """Return a robust or PI mutex: the word itself holds the owner."""
        word = words["lock"]
        owner, shared = word & layouts.TID_MASK or None, bool(words["kind"] & layouts.KIND_SHARED)
        faults = list(self._faults_of_owner(owner, shared) if owner else ())
        if word & layouts.OWNER_DIED:
            faults.append("its owner died holding it")
        queued = ", waiters queued" if word & layouts.WAITERS else ""
        meaning = f"held{queued}" if owner else f"free{queued}"
        primitive = Primitive.PI if words["kind"] & layouts.KIND_PI else Primitive.ROBUST
        return LockState(address, primitive, word, meaning, owner, shared=shared, faults=tuple(faults))

    def _faults_of_owner(self, owner: int, shared: bool) -> "tuple[str, ...]":
        if shared or self.tids.find_number(owner) is not None:
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


def _is_mutex(words: Mapping[str, int]) -> bool:
    kind, owner = words["kind"], words["owner"]
    if owner >= _HIGHEST_TID or words["nusers"] >= _MANY or words["count"] >= _MANY:
        return False
    if kind == layouts.DESTROYED:
        return True
    if kind & ~layouts.KINDS_KNOWN:
        return False
    if kind & (layouts.KIND_ROBUST | layouts.KIND_PI):
        return words["lock"] & layouts.TID_MASK < _HIGHEST_TID
    return words["lock"] <= 2


def _is_rwlock(words: Mapping[str, int]) -> bool:
    return (
        words["readers"] >> layouts.READERS_SHIFT < _MANY
        and words["writers"] & 0x7FFFFFFF < _MANY
        and words["wrphase_futex"] <= 3
        and words["writers_futex"] <= 3
        and words["cur_writer"] < _HIGHEST_TID
        and words["shared"] in (0, 1)
        and words["pad3"] == words["pad4"] == 0
    )
