"""A Linux core file as memory, without gdb.

Every mapping of the process becomes regions by where its bytes are:

* what the core holds is ``memory``, read from a mapping of the core clamped to the file's size (touching
  a mapping past the end of a truncated file would raise SIGBUS and kill gdb);
* what the kernel or gcore left out (``p_filesz < p_memsz``, or an ``NT_FILE`` line without a program
  header) is unknown, not zeros. It is filled from the file that backs it (``file``) only where the
  mapping and the ELF segment under it are read-only, which leaves out RELRO, and the file's build-id
  equals the one in the core's memory. Everything else is ``absent``;
* what a truncated file lost is ``absent``.

Kernel cores (``fs/binfmt_elf.c``) hold the notes before the memory, gdb's gcore after it: a truncated
gcore has no threads and no file names, but its memory is as good.
"""

from __future__ import annotations

import bisect
import itertools
import mmap as mapping
import os
import stat
from typing import Callable, Iterable, Iterator, NamedTuple, Optional, Sequence

from gdbext.errors import BadCoreError
from gdbext.memory import Buffer, Region
from gdbext.memory.corenotes import (
    AT_EXECFN,
    AT_RANDOM,
    AT_SYSINFO_EHDR,
    KNOWN,
    CoreNotes,
    MappedFile,
    parse_core_notes,
)
from gdbext.memory.elf import (
    ET_CORE,
    PF_W,
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
from gdbext.memory.hostfiles import FindFile, HostFiles
from gdbext.memory.pieces import Piece, PieceMemory, Source
from gdbext.report import Problem

_VSYSCALL = 0xFFFFFFFFFF600000
_UNKNOWN = "???"
_TOLD = 20  # problems of one kind
_AGAIN = "take the core again, with room on the disk and ulimit -c unlimited"


class _Part(NamedTuple):
    # a stretch of a mapping with one source; ``at`` is its offset in the core, None when it is not there
    start: int
    end: int
    permissions: str
    name: str
    offset: int  # in the mapped file
    at: Optional[int]
    lost: bool  # cut off by truncation


class ElfCore(PieceMemory):
    """The memory of a core file.

    :param path: the core.
    :param sysroot: folder below which the files that it names are looked for, before their own path.
    :param find_file: given path and build-id, returns a file of this host to try first, or None.
    :param mmap: False reads with pread, for files that change or lie on odd file systems.
    :raises BadCoreError: when it is not a core that can be read, with what to do.
    """

    def __init__(
        self,
        path: str,
        *,
        sysroot: Optional[str] = None,
        find_file: Optional[FindFile] = None,
        mmap: bool = True,
    ) -> None:
        self.path = path
        self._file = _CoreFile(path, mmap)
        header, segments = _read_headers(self._file)
        problems = _check_truncation(self._file, segments)
        loads, overlaps = _settle_loads(segments, header)
        notes, note_problems = _read_notes(self._file, header, segments)
        self.notes: CoreNotes = notes
        self.abi = header.abi(notes.page_size or 4096)
        self.mtime = self._file.mtime
        parts = list(_split(loads, self._file.size, notes))
        filler = _Filler(parts, self._file.data, notes, self.abi.page_size, HostFiles(sysroot, find_file))
        super().__init__(filler.pieces, filler.regions)
        problems += note_problems + overlaps + filler.problems + _check_filter(filler.regions)
        self.problems: Sequence[Problem] = tuple(problems)


class _CoreFile:
    # the file's bytes, sliceable: mapped, or read when sliced

    def __init__(self, path: str, mmap: bool) -> None:
        self.path = path
        descriptor = _open(path)
        facts = os.fstat(descriptor)
        self.size = facts.st_size
        self.mtime = facts.st_mtime
        self.data: Source = _PreadBytes(descriptor)
        if self.size == 0:
            raise BadCoreError(f"{path} is empty", "was it cut by a full disk or by ulimit -c?")
        if mmap:
            self.data = _map(descriptor, self.size) or self.data

    def read(self, offset: int, size: int) -> Buffer:
        """Return what the file holds of these bytes."""
        return self.data[min(offset, self.size) : min(offset + size, self.size)]


def _open(path: str) -> int:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise BadCoreError(f"{path} is not a regular file", "give the path of a core file")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "give the path of a core file that you may read"
        raise BadCoreError(f"cannot open {path}: {reason}", hint) from None


def _map(descriptor: int, size: int) -> Optional[memoryview]:
    try:
        return memoryview(mapping.mmap(descriptor, size, access=mapping.ACCESS_READ))
    except (OSError, ValueError):
        return None  # file systems that cannot map, address space at its limit: pread serves


class _PreadBytes:
    # slices of a file by pread; owns the descriptor

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __getitem__(self, part: slice) -> Buffer:
        data = os.pread(self._descriptor, part.stop - part.start, part.start)
        while len(data) < part.stop - part.start:
            more = os.pread(self._descriptor, part.stop - part.start - len(data), part.start + len(data))
            if not more:
                raise BadCoreError("the core shrank while it was read", "copy it, and look at the copy")
            data += more
        return memoryview(data)

    def __del__(self) -> None:
        os.close(self._descriptor)


def _read_headers(file: _CoreFile) -> tuple[ElfHeader, list[Segment]]:
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
    if header.phoff + size > file.size:
        raise BadCoreError(
            f"{file.path} is cut inside its {count} program headers, or damaged",
            _AGAIN,
        )
    segments = parse_segments(file.read(header.phoff, size), header)
    if not any(segment.type == PT_LOAD for segment in segments):
        raise BadCoreError(f"{file.path} holds no memory", _AGAIN)
    return header, segments


def _count_segments(file: _CoreFile, header: ElfHeader) -> int:
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
        last = parse_segments(file.read(first[0].offset - header.entry_size, header.entry_size), header)
        if found > 1 and not odd and last and last[0].type == PT_LOAD:
            return found
    raise BadCoreError(f"{file.path} is truncated, and with it the number of its mappings", _AGAIN)


def _read_notes(
    file: _CoreFile, header: ElfHeader, segments: Sequence[Segment]
) -> tuple[CoreNotes, list[Problem]]:
    notes: list[Note] = []
    damage: list[str] = []
    budget = file.size  # segments that overlap must not multiply the work
    for segment in segments:
        if segment.type != PT_NOTE or budget <= 0:
            continue
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


def _settle_loads(segments: Sequence[Segment], header: ElfHeader) -> tuple[list[Segment], list[Problem]]:
    # sorted and disjoint: of two that overlap the lower one keeps its bytes
    problems = []
    settled: list[Segment] = []
    floor, top = 0, 1 << (8 * header.pointer_size)
    for load in sorted((s for s in segments if s.type == PT_LOAD), key=lambda s: s.address):
        end = load.address + max(load.memsz, load.filesz)
        start = max(load.address, floor)
        if start > load.address or end > top:
            message = f"program header at {load.address:#x} overlaps another or the end of memory; cut"
            problems.append(Problem("damaged-core", load.address, message))
        if start < min(end, top):
            floor = min(end, top)
            skip = start - load.address
            settled.append(
                Segment(
                    PT_LOAD, load.flags, load.offset + skip, start,
                    max(min(load.filesz - skip, floor - start), 0), floor - start, load.align,
                )  # fmt: skip
            )
    return settled, problems[:1]


def _split(loads: Sequence[Segment], file_size: int, notes: CoreNotes) -> Iterator[_Part]:
    special = _special_names(notes)
    starts = [file.start for file in notes.files]
    previous = 0
    for load in loads:
        yield from _file_parts(notes.files, starts, previous, load.address)
        previous = load.address + load.memsz
        name = next((name for at, name in special if load.address <= at < previous), "")
        held = max(min(load.filesz, file_size - load.offset), 0)
        edges = (load.address, load.address + held, load.address + load.filesz, previous)
        for start, end, at, lost in (
            (edges[0], edges[1], load.offset, False),
            (edges[1], edges[2], None, True),
            (edges[2], edges[3], None, False),
        ):
            for low, high, file in _by_file(notes.files, starts, start, end):
                yield _Part(
                    low, high, load.permissions,
                    file.path if file else name,
                    file.offset + low - file.start if file else 0,
                    None if at is None else at + low - start, lost,
                )  # fmt: skip
    yield from _file_parts(notes.files, starts, previous, 1 << 64)


def _file_parts(files: Sequence[MappedFile], starts: Sequence[int], start: int, end: int) -> Iterator[_Part]:
    # files mapped between two program headers: gcore leaves those out that it does not dump
    for low, high, file in _by_file(files, starts, start, end):
        if file is not None:
            yield _Part(low, high, _UNKNOWN, file.path, file.offset + low - file.start, None, False)


def _by_file(
    files: Sequence[MappedFile], starts: Sequence[int], start: int, end: int
) -> Iterator[tuple[int, int, Optional[MappedFile]]]:
    # tile start..end by what is mapped there
    at = max(bisect.bisect_right(starts, start) - 1, 0)
    while start < end:
        while at < len(files) and files[at].end <= start:
            at += 1
        file = files[at] if at < len(files) and files[at].start < end else None
        if file is None:
            yield start, end, None
            return
        if start < file.start:
            yield start, file.start, None
        low, start = max(start, file.start), min(end, file.end)
        yield low, start, file


def _special_names(notes: CoreNotes) -> list[tuple[int, str]]:
    named = [(notes.auxv.get(AT_SYSINFO_EHDR), "[vdso]"), (_VSYSCALL, "[vsyscall]")]
    # the kernel puts the program's name and its random bytes on the main stack
    stack = notes.auxv.get(AT_EXECFN) or notes.auxv.get(AT_RANDOM) or _main_stack_pointer(notes)
    named.append((stack, "[stack]"))
    return [(address, name) for address, name in named if address]


def _main_stack_pointer(notes: CoreNotes) -> Optional[int]:
    pid = notes.process.pid if notes.process else None
    return next((thread.stack_pointer for thread in notes.threads if thread.lwp == pid), None)


class _Filler:
    # turns parts into regions and pieces, taking from files what the core left out

    def __init__(
        self, parts: Sequence[_Part], data: Source, notes: CoreNotes, page_size: int, files: HostFiles
    ) -> None:
        self._page_size = page_size
        self._files = files
        self._missing: dict[str, dict[str, int]] = {}
        self.pieces: list[Piece] = [
            (part.start, part.end, data, part.at - part.start) for part in parts if part.at is not None
        ]
        self._held = PieceMemory(self.pieces, ())
        self._images = _find_images(notes.files, self._held.read, page_size)
        self._bases = [image.base for _, image in self._images]
        self.regions: list[Region] = [region for part in parts for region in self._place(part)]
        self.problems = list(self._tell_missing())

    def _place(self, part: _Part) -> Iterable[Region]:
        if part.at is not None:
            return [_region(part, part.start, part.end, "memory")]
        if part.lost or not part.name or part.name.startswith("["):
            return [_region(part, part.start, part.end, "absent")]
        return self._fill(part)

    def _fill(self, part: _Part) -> Iterable[Region]:
        image = self._find_image(part)
        segment = image.find_segment(part.start) if image else None
        if part.permissions == _UNKNOWN and segment is not None:
            part = part._replace(permissions=segment.permissions)
        end = part.start
        if "w" not in part.permissions and not (segment and segment.flags & PF_W):
            end = self._fill_from_file(part, image if segment else None)
        if part.start < end:
            yield _region(part, part.start, end, "file")
        if end < part.end:
            yield _region(part, end, part.end, "absent")

    def _fill_from_file(self, part: _Part, image: Optional[Image]) -> int:
        # add the piece, return where it ends
        if image is None or image.build_id is None:
            return self._miss("no-build-id", part)
        file = self._files.find(part.name, image.build_id)
        if file is None:
            mismatched = part.name in self._files.mismatched
            return self._miss("build-id-mismatch" if mismatched else "absent-file", part)
        end = min(part.end, part.start + max(file.size - part.offset, 0))
        if part.start < end:
            self.pieces.append((part.start, end, file, part.offset - part.start))
        return end

    def _find_image(self, part: _Part) -> Optional[Image]:
        at = bisect.bisect_right(self._bases, part.start) - 1
        if at < 0 or self._images[at][0] != part.name or part.start >= self._images[at][1].end:
            return None
        return self._images[at][1]

    def _miss(self, kind: str, part: _Part) -> int:
        by_name = self._missing.setdefault(kind, {})
        by_name[part.name] = by_name.get(part.name, 0) + part.end - part.start
        return part.start

    def _tell_missing(self) -> Iterator[Problem]:
        for kind, by_name in self._missing.items():
            names = ", ".join(list(by_name)[:3]) + (", …" if len(by_name) > 3 else "")
            what = f"{sum(by_name.values())} bytes of {len(by_name)} mapped files are not in the core"
            yield Problem(kind, None, f"{what}, {_MISSING[kind]}: {names}")


_MISSING = {
    "no-build-id": "nor is a build-id to know them by",
    "build-id-mismatch": "and the files here have another build-id",
    "absent-file": "and the files are not here",
}


def _region(part: _Part, start: int, end: int, source: str) -> Region:
    offset = part.offset + start - part.start if part.name.startswith("/") else part.offset
    return Region(start, end, part.permissions, part.name, offset, source)


def _find_images(
    files: Sequence[MappedFile], read: Callable[[int, int], Buffer], page_size: int
) -> list[tuple[str, Image]]:
    found: list[tuple[str, Image]] = []
    for file in files:
        if file.offset or (found and found[-1][0] == file.path and file.start < found[-1][1].end):
            continue
        image = find_image(read, file.start, page_size)
        if image is not None:
            found.append((file.path, image))
    return found


def _check_truncation(file: _CoreFile, segments: Sequence[Segment]) -> list[Problem]:
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


def _check_filter(regions: Sequence[Region]) -> list[Problem]:
    data = [region for region in regions if region.anonymous and region.writable]
    absent = sum(region.size for region in data if region.source == "absent")
    if not absent or any(region.source == "memory" for region in data):
        return []
    message = f"the core holds no anonymous memory ({absent} bytes left out): see coredump_filter in core(5)"
    return [Problem("filtered-core", None, message)]
