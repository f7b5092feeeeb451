"""The mappings of a process and what the kernel counts of each: ``/proc/PID/maps`` and ``smaps``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import FrozenSet, Iterator, Optional, Tuple

from gdbext.errors import GdbextError, NoTargetError

PAGE = os.sysconf("SC_PAGE_SIZE")

_DEVICE = frozenset(("io", "pf"))  # VM_IO, VM_PFNMAP
_WATCHED = frozenset(("um", "uw", "ui"))  # ranges of a userfaultfd: somebody else fills what is absent
_MAPS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{3})(\S) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+) *(.*)")
_KERNELS_OWN = ("[vdso]", "[vectors]", "[sigpage]", "[uprobes]")
_NO_FILES = ("/dev/zero", "/anon_hugepage (deleted)")  # private mappings of these are anonymous


@dataclass(frozen=True)
class Mapping:
    """One mapping, and what it costs by ``smaps``; all figures in bytes.

    :param rss: resident.
    :param pss: resident, shared pages divided by their number of users.
    :param anon_huge: resident in transparent huge pages.
    :param swap: swapped out.
    :param huge: resident in pages of hugetlbfs, which ``rss`` leaves out.
    :param device: ``major:minor`` of the file system of the mapped file, hexadecimal.
    :param flags: ``VmFlags``; none where only ``maps`` was read.
    """

    start: int
    end: int
    name: str
    rss: int = 0
    pss: int = 0
    anon_huge: int = 0
    swap: int = 0
    huge: int = 0
    permissions: str = "rw-"
    shared: bool = False
    offset: int = 0
    device: str = "00:00"
    inode: int = 0
    flags: FrozenSet[str] = frozenset()

    @property
    def is_device(self) -> bool:
        """Whether its pages are a device's, or the kernel's clock: reading them may do anything."""
        return bool(self.flags & _DEVICE) or self.name.startswith(("[vvar", "[vsyscall]"))

    @property
    def is_watched(self) -> bool:
        """Whether somebody fills its pages by userfaultfd: what is absent there is not zeros."""
        return bool(self.flags & _WATCHED)

    @property
    def is_kernels(self) -> bool:
        """Whether the kernel put it there: its pages cost nothing to bring in."""
        return self.name in _KERNELS_OWN

    @property
    def starts_as_zeros(self) -> bool:
        """Whether a page that is neither there nor swapped is zeros."""
        if self.shared or self.is_watched or self.is_device or self.is_kernels or self.permissions == "---":
            return False
        return not self.inode or self.name in _NO_FILES

    @property
    def has_file(self) -> bool:
        """Whether a page that was never touched is that of a file or of shared memory."""
        if self.is_watched or self.is_device or self.permissions == "---":
            return False
        return bool(self.inode) and not self.starts_as_zeros


def read_mappings(pid: int, brief: bool = False) -> "list[Mapping]":
    """Return the mappings of a process, by address.

    :param brief: read ``maps`` alone, which walks no page: all figures are 0, and devices are not known.
    :raises NoTargetError: when the process is gone, or has no memory of its own.
    :raises GdbextError: when it may not be read.
    """
    name = "maps" if brief or not os.path.exists(f"/proc/{pid}/smaps") else "smaps"
    text = read_proc(pid, name)
    found = [_mapping(*section) for section in _sections(pid, text)] if text else []
    if not found:
        raise gone(pid)
    return found


def _mapping(head: "re.Match[str]", figures: "dict[str, str]") -> Mapping:
    start, end, permissions, kind, offset, device, inode, name = head.groups()

    def size(*keys: str) -> int:
        return sum(int(figures.get(key, "0 kB").split()[0]) for key in keys) * 1024

    return Mapping(
        int(start, 16), int(end, 16), name.replace("\\012", "\n"), size("Rss"), size("Pss"), size("AnonHugePages"),
        size("Swap"), size("Private_Hugetlb", "Shared_Hugetlb"), permissions, kind == "s", int(offset, 16), device,
        int(inode), frozenset(figures.get("VmFlags", "").split()),
    )  # fmt: skip


def _sections(pid: int, text: str) -> "Iterator[Tuple[re.Match[str], dict[str, str]]]":
    head: "Optional[re.Match[str]]" = None
    figures: "dict[str, str]" = {}
    for line in text.rstrip("\n").split("\n"):  # a name may hold what else ends lines
        match = _MAPS.match(line)
        if match is None:
            key, colon, value = line.partition(":")
            if not colon or head is None:
                raise GdbextError(f"cannot understand a line of /proc/{pid}/maps: {line[:80]!r}")
            figures[key] = value
            continue
        if head is not None:
            yield head, figures
        head, figures = match, {}
    if head is not None:
        yield head, figures


def gone(pid: int) -> NoTargetError:
    """Return the error for a process that is gone."""
    return NoTargetError(f"process {pid} is gone, or has no memory of its own", "attach to a live one")


def open_proc(pid: int, name: str) -> int:
    """Open a file of ``/proc/PID`` for reading.

    :raises NoTargetError: when the process is gone.
    :raises GdbextError: when it may not be read.
    """
    try:
        return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _proc_error(pid, name, error) from None


def read_proc(pid: int, name: str) -> str:
    """Return a file of ``/proc/PID``; errors as :func:`open_proc`."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().decode("utf-8", "backslashreplace")
    except OSError as error:
        raise _proc_error(pid, name, error) from None


def read_status(pid: int) -> "dict[str, str]":
    """Return the fields of ``status`` of a process or a thread, without blanks around them; empty when it is gone.

    :raises GdbextError: when it may not be read.
    """
    try:
        lines = read_proc(pid, "status").split("\n")  # its name may hold what else ends lines
    except NoTargetError:
        return {}
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}


def _proc_error(pid: int, name: str, error: OSError) -> GdbextError:
    if isinstance(error, (FileNotFoundError, ProcessLookupError)):
        return gone(pid)
    return GdbextError(
        f"cannot read /proc/{pid}/{name}: {error.strerror}",
        "run as the process's user or as root, and see kernel.yama.ptrace_scope",
    )
