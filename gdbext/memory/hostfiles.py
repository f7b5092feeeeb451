"""The files that a core names, on the debugging host: believed only when their build-id is the core's.

A core is untrusted. A path in it must not make us open a device, a FIFO or ``/proc``, and what a file
holds counts only when it proves to be the one that the process had mapped.
"""

from __future__ import annotations

import mmap
import os
import stat
from typing import Callable, Optional

from gdbext.errors import FaultError
from gdbext.memory import Buffer
from gdbext.memory.elf.elffile import find_file_build_id

# path as the core names it, and build-id -> a file of this host to try, or None
FindFile = Callable[[str, str], Optional[str]]

_FORBIDDEN = ("/proc/", "/sys/", "/dev/")


class HostFile:
    """A file whose bytes are mapped at the first use and read by slices.

    :param facts: of the file when it was examined; it must still be the same then.
    """

    def __init__(self, path: str, facts: os.stat_result) -> None:
        self.path = path
        self.size = facts.st_size
        self._stamp = _stamp(facts)
        self._data: Optional[memoryview] = None

    def __getitem__(self, part: slice) -> Buffer:
        if self._data is None:
            self._data = self._find_mapped()
        if self._data is None:
            raise FaultError(part.start, part.stop - part.start, self.path)
        return self._data[part]

    def _find_mapped(self) -> Optional[memoryview]:
        try:
            with open(self.path, "rb") as file:
                if _stamp(os.fstat(file.fileno())) != self._stamp:
                    return None
                return memoryview(mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ))
        except (OSError, ValueError):
            return None


def _stamp(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


class HostFiles:
    """Finds the files that a core names.

    :param sysroot: folder below which they are looked for first, or None.
    :param find_file: asked first when given; what it returns is checked all the same.
    """

    def __init__(self, sysroot: Optional[str] = None, find_file: Optional[FindFile] = None) -> None:
        self._sysroot = sysroot
        self._find_file = find_file
        self._known: dict[tuple[str, str], Optional[HostFile]] = {}
        self._ids: dict[str, Optional[tuple[Optional[str], os.stat_result]]] = {}
        self.mismatched: set[str] = set()

    def find(self, path: str, build_id: str) -> Optional[HostFile]:
        """Return the file with that build-id, or None; a file with another one is noted as mismatched."""
        key = (path, build_id)
        if key not in self._known:
            self._known[key] = self._search(path, build_id)
        return self._known[key]

    def _search(self, path: str, build_id: str) -> Optional[HostFile]:
        for candidate in self._candidates(path, build_id):
            examined = self._examine(candidate)
            if examined is None:
                continue
            if examined[0] == build_id:
                self.mismatched.discard(path)
                return HostFile(candidate, examined[1])
            self.mismatched.add(path)
        return None

    def _candidates(self, path: str, build_id: str) -> list[str]:
        found = [self._find_file(path, build_id)] if self._find_file else []
        if self._sysroot is not None:
            found.append(os.path.join(self._sysroot, path.lstrip("/")))
        if path.startswith("/"):
            found.append(path)
        return [os.path.realpath(name) for name in found if name and "\0" not in name]

    def _examine(self, path: str) -> Optional[tuple[Optional[str], os.stat_result]]:
        if path not in self._ids:
            self._ids[path] = _examine(path)
        return self._ids[path]


def _examine(path: str) -> Optional[tuple[Optional[str], os.stat_result]]:
    # build-id and size of a regular file; None when there is none that may be opened
    descriptor = open_named(path)
    if descriptor is None:
        return None
    try:
        facts = os.fstat(descriptor)
        if facts.st_size == 0:
            return None
        return find_file_build_id(lambda offset, size: pread(descriptor, offset, size)), facts
    except OSError:
        return None
    finally:
        os.close(descriptor)


def open_named(path: str) -> Optional[int]:
    """Open a file that a core names, as :func:`open_regular`, but none of the kernel: reading it may do anything."""
    real = os.path.realpath(path) if "\0" not in path else None
    return None if real is None or real.startswith(_FORBIDDEN) else open_regular(real)


def open_regular(path: str) -> Optional[int]:
    """Open a file as :func:`open_unless_special`; None also where it may not be opened."""
    try:
        return open_unless_special(path)
    except (OSError, ValueError):
        return None


def open_unless_special(path: str) -> Optional[int]:
    """Open a regular file without waiting for it; None for anything else.

    :raises OSError: it is not there, or may not be opened.
    :raises ValueError: the path cannot be one.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def pread(descriptor: int, offset: int, size: int) -> bytes:
    """Read from a file; nothing where a hostile header's offset is beyond what the kernel takes."""
    return os.pread(descriptor, size, offset) if offset < 1 << 62 else b""
