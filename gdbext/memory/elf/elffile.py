"""The few parts of ELF that memory forensics needs: headers, program headers, notes, build-ids.

Names are those of ``elf.h``. Everything here takes bytes of unknown honesty: counts and sizes are
bounded by the bytes at hand, and what does not fit is not there.
"""

from __future__ import annotations

import itertools
import os
import struct
from dataclasses import dataclass
from typing import Callable, Iterator, NamedTuple, Optional, Sequence

from gdbext.abi import Abi, ByteOrder
from gdbext.errors import FaultError
from gdbext.memory import Buffer

ET_CORE = 4
PT_LOAD, PT_NOTE = 1, 4
PF_X, PF_W, PF_R = 1, 2, 4
_PERMISSIONS = ("---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx")
PN_XNUM = 0xFFFF  # e_phnum is too small for the count; section header 0 has it in sh_info
NT_GNU_BUILD_ID = 3
SHT_DYNAMIC, SHT_NOTE = 6, 7
DT_SONAME = 14

MAGIC = b"\x7fELF"
MACHINES = {62: "x86-64", 3: "i386", 183: "aarch64"}
TYPES = {1: "an object file", 2: "an executable", 3: "a shared object or executable", 4: "a core"}

# more than any linker writes; they bound the work that a hostile image can ask for
_MODULE_SEGMENTS = 128
_MODULE_NOTES = 64
_NOTE_BYTES = 1 << 16
_SECTIONS = 1 << 16
_DEBUGLINK = b".gnu_debuglink\0"


class ElfHeader(NamedTuple):
    """The ELF header.

    :param type: ``e_type``.
    :param machine: ``e_machine``.
    :param phnum: ``e_phnum`` as written, :data:`PN_XNUM` included.
    :param shnum: ``e_shnum`` as written: 0 where section 0 has the count in sh_size.
    """

    pointer_size: int
    byteorder: ByteOrder
    type: int
    machine: int
    phoff: int
    shoff: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int

    @property
    def order_mark(self) -> str:
        """The byte order as struct writes it."""
        return "<" if self.byteorder == "little" else ">"

    @property
    def entry_size(self) -> int:
        """Bytes of one program header of this word size."""
        return 56 if self.pointer_size == 8 else 32

    def abi(self, page_size: int = 4096) -> Abi:
        """Return the ABI that the header announces."""
        machine = MACHINES.get(self.machine, str(self.machine))
        return Abi(self.pointer_size, self.byteorder, machine, page_size)


class Segment(NamedTuple):
    """A program header: ``p_type``, ``p_flags``, …, sizes in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    filesz: int
    memsz: int
    align: int

    @property
    def permissions(self) -> str:
        """The flags as ``rwx``."""
        return _PERMISSIONS[self.flags & 7]


class Section(NamedTuple):
    """A section header: ``sh_name``, ``sh_type``, …, offset and sizes in bytes."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Note(NamedTuple):
    """A note: its owner, type and contents."""

    owner: str
    type: int
    contents: Buffer


def find_header(data: Buffer) -> Optional[ElfHeader]:
    """Return the ELF header that ``data`` begins with, or None when there is no whole one."""
    head = bytes(data[:64])
    if len(head) < 52 or head[:4] != MAGIC or head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    wide = head[4] == 2
    if wide and len(head) < 64:
        return None
    order: ByteOrder = "little" if head[5] == 1 else "big"
    fields = struct.unpack_from(("<" if order == "little" else ">") + _HEADER[wide], head, 16)
    kind, machine, _, _, phoff, shoff, _, _, *tables = fields
    return ElfHeader(8 if wide else 4, order, kind, machine, phoff, shoff, *tables)


_HEADER = {True: "HHIQQQIHHHHHH", False: "HHIIIIIHHHHHH"}


def parse_segments(data: Buffer, header: ElfHeader) -> list[Segment]:
    """Return the program headers that ``data``, their table, holds whole."""
    size = header.entry_size
    table = memoryview(data)[: len(data) - len(data) % size]
    if header.pointer_size == 8:
        rows = struct.iter_unpack(header.order_mark + "IIQQQQQQ", table)
        return [Segment(t, fl, o, a, fs, ms, al) for t, fl, o, a, _, fs, ms, al in rows]
    rows = struct.iter_unpack(header.order_mark + "IIIIIIII", table)
    return [Segment(t, fl, o, a, fs, ms, al) for t, o, a, _, fs, ms, fl, al in rows]


def for_each_note(data: Buffer, byteorder: ByteOrder, align: int = 4) -> Iterator[Optional[Note]]:
    """Iterate over the notes in ``data``; None, and the end, where one does not fit.

    :param align: the segment's ``p_align``; contents are padded to 8 when it is 8, else to 4.
    """
    head = struct.Struct(("<" if byteorder == "little" else ">") + "III")
    mask = 7 if align == 8 else 3
    data = memoryview(data)
    at = 0
    while at + head.size <= len(data):
        namesz, descsz, kind = head.unpack_from(data, at)
        if not namesz and not descsz and not kind:  # padding; notes begin nowhere behind it
            yield from [None] if bytes(data[at:]).strip(b"\0") else []
            return
        name = at + head.size
        start = (name + namesz + mask) & ~mask
        if start + descsz > len(data):
            yield None
            return
        owner = bytes(data[name : name + namesz]).rstrip(b"\0").decode("ascii", "replace")
        yield Note(owner, kind, data[start : start + descsz])
        at = (start + descsz + mask) & ~mask


@dataclass(frozen=True)
class Image:
    """An ELF object as the target's memory holds it.

    :param base: address of its ELF header.
    :param bias: what is added to its addresses.
    :param end: first address after its last segment, rounded up to a page.
    :param build_id: hex, or None when memory does not hold it.
    """

    base: int
    bias: int
    end: int
    build_id: Optional[str]
    segments: Sequence[Segment]
    page_size: int

    @property
    def loads(self) -> list[Segment]:
        """The segments that the loader maps."""
        return [segment for segment in self.segments if segment.type == PT_LOAD]

    def find_segment(self, address: int) -> Optional[Segment]:
        """Return the loaded segment whose pages hold ``address``, or None.

        Where two share a page, the later one, which the loader mapped over the earlier.
        """
        page = (address - self.bias) // self.page_size
        found = None
        for segment in self.loads:
            first = segment.address // self.page_size
            last = (segment.address + segment.memsz - 1) // self.page_size
            if first <= page <= last:
                found = segment
        return found


def find_image(read: Callable[[int, int], Buffer], base: int, page_size: int = 4096) -> Optional[Image]:
    """Return the ELF object whose header lies at ``base``, or None when memory does not show one."""
    header = _find_mapped_header(read, base)
    if header is None or header.phentsize != header.entry_size or header.phnum > _MODULE_SEGMENTS:
        return None
    try:
        table = read(base + header.phoff, header.phnum * header.entry_size)
    except FaultError:
        return None
    segments = parse_segments(table, header)
    loads = [segment for segment in segments if segment.type == PT_LOAD]
    if not loads:
        return None
    mask = (1 << (8 * header.pointer_size)) - 1
    first = min(loads, key=lambda load: load.offset)
    bias = base - (first.address - first.offset)
    end = bias + max(load.address + load.memsz for load in loads)
    if end <= base or end > mask:
        return None
    build_id = _find_mapped_build_id(read, segments, bias, header.byteorder)
    return Image(base, bias, -(-end // page_size) * page_size, build_id, segments, page_size)


def _find_mapped_header(read: Callable[[int, int], Buffer], base: int) -> Optional[ElfHeader]:
    try:
        return find_header(read(base, 64))
    except FaultError:
        return None


def _find_mapped_build_id(
    read: Callable[[int, int], Buffer], segments: Sequence[Segment], bias: int, byteorder: ByteOrder
) -> Optional[str]:
    def contents(segment: Segment) -> Buffer:
        try:
            return read(bias + segment.address, segment.filesz)
        except FaultError:
            return b""

    return _find_build_id(segments, byteorder, contents)


def _find_build_id(
    segments: Sequence[Segment], byteorder: ByteOrder, contents: Callable[[Segment], Buffer]
) -> Optional[str]:
    notes = (
        note
        for segment in segments
        if segment.type == PT_NOTE and 0 < segment.filesz <= _NOTE_BYTES
        for note in for_each_note(contents(segment), byteorder, segment.align)
    )
    for note in itertools.islice(notes, _MODULE_NOTES):
        if note is not None and note.owner == "GNU" and note.type == NT_GNU_BUILD_ID and note.contents:
            return bytes(note.contents).hex()
    return None


def find_file_build_id(read: Callable[[int, int], Buffer]) -> Optional[str]:
    """Return the build-id of an ELF file, hex, or None.

    :param read: file offset and size to bytes; fewer at the end of the file.
    """
    header = find_header(read(0, 64))
    if header is None or header.phentsize != header.entry_size or header.phnum > _MODULE_SEGMENTS:
        return None
    segments = parse_segments(read(header.phoff, header.phnum * header.entry_size), header)
    return _find_build_id(segments, header.byteorder, lambda note: read(note.offset, note.filesz))


def find_section_build_id(read: Callable[[int, int], Buffer]) -> Optional[str]:
    """Return the build-id by the sections of an ELF file, as :func:`find_file_build_id`.

    Debug info in a file of its own has the program headers of the whole file, which lead nowhere in it.
    """
    header = find_header(read(0, 64))
    if header is None:
        return None
    notes = [
        Segment(PT_NOTE, 0, section.offset, section.address, section.size, section.size, section.align)
        for section in itertools.islice(read_sections(read, header), _SECTIONS)
        if section.type == SHT_NOTE
    ]
    return _find_build_id(notes[:_MODULE_SEGMENTS], header.byteorder, lambda note: read(note.offset, note.filesz))


def find_debuglink(read: Callable[[int, int], Buffer]) -> Optional[str]:
    """Return the name of an ELF file's separate debug file from its ``.gnu_debuglink``, or None.

    :param read: file offset and size to bytes; fewer at the end of the file.
    """
    head = bytes(read(0, 64))
    header = find_header(head)
    if header is None:
        return None
    sections = read_sections(read, header)
    if header.shstrndx >= len(sections):
        return None
    table = sections[header.shstrndx]
    names = bytes(read(table.offset, min(table.size, _NOTE_BYTES)))
    for section in sections:
        if names.startswith(_DEBUGLINK, section.name):
            return os.fsdecode(bytes(read(section.offset, min(section.size, 4096))).partition(b"\0")[0]) or None
    return None


def find_soname(read: Callable[[int, int], Buffer]) -> Optional[str]:
    """Return the name by which the linker knows a library, its ``DT_SONAME``, or None.

    :param read: file offset and size to bytes; fewer at the end of the file.
    """
    header = find_header(read(0, 64))
    sections = () if header is None else read_sections(read, header)
    for section in sections:
        if header is None or section.type != SHT_DYNAMIC or section.link >= len(sections):
            continue
        pair = struct.Struct(header.order_mark + ("QQ" if header.pointer_size == 8 else "II"))
        table = bytes(read(section.offset, min(section.size, _NOTE_BYTES)))
        for tag, value in pair.iter_unpack(table[: len(table) // pair.size * pair.size]):
            if tag == DT_SONAME:
                text = bytes(read(sections[section.link].offset + value, 256)).partition(b"\0")[0]
                return os.fsdecode(text) or None
    return None


def read_section_names(read: Callable[[int, int], Buffer], header: ElfHeader) -> Sequence[str]:
    """Return the names of an ELF file's sections, as :func:`read_sections`: none where it has no table of them."""
    sections = read_sections(read, header)
    if header.shstrndx >= len(sections):
        return ()
    table = sections[header.shstrndx]
    names = bytes(read(table.offset, min(table.size, _NOTE_BYTES)))
    return [names[section.name :].partition(b"\0")[0].decode("ascii", "replace") for section in sections]


def read_sections(read: Callable[[int, int], Buffer], header: ElfHeader) -> Sequence[Section]:
    """Return an ELF file's sections as far as the file holds them: none where it has none.

    :param read: file offset and size to bytes; fewer at the end of the file.
    """
    form = struct.Struct(header.order_mark + ("IIQQQQIIQQ" if header.pointer_size == 8 else "IIIIIIIIII"))
    if header.shentsize != form.size or not header.shoff:
        return ()
    count = header.shnum
    if not count:  # more than fit
        first = bytes(read(header.shoff, form.size))
        count = min(form.unpack(first)[5], _SECTIONS) if len(first) == form.size else 0
    table = bytes(read(header.shoff, count * form.size))
    return [Section(*row) for row in form.iter_unpack(table[: len(table) // form.size * form.size])]
