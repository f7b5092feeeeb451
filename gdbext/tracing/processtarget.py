"""A whole target from a process of this machine, without gdb. The process is stopped while it is read."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import Callable, Mapping, Optional, Sequence, Tuple

from gdbext.abi import Abi
from gdbext.coretarget import modules_of
from gdbext.errors import GdbextError
from gdbext.memory.elf.corenotes import (
    AT_ENTRY,
    AT_PAGESZ,
    NT_386_TLS,
    NT_ARM_TLS,
    NT_PRSTATUS,
    find_386_tls,
    find_stack_pointer,
    parse_auxv,
    parse_registers,
)
from gdbext.memory.elf.elffile import find_header
from gdbext.memory.live.mappings import open_proc
from gdbext.memory.live.presence import check_swapped
from gdbext.memory.live.procmem import ProcessMemory, read_comm
from gdbext.process import Identity, Module, Thread
from gdbext.target import Target
from gdbext.tracing.tasks import find_living
from gdbext.tracing.tracer import StoppedThread, Tracer


def hold_process(pid: int, swapped: bool = False) -> Tuple[Target, Callable[[], None]]:
    """Stop a process; return what it is, and what lets it go on.

    :param swapped: whether pages that are swapped out are read, which brings them back into RAM.
    :raises NoTargetError: there is no such process.
    :raises GdbextError: it may not be traced or read, or is of a kind that is not known.
    """
    with ExitStack() as stack:
        tracer = Tracer(pid)
        stack.callback(tracer.let_go)
        seen = find_living(tracer.pid)
        abi, auxv = read_abi(seen)
        memory = ProcessMemory(seen, swapped, holder=tracer)
        stack.callback(memory.close)
        target = _read_target(memory, tracer, abi, auxv)
        return target, stack.pop_all().close
    raise AssertionError  # the stack swallows nothing


def _read_target(memory: ProcessMemory, tracer: Tracer, abi: Abi, auxv: Mapping[int, int]) -> Target:
    modules = modules_of(memory, abi)
    return Target(
        memory=memory,
        abi=abi,
        identity=identify(tracer.pid, modules, auxv, local=True),
        modules=modules,
        threads=[_thread(number, tracer.pid, one, abi) for number, one in enumerate(tracer.threads, 1)],
        live=True,
        local_pid=memory.pid,
        auxv=auxv,
        problems=check_swapped(memory.presence),
    )


def read_abi(pid: int) -> Tuple[Abi, Mapping[int, int]]:
    """Return what machine a process runs on, from its executable, and its auxiliary vector.

    :raises GdbextError: it may not be read, has no memory of its own, or runs no ELF file.
    """
    header = find_header(read_start(pid, "exe"))
    if header is None:
        raise GdbextError(f"process {pid} runs no ELF file")
    auxv = parse_auxv(read_start(pid, "auxv"), header.abi())
    return header.abi(auxv.get(AT_PAGESZ, 4096)), auxv


def read_start(pid: int, name: str) -> bytes:
    """Return the first 4 KiB of a file of ``/proc/PID``; errors as :func:`read_abi`."""
    descriptor = open_proc(pid, name)
    try:
        return os.pread(descriptor, 4096, 0)
    finally:
        os.close(descriptor)


def _thread(number: int, pid: int, stopped: StoppedThread, abi: Abi) -> Thread:
    data = stopped.sets[NT_PRSTATUS]
    registers = parse_registers(data, abi) if data else {}
    return Thread(
        number=number,
        lwp=stopped.tid,
        name=read_comm(pid, stopped.tid),
        stack_pointer=find_stack_pointer(registers),
        tls=_find_tls(stopped, registers, abi),
        registers=registers,
    )


def _find_tls(stopped: StoppedThread, registers: Mapping[str, int], abi: Abi) -> Optional[int]:
    if abi.machine == "i386":
        return find_386_tls(stopped.sets[NT_386_TLS], registers, abi)
    if abi.machine == "aarch64":
        return int.from_bytes(stopped.sets[NT_ARM_TLS][: abi.pointer_size], abi.byteorder) or None
    return registers.get("fs_base")


def identify(
    pid: int, modules: Sequence[Module], auxv: Mapping[int, int], local: bool, named: Optional[str] = None
) -> Identity:
    """Return which process this is, at this moment.

    :param local: whether ``/proc`` of this machine speaks of it.
    :param named: the executable as somebody else knows it, where nothing else tells.
    """
    entry = auxv.get(AT_ENTRY, 0)
    program = next((module for module in modules if module.base <= entry < module.end), None)
    path = _find_exe(pid) if local else None
    return Identity(
        exe=path or (program.path if program else named),
        build_id=program.build_id if program else None,
        pid=pid,
        time=time.time(),
    )


def _find_exe(pid: int) -> Optional[str]:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:  # another user's process
        return None
