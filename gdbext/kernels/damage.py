"""Whether a library's file is whole: of one that was cut, the first call into what is missing ends gdb by SIGBUS.

Program headers, section table and section names must lie inside the file; linkers write the last two at its very end.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from gdbext.memory.elf.elffile import find_header, parse_segments, read_sections

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
        table = head[header.phoff : header.phoff + header.phentsize * header.phnum]
        ends = [segment.offset + segment.filesz for segment in parse_segments(table, header)]
        if size < (end := max([*ends, header.shoff + header.shentsize * header.shnum])):
            return f"it ends after {size} of {end} bytes"
        sections = read_sections(lambda offset, size: _read(file, offset, size), header)
        found = header.shstrndx < len(sections) and _NAME in _read(file, *sections[header.shstrndx][4:6])
        return "" if found else "the names of its sections are gone"


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(min(offset, 1 << 40))
    return file.read(min(size, 1 << 22))
