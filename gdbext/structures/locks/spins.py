"""Threads that spin: recognised by the code around their program counter.

x86: glibc's ``pthread_spin_lock`` (sysdeps/x86_64/nptl/pthread_spin_lock.S, sysdeps/i386/nptl/) decrements the
lock and loops over ``pause`` while it is not positive: 1 is free, 0 or less is held, unlock stores 1. Elsewhere
0 is free, and the compiled loop keeps the lock in no fixed register: there nothing is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from gdbext.debuginfo import Frame
from gdbext.errors import FaultError
from gdbext.process import Thread
from gdbext.report import Confidence
from gdbext.structures.locks.futexes import Classified
from gdbext.structures.locks.model import LockState, Primitive
from gdbext.target import Target

_MOST_SPINNERS = 4096
_BEFORE, _AFTER = 40, 24
_LOOP, _LOOP_REST = 24, 12  # the loop is aligned to 16 bytes behind the attempt, and this long
_UNDECODED = ("frame pthread_spin_lock", "which lock is not decoded on this machine")
_PC = {"x86-64": "rip", "i386": "eip"}  # else pc
_RETURN, _CLEAR, _JNE, _ZERO = b"\xc3", b"\x31\xc0", b"\x75", 0x40


@dataclass(frozen=True)
class SpinCode:
    """How a machine spins.

    :param hint: the instruction of a polite loop (``pause``).
    :param register: holds the lock in glibc's function.
    :param acquire: the bytes of glibc's own attempt.
    """

    hint: bytes
    register: str
    acquire: bytes


CODES: Mapping[str, SpinCode] = {
    "x86-64": SpinCode(b"\xf3\x90", "rdi", b"\xf0\xff\x0f"),  # lock decl (%rdi)
    "i386": SpinCode(b"\xf3\x90", "eax", b"\xf0\xff\x08"),
}


def find_spin(target: Target, thread: Thread, frames: Sequence[Frame]) -> Optional[Classified]:
    """Return what a running thread spins at, or None when it does not spin as far as can be seen.

    A thread in a ``pause`` loop that is not glibc's spins at an unknown lock: address 0, low confidence; so does one
    in ``pthread_spin_lock`` on a machine whose code is not decoded.
    """
    code, pc = CODES.get(target.abi.machine), thread.registers.get(_PC.get(target.abi.machine, "pc"))
    named = any((frame.function or "").lstrip("_") == "pthread_spin_lock" for frame in frames[:1])
    if code is None and named:
        return Classified(Primitive.SPINLOCK, 0, None, Confidence.LOW, _UNDECODED)
    if code is None or pc is None:
        return None
    around = _find_code(target, pc)
    if around is None:
        return _find_by_word(target, thread.registers.get(code.register, 0))
    ours = named or _is_within(around, code)
    if ours and _has_it(around, thread):
        return None
    if ours:
        lock = thread.registers.get(code.register, 0)
        because = ("frame pthread_spin_lock",) if named else ("glibc's spin loop at the program counter",)
        return Classified(Primitive.SPINLOCK, lock, find_spinlock(target, lock), Confidence.HIGH, because)
    if code.hint in around[_BEFORE - 4 : _BEFORE + 8]:
        because = ("a pause loop at the program counter, not libc's",)
        return Classified(Primitive.SPINLOCK, 0, None, Confidence.LOW, because)
    return None


def _is_within(around: bytes, code: SpinCode) -> bool:
    """Return whether the program counter is between glibc's attempt and the end of its loop."""
    start = around.find(code.acquire, 0, _BEFORE + len(code.acquire))
    hint = around.find(code.hint, start) if start >= 0 else -1
    return 0 <= hint < start + _LOOP and start <= _BEFORE <= hint + _LOOP_REST


def _has_it(around: bytes, thread: Thread) -> bool:
    """Return whether the attempt has just succeeded: a return follows, or a jump that will not be taken."""
    following = around[_BEFORE : _BEFORE + 3]
    flags = thread.registers.get("eflags", 0)
    return following[:1] == _RETURN or following == _CLEAR + _RETURN or (following[:1] == _JNE and bool(flags & _ZERO))


def decodes_spins(target: Target) -> bool:
    """Return whether spinning threads, and the words of spinlocks, are decoded on the target's machine."""
    return target.abi.machine in CODES


def find_spinlock(target: Target, lock: int) -> Optional[LockState]:
    """Return what a spinlock's word says, or None when it cannot be read."""
    try:
        word = target.reader.sint(lock, 4, "spinlock")
    except FaultError:
        return None
    if not decodes_spins(target):
        return LockState(lock, Primitive.SPINLOCK, word, "not decoded on this machine")
    if word > 0:
        return LockState(lock, Primitive.SPINLOCK, word, "free")
    meaning = "held" if word == 0 else f"held, at least {-word} spinning"
    # The two cannot be told apart by the word; with spinners and no mention of a holder it is worth a line.
    return LockState(lock, Primitive.SPINLOCK, word, meaning)


def _find_by_word(target: Target, lock: int) -> Optional[Classified]:
    """Judge by the lock alone, where a core lacks the code: a spinning thread has counted itself in its word."""
    state = find_spinlock(target, lock) if lock and lock % 4 == 0 else None
    if state is None or state.word is None or not -_MOST_SPINNERS <= state.word < 0:
        return None
    because = ("the code is not in the core; a register holds the address of a word that counts spinning threads",)
    return Classified(Primitive.SPINLOCK, lock, state, Confidence.LOW, because)


def _find_code(target: Target, pc: int) -> Optional[bytes]:
    try:
        return bytes(target.memory.read(pc - _BEFORE, _BEFORE + _AFTER))
    except FaultError:
        return None
