"""The inferior's threads with their registers, read without leaving another one selected."""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Sequence

import gdb

from gdbext.abi import Abi
from gdbext.bridge.decoded import name_of
from gdbext.bridge.expressions import selection
from gdbext.process import Thread

# gdb's names of the stack pointer and of the thread pointer.
_STACK_POINTERS = ("rsp", "esp", "sp", "r1")
_THREAD_POINTERS: Mapping[str, Sequence[str]] = {
    "x86-64": ("fs_base",),
    "i386": ("gs_base",),
    "aarch64": ("tpidr", "tpidr_el0"),
}
# Where gdb has no such register of a process, and a pthread_t is the thread pointer (sysdeps/i386/nptl/tls.h).
_HANDLES = ("i386",)
# What gdb keeps in another group: the number of the system call that a thread is in.
_CALL_NUMBERS: Mapping[str, Sequence[str]] = {"x86-64": ("orig_rax",), "i386": ("orig_eax",)}


def read_threads(abi: Abi, known: Sequence[gdb.InferiorThread]) -> Sequence[Thread]:
    """Return these threads of the selected inferior, in the same order."""
    with selection.kept():
        return [_read_thread(thread, abi) for thread in known]


def for_each_thread(abi: Abi) -> Iterator[Thread]:
    """Iterate over the threads of the selected inferior; each is selected, which the caller takes back."""
    for thread in listed():
        yield _read_thread(thread, abi)


def listed() -> Sequence[gdb.InferiorThread]:
    """Return gdb's threads of the selected inferior, by number."""
    return sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num)


def find_lwp(thread: gdb.InferiorThread) -> Optional[int]:
    """Return the kernel's id of a thread, or None where the target has no such ids."""
    pid, lwp, tid = thread.ptid
    return lwp or tid or pid or None


def _read_thread(thread: gdb.InferiorThread, abi: Abi) -> Thread:
    registers = _read_registers(thread, abi)
    return Thread(
        number=thread.num,
        lwp=find_lwp(thread),
        name=name_of(thread, "name"),
        stack_pointer=_first(registers, _STACK_POINTERS),
        tls=_first(registers, _THREAD_POINTERS.get(abi.machine, ())) or _find_handle(thread, abi),
        registers=registers,
        signal=_read_signal() if registers else 0,
    )


def _read_signal() -> int:
    """Return the signal with which the selected thread has stopped, or 0."""
    try:
        return int(gdb.parse_and_eval("$_siginfo.si_signo"))
    except gdb.error:  # it was stopped without one, or the target does not say
        return 0


def _find_handle(thread: gdb.InferiorThread, abi: Abi) -> Optional[int]:
    """Return a thread's pthread_t where that is its thread pointer, and libthread_db knows it."""
    if abi.machine not in _HANDLES:
        return None
    try:
        return int.from_bytes(thread.handle()[: abi.pointer_size], abi.byteorder) or None
    except (gdb.error, RuntimeError):  # libthread_db is not in use, or has not met this thread
        return None


def _first(registers: Mapping[str, int], names: Sequence[str]) -> Optional[int]:
    return next((registers[name] for name in names if name in registers), None)


def _read_registers(thread: gdb.InferiorThread, abi: Abi) -> Mapping[str, int]:
    try:
        thread.switch()
        frame = gdb.newest_frame()
    except gdb.error:  # the thread runs, or its registers are not in the core
        return {}
    values = ((name, _read_register(frame, name)) for name in _names_of(frame.architecture(), abi))
    return {name: value & abi.word_mask for name, value in values if value is not None}


_names: "dict[tuple[str, str], Sequence[str]]" = {}


def _names_of(architecture: gdb.Architecture, abi: Abi) -> Sequence[str]:
    key = architecture.name(), abi.machine
    if key not in _names:
        wanted = {register.name for register in architecture.registers("general")}
        wanted.update(_THREAD_POINTERS.get(abi.machine, ()))
        wanted.update(_CALL_NUMBERS.get(abi.machine, ()))
        _names[key] = sorted(wanted)
    return _names[key]


def _read_register(frame: gdb.Frame, name: str) -> Optional[int]:
    try:
        return int(frame.read_register(name))
    except (gdb.error, ValueError):  # unavailable, or not on this machine
        return None
