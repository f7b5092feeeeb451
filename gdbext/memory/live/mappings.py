"""The mappings of a process and what the kernel counts of each: ``/proc/PID/maps`` and ``smaps``."""

from __future__ import annotations

import os
import re
from typing import Dict, FrozenSet, Iterator, NamedTuple, Tuple

from gdbext.errors import GdbextError, NoTargetError

PAGE = os.sysconf("SC_PAGE_SIZE")

_DEVICE = frozenset(("io", "pf"))  # VM_IO, VM_PFNMAP
_WATCHED = frozenset(("um", "uw", "ui"))  # ranges of a userfaultfd: somebody else fills what is absent
_HEAD = r"([0-9a-f]+)-([0-9a-f]+) (\S{3})(\S) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+) *(.*)"
_SECTION = re.compile(_HEAD + r"(?:\n|\Z)((?:[A-Z][^:\n]*:.*(?:\n|\Z))*)")  # a name may hold what else ends lines
_FIGURE = re.compile(r"(\w+):(.*)")
_Figures = Tuple[Tuple[int, int, int, int, int], FrozenSet[str]]  # rss, pss, anon_huge, swap, huge; flags
_KERNELS_OWN = ("[vdso]", "[vectors]", "[sigpage]", "[uprobes]")
_NO_FILES = ("/dev/zero", "/anon_hugepage (deleted)")  # private mappings of these are anonymous


class Mapping(NamedTuple):
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
    known: "Dict[str, _Figures]" = {}
    found = [_mapping(one, known) for one in _sections(pid, read_proc(pid, name))]
    if not found:
        raise gone(pid)
    return found


def _sections(pid: int, text: str) -> "Iterator[re.Match[str]]":
    at = 0
    while at < len(text):
        section = _SECTION.match(text, at)
        if section is None:
            line = text[at:].partition("\n")[0]
            raise GdbextError(f"cannot understand a line of /proc/{pid}/maps: {line[:80]!r}")
        yield section
        at = section.end()


def _mapping(section: "re.Match[str]", known: "Dict[str, _Figures]") -> Mapping:
    """Return a mapping; figures that others had too, as most of tens of thousands have, are understood once."""
    start, end, permissions, kind, offset, device, inode, name, text = section.groups()
    if text not in known:
        known[text] = _figures(text)
    sizes, flags = known[text]
    return Mapping(
        int(start, 16), int(end, 16), name.replace("\\012", "\n"), *sizes, permissions, kind == "s", int(offset, 16),
        device, int(inode), flags,
    )  # fmt: skip


def _figures(text: str) -> "_Figures":
    figures = dict(_FIGURE.findall(text))

    def size(*keys: str) -> int:
        return sum(int(figures.get(key, "0 kB").split()[0]) for key in keys) * 1024

    huge = size("Private_Hugetlb", "Shared_Hugetlb")
    sizes = size("Rss"), size("Pss"), size("AnonHugePages"), size("Swap"), huge
    return sizes, frozenset(figures.get("VmFlags", "").split())


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
