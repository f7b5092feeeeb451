"""Builds a ``Target`` from a process that gdb has: a local one, or something remote."""

from __future__ import annotations

import re
from typing import Mapping

import gdb

from gdbext import coretarget
from gdbext.abi import Abi
from gdbext.bridge.decoded import name_of
from gdbext.bridge.ports import threads
from gdbext.bridge.ports.memory import GdbMemory, read_regions
from gdbext.bridge.ports.objfiles import check_objfiles
from gdbext.bridge.ports.symbols import GdbSymbols
from gdbext.bridge.stops import settings
from gdbext.memory import Memory
from gdbext.memory.cached import CachedMemory
from gdbext.memory.elf.corenotes import AT_PAGESZ
from gdbext.memory.live.presence import check_swapped
from gdbext.memory.live.procmem import ProcessMemory
from gdbext.report import Problem
from gdbext.target import Target
from gdbext.tracing.processtarget import identify
from gdbext.tracing.tasks import check_tasks, find_living

_AUXV = re.compile(r"^(\d+)\s+(?:AT_\w+|\?\?\?)\s.*?\s(0x[0-9a-f]+|\d+)(?: \".*\")?\s*$", re.MULTILINE)
_MACHINES = {"i386:x86-64": "x86-64", "i386": "i386", "aarch64": "aarch64"}


def read_process(local: bool) -> Target:
    """Return what the selected inferior is, which is stopped.

    :param local: whether it runs on this machine, where the kernel is asked.
    """
    pid = gdb.selected_inferior().pid
    auxv = read_auxv()
    abi = read_abi(auxv)
    memory = process_memory(pid, local)
    modules = coretarget.modules_of(memory, abi)
    identity = identify(pid, modules, auxv, local=local, named=name_of(gdb.selected_inferior().progspace))
    listed = threads.listed()
    found = threads.read_threads(abi, listed)
    problems = [*([] if memory.regions() else [_no_mappings()]), *check_objfiles(modules, identity)]
    problems += check_tasks(pid, found) if local else ()
    problems += check_swapped(memory.presence) if isinstance(memory, ProcessMemory) else ()
    return Target(
        memory=memory,
        abi=abi,
        identity=identity,
        modules=modules,
        threads=found,
        symbols=GdbSymbols(listed),
        live=True,
        local_pid=find_living(pid) if local else None,
        auxv=auxv,
        problems=problems,
    )


def process_memory(pid: int, local: bool, brief: bool = False) -> Memory:
    """Return the memory of the selected inferior.

    :param brief: as of :class:`ProcessMemory`.
    """
    if local:
        return ProcessMemory(find_living(pid), bool(settings.current_value("swapped")), brief)
    return CachedMemory(GdbMemory(read_regions(pid)))


def _no_mappings() -> Problem:
    return Problem("no-mappings", None, "the debugger cannot list the target's mappings (info proc mappings)")


def read_auxv() -> Mapping[int, int]:
    """Return the auxiliary vector, type to value; empty when the target does not tell it."""
    try:
        text = gdb.execute("info auxv", to_string=True)
    except gdb.error:
        return {}
    return {int(match[1]): int(match[2], 0) for match in _AUXV.finditer(text)}


def read_abi(auxv: Mapping[int, int]) -> Abi:
    """Return the selected inferior's word size, byte order and page size."""
    name = gdb.selected_inferior().architecture().name()
    number = gdb.lookup_type("int")
    little = int(gdb.Value(b"\1" + bytes(number.sizeof - 1), number)) == 1
    return Abi(
        pointer_size=gdb.lookup_type("char").pointer().sizeof,
        byteorder="little" if little else "big",
        machine=_MACHINES.get(name, name),
        page_size=auxv.get(AT_PAGESZ, 4096),
    )
