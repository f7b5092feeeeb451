"""The files behind a process's mappings: what its page tables lack is read from them, so that it maps nothing.

A file counts only when it is the one that is mapped: same device and inode, or the same build-id. It is opened as the
process sees it (``/proc/PID/root``), by ``/proc/PID/map_files``, which the kernel opens to root, deleted files too, or
by what the process holds open (``exe``, ``fd``). Nothing is opened on file systems that may wait for somebody else, and
nothing but regular files.
"""

from __future__ import annotations

import os
import re
import weakref
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from gdbext.errors import GdbextError
from gdbext.memory import Buffer
from gdbext.memory.elf.elffile import find_file_build_id, find_image
from gdbext.memory.hostfiles import open_regular, pread
from gdbext.memory.live.mappings import PAGE, Mapping, read_proc

Reader = Callable[[int, int], Buffer]

# File systems whose files another program or machine answers for (/proc/PID/mountinfo, /proc/filesystems).
_REMOTE = re.compile(r"fuse|nfs|cifs|smb|9p|ceph|afs|coda|lustre|orangefs|pvfs|gfs2|ocfs2|virtiofs|vboxsf|davfs|autofs")
_GONE = " (deleted)"
_MOUNT = re.compile(r"\S+ \S+ \S+ \S+ (?P<at>\S+) .* - (?P<type>\S+) ", re.ASCII)


class MappedFiles:
    """Opens the files behind mappings, each once.

    :param pid: whose.
    :param read: reads memory that is there, for build-ids.
    """

    def __init__(self, pid: int, mappings: Sequence[Mapping], read: Reader) -> None:
        self._pid = pid
        self._mappings = mappings
        self._read = read
        self._open: Dict[Tuple[str, int, str], Optional[int]] = {}
        self._mounts: Optional[List[Tuple[str, str]]] = None

    def find(self, mapping: Mapping) -> Optional[int]:
        """Return a descriptor of the file behind a mapping, or None where it cannot be had."""
        key = (mapping.device, mapping.inode, mapping.name)
        if key not in self._open:
            descriptor = self._open[key] = None if self._is_remote(mapping.name) else self._find(mapping)
            if descriptor is not None:
                weakref.finalize(self, os.close, descriptor)
        return self._open[key]

    def read_into(self, mapping: Mapping, start: int, view: memoryview) -> bool:
        """Fill ``view`` with what the file has for the addresses from ``start`` on; False where it has nothing.

        The rest of a file's last page is zeros, as in memory.
        """
        descriptor = self.find(mapping)
        if descriptor is None:
            return False
        at, done = mapping.offset + start - mapping.start, 0
        while done < len(view):
            try:
                count = os.preadv(descriptor, [view[done:]], at + done)
            except OSError:
                return False
            if not count:
                return done > 0 and (at + len(view) - 1) // PAGE == (at + done - 1) // PAGE
            done += count
        return True

    def _find(self, mapping: Mapping) -> Optional[int]:
        for path in self._candidates(mapping):
            descriptor = open_regular(path)
            if descriptor is None:
                continue
            if self._is_same(descriptor, mapping):
                return descriptor
            os.close(descriptor)
        return None

    def _candidates(self, mapping: Mapping) -> Iterator[str]:
        folder = f"/proc/{self._pid}"
        if mapping.name.startswith("/") and not mapping.name.endswith(_GONE):
            yield f"{folder}/root{mapping.name}"
        yield f"{folder}/map_files/{mapping.start:x}-{mapping.end:x}"
        yield from _held(folder, mapping.name)

    def _is_same(self, descriptor: int, mapping: Mapping) -> bool:
        facts = os.fstat(descriptor)
        device = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}"
        if (device, facts.st_ino) == (mapping.device, mapping.inode):
            return True
        wanted = None if mapping.shared else self._find_build_id(mapping.name)
        return wanted is not None and wanted == find_file_build_id(lambda at, size: pread(descriptor, at, size))

    def _find_build_id(self, name: str) -> Optional[str]:
        first = next((one for one in self._mappings if one.name == name and not one.offset), None)
        image = None if first is None else find_image(self._read, first.start, PAGE)
        return image.build_id if image is not None else None

    def _is_remote(self, name: str) -> bool:
        if self._mounts is None:
            self._mounts = list(_mounts(self._pid))
        under = [(at, kind) for at, kind in self._mounts if name.startswith(at.rstrip("/") + "/")]
        return bool(under) and _REMOTE.match(max(under, key=lambda mount: len(mount[0]))[1]) is not None


def _mounts(pid: int) -> Iterator[Tuple[str, str]]:
    try:
        text = read_proc(pid, "mountinfo")
    except GdbextError:
        return
    for match in map(_MOUNT.match, text.split("\n")):
        if match is not None:
            yield match["at"].replace("\\040", " "), match["type"]


def _held(folder: str, name: str) -> Iterator[str]:
    # what a process holds open under that very name
    try:
        numbers = os.listdir(f"{folder}/fd")
    except OSError:
        numbers = []
    for link in (f"{folder}/exe", *(f"{folder}/fd/{number}" for number in numbers)):
        try:
            if os.readlink(link) == name:
                yield link
        except OSError:
            continue
