"""What gdb is to open: the core, unpacked where it is packed, and the executable that belongs to it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Optional

from gdbext.cli.options import Options
from gdbext.cli.streams import tell
from gdbext.cli.unpack import find_packing, unpack
from gdbext.errors import GdbextError
from gdbext.memory.elf.corefacts import CoreFacts
from gdbext.starting.corefile import read_core, reading
from gdbext.starting.executable import choose_exe, find_running, is_unknown_here
from gdbext.starting.gdbjob import GdbJob, Had, has_packages
from gdbext.starting.process import check_process
from gdbext.starting.specialfiles import choose_places


def make_job(options: Options, folder: str, deadline: Optional[float]) -> GdbJob:
    """Return what gdb is to open for a command; a remark on the executable is said at once.

    :param folder: where a packed core is unpacked; it must outlive gdb where something is in it.
    :param deadline: in seconds of ``time.monotonic``, or None.
    :raises GdbextError: when there is no such process, or the core or the named executable is none.
    """
    core, facts = None, None
    had = Had(options.exe, options.sysroot, options.debug_dir)
    if options.pid is not None and options.needs_target:
        check_process(options.pid)
        had = had._replace(exe=had.exe or find_running(options.pid))
    if options.core is not None and options.needs_target:
        with reading(options.core):
            core = _unpacked(options.core, folder, deadline, options.max_unpacked)
            facts = _read_facts(options, core)
        had = _find_files(options, facts, folder)
    alone = _is_alone(options, had.exe, facts)
    job = GdbJob(options.gdb, core, *had, options.settings, alone, cache=_find_cache(options))
    return job if alone else for_gdb(job, folder, facts)


def _find_cache(options: Options) -> Optional[str]:
    """Return the folder of what was read of files, which is there now, or None.

    :raises UsageError: it cannot be one.
    """
    if options.cache is not None:
        from gdbext.filecache.store import Store

        Store(options.cache).make()
        Store(options.cache).prune()
    return options.cache


def for_gdb(job: GdbJob, folder: str, facts: Optional[CoreFacts] = None) -> GdbJob:
    """Return the job for gdb, kept from special files, of which remarks are said at once.

    :param folder: where a sysroot is made if one is needed; it must outlive gdb.
    :param facts: of the core, where they are known already.
    """
    if job.core is None:
        return replace(job, alone=False)
    if facts is None:
        with reading(job.core):
            facts = read_core(job.core)
    places = choose_places(facts, job.exe, job.sysroot, job.debug_dir, lambda: folder)
    for remark in places.remarks:
        tell(f"gdbext: {remark}")
    return replace(job, exe=places.exe, sysroot=places.sysroot, debug_dir=places.debug_dir, alone=False)


def for_copy(job: GdbJob, folder: str, descriptor: int, pid: Optional[int]) -> GdbJob:
    """Return the job for gdb over a copy of a process, which has its files as the process sees them.

    :param folder: as in :func:`for_gdb`.
    :param descriptor: of the copy, a core.
    """
    away = job.exe is None  # in a container
    exe, root = (f"/proc/{pid}/exe", f"/proc/{pid}/root") if away else (job.exe, None)
    path = f"/proc/self/fd/{descriptor}"
    return for_gdb(replace(job, core=path, exe=exe, sysroot=job.sysroot or root, descriptors=(descriptor,)), folder)


def _is_alone(options: Options, exe: Optional[str], facts: Optional[CoreFacts]) -> bool:
    """Whether gdb has nothing to add to the answer, and this Python has what makes it."""
    adds = options.spec.debugger if options.spec is not None else "all"
    nothing = adds == "target" and not options.needs_target
    named = exe or options.sysroot or options.debug_dir or options.debuginfod or options.gdb != Options.gdb
    if adds == "names" and facts is not None and not named:
        nothing = _is_plain(options.arguments.expression) and is_unknown_here(facts)
    return nothing and has_packages()


def _is_plain(expression: str) -> bool:
    """Whether an expression is a number to everybody: a leading 0 is octal to some."""
    return re.fullmatch(r"|0[xX][0-9a-fA-F]+|[1-9][0-9]*", expression) is not None


def unpacked_path(folder: str) -> str:
    """Return the name of an unpacked core."""
    return os.path.join(folder, "core")


def _unpacked(core: str, folder: str, deadline: Optional[float], most: Optional[int]) -> str:
    packing = find_packing(core)
    if packing is None:
        return core
    unpack(core, packing, unpacked_path(folder), deadline, most)
    return unpacked_path(folder)


def _read_facts(options: Options, core: str) -> CoreFacts:
    try:
        return read_core(core)
    except GdbextError as error:
        error.message = error.message.replace(core, str(options.core))
        raise


def _find_files(options: Options, facts: CoreFacts, folder: str) -> Had:
    choice = choose_exe(facts, options.exe, options.sysroot)
    had = Had(choice.exe, options.sysroot, options.debug_dir)
    if options.debuginfod is not None or options.debug_dir is not None:
        from gdbext.starting.debugfolder import with_index
        from gdbext.starting.downloads import find_files, open_server

        if options.debug_dir is not None:
            had = had._replace(debug_dir=with_index(options.debug_dir, os.path.join(folder, "debug")))
        server = open_server(options.debuginfod, options.cache) if options.debuginfod is not None else None
        had = find_files(server, facts, had, lambda: folder, lambda line: tell(f"gdbext: {line}"))
    if choice.remark and had.exe == choice.exe:
        tell(f"gdbext: {choice.remark}")
    return had
