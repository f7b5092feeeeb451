"""Whether a library's file is whole: of one that was cut, the first call into what is missing ends gdb by SIGBUS.

Program headers, section table and section names must lie inside the file; linkers write the last two at its very end.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from gdbext.memory.elf.elffile import ElfHeader, find_header, parse_segments

# By size of a pointer: where e_shentsize stands; and in a section header sh_offset, before sh_size.
_FIELDS = {8: (58, 24, "QQ"), 4: (46, 16, "II")}
_NAME = b"\0.dynsym\0"  # every library has such a section


def find_damage(path: str) -> str:
    """Return what is wrong with a library's file, or nothing; what is no ELF file the loader refuses by itself.

    :raises OSError: when it cannot be read.
    """
    with open(path, "rb") as file:
        head, size = file.read(4096), os.fstat(file.fileno()).st_size
        header = find_header(head)
        if header is None:
            return ""
        entry, count, names = struct.unpack_from(f"{header.order_mark}HHH", head, _FIELDS[header.pointer_size][0])
        table = head[header.phoff : header.phoff + header.phentsize * header.phnum]
        ends = [segment.offset + segment.filesz for segment in parse_segments(table, header)]
        if size < (end := max([*ends, header.shoff + entry * count])):
            return f"it ends after {size} of {end} bytes"
        found = _NAME in _read_section(file, header, header.shoff + entry * names)
        return "" if found else "the names of its sections are gone"


def _read_section(file: BinaryIO, header: ElfHeader, at: int) -> bytes:
    _, skipped, form = _FIELDS[header.pointer_size]
    file.seek(at + skipped)
    data = file.read(2 * header.pointer_size)
    if len(data) < 2 * header.pointer_size:
        return b""
    offset, size = struct.unpack(header.order_mark + form, data)
    file.seek(min(offset, 1 << 40))
    return file.read(min(size, 1 << 16))
