"""Why a process has died: the signal, where it came from, what the libraries said, and where the program was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Mapping, Optional, Sequence, Tuple

from gdbext.analysis.crash.faultplace import describe_fault
from gdbext.analysis.crash.lastwords import bounded, find_last_words
from gdbext.debuginfo import HANDLER, NO_DEBUG_INFO, Frame, Stacks
from gdbext.errors import FaultError
from gdbext.heap.model import Heap
from gdbext.memory.elf.corenotes import SI_KERNEL, SIGABRT, SIGBUS, SIGILL, SIGSEGV, SIGTRAP, SignalInfo
from gdbext.process import Thread
from gdbext.report import Kind, column
from gdbext.structures.locks.frames import is_library
from gdbext.target import Target

SHOWN = 3  # frames
_DEEP = 48  # a panic of Rust has some fifteen frames, and a handler may lie above it
# Signals whose default action writes a core (signal(7)). A debugger stops at some that the program lives through.
_FATAL = {
    3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 24: "SIGXCPU",
    25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip
_GIVEN_UP = (SIGABRT, SIGTRAP)  # what libraries and runtimes end a process with
_AT_A_STOP = frozenset((4, 6, 7, 8, 11, 31))
_CAUSES: Mapping[Tuple[int, int], str] = {
    (4, 1): "illegal instruction", (4, 2): "illegal operand", (4, 5): "privileged instruction",
    (7, 1): "misaligned address", (7, 2): "no memory behind the address", (7, 4): "memory failure of the hardware",
    (7, 5): "memory failure of the hardware",
    (8, 1): "integer division by zero", (8, 2): "integer overflow", (8, 3): "floating-point division by zero",
    (8, 4): "floating-point overflow", (8, 5): "floating-point underflow", (8, 6): "inexact floating-point result",
    (8, 7): "invalid floating-point operation",
    (11, 1): "address not mapped", (11, 2): "access not permitted", (11, 3): "bounds exceeded",
    (11, 4): "access not permitted by a protection key", (31, 1): "a system call that seccomp forbids",
}  # fmt: skip
_OUTSIDE = "a process outside of its PID namespace"
_NO_ADDRESS = "no address is reported, as for a pointer that is not canonical (x86)"
_SAVED_AT = 192  # bytes from the stack pointer beneath a handler to err
_PAGE_FAULT = 14
# Not 0, a division by zero: that is also what stands there where the thread has never met a fault.
_TRAPS = {6: SignalInfo(SIGILL, 1), 13: SignalInfo(SIGSEGV, SI_KERNEL)}
# What raises a signal, wherever it is (a program may be linked statically), and libc's own beneath it.
_RAISING = {
    "abort", "raise", "gsignal", "pthread_kill", "kill", "tgkill", "tkill", "__pthread_kill_implementation",
    "runtime.raise", "runtime.raiseproc", "runtime.tgkill", "runtime.dieFromSignal", "runtime.crash",
}  # fmt: skip
_INNER = ("__pthread_kill", "__GI_")
# Who gives up on the program's behalf, by module, and by name where that is linked into the program: C++, Go, Rust.
_REPORTING = ("libasan", "libubsan", "libtsan", "liblsan", "libgcc_s", "libglib-2.0")
_RUNTIMES = ("std::", "__cxxabiv1::", "__gnu_cxx::", "__cxa_", "runtime.", "rust_", "__rust", "panic_abort::")
_RUST = ("core::", "alloc::")  # of Rust only where it panics: a program in C++ may have such names of its own


@dataclass(frozen=True)
class Death:
    """Why a process has died, as far as its core says.

    :param thread: the debugger's number of the thread that met the signal, or None.
    :param cause: what the signal's code says: "integer division by zero", "sent by process 12, user 0"; None where
        that adds nothing.
    :param address: of the memory access (or of the instruction) that failed, or None.
    :param place: what is there, in words.
    :param message: what a library said before it aborted: at most 256 bytes, printable.
    :param source: which library: "glibc", "GLib", "libstdc++", "AddressSanitizer".
    :param frames: the newest of the program, innermost first: "main.c:212 flush_batch", without names
        "libz.so.1+0x51c".
    :param stopped: whether a debugger wrote the core at that signal: a handler of the program may have followed.
    """

    signal: str = column("signal")
    thread: Optional[int] = column("thread", Kind.COUNT)
    cause: Optional[str] = column("cause")
    address: Optional[int] = column("address", Kind.ADDRESS)
    place: Optional[str] = column("place")
    message: Optional[str] = column("message")
    source: Optional[str] = column("source")
    frames: Sequence[str] = column("frames", Kind.OBJECT)
    stopped: bool = column("stopped", Kind.FLAG, default=False)

    @property
    def summary(self) -> str:
        """The signal and its reason in one line: 'SIGABRT in thread 1: "free(): invalid pointer"'."""
        where = "" if self.thread is None else f" in thread {self.thread}"
        stop = ", at which a debugger stopped it" if self.stopped else ""
        return f"{self.signal}{where}{stop}{self._reason()}"

    def _reason(self) -> str:
        if self.message:
            return f': "{self.message}"'
        if self.address is not None and self.place:
            return f": {self.cause + ', ' if self.cause else ''}{self.address:#x} ({self.place})"
        return f": {self.cause}" if self.cause else ""

    @property
    def trail(self) -> str:
        """The frames in one line: "main.c:212 flush_batch ← main.c:340 worker"."""
        return " ← ".join(self.frames)


def find_death(target: Target, heaps: Sequence[Heap] = (), stacks: Stacks = NO_DEBUG_INFO) -> Optional[Death]:
    """Return why the process of a core has died, or None: it lives, or a debugger wrote the core of a healthy one.

    :param heaps: name the block that a bad address is in; none where they are not known.
    :param stacks: unwinds; without it there is one frame at most, by module and offset.
    """
    signal = target.signal
    if signal is None or signal.number not in (_FATAL if signal.by_kernel else _AT_A_STOP):
        return None
    thread = next((one for one in target.threads if one.lwp == signal.lwp), None)
    frames = list(stacks.frames(thread, _DEEP)) if thread is not None else []
    fault, below = _find_first_fault(target, signal, frames)
    faulting = thread if fault is signal or thread is None else _interrupted(thread, below[0])
    place = describe_fault(target, heaps, faulting, fault)
    words = find_last_words(target, thread, frames) if signal.number in _GIVEN_UP else None
    shown = _without_raising(below or frames, signal.number) or _only_frame(target, thread)
    return Death(
        _FATAL[signal.number],
        None if thread is None else thread.number,
        _cause(target, signal, fault),
        fault.address,
        None if place is None else bounded(place),
        None if words is None else words.text,
        None if words is None else words.source,
        tuple(frame_text(target, frame) for frame in _sound(shown)[:SHOWN]),
        not signal.by_kernel,
    )


def _find_first_fault(
    target: Target, signal: SignalInfo, frames: Sequence[Frame]
) -> Tuple[SignalInfo, Sequence[Frame]]:
    """Return the signal that a handler was called for before the process raised the last one itself, and its frames.

    Servers catch SIGSEGV, print a trace and raise the signal again. Without such a handler: the last signal, no frames.
    """
    at = next((at for at, frame in enumerate(frames) if frame.function == HANDLER), None)
    if at is None or not _is_own(target, signal):
        return signal, ()
    below = frames[at + 1 :]
    first = None if not below or _is_raising(below[0]) else _read_caught(target, frames[at])
    return (first or signal), below


def _interrupted(thread: Thread, frame: Frame) -> Thread:
    """Return a thread as it was before its handler was called: of its registers two are known."""
    return replace(thread, stack_pointer=frame.stack_pointer, registers={"rip": frame.pc})


def _read_caught(target: Target, frame: Frame) -> Optional[SignalInfo]:
    """Return the fault that a handler was called for, from the registers that the kernel saved; x86-64 only.

    Upstream: ``arch/x86/include/uapi/asm/sigcontext.h`` (err, trapno, oldmask, cr2), in a ``ucontext`` at the stack
    pointer. ``siginfo_t`` follows only where the handler asks for it.
    """
    if target.abi.machine != "x86-64" or frame.stack_pointer is None:
        return None
    try:
        error, trap, _, address = target.reader.words(frame.stack_pointer + _SAVED_AT, 4, "saved registers")
    except FaultError:
        return None
    if trap == _PAGE_FAULT:
        region = target.index.find(address)
        number, code = (SIGBUS, 2) if region is not None and region.writable else (SIGSEGV, 2 if error & 1 else 1)
        return SignalInfo(number, code, address)
    return _TRAPS.get(trap)


def _is_own(target: Target, signal: SignalInfo) -> bool:
    return signal.sender is not None and signal.sender == target.identity.pid


def _cause(target: Target, signal: SignalInfo, fault: SignalInfo) -> Optional[str]:
    """Return what led to the signal, in words; None where that is not known."""
    if fault.sender is not None:
        if _is_own(target, signal):
            return "raised by the process itself"
        return f"sent by {f'process {signal.sender}' if signal.sender else _OUTSIDE}, user {signal.user}"
    no_address = fault.number == SIGSEGV and fault.code == SI_KERNEL
    known = _NO_ADDRESS if no_address else _CAUSES.get((fault.number, fault.code or 0))
    if fault is signal:
        return known
    return f"raised by the process's own handler of {_FATAL[fault.number]}: {known}"


def _without_raising(frames: Sequence[Frame], signal: int) -> Sequence[Frame]:
    """Return the frames from the one on that is worth showing: what raises the signal is not, nor who reports it."""
    panics = any((frame.function or "").startswith("std::panicking::") for frame in frames)
    runtimes = (*_RUNTIMES, *(_RUST if panics else ()))
    at = 0
    while at < len(frames) and (_is_raising(frames[at]) or (signal in _GIVEN_UP and _gives_up(frames[at], runtimes))):
        at += 1
    return frames[at:] or frames


def _is_raising(frame: Frame) -> bool:
    name = frame.function or ""
    return name in _RAISING or (is_library(frame) and name.startswith(_INNER))


def _gives_up(frame: Frame, runtimes: Tuple[str, ...]) -> bool:
    module, name = frame.module or "", frame.function or ""
    return is_library(frame) or module.startswith(_REPORTING) or name.startswith(runtimes)


def _sound(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames up to where a damaged stack leads nowhere; the innermost may have jumped there."""
    lost = (at for at, frame in enumerate(frames) if at and frame.function is None and frame.module is None)
    return frames[: next(lost, len(frames))]


def _only_frame(target: Target, thread: Optional[Thread]) -> Sequence[Frame]:
    """Return the innermost frame alone, from the registers, where nothing unwinds."""
    registers = {} if thread is None else thread.registers
    pc = next((registers[name] for name in ("rip", "eip", "pc") if name in registers), None)
    return () if pc is None else (Frame(0, pc, None),)


def frame_text(target: Target, frame: Frame) -> str:
    """Return "main.c:212 flush_batch", without debug info "flush_batch", without a name "libz.so.1+0x51c"."""
    if frame.function:
        return bounded(f"{frame.line or ''} {frame.function}".strip())
    module = target.find_module(frame.pc)
    if module is None:
        return f"{frame.pc:#x}"
    return bounded(f"{module.path.rpartition('/')[2]}+{frame.pc - module.base:#x}")
