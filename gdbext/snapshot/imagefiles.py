"""ELF images that a process has mapped, as far as their pages are not in memory: they are taken from the files.

So the core has the whole of a program and its libraries, as the kernel's own has with bit 2 of ``coredump_filter``.
Other files may be of any size, and nobody looks for pointers in pages that the process never touched.
"""

from __future__ import annotations

import ctypes
import os
from typing import Iterator, Sequence, Tuple

from gdbext.memory.elf.elffile import MAGIC
from gdbext.memory.hostfiles import pread
from gdbext.memory.intervals import Coverage, clip, columns, gaps, joined, shared, subtract
from gdbext.memory.live.copying import CopyFile
from gdbext.memory.live.mappedfiles import MappedFiles
from gdbext.memory.live.mappings import PAGE, Mapping, read_mappings

_VDSO = "[vdso]"
_MOST = 1 << 30  # bytes of one mapping


def find_images(files: MappedFiles, mappings: Sequence[Mapping]) -> Coverage:
    """Return the private mappings of ELF files, as far as the files reach."""
    return Coverage(*columns((start, end) for _, start, end in _images(files, mappings)))


def fill_images(
    files: MappedFiles, mappings: Sequence[Mapping], file: CopyFile, copied: Coverage, lost: Coverage
) -> Coverage:
    """Put what was not copied of such mappings to its place; return what that is."""
    images = find_images(files, mappings)
    wanted = subtract(Coverage(*subtract(images, copied)[:2]), lost)[:2]
    file.add_places(wanted)
    starts, ends, _ = shared(Coverage(*wanted), file.places.covered)
    of = {start: mapping for mapping, start, _ in _images(files, mappings)}
    homes = images.starts[images.index(starts)]
    rows = zip(*(column.tolist() for column in (starts, ends, homes)))
    filled = [(low, high) for low, high, home in rows if files.read_into(of[home], low, file.at(low, high))]
    return Coverage(*joined(columns([*filled, *_fill_vdso(mappings, file, copied)])))


def _fill_vdso(mappings: Sequence[Mapping], file: CopyFile, copied: Coverage) -> Iterator[Tuple[int, int]]:
    """Take the kernel's own code from our own process, where it is the same there; iterate over what that is."""
    found = [
        next((one for one in every if one.name == _VDSO), None)
        for every in (mappings, read_mappings(os.getpid(), True))
    ]
    theirs, ours = found
    if theirs is None or ours is None or theirs.end - theirs.start != ours.end - ours.start:
        return
    code = ctypes.string_at(ours.start, ours.end - ours.start)
    parts = list(zip(*(column.tolist() for column in clip(copied, theirs.start, theirs.end))))
    missing = list(gaps(copied, theirs.start, theirs.end))
    file.add_places(columns(missing))
    same = [file.at(low, high) == code[low - theirs.start : high - theirs.start] for low, high in parts]
    for low, high in missing if parts and all(same) else ():
        file.at(low, high)[:] = code[low - theirs.start : high - theirs.start]
        yield low, high


def _images(files: MappedFiles, mappings: Sequence[Mapping]) -> "Iterator[Tuple[Mapping, int, int]]":
    for one in mappings:
        if one.shared or not one.has_file or one.end - one.start > _MOST:
            continue
        descriptor = files.find(one)
        if descriptor is None or pread(descriptor, 0, len(MAGIC)) != MAGIC:
            continue
        size = os.fstat(descriptor).st_size - one.offset
        end = min(one.end, one.start + max(size, 0) + -size % PAGE)
        if one.start < end:
            yield one, one.start, end
