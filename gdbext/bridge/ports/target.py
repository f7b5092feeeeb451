"""Builds a ``Target`` from what gdb has open: a core, a local process, or something remote.

gdb is asked for names, types, threads and registers. Memory comes from the core file itself or from
the kernel wherever that is possible, because gdb's own reads are slow and, over a core, fall back on
files of this machine.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from typing import Mapping, Optional, Sequence

import gdb

from gdbext import coretarget
from gdbext.abi import Abi
from gdbext.bridge.decoded import ask, find_sysroot, name_of
from gdbext.bridge.ports import threads
from gdbext.bridge.ports.memory import GdbMemory, read_regions
from gdbext.bridge.ports.objfiles import check_objfiles
from gdbext.bridge.ports.symbols import GdbSymbols
from gdbext.bridge.stops import settings
from gdbext.errors import NoTargetError
from gdbext.memory import Memory
from gdbext.memory.cached import CachedMemory
from gdbext.memory.elf.corenotes import AT_PAGESZ
from gdbext.memory.live.presence import check_swapped
from gdbext.memory.live.procmem import ProcessMemory
from gdbext.process import Thread
from gdbext.report import Problem
from gdbext.target import Target

_STRATUM = re.compile(r"^\s*- (\S+) \(", re.MULTILINE)
_CORE_FILE = re.compile(r"^\s*[`'\"‘](.+?)['\"’], [^`'\"‘’\n]*$", re.MULTILINE | re.DOTALL)
_AUXV = re.compile(r"^(\d+)\s+(?:AT_\w+|\?\?\?)\s.*?\s(0x[0-9a-f]+|\d+)(?: \".*\")?\s*$", re.MULTILINE)

# With only these in the target stack, gdb itself asks the kernel of this machine.
_LOCAL = {"native", "exec", "None", "multi-thread", "thread-db"}

_MACHINES = {"i386:x86-64": "x86-64", "i386": "i386", "aarch64": "aarch64"}


def read_target() -> Target:
    """Return what the selected inferior is.

    :raises NoTargetError: when there is neither a process nor a core, or the process runs.
    :raises BadCoreError: when gdb has a core open that is none.
    """
    strata = read_strata()
    if "core" in strata:
        return _read_core()
    if not gdb.selected_inferior().pid:
        raise NoTargetError("there is no process and no core", "attach PID, run, or core-file CORE")
    if any(thread.is_running() for thread in threads.listed()):
        raise NoTargetError("the process is running", "interrupt it first")
    return _read_process(strata <= _LOCAL)


def read_bare_target() -> Target:
    """Return memory and ABI of a process, nothing that takes longer: no modules, threads, symbols.

    :raises NoTargetError: when there is no process, or it runs.
    """
    pid = gdb.selected_inferior().pid
    if not pid:
        raise NoTargetError("there is no process and no core", "attach PID, run, or core-file CORE")
    return Target(memory=_process_memory(pid, read_strata() <= _LOCAL, brief=True), abi=read_abi({}), live=True)


def read_strata() -> "set[str]":
    """Return the short names of gdb's target stack ("native", "core", "remote", …)."""
    return set(_STRATUM.findall(gdb.execute("maint print target-stack", to_string=True)))


def find_core_path() -> Optional[str]:
    """Return the core that gdb has open, or None when it does not name one that exists."""
    core = getattr(gdb.selected_inferior(), "corefile", None)
    if core is not None:
        return str(name_of(core))
    text = ask("info files")
    match = _CORE_FILE.search(text, max(text.find("core dump file"), 0))
    return match[1] if match else None


def _read_core() -> Target:
    path = find_core_path()
    if path is None or not os.path.exists(path):
        raise NoTargetError("gdb does not name a core file that exists", "open it again with core-file CORE")
    target = coretarget.read_core_target(path, sysroot=find_sysroot())
    problems = [*target.problems, *check_objfiles(target.modules, target.identity)]
    listed = threads.listed()
    return replace(target, symbols=GdbSymbols(listed), threads=_numbered(target.threads, listed), problems=problems)


def _numbered(found: Sequence[Thread], listed: Sequence[gdb.InferiorThread]) -> Sequence[Thread]:
    """Give a core's threads the numbers and names that gdb shows; those that it does not show come after them."""
    known = {threads.find_lwp(thread): thread for thread in listed}
    others = itertools.count(max((thread.num for thread in listed), default=0) + 1)
    numbered = []
    for thread in found:
        shown = known.pop(thread.lwp, None)  # of several that share an id in a damaged core gdb shows one
        number = next(others) if shown is None else shown.num
        numbered.append(replace(thread, number=number, name=thread.name or (name_of(shown, "name") if shown else None)))
    return sorted(numbered, key=lambda thread: thread.number)


def _read_process(local: bool) -> Target:
    # A core needs none of it.
    from gdbext.tracing.processtarget import identify
    from gdbext.tracing.tasks import check_tasks, find_living

    pid = gdb.selected_inferior().pid
    auxv = read_auxv()
    abi = read_abi(auxv)
    memory = _process_memory(pid, local)
    modules = coretarget.modules_of(memory, abi)
    identity = identify(pid, modules, auxv, local=local, named=name_of(gdb.selected_inferior().progspace))
    listed = threads.read_threads(abi)
    problems = [*([] if memory.regions() else [_no_mappings()]), *check_objfiles(modules, identity)]
    problems += check_tasks(pid, listed) if local else ()
    problems += check_swapped(memory.presence) if isinstance(memory, ProcessMemory) else ()
    return Target(
        memory=memory,
        abi=abi,
        identity=identity,
        modules=modules,
        threads=listed,
        symbols=GdbSymbols(),
        live=True,
        local_pid=find_living(pid) if local else None,
        auxv=auxv,
        problems=problems,
    )


def _process_memory(pid: int, local: bool, brief: bool = False) -> Memory:
    from gdbext.tracing.tasks import find_living

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
