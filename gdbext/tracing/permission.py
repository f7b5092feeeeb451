"""Why the kernel does not let a process be traced, and what helps: ptrace(2), "Ptrace access mode checking"."""

from __future__ import annotations

import os
from typing import Optional

from gdbext.errors import DebuggerError, GdbextError
from gdbext.memory.live.mappings import read_status

YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_CAPABILITY = 1 << 19  # CAP_SYS_PTRACE
_SCOPES = {
    "1": "kernel.yama.ptrace_scope is 1: a process's own children, or with CAP_SYS_PTRACE",
    "2": "kernel.yama.ptrace_scope is 2: with CAP_SYS_PTRACE",
    "3": "kernel.yama.ptrace_scope is 3: never",
}


def find_way(pid: int) -> str:
    """Return what somebody may do who may not trace a process."""
    scope = _SCOPES.get(_read_scope())
    lines = [_find_own(pid), *([scope] if scope else [])]
    return "; ".join(lines)


def is_given(pid: int) -> bool:
    """Whether the kernel lets us have a process's memory, for which it asks the same as for tracing it."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def hidden(pid: int) -> Optional[DebuggerError]:
    """Return the error for a process that is there and that ``/proc`` does not show, None where there is none."""
    try:
        os.kill(pid, 0) if pid > 0 else None
    except PermissionError:
        message = f"process {pid} is hidden from this user (/proc is mounted with hidepid)"
        return DebuggerError(message, "run as the process's user or as root")
    except (ProcessLookupError, OverflowError):
        pass
    return None


def _find_own(pid: int) -> str:
    owner, dumpable = _find_owner(pid)
    if owner != os.geteuid() and os.geteuid() != 0:
        return "run as the process's user or as root"
    if _has_capability():
        return "it is in another user namespace, or a security module forbids it: run outside of the container"
    if os.geteuid() == 0:
        return "root has no CAP_SYS_PTRACE here: give it to the container (docker run --cap-add=SYS_PTRACE)"
    if not dumpable:
        return "run as root: it has other rights than its user, or had them (setuid, or not dumpable)"
    return "run as root"


def _find_owner(pid: int) -> "tuple[Optional[int], bool]":
    """Return whose a process is, and whether its user may read its memory."""
    try:
        owner = int(read_status(pid)["Uid"].split()[0])
        return owner, os.stat(f"/proc/{pid}/mem").st_uid == owner
    except (GdbextError, OSError, KeyError):  # without a status it is gone
        return None, True


def _has_capability() -> bool:
    return bool(int(read_status(os.getpid())["CapEff"], 16) & _CAPABILITY)


def _read_scope() -> str:
    try:
        with open(YAMA, encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # a kernel without Yama
        return ""
