"""A core file's bytes and its tables: ELF header, program headers, notes.

Kernel cores (``fs/binfmt_elf.c``) hold the notes before the memory, gdb's gcore after it: a truncated
gcore has no threads and no file names, but its memory is as good.
"""

from __future__ import annotations

import errno
import itertools
import mmap as mapping
import os
from functools import cached_property
from typing import TYPE_CHECKING, Callable, NoReturn, Optional, Sequence

from gdbext.errors import BadCoreError
from gdbext.memory import Buffer
from gdbext.memory.elf.corenotes import KNOWN, CoreNotes, MappedFile, parse_core_notes
from gdbext.memory.elf.elffile import (
    ET_CORE,
    PN_XNUM,
    PT_LOAD,
    PT_NOTE,
    TYPES,
    ElfHeader,
    Image,
    Note,
    Segment,
    find_header,
    find_image,
    for_each_note,
    parse_segments,
)
from gdbext.memory.hostfiles import open_unless_special
from gdbext.memory.pieces import Source
from gdbext.report import Problem

if TYPE_CHECKING:
    from gdbext.memory.intervals import Coverage

_LITTLE = 64 << 20  # bytes: headers and notes of less are read wherever they lie
_TOLD = 20  # problems of one kind
_TOP = (1 << 64) - 4096  # ends are 64 bits wide, too, and no process has the last page
COPY = "copy what can be read, and examine the copy"
_AGAIN = "take the core again, with room on the disk and ulimit -c unlimited"


class CoreFile:
    """The bytes of a core.

    :param mmap: False reads with pread, as is also done where the file cannot be mapped.
    :raises BadCoreError: when it cannot be opened, is no file, or is empty.
    """

    def __init__(self, path: str, mmap: bool) -> None:
        self.path = path
        descriptor = _open(path)
        self._file = _PreadBytes(descriptor, path)
        self._facts = os.fstat(descriptor)
        self.size = self._facts.st_size
        self.mtime = self._facts.st_mtime
        self.held = max(512 * self._facts.st_blocks, _LITTLE)  # bytes: more headers and notes there cannot be
        if self.size == 0:
            raise BadCoreError(f"{path} is empty", "was it cut by a full disk or by ulimit -c?")
        self.data: Source = (_map(descriptor, self.size) if mmap else None) or self._file

    @cached_property
    def written(self) -> Optional[Coverage]:
        """Which bytes of a sparse file are no hole; None where it has no holes, or nobody can say."""
        from gdbext.memory.intervals import Coverage, columns  # numpy: headers and notes are read without it

        found = _find_written(self._file.descriptor, self._facts)
        return None if found is None else Coverage(*columns(found))

    def let_go(self) -> None:
        """Take what is mapped out of this process; the system may keep it, and it comes back when it is read."""
        mapped = self.data.obj if isinstance(self.data, memoryview) else None
        if isinstance(mapped, mapping.mmap) and hasattr(mapping, "MADV_DONTNEED"):
            mapped.madvise(mapping.MADV_DONTNEED)

    def is_changed(self) -> bool:
        """Whether it was written to since it was opened.

        :raises BadCoreError: when it is shorter now: what is mapped of it ends whoever reads it there.
        """
        facts = os.fstat(self._file.descriptor)
        if facts.st_size < self.size:
            raise shrunk()
        return facts.st_mtime_ns != self._facts.st_mtime_ns

    def read(self, offset: int, size: int) -> Buffer:
        """Return what the file holds of these bytes."""
        return self.data[min(offset, self.size) : min(offset + size, self.size)]


def _open(path: str) -> int:
    try:
        descriptor = open_unless_special(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "give the path of a core file that you may read"
        raise BadCoreError(f"cannot open {path}: {reason}", hint) from None
    if descriptor is None:
        raise BadCoreError(f"{path} is not a regular file", "give the path of a core file")
    return descriptor


def _map(descriptor: int, size: int) -> Optional[memoryview]:
    try:
        return memoryview(mapping.mmap(descriptor, size, access=mapping.ACCESS_READ))
    except (OSError, ValueError, OverflowError):
        return None  # file systems that cannot map, address space at its limit: pread serves


def _find_written(descriptor: int, facts: os.stat_result) -> Optional[list[tuple[int, int]]]:
    if 512 * facts.st_blocks >= facts.st_size or not hasattr(os, "SEEK_DATA"):
        return None
    found, at = [], 0
    try:
        while at < facts.st_size:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            found.append((start, at))
    except OSError as error:
        if error.errno != errno.ENXIO:  # behind the last data
            return None
    return found


class _PreadBytes:
    # slices of a file by pread; owns the descriptor

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self._path = path

    def __reduce__(self) -> NoReturn:  # a copy would close the descriptor too
        raise TypeError("an open core cannot be copied or pickled")

    def __getitem__(self, part: slice) -> Buffer:
        data = self._read(part.start, part.stop)
        while len(data) < part.stop - part.start:
            more = self._read(part.start + len(data), part.stop)
            if not more:
                raise shrunk()
            data += more
        return memoryview(data)

    def _read(self, start: int, end: int) -> bytes:
        try:
            return os.pread(self.descriptor, end - start, start)
        except OSError as error:
            raise unreadable(self._path, error) from None

    def __del__(self) -> None:
        os.close(self.descriptor)


def unreadable(path: str, error: OSError) -> BadCoreError:
    """Return why a core is not read further: its disk or its server fails."""
    return BadCoreError(f"cannot read {path}: {error.strerror}", COPY)


def shrunk() -> BadCoreError:
    """Return the error of a core that is shorter than it was when it was opened."""
    return BadCoreError("the core shrank while it was read", "copy it, and examine the copy")


def read_headers(file: CoreFile) -> tuple[ElfHeader, list[Segment]]:
    """Return the ELF header and all program headers.

    :raises BadCoreError: when it is no core, or these are not whole, or there is no memory among them.
    """
    header = find_header(file.read(0, 64))
    if header is None:
        raise BadCoreError(
            f"{file.path} is not an ELF file, or cut inside its header",
            "give a core file; unpack it first when it is packed",
        )
    if header.type != ET_CORE:
        what = TYPES.get(header.type, "an ELF file of unknown type")
        raise BadCoreError(f"{file.path} is {what}, not a core", "give the core file")
    if header.phentsize != header.entry_size:
        what = f"{file.path} has program headers of {header.phentsize} bytes, not {header.entry_size}"
        raise BadCoreError(what, _AGAIN)
    count = _count_segments(file, header)
    size = count * header.entry_size
    if header.phoff + size > file.size or size > file.held:
        raise BadCoreError(
            f"{file.path} is cut inside its {count} program headers, or damaged",
            _AGAIN,
        )
    segments = parse_segments(file.read(header.phoff, size), header)
    if not any(segment.type == PT_LOAD for segment in segments):
        raise BadCoreError(f"{file.path} holds no memory", _AGAIN)
    return header, segments


def _count_segments(file: CoreFile, header: ElfHeader) -> int:
    if header.phnum != PN_XNUM:
        return header.phnum
    # Since Linux 2.6.34, section header 0 has the count in sh_info; it comes after the memory, so that a
    # truncated core has lost it. There the notes, which follow the table, tell how long it is.
    at, size = (44, 4) if header.pointer_size == 8 else (28, 4)
    count = file.read(header.shoff + at, size) if header.shoff else b""
    if len(count) == size:
        return int.from_bytes(count, header.byteorder)
    first = parse_segments(file.read(header.phoff, header.entry_size), header)
    if first and first[0].type == PT_NOTE:
        found, odd = divmod(first[0].offset - header.phoff, header.entry_size)
        if found > 1 and not odd:
            last = parse_segments(file.read(first[0].offset - header.entry_size, header.entry_size), header)
            if last and last[0].type == PT_LOAD:
                return found
    raise BadCoreError(f"{file.path} is truncated, and with it the number of its mappings", _AGAIN)


def read_notes(
    file: CoreFile, header: ElfHeader, segments: Sequence[Segment]
) -> tuple[CoreNotes, list[Problem]]:
    """Return what the notes say, and what is wrong with them.

    :raises BadCoreError: when they would be more than is on the disk: in a hole of the file.
    """
    notes: list[Note] = []
    damage: list[str] = []
    budget = file.size  # segments that overlap must not multiply the work
    for segment in segments:
        if segment.type != PT_NOTE or budget <= 0:
            continue
        if min(segment.filesz, file.size - segment.offset) > file.held:
            what = f"{file.path} is damaged: of its {segment.filesz} bytes of notes most are in a hole of the file"
            raise BadCoreError(what, _AGAIN)
        data = file.read(segment.offset, segment.filesz)
        budget -= max(len(data), 64)
        if len(data) < segment.filesz:
            damage.append(f"the notes are cut off, {segment.filesz - len(data)} bytes of {segment.filesz}")
        for note in for_each_note(data, header.byteorder, segment.align):
            if note is None and len(data) == segment.filesz:
                damage.append("the notes do not fit into their segment")
            elif note is not None and note.type in KNOWN:
                notes.append(note)
    parsed = parse_core_notes(notes, header.abi())
    if not parsed.threads:
        damage.append("the core's notes name no thread")
    lines = dict.fromkeys(damage + list(parsed.damage))
    return parsed, [Problem("damaged-core", None, line) for line in itertools.islice(lines, _TOLD)]


def settle_loads(segments: Sequence[Segment], header: ElfHeader) -> tuple[list[Segment], list[Problem]]:
    """Return the memory segments sorted and disjoint: of two that overlap the lower one keeps its bytes."""
    problems = []
    settled: list[Segment] = []
    floor, top = 0, min(1 << (8 * header.pointer_size), _TOP)
    for load in sorted((s for s in segments if s.type == PT_LOAD), key=lambda s: s.address):
        end = load.address + max(load.memsz, load.filesz)
        start = max(load.address, floor)
        if start > load.address or end > top:
            message = f"program header at {load.address:#x} overlaps another or the end of memory; cut"
            problems.append(Problem("damaged-core", load.address, message))
        if start < min(end, top):
            floor = min(end, top)
            skip = start - load.address
            size = floor - start, max(min(load.filesz - skip, floor - start), 0)
            settled.append(load if not skip and size == (load.memsz, load.filesz) else _cut(load, skip, *size))
    return settled, problems[:1]


def _cut(load: Segment, skip: int, size: int, held: int) -> Segment:
    return load._replace(offset=load.offset + skip, address=load.address + skip, filesz=held, memsz=size)


def check_truncation(file: CoreFile, segments: Sequence[Segment]) -> list[Problem]:
    """Return how much of the file is missing, as a problem or none.

    :raises BadCoreError: when nothing of the memory is left.
    """
    whole = max(segment.offset + segment.filesz for segment in segments)
    if whole <= file.size:
        return []
    if not any(load.type == PT_LOAD and load.filesz and load.offset < file.size for load in segments):
        raise BadCoreError(f"{file.path} is cut before its memory begins", _AGAIN)
    lost = [load for load in segments if load.type == PT_LOAD and load.offset + load.filesz > file.size]
    first = min(lost, key=lambda load: load.offset, default=None)
    address = first.address + max(file.size - first.offset, 0) if first else None
    message = f"the core is truncated: {whole - file.size} of {whole} bytes missing"
    return [Problem("truncated-core", address, message)]


def find_images(
    files: Sequence[MappedFile], read: Callable[[int, int], Buffer], page_size: int
) -> list[tuple[str, Image]]:
    """Return the ELF objects among the mapped files, each with its path, as far as the core holds their first page."""
    found: list[tuple[str, Image]] = []
    for file in files:
        if file.offset or (found and found[-1][0] == file.path and file.start < found[-1][1].end):
            continue
        image = find_image(read, file.start, page_size)
        if image is not None:
            found.append((file.path, image))
    return found
