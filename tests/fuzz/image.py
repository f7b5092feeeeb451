"""A core file as the mutators see it: where its tables and its memory lie, read here, not by gdbext."""

from __future__ import annotations

import bisect
import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator, Optional

PT_NULL, PT_LOAD, PT_NOTE = 0, 1, 4


@dataclass(frozen=True)
class Header:
    """A program header.

    :param at: offset in the file of the header itself.
    """

    at: int
    kind: int
    flags: int
    offset: int
    address: int
    filesz: int
    memsz: int


@dataclass(frozen=True)
class Note:
    """A note.

    :param at: offset in the file of its first word; ``data_at`` that of its contents.
    """

    at: int
    owner: bytes
    kind: int
    data_at: int
    size: int


@dataclass
class Mutation:
    """What is done to a core.

    :param patches: offsets in the file, and what is written there.
    :param size: where the file is cut; None is nowhere.
    :param what: one line that says what was done.
    :param reported: why a check must report it, in malloc's own words where malloc would abort; "" is nothing to state.
    :param lost: whether chunks of malloc's were taken out of the core, which says itself that they were there.
    :param usual: problems that the check of the undamaged core has: files that are not here.
    :param harmless: whether only what belongs to the program was written, so that no check may report anything.
    """

    patches: list[tuple[int, bytes]] = field(default_factory=list)
    size: Optional[int] = None
    what: str = ""
    reported: str = ""
    lost: bool = False
    usual: int = 0
    harmless: bool = False


class Image:
    """An undamaged core; its holes stay holes in what is written of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            self.data = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
            self._held = [(at, self.data[at:end]) for at, end in _written(file.fileno(), self.size)]
        self.word = 8 if self.data[4] == 2 else 4
        self._word_form = "Q" if self.word == 8 else "I"
        self.headers = list(self._headers())
        self.loads = sorted((one for one in self.headers if one.kind == PT_LOAD and one.filesz), key=_address)
        self._starts = [one.address for one in self.loads]
        self.notes = list(self._notes())

    @property
    def bytes(self) -> int:
        """What is written in it."""
        return sum(len(data) for _, data in self._held)

    def write(self, path: Path, mutation: Mutation) -> None:
        """Write the core with a mutation."""
        with open(path, "wb") as file:
            file.truncate(self.size)
            for at, data in [*self._held, *mutation.patches]:
                os.pwrite(file.fileno(), data, at)
            if mutation.size is not None:
                file.truncate(mutation.size)

    def find_offset(self, address: int, size: int = 1) -> Optional[int]:
        """Return where in the file some bytes of memory are, or None."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        load = self.loads[index]
        inside = address + size <= load.address + load.filesz
        return load.offset + address - load.address if inside else None

    def read(self, address: int, size: int) -> bytes:
        """Return some bytes of memory; none where they are not in the core."""
        at = self.find_offset(address, size)
        return b"" if at is None else self.data[at : at + size]

    def number(self, address: int, size: int = 0) -> Optional[int]:
        """Return an unsigned number of memory, a word by default; None where it is not in the core."""
        data = self.read(address, size or self.word)
        return int.from_bytes(data, "little") if data else None

    def unpack(self, form: str, at: int) -> tuple[int, ...]:
        """Return numbers of the file; ``W`` is a word."""
        return struct.unpack_from("<" + form.replace("W", self._word_form), self.data, at)

    def _headers(self) -> Iterator[Header]:
        (phoff,) = self.unpack("W", 32 if self.word == 8 else 28)
        size, count = self.unpack("HH", 54 if self.word == 8 else 42)
        for at in range(phoff, phoff + size * count, size):
            if self.word == 8:
                kind, flags, offset, address, _, filesz, memsz = self.unpack("II5Q", at)
            else:
                kind, offset, address, _, filesz, memsz, flags = self.unpack("7I", at)
            yield Header(at, kind, flags, offset, address, filesz, memsz)

    def _notes(self) -> Iterator[Note]:
        for header in self.headers:
            at, end = header.offset, header.offset + header.filesz
            while header.kind == PT_NOTE and at + 12 <= end:
                name, size, kind = self.unpack("III", at)
                data_at = at + 12 + name + -name % 4
                yield Note(at, self.data[at + 12 : at + 12 + name], kind, data_at, size)
                at = data_at + size + -size % 4


def _address(header: Header) -> int:
    return header.address


def _written(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Iterate over what is no hole of a file."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # nothing but a hole is left
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end
