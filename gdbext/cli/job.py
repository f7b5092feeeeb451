"""What gdb is to open: the core, unpacked where it is packed, and the executable that belongs to it."""

from __future__ import annotations

import os
from typing import Optional

from gdbext.cli.options import Options
from gdbext.cli.output import tell
from gdbext.cli.unpack import find_packing, unpack
from gdbext.errors import GdbextError
from gdbext.starting.corefile import read_core
from gdbext.starting.executable import choose_exe, find_running
from gdbext.starting.gdbjob import GdbJob
from gdbext.starting.process import check_process


def make_job(options: Options, folder: str, deadline: Optional[float]) -> GdbJob:
    """Return what gdb is to open for a command; a remark on the executable is said at once.

    :param folder: where a packed core is unpacked.
    :param deadline: in seconds of ``time.monotonic``, or None.
    :raises GdbextError: when there is no such process, or the core or the named executable is none.
    """
    core, exe = None, options.exe
    if options.pid is not None and options.needs_target:
        check_process(options.pid)
        exe = exe or find_running(options.pid)
    if options.core is not None and options.needs_target:
        core = _unpacked(options.core, folder, deadline)
        exe = _find_exe(options, core)
    return GdbJob(options.gdb, core, exe, options.sysroot, options.debug_dir, options.swapped)


def unpacked_path(folder: str) -> str:
    """Return the name of an unpacked core."""
    return os.path.join(folder, "core")


def _unpacked(core: str, folder: str, deadline: Optional[float]) -> str:
    packing = find_packing(core)
    if packing is None:
        return core
    unpack(core, packing, unpacked_path(folder), deadline)
    return unpacked_path(folder)


def _find_exe(options: Options, core: str) -> Optional[str]:
    try:
        choice = choose_exe(read_core(core), options.exe, options.sysroot)
    except GdbextError as error:
        error.message = error.message.replace(core, str(options.core))
        raise
    if choice.remark:
        tell(f"gdbext: {choice.remark}")
    return choice.exe
