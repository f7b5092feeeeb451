"""A Linux core file as memory, without gdb.

Every mapping of the process becomes regions by where its bytes are:

* what the core holds is ``memory``, read from a mapping of the core clamped to the file's size (touching
  a mapping past the end of a truncated file would raise SIGBUS and kill gdb);
* what the kernel or gcore left out (``p_filesz < p_memsz``, or an ``NT_FILE`` line without a program
  header) is unknown, not zeros. It is filled from the file that backs it (``file``) only where the
  mapping and the ELF segment under it are read-only, which leaves out RELRO, and the file's build-id
  equals the one in the core's memory. Everything else is ``absent``, and a problem unless it is a data file
  (mapped in one piece, not to be executed), as every program with a locale has;
* what a truncated file lost is ``absent``.

A snapshot's notes say which pages there were and what is mapped: its regions are those of the process.
"""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Iterable, Iterator, NamedTuple, Optional, Sequence

import numpy as np

from gdbext.memory import Region
from gdbext.memory.corefile import (
    CoreFile,
    check_truncation,
    find_images,
    read_headers,
    read_notes,
    settle_loads,
)
from gdbext.memory.elf.corenotes import AT_EXECFN, AT_RANDOM, AT_SYSINFO_EHDR, CoreNotes, MappedFile
from gdbext.memory.elf.elffile import PF_W, Image, Segment
from gdbext.memory.hostfiles import FindFile, HostFiles
from gdbext.memory.intervals import U64, Coverage, Mask
from gdbext.memory.pieces import Piece, PieceMemory, Source, closed
from gdbext.memory.room import find_room, resident_of_files
from gdbext.progress import relieve_with
from gdbext.report import Problem

if TYPE_CHECKING:
    from gdbext.memory.elf.snapshotpages import SnapshotPages

_VSYSCALL = 0xFFFFFFFFFF600000
_UNKNOWN = "???"
_LARGE = 1 << 28  # bytes of a core
_MOST_RESIDENT = 3 << 25  # bytes of files; what one step of a kernel reads comes on top


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
        self._open: Optional[CoreFile] = CoreFile(path, mmap)
        self._most_resident = 0
        header, segments = read_headers(self._file)
        problems = check_truncation(self._file, segments)
        loads, overlaps = settle_loads(segments, header)
        notes, note_problems = read_notes(self._file, header, segments)
        self.notes: CoreNotes = notes
        self.abi = header.abi(notes.page_size or 4096)
        self.mtime = self._file.mtime
        parts = list(_split(loads, self._file.size, notes))
        filler = _Filler(parts, self._file.data, notes, self.abi.page_size, HostFiles(sysroot, find_file))
        super().__init__(filler.pieces, filler.regions)
        self.pages, damage = self._find_pages()
        if self.pages is not None:
            self._regions = self.pages.regions()
        problems += note_problems + damage + overlaps + (filler.problems if self.pages is None else [])
        if not any(problem.kind == "truncated-core" for problem in problems):
            problems += _check_filter(filler.regions) if self.pages is None else self.pages.check()
        self.problems: Sequence[Problem] = tuple(problems)

    def _find_pages(self) -> "tuple[Optional[SnapshotPages], list[Problem]]":
        """Return what a snapshot knows of its pages; None of other cores, and of one whose notes are damaged."""
        if not self.notes.own:
            return None, []
        from gdbext.memory.elf.snapshotnotes import find_facts  # no other core needs them
        from gdbext.memory.elf.snapshotpages import SnapshotPages

        try:
            facts = find_facts(self.notes.own, self.abi)
        except ValueError as error:
            return None, [Problem("damaged-core", None, f"this snapshot is read as any core: {error}")]
        starts, ends, _ = self._held
        return (None if facts is None else SnapshotPages(facts, Coverage(starts, ends))), []

    @property
    def _file(self) -> CoreFile:
        if self._open is None:
            raise closed()
        return self._open

    def close(self) -> None:
        """Let go of the file, which is closed when nobody has a view of its bytes; reads raise NoTargetError then."""
        super().close()
        self._open = None

    def spare_memory(self, most: int) -> None:
        """Leave little of the core in this process from now on, where memory is short and the core large.

        :param most: bytes of our own that may be taken; 0: memory is short where less is free than the core holds.
        """
        if self._file.held > _LARGE:
            room = find_room()
            if most or (room is not None and room.bytes < self._file.held):
                self.bound_resident(_MOST_RESIDENT)

    def bound_resident(self, most: int) -> None:
        """Have the core's pages taken out of this process from now on, whenever more of files than that are in it.

        They are read again from the file when they are needed: with little memory the system need not look for pages
        that nobody uses any more, and our own memory stays where it is.

        :param most: bytes.
        """
        self._most_resident = most
        relieve_with(self)

    def relieve(self) -> None:
        """Take them out, where there are more."""
        if self._open is not None and resident_of_files() > self._most_resident:
            self._open.let_go()

    def check_reads(self) -> Sequence[Problem]:
        """Return a problem where the file was written to meanwhile.

        :raises BadCoreError: when it is shorter now.
        """
        if self._open is None or not self._open.is_changed():
            return ()
        what = "the core was written to while it was read: copy it, and examine the copy"
        return (Problem("changed-core", None, what),)

    def for_each_written(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Iterate over what the core holds between two addresses and is no hole of its file, in whole pages."""
        starts, ends = self._written
        at = bisect.bisect_right(ends, start) if start < end else len(ends)
        while at < len(starts) and starts[at] < end:
            yield max(starts[at], start), min(ends[at], end)
            at += 1

    @cached_property
    def _written(self) -> "tuple[array[int], array[int]]":
        """Starts and ends of the stretches, found at once: they are asked for tens of thousands of mappings."""
        if self.pages is not None:
            known = self.pages.written
            return array("Q", known.starts.tobytes()), array("Q", known.ends.tobytes())
        lows, highs, shifts = self._held
        starts, ends, written = lows, highs, self._file.written
        if written is not None and len(lows):
            first = written.ends.searchsorted(lows + shifts, side="right")
            count = written.starts.searchsorted(highs + shifts, side="left") - first
            piece = np.repeat(np.arange(len(lows)), count)
            at = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count - first, count)
            starts = np.maximum(written.starts[at], (lows + shifts)[piece]) - shifts[piece]
            ends = np.minimum(written.ends[at], (highs + shifts)[piece]) - shifts[piece]
            page = np.uint64(self.abi.page_size)
            ends = np.minimum(ends + -ends % page, highs[piece])
            starts = np.maximum(starts - starts % page, lows[piece])
            starts[1:] = np.maximum(starts[1:], np.maximum.accumulate(ends)[:-1])
        kept = starts < ends
        return array("Q", starts[kept].tobytes()), array("Q", ends[kept].tobytes())

    def untouched(self, addresses: U64) -> Mask:
        """Return which addresses lie in a hole of the file: nothing was written there, and they are zeros."""
        if self.pages is not None:
            return self.pages.untouched.holds(addresses)
        found, written = np.zeros(len(addresses), np.bool_), self._file.written
        starts, ends, shifts = self._held
        if written is None or not len(starts):
            return found
        at = np.maximum(starts.searchsorted(addresses, side="right") - 1, 0)
        inside = np.flatnonzero((addresses >= starts[at]) & (addresses < ends[at]))
        found[inside] = ~written.holds(addresses[inside] + shifts[at[inside]])
        return found

    @cached_property
    def _held(self) -> "tuple[U64, U64, U64]":
        """Start, end, and what is added to an address to get the place in the file, of what the core holds."""
        held = [(start, end, shift % 2**64) for start, end, data, shift in self._pieces if data is self._file.data]
        starts, ends, shifts = np.array(held, np.uint64).reshape(-1, 3).T
        return starts, ends, shifts


def _split(loads: Sequence[Segment], file_size: int, notes: CoreNotes) -> Iterator[_Part]:
    special = _special_names(notes)
    starts = [file.start for file in notes.files]
    previous = 0
    for load in loads:
        yield from _file_parts(notes.files, starts, previous, load.address)
        previous = load.address + load.memsz
        name = ""
        for place, called in special:
            name = name or (called if load.address <= place < previous else "")
        for start, end, at, lost in _by_presence(load, file_size):
            for low, high, file in _by_file(notes.files, starts, start, end) if start < end else ():
                offset = file.offset + low - file.start if file else 0
                held = None if at is None else at + low - start
                yield _Part(low, high, load.permissions, file.path if file else name, offset, held, lost)
    yield from _file_parts(notes.files, starts, previous, 1 << 64)


def _by_presence(load: Segment, file_size: int) -> Iterator[tuple[int, int, Optional[int], bool]]:
    # tile a program header's memory: in the core, cut off from it, never dumped
    held = load.address + max(min(load.filesz, file_size - load.offset), 0)
    dumped = load.address + load.filesz
    yield load.address, held, load.offset, False
    yield held, dumped, None, True
    yield dumped, load.address + load.memsz, None, False


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
        self._mapped = Counter(file.path for file in notes.files)
        self.pieces: list[Piece] = [
            (part.start, part.end, data, part.at - part.start) for part in parts if part.at is not None
        ]
        self._held = PieceMemory(self.pieces, ())
        self._images = find_images(notes.files, self._held.read, page_size)
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
        hole = image is not None and segment is None  # between two segments: the loader leaves it as PROT_NONE
        if "w" not in part.permissions and not hole and not (segment and segment.flags & PF_W):
            end = self._fill_from_file(part, image)
        if part.start < end:
            yield _region(part, part.start, end, "file")
        if end < part.end:
            yield _region(part, end, part.end, "absent")

    def _fill_from_file(self, part: _Part, image: Optional[Image]) -> int:
        # add the piece, return where it ends
        if image is None and self._is_data(part):
            return part.start
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

    def _is_data(self, part: _Part) -> bool:
        # locale archives, caches, databases: they have no build-id, and nobody asks for their bytes
        return self._mapped[part.name] == 1 and "x" not in part.permissions

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
            more = f" and {len(by_name) - 3} more" if len(by_name) > 3 else ""
            names = ", ".join(list(by_name)[:3]) + more
            what = f"{sum(by_name.values())} bytes of mapped files are not in the core"
            yield Problem(kind, None, f"{what}, {_MISSING[kind]}: {names}")


_MISSING = {
    "no-build-id": "nor is a build-id to know them by",
    "build-id-mismatch": "and the files here have another build-id",
    "absent-file": "and the files are not here",
}


def _region(part: _Part, start: int, end: int, source: str) -> Region:
    offset = part.offset + start - part.start if part.name.startswith("/") else part.offset
    return Region(start, end, part.permissions, part.name, offset, source)


def _check_filter(regions: Sequence[Region]) -> list[Problem]:
    data = [region for region in regions if region.anonymous and region.writable]
    # No process is without a stack; gcore leaves out even the program headers of what it does not dump.
    if any(region.source == "memory" for region in data):
        return []
    absent = sum(region.size for region in data if region.source == "absent")
    left = f" ({absent} bytes left out)" if absent else ""
    message = f"the core holds no anonymous memory{left}: see coredump_filter in core(5)"
    return [Problem("filtered-core", None, message)]
