"""A stopped process of this machine as memory, and which of its pages are resident.

Bulk reads go through ``process_vm_readv(2)`` into one fresh buffer; small reads, and what it refuses (pages
without read permission), through ``/proc/PID/mem``. Neither writes to the process, but reading brings
swapped pages back in: ask for residency first.

The process must stay stopped: its mappings are read once.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import weakref
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Iterator, Optional, Sequence, TypeVar

import numpy as np
import numpy.typing as npt

from gdbext.errors import FaultError, GdbextError, NoTargetError
from gdbext.memory import Buffer, Region, RegionIndex

Mask = npt.NDArray[np.bool_]
_Entries = npt.NDArray[np.uint64]
_Answers = TypeVar("_Answers", _Entries, Mask)

_SMALL = 1 << 14  # below this, one pread is cheaper than a call through ctypes
_AT_ONCE = 1 << 28  # for one call: Ctrl-C is heard between calls
_ENTRIES = 1 << 16  # of pagemap, read at a time
_PRESENT, _SWAPPED = np.uint64(1 << 63), np.uint64(1 << 62)  # Documentation/admin-guide/mm/pagemap.rst
_FILE_OR_EXCLUSIVE = np.uint64(1 << 61 | 1 << 56)
_FRAME = np.uint64((1 << 55) - 1)
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


@dataclass(frozen=True)
class MappingUse:
    """What a mapping costs, from ``/proc/PID/smaps``; all figures in bytes.

    :param rss: resident.
    :param pss: resident, shared pages divided by their number of users.
    :param anon_huge: resident in transparent huge pages.
    :param swap: swapped out.
    """

    start: int
    end: int
    name: str
    rss: int
    pss: int
    anon_huge: int
    swap: int


class ProcessMemory:
    """The memory of a process of this machine.

    :param pid: as this machine numbers it.
    :raises NoTargetError: when there is no such process, or it has no memory any more.
    :raises GdbextError: when it may not be read.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor: Optional[int] = None
        self._regions = list(_parse_maps(pid, _read_proc(pid, "maps")))
        if not self._regions:
            raise _gone(pid)
        self._index = RegionIndex(self._regions)
        self._descriptor = _open_proc(pid, "mem")
        self._closing = weakref.finalize(self, os.close, self._descriptor)

    def regions(self) -> Sequence[Region]:
        """Return the mappings, sorted by address; ``[vvar]``, which cannot be read, is absent."""
        return self._regions

    def read(self, address: int, size: int) -> Buffer:
        """Return ``size`` bytes.

        :raises FaultError: when any of them cannot be read.
        :raises NoTargetError: when the process is gone.
        """
        if 0 <= size <= _SMALL:
            return self._read_file(address, size)
        return self._read_bulk(address, size)

    def view(self, address: int, size: int) -> Buffer:
        """As :meth:`read`: a live process is always copied."""
        return self.read(address, size)

    def close(self) -> None:
        """Close ``/proc/PID/mem``; small reads fail from then on."""
        self._closing()
        self._descriptor = None

    def _read_file(self, address: int, size: int) -> bytes:
        # The kernel stops at the first page that it cannot read; EOF means that the process is gone.
        if self._descriptor is None or not 0 <= address < 1 << 63:
            raise FaultError(address, size)
        try:
            data = os.pread(self._descriptor, size, address)
        except OSError:
            raise FaultError(address, size) from None
        if not data and size:
            raise _gone(self.pid)
        if len(data) < size:
            raise FaultError(address, size)
        return data

    def _read_bulk(self, address: int, size: int) -> memoryview:
        if not self._covers(address, size):
            raise FaultError(address, size)
        buffer = np.empty(size, np.uint8)
        view = memoryview(buffer)  # type: ignore[arg-type]
        done = 0
        while done < size:
            copied = _read_vm(self.pid, address + done, buffer, done)
            done += copied or self._copy_page(address, size, view, done)
        return view

    def _covers(self, address: int, size: int) -> bool:
        # before a buffer is made: a size read from damaged memory may be anything
        at = address
        for region in self._index.within(address, address + max(size, 0)):
            if region.start > at:
                return False
            at = region.end
        return size >= 0 and at >= address + size

    def _copy_page(self, address: int, size: int, view: memoryview, done: int) -> int:
        # what process_vm_readv refused, up to the next page
        step = min(_PAGE - (address + done) % _PAGE, size - done)
        try:
            view[done : done + step] = self._read_file(address + done, step)
        except FaultError:
            raise FaultError(address, size) from None
        return step


_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _find_readv() -> Any:
    # None where the C library lacks it
    function = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if function is not None:
        vector = ctypes.POINTER(_Vector)
        function.argtypes = (
            ctypes.c_int, vector, ctypes.c_ulong, vector, ctypes.c_ulong, ctypes.c_ulong,
        )  # fmt: skip
        function.restype = ctypes.c_ssize_t
    return function


_readv = _find_readv()


def _read_vm(pid: int, address: int, buffer: npt.NDArray[np.uint8], done: int) -> int:
    # bytes copied into buffer[done:], 0 when the kernel refuses
    if _readv is None:
        return 0
    length = min(len(buffer) - done, _AT_ONCE)
    local, remote = _Vector(buffer.ctypes.data + done, length), _Vector(address, length)
    copied = int(_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))
    if copied < 0 and ctypes.get_errno() == errno.ESRCH:
        raise _gone(pid)
    return max(copied, 0)


_MAPS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{3})\S ([0-9a-f]+) \S+ (\d+) *(.*)")


def _parse_maps(pid: int, text: str) -> Iterator[Region]:
    for line in text.splitlines():
        match = _MAPS.match(line)
        if match is None:
            raise GdbextError(f"cannot understand a line of /proc/{pid}/maps: {line[:80]!r}")
        start, end, permissions, offset, _, name = match.groups()
        name = name.replace("\\012", "\n")
        source = "absent" if name.startswith("[vvar") else "memory"
        yield Region(int(start, 16), int(end, 16), permissions, name, int(offset, 16), source)


def read_comm(pid: int, tid: int) -> str:
    """Return a thread's name.

    :raises NoTargetError: when the thread is gone.
    """
    return _read_proc(pid, f"task/{tid}/comm").rstrip("\n")


def read_smaps(pid: int) -> list[MappingUse]:
    """Return what every mapping costs, by address.

    :raises NoTargetError: when the process is gone.
    :raises GdbextError: when it may not be read.
    """
    uses = []
    for head, figures in _smaps_sections(_read_proc(pid, "smaps")):
        start, end, name = int(head[1], 16), int(head[2], 16), head[6].replace("\\012", "\n")
        rss, pss, huge, swap = (figures.get(key, 0) for key in ("Rss", "Pss", "AnonHugePages", "Swap"))
        uses.append(MappingUse(start, end, name, rss, pss, huge, swap))
    return uses


def _smaps_sections(text: str) -> Iterator[tuple["re.Match[str]", dict[str, int]]]:
    head: Optional["re.Match[str]"] = None
    figures: dict[str, int] = {}
    for line in text.splitlines():
        match = _MAPS.match(line)
        if match is None:
            key, _, value = line.partition(":")
            if value.endswith(" kB"):
                figures[key] = int(value[:-3]) * 1024
            continue
        if head is not None:
            yield head, figures
        head, figures = match, {}
    if head is not None:
        yield head, figures


def resident_pages(pid: int, start: int, end: int) -> Mask:
    """Return for every page from ``start`` to ``end`` whether it is in physical memory.

    The kernel's shared zero page counts here, though not in RSS. Eight bytes are read a page: leave out
    reservations (``---``), which may be terabytes.

    :raises NoTargetError: when the process is gone.
    :raises FaultError: when the kernel does not tell for these addresses.
    :raises GdbextError: when it may not be read.
    """
    return _pagemap_bits(pid, start, end, _PRESENT)


def unshared_pages(pid: int, start: int, end: int) -> Mask:
    """Return for every page whether it is a file's, or mapped here and nowhere else; errors as above.

    The zero page is neither, and nor is anonymous memory that a fork still shares.
    """
    return _pagemap_bits(pid, start, end, _FILE_OR_EXCLUSIVE)


def zero_pages(pid: int, start: int, end: int) -> Mask:
    """Return for every page whether it is the kernel's shared zero page; errors as above.

    None seems to be where the kernel keeps page frame numbers to itself: it tells them to root only.
    """
    frame = _zero_frame()
    wanted = _PRESENT | frame
    return _pagemap(pid, start, end, lambda entries: (entries & (_PRESENT | _FRAME) == wanted) & (frame != 0))


@lru_cache(maxsize=None)
def _zero_frame() -> np.uint64:
    # a page that was only read is the zero page; its frame number is 0 where the kernel does not tell
    page = np.frombuffer(mmap.mmap(-1, _PAGE, flags=_PRIVATE, prot=mmap.PROT_READ), np.uint8)
    page.any()
    start = int(page.ctypes.data)
    (entry,) = _pagemap(os.getpid(), start, start + _PAGE, lambda entries: entries & _FRAME)
    frame: np.uint64 = np.uint64(entry)
    return frame


def swapped_pages(pid: int, start: int, end: int) -> Mask:
    """Return for every page from ``start`` to ``end`` whether it is swapped out; errors as above."""
    return _pagemap_bits(pid, start, end, _SWAPPED)


def _pagemap_bits(pid: int, start: int, end: int, bit: np.uint64) -> Mask:
    return _pagemap(pid, start, end, lambda entries: (entries & bit) != 0)


def _pagemap(pid: int, start: int, end: int, wanted: Callable[[_Entries], _Answers]) -> _Answers:
    first, last = start // _PAGE, -(-end // _PAGE)
    descriptor = _open_proc(pid, "pagemap")
    try:
        parts = [
            wanted(_read_entries(descriptor, pid, at, min(_ENTRIES, last - at)))
            for at in range(first, last, _ENTRIES)
        ]
    finally:
        os.close(descriptor)
    return np.concatenate(parts) if parts else wanted(np.zeros(0, np.uint64))


def _read_entries(descriptor: int, pid: int, page: int, count: int) -> npt.NDArray[np.uint64]:
    try:
        data = os.pread(descriptor, 8 * count, 8 * page)
    except (OSError, OverflowError):
        data = b""
    if len(data) < 8 * count:
        if not os.path.exists(f"/proc/{pid}/task"):
            raise _gone(pid)
        raise FaultError(page * _PAGE, count * _PAGE, "the page map")
    return np.frombuffer(data, np.uint64)


def _gone(pid: int) -> NoTargetError:
    return NoTargetError(f"process {pid} is gone, or has no memory of its own", "attach to a live one")


def _open_proc(pid: int, name: str) -> int:
    try:
        return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _proc_error(pid, name, error) from None


def _read_proc(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().decode("utf-8", "backslashreplace")
    except OSError as error:
        raise _proc_error(pid, name, error) from None


def _proc_error(pid: int, name: str, error: OSError) -> GdbextError:
    if isinstance(error, (FileNotFoundError, ProcessLookupError)):
        return _gone(pid)
    return GdbextError(
        f"cannot read /proc/{pid}/{name}: {error.strerror}",
        "run as the process's user or as root, and see kernel.yama.ptrace_scope",
    )
