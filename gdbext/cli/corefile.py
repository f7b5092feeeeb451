"""What the ``gdbext`` program must know of ELF files before gdb opens them.

A core names its executable in NT_FILE, and holds its build-id when the page with the ELF header was
dumped (bit 4 of the kernel's ``coredump_filter``, on by default). NT_AUXV's AT_PHDR leads to that page.
Cores are untrusted: every read is bounded by the file, every count by a limit.
"""

from __future__ import annotations

import bisect
import os
import struct
from dataclasses import dataclass
from typing import BinaryIO, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from gdbext.cli.failures import NoPermissionError
from gdbext.errors import BadCoreError

_ELF_MAGIC = b"\x7fELF"
_PT_LOAD, _PT_NOTE, _PT_PHDR = 1, 4, 6
_ET_CORE = 4
_PN_XNUM = 0xFFFF
_NT_AUXV, _NT_FILE, _NT_GNU_BUILD_ID = 6, 0x46494C45, 3
_AT_PHDR, _AT_PHNUM = 3, 5
_MOST_SEGMENTS = 1 << 20
_MOST_NOTES = 64 << 20  # bytes of notes: threads' registers and the list of files
_MOST_FILES = 1 << 16


class Segment(NamedTuple):
    """A program header, in file order; sizes in bytes."""

    kind: int
    offset: int
    address: int
    file_size: int


class Mapped(NamedTuple):
    """One line of NT_FILE: a stretch of a file in the target's memory; offset in bytes."""

    start: int
    end: int
    offset: int
    path: str


class Note(NamedTuple):
    """An ELF note."""

    owner: bytes
    kind: int
    data: bytes


class Elf:
    """An open ELF file: its header and program headers.

    :raises BadCoreError: when it is no ELF file or its headers make no sense.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        self.path = path
        ident = self.read(0, 16)
        if len(ident) < 16 or ident[:4] != _ELF_MAGIC or ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise BadCoreError(f"{path} is not an ELF file")
        self.wide = ident[4] == 2
        self.order = "<" if ident[5] == 1 else ">"
        self.kind, self.segments = self._headers()

    @property
    def is_core(self) -> bool:
        """Whether it says that it is a core."""
        return self.kind == _ET_CORE

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at a file offset."""
        if not 0 <= offset < self.size:
            return b""
        self._file.seek(offset)
        return self._file.read(size)

    def unpack(self, letters: str, data: bytes, offset: int = 0) -> tuple[int, ...]:
        """Unpack in the file's byte order; ``W`` stands for its word."""
        layout = self.order + letters.replace("W", "Q" if self.wide else "I")
        if len(data) < offset + struct.calcsize(layout):
            raise BadCoreError(f"{self.path} ends within its headers", "was it copied whole?")
        return struct.unpack_from(layout, data, offset)

    def _headers(self) -> tuple[int, list[Segment]]:
        header = self.read(0, 64)
        kind, _, _, _, table, sections, _, _, step, count = self.unpack("HHIWWWIHHH", header, 16)
        if count == _PN_XNUM:
            count = self._true_count(sections)
        if count and step < (56 if self.wide else 32):
            raise BadCoreError(f"{self.path} has program headers of {step} bytes")
        data = self.read(table, step * min(count, _MOST_SEGMENTS))
        return kind, [self.segment(data, at) for at in range(0, len(data) - step + 1, step or 1)]

    def _true_count(self, sections: int) -> int:
        """Return the number of program headers where it exceeds 65534: ``sh_info`` of section 0."""
        data = self.read(sections, 64)
        return self.unpack("I", data, 44 if self.wide else 28)[0]

    def segment(self, data: bytes, at: int) -> Segment:
        """Return the program header at ``data[at:]``."""
        if self.wide:
            kind, _, offset, address, _, size = self.unpack("IIQQQQ", data, at)
        else:
            kind, offset, address, _, size = self.unpack("IIIII", data, at)
        return Segment(kind, offset, address, size)

    def notes(self) -> Iterator[Note]:
        """Iterate over all notes in the file's PT_NOTE segments."""
        left = _MOST_NOTES
        for segment in self.segments:
            if segment.kind == _PT_NOTE and left > 0:
                data = self.read(segment.offset, min(segment.file_size, left))
                left -= max(len(data), 1)
                yield from self.notes_in(data)

    def notes_in(self, data: bytes) -> Iterator[Note]:
        """Iterate over the notes in a note segment's bytes."""
        at = 0
        while at + 12 <= len(data):
            name, size, kind = self.unpack("III", data, at)
            start = at + 12 + (name + 3 & ~3)
            owner = data[at + 12 : at + 12 + name].rstrip(b"\0")
            yield Note(owner, kind, data[start : start + size])
            at = start + (size + 3 & ~3)


@dataclass(frozen=True)
class CoreFacts:
    """What a core says of the files it is of; None and empty where it does not say.

    :param exe: path of the executable as the target saw it.
    :param build_id: the executable's, hex, from the core's own memory.
    :param mapped: the files of NT_FILE.
    :param build_ids: of all mapped files whose first page is in the core, by path.
    """

    exe: Optional[str]
    build_id: Optional[str]
    mapped: Sequence[Mapped]
    build_ids: Mapping[str, str]


def read_core(path: str) -> CoreFacts:
    """Return what the core at ``path`` says of its files.

    :raises BadCoreError: when there is no such file, or it is not a core.
    :raises NoPermissionError: when it may not be read.
    """
    with open_binary(path) as file:
        head = file.read(4)
        if not head:
            raise BadCoreError(f"{path} is empty", "was it cut by a full disk or by ulimit -c?")
        if head != _ELF_MAGIC:
            raise BadCoreError(f"{path} is not a core", "the kernel and gcore write cores, as ELF files")
        elf = Elf(file, path)
        if not elf.is_core:
            raise BadCoreError(f"{path} is an ELF file but not a core", "an executable is named with --exe")
        _check_notes(elf)
        return _facts(elf)


def _check_notes(elf: Elf) -> None:
    """Refuse what gdb calls "not a core dump": gcore writes the notes last, and a cut takes them first."""
    if any(segment.kind == _PT_NOTE and segment.offset + segment.file_size > elf.size for segment in elf.segments):
        whole = max(segment.offset + segment.file_size for segment in elf.segments)
        raise BadCoreError(
            f"{elf.path} is truncated: {whole - elf.size} of {whole} bytes are missing, and with them the "
            "notes, without which gdb does not open a core",
            "take the core again, with room on the disk",
        )


def read_build_id(path: str) -> Optional[str]:
    """Return the build-id of an ELF file, hex, or None when it has none.

    :raises BadCoreError: when there is no such file, or it is not an ELF file.
    :raises NoPermissionError: when it may not be read.
    """
    with open_binary(path) as file:
        return _build_id(Elf(file, path).notes())


def open_binary(path: str) -> BinaryIO:
    """Open a regular file to read; errors as :func:`read_core`."""
    try:
        if not os.path.isfile(path):
            reason = "is not a file" if os.path.exists(path) else "does not exist"
            raise BadCoreError(f"{path} {reason}")
        return open(path, "rb")
    except PermissionError:
        raise NoPermissionError(f"{path} may not be read", "run as its owner or as root") from None


def _facts(elf: Elf) -> CoreFacts:
    notes: dict[int, bytes] = {}
    for note in elf.notes():
        if note.owner == b"CORE":
            notes.setdefault(note.kind, note.data)
    auxv = _auxv(elf, notes.get(_NT_AUXV, b""))
    mapped = _mapped(elf, notes.get(_NT_FILE, b""))
    memory = _Memory(elf)
    table = auxv.get(_AT_PHDR)
    exe = next((item.path for item in mapped if table and item.start <= table < item.end), None)
    build_ids = dict(_module_build_ids(elf, memory, mapped))
    build_id = memory.build_id(table, auxv.get(_AT_PHNUM, 0)) if table else None
    return CoreFacts(exe, build_id or build_ids.get(exe or ""), mapped, build_ids)


def _auxv(elf: Elf, data: bytes) -> dict[int, int]:
    step = 16 if elf.wide else 8
    pairs = (elf.unpack("WW", data, at) for at in range(0, len(data) - step + 1, step))
    return {pair[0]: pair[1] for pair in pairs}


def _mapped(elf: Elf, data: bytes) -> list[Mapped]:
    word = 8 if elf.wide else 4
    if len(data) < 2 * word:
        return []
    count, page = elf.unpack("WW", data)
    count = min(count, _MOST_FILES, len(data) // (3 * word))
    names = data[2 * word + 3 * word * count :].split(b"\0")
    ranges = (elf.unpack("WWW", data, word * (2 + 3 * at)) for at in range(count))
    return [
        Mapped(start, end, offset * page, os.fsdecode(name))
        for (start, end, offset), name in zip(ranges, names)
    ]


def _module_build_ids(elf: Elf, memory: "_Memory", mapped: Sequence[Mapped]) -> Iterator[tuple[str, str]]:
    for item in mapped:
        if item.offset:
            continue
        header = memory.read(item.start, 64)
        if len(header) == 64 and header[:4] == _ELF_MAGIC:
            table = elf.unpack("W", header, 32 if elf.wide else 28)[0]
            count = elf.unpack("H", header, 56 if elf.wide else 44)[0]
            build_id = memory.build_id(item.start + table, count)
            if build_id:
                yield item.path, build_id


class _Memory:
    """The target's memory as far as the core holds it."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        loads = (segment for segment in elf.segments if segment.kind == _PT_LOAD and segment.file_size)
        self._loads = sorted(loads, key=lambda load: load.address)
        self._starts = [load.address for load in self._loads]

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer at the end of a segment, none where the core holds none."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return b""
        load = self._loads[at]
        inside = address - load.address
        return self._elf.read(load.offset + inside, max(min(size, load.file_size - inside), 0))

    def build_id(self, table: int, count: int) -> Optional[str]:
        """Return the build-id of the module whose program headers are at ``table``, or None."""
        step = 56 if self._elf.wide else 32
        data = self.read(table, step * min(count, 64))
        segments = [self._elf.segment(data, at) for at in range(0, len(data) - step + 1, step)]
        bias = self._bias(table, segments)
        for segment in segments:
            if segment.kind == _PT_NOTE and bias is not None:
                notes = self.read(bias + segment.address, min(segment.file_size, 1 << 16))
                build_id = _build_id(self._elf.notes_in(notes))
                if build_id:
                    return build_id
        return None

    def _bias(self, table: int, segments: Sequence[Segment]) -> Optional[int]:
        """Return what is added to the file's addresses, or None when the headers do not tell."""
        for segment in segments:
            if segment.kind == _PT_PHDR:
                return table - segment.address
        for segment in segments:
            if segment.kind == _PT_LOAD and segment.offset == 0:
                return table - (64 if self._elf.wide else 52) - segment.address
        return None


def _build_id(notes: Iterable[Note]) -> Optional[str]:
    found = (note.data.hex() for note in notes if note.owner == b"GNU" and note.kind == _NT_GNU_BUILD_ID)
    return next(found, None) or None
