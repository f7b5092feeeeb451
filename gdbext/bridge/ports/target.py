"""Builds a ``Target`` from what gdb has open: a core, or what ``processes`` reads.

gdb is asked for names, types, threads and registers. Memory comes from the core file itself or from
the kernel wherever that is possible, because gdb's own reads are slow and, over a core, fall back on
files of this machine.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from typing import Optional, Sequence

import gdb

from gdbext import coretarget
from gdbext.bridge.decoded import ask, find_sysroot, name_of
from gdbext.bridge.ports import threads
from gdbext.bridge.ports.objfiles import check_objfiles
from gdbext.bridge.ports.symbols import GdbSymbols
from gdbext.errors import NoTargetError
from gdbext.process import Thread
from gdbext.target import Target

_STRATUM = re.compile(r"^\s*- (\S+) \(", re.MULTILINE)
_CORE_FILE = re.compile(r"^\s*[`'\"‘](.+?)['\"’], [^`'\"‘’\n]*$", re.MULTILINE | re.DOTALL)

# With only these in the target stack, gdb itself asks the kernel of this machine.
_LOCAL = {"native", "exec", "None", "multi-thread", "thread-db"}


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
    from gdbext.bridge.ports.processes import read_process  # a core needs none of it

    return read_process(strata <= _LOCAL)


def read_bare_target() -> Target:
    """Return memory and ABI of a process, nothing that takes longer: no modules, threads, symbols.

    :raises NoTargetError: when there is no process, or it runs.
    """
    pid = gdb.selected_inferior().pid
    if not pid:
        raise NoTargetError("there is no process and no core", "attach PID, run, or core-file CORE")
    from gdbext.bridge.ports.processes import process_memory, read_abi

    return Target(memory=process_memory(pid, read_strata() <= _LOCAL, brief=True), abi=read_abi({}), live=True)


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
