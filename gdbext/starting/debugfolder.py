"""A folder of debug info, whatever its files are called, as one that gdb finds files in by build-id."""

from __future__ import annotations

import os
from typing import Iterator, Optional, Tuple

from gdbext.memory.elf.elffile import (
    ET_CORE,
    find_file_build_id,
    find_header,
    find_section_build_id,
    read_section_names,
    read_sections,
)
from gdbext.memory.hostfiles import open_regular, pread
from gdbext.starting.specialfiles import link

_INDEX = ".build-id"
_MOST = 500_000  # files
_SHT_NOBITS, _SHF_EXECINSTR = 8, 4
_DEBUG_INFO = {".debug_info", ".zdebug_info"}


def with_index(folder: str, made: str) -> str:
    """Return the folder as gdb takes it, with another one behind it where its files are not arranged by build-id.

    :param made: becomes that other one, of links; it must outlive gdb.
    """
    if os.path.isdir(os.path.join(folder, _INDEX)):
        return folder
    for path in _for_each_file(folder):
        for name in _names(path):
            link(path, os.path.join(made, _INDEX, name))
    return os.pathsep.join((folder, made)) if os.path.isdir(os.path.join(made, _INDEX)) else folder


def _for_each_file(top: str) -> Iterator[str]:
    """Iterate over the files below a folder in an order that stays; links of folders are not followed."""
    count = 0
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > _MOST:
                return
            yield os.path.join(folder, name)


def _names(path: str) -> Iterator[str]:
    """Iterate over the names by which gdb finds a file: as debug info, as a program or library."""
    descriptor = open_regular(path)
    if descriptor is None:
        return
    try:
        build_id, is_debug, is_code = _examine(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
    if build_id is not None and len(build_id) > 2:
        name = os.path.join(build_id[:2], build_id[2:])
        yield from [f"{name}.debug"] if is_debug else []
        yield from [name] if is_code else []


def _examine(descriptor: int) -> Tuple[Optional[str], bool, bool]:
    """Return a file's build-id, and whether it has debug info, and code."""

    def read(offset: int, size: int) -> bytes:
        return pread(descriptor, offset, size)

    header = find_header(read(0, 64))
    if header is None or header.type == ET_CORE:
        return None, False, False
    code = [one for one in read_sections(read, header) if one.flags & _SHF_EXECINSTR]
    return (
        find_section_build_id(read) or find_file_build_id(read),
        not _DEBUG_INFO.isdisjoint(read_section_names(read, header)),
        any(one.type != _SHT_NOBITS for one in code),
    )
