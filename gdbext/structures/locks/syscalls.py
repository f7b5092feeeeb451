"""In which system call a thread is, from its registers.

A debugger looks at a blocked thread after the kernel has interrupted its call: the number and the arguments
are still in the registers, and the result says "to be restarted". Where it was let go and stopped again at once, as
gdbserver does, the kernel has set it back to the instruction that calls, with the number for a result. Upstream: Linux
``arch/x86/kernel/signal.c``, ``arch/arm64/kernel/signal.c`` (do_signal), ``include/linux/errno.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from gdbext.errors import FaultError
from gdbext.process import Thread
from gdbext.structures.locks.model import FutexWait, Syscall
from gdbext.target import Target

# ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK, EINTR, ENOSYS (at entry)
_WAITING = frozenset({512, 513, 514, 516, 4, 38})

_ARGUMENTS = 6
_ANY = 0xFFFFFFFF  # FUTEX_BITSET_MATCH_ANY
_LOWEST = 0x1000  # no futex lies in the first page
_PRIVATE, _CLOCK_REALTIME = 128, 256
_WAITS = {0: "WAIT", 6: "LOCK_PI", 9: "WAIT_BITSET", 11: "WAIT_REQUEUE_PI", 13: "LOCK_PI2"}


@dataclass(frozen=True)
class Machine:
    """How one machine makes system calls.

    :param number: the register that holds the call's number.
    :param arguments: the registers of all six.
    :param result: the register of the result; None where it is the first argument's, which the kernel puts back.
    :param counter: the program counter.
    :param traps: the instructions that call; the program counter of a call that was set back is at one.
    :param restart: the number of ``restart_syscall``.
    :param names: of calls that may wait, by number.
    :param saved: registers that functions preserve.
    """

    number: str
    arguments: tuple[str, ...]
    result: Optional[str]
    counter: str
    traps: tuple[bytes, ...]
    restart: int
    names: Mapping[int, str]
    saved: tuple[str, ...]


_X86_64_NAMES = {
    0: "read", 1: "write", 7: "poll", 23: "select", 34: "pause", 35: "nanosleep", 42: "connect", 43: "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 73: "flock", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 202: "futex", 208: "io_getevents", 230: "clock_nanosleep", 232: "epoll_wait", 234: "tgkill",
    247: "waitid", 219: "restart_syscall",
    270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4", 299: "recvmmsg",
    426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_I386_NAMES = {
    0: "restart_syscall",
    3: "read", 4: "write", 29: "pause", 102: "socketcall", 114: "wait4", 142: "_newselect", 162: "nanosleep",
    168: "poll", 179: "rt_sigsuspend", 240: "futex", 256: "epoll_wait", 267: "clock_nanosleep", 270: "tgkill",
    407: "clock_nanosleep", 413: "pselect6", 414: "ppoll", 422: "futex", 449: "futex_waitv",
}  # fmt: skip
_AARCH64_NAMES = {
    22: "epoll_pwait", 63: "read", 64: "write", 72: "pselect6", 73: "ppoll", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 128: "restart_syscall", 131: "tgkill",
    133: "rt_sigsuspend", 202: "accept", 207: "recvfrom", 212: "recvmsg",
    242: "accept4", 260: "wait4", 449: "futex_waitv",
}  # fmt: skip

MACHINES: Mapping[str, Machine] = {
    "x86-64": Machine(
        "orig_rax",
        ("rdi", "rsi", "rdx", "r10", "r8", "r9"),
        "rax",
        "rip",
        (b"\x0f\x05",),  # syscall
        219,
        _X86_64_NAMES,
        ("rbx", "rbp", "r12", "r13", "r14", "r15"),
    ),
    "i386": Machine(
        "orig_eax",
        ("ebx", "ecx", "edx", "esi", "edi", "ebp"),
        "eax",
        "eip",
        (b"\xcd\x80", b"\x0f\x34", b"\x0f\x05"),  # int 0x80, sysenter, syscall
        0,
        _I386_NAMES,
        ("ebx", "esi", "edi", "ebp"),
    ),
    "aarch64": Machine(
        "x8",
        ("x0", "x1", "x2", "x3", "x4", "x5"),
        None,
        "pc",
        (b"\x01\x00\x00\xd4",),  # svc #0
        128,
        _AARCH64_NAMES,
        tuple(f"x{number}" for number in range(19, 30)),
    ),
}


def find_machine(target: Target) -> Optional[Machine]:
    """Return how the target's machine makes system calls, or None when it is not known."""
    return MACHINES.get(target.abi.machine)


def find_syscall(target: Target, thread: Thread) -> Optional[Syscall]:
    """Return the system call that a thread waits in, or None when it runs or nothing tells.

    A call that has already returned (a waiter that was just woken) is none.
    """
    machine = find_machine(target)
    if machine is None or machine.number not in thread.registers:
        return None
    number = thread.registers[machine.number]
    if number == target.abi.word_mask or not _is_waiting(target, thread, machine):
        return None
    return _syscall(machine, number, tuple(thread.registers.get(name, 0) for name in machine.arguments))


def _syscall(machine: Machine, number: int, arguments: "tuple[int, ...]") -> Syscall:
    restarted = number == machine.restart
    name = machine.names.get(number)
    if restarted and _decode(arguments) is not None and _looks_timed(arguments):
        name = "futex"
    return Syscall(number, name, arguments, restarted)


def find_futex_wait(syscall: Syscall) -> Optional[FutexWait]:
    """Return the futex that a call waits at, or None when it is no futex wait."""
    return _decode(syscall.arguments) if syscall.name == "futex" else None


def parse_syscall(target: Target, line: str) -> Optional[Syscall]:
    """Return what ``/proc/PID/task/TID/syscall`` says, or None: the thread runs, or is in none."""
    machine, words = find_machine(target), line.split()
    if machine is None or len(words) < 1 + _ARGUMENTS or not words[0].isdigit():
        return None
    number = int(words[0])
    arguments = tuple(int(word, 16) for word in words[1 : 1 + _ARGUMENTS])
    return _syscall(machine, number, arguments)


def _decode(arguments: Sequence[int]) -> Optional[FutexWait]:
    address, operation, value, timeout = arguments[:4]
    command = operation & 0xFFFFFFFF & ~(_PRIVATE | _CLOCK_REALTIME)
    if command not in _WAITS or address % 4 or address < _LOWEST:
        return None
    return FutexWait(address, command, bool(operation & _PRIVATE), value & 0xFFFFFFFF, timeout != 0)


def _looks_timed(arguments: "tuple[int, ...]") -> bool:
    # Of the calls that are restarted so only futex has a bit set sixth, all ones as libc passes it; without one
    # only its operation has these flags second (poll may have as many files, and has no fourth argument).
    operation, timeout, bitset = arguments[1], arguments[3], arguments[5] & 0xFFFFFFFF
    if timeout < _LOWEST:
        return False
    return bitset == _ANY if operation & 0x7F == 9 else bool(operation & (_PRIVATE | _CLOCK_REALTIME))


def _is_waiting(target: Target, thread: Thread, machine: Machine) -> bool:
    number = thread.registers[machine.number]
    if machine.result is None:
        called = _is_at_call(target, thread, machine)
        return number in (*machine.names, machine.restart) if called is None else called
    result = thread.registers.get(machine.result, 0)
    if (target.abi.word_mask + 1 - result) in _WAITING:
        return True
    # Without code it could as well have returned this number; what waits for a futex never does.
    called = result in (number, machine.restart) and _is_at_call(target, thread, machine)
    return machine.names.get(number) == "futex" and result == number if called is None else called


def _is_at_call(target: Target, thread: Thread, machine: Machine) -> Optional[bool]:
    """Return whether a thread's next instruction makes a system call; None where the code cannot be read."""
    counter = thread.registers.get(machine.counter)
    if counter is None:
        return False
    try:
        return bytes(target.memory.read(counter, len(machine.traps[0]))) in machine.traps
    except FaultError:
        return None
