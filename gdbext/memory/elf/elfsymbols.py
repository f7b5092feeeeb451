"""The variables that an ELF file's symbol table names, as columns: addresses, sizes, names.

Names of structures are those of ``elf.h``. The bytes are of unknown honesty: what does not fit is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.memory import Buffer
from gdbext.memory.elf.elffile import PT_LOAD, ElfHeader, Section, Segment, find_header, parse_segments, read_sections

U64 = npt.NDArray[np.uint64]

PT_TLS = 7
SHT_SYMTAB, SHT_DYNSYM = 2, 11
STT_OBJECT, STT_COMMON, STT_TLS = 1, 5, 6
STB_LOCAL = 0
SHN_UNDEF, SHN_ABS = 0, 0xFFF1

_NAME = 4096


@dataclass(frozen=True)
class Variables:
    """Variables, sorted by address.

    :param address: as the file has it, or, after :meth:`moved`, in the target; of thread-local ones from the start of
        the module's block.
    :param size: bytes.
    :param local: whether no other file sees it by its name: a static.
    """

    address: U64
    size: U64
    local: "npt.NDArray[np.bool_]"
    _names: "npt.NDArray[np.uint32]"
    _strings: Buffer

    def __len__(self) -> int:
        return len(self.address)

    def name(self, at: int) -> str:
        """Return a variable's name as the linker has it (mangled), without its version."""
        start = int(self._names[at])
        text = bytes(memoryview(self._strings)[start : start + _NAME]).partition(b"\0")[0]
        return text.decode("utf-8", "backslashreplace").partition("@")[0]

    def moved(self, bias: int) -> "Variables":
        """Return the same variables where the loader put them."""
        address = self.address + np.uint64(bias & ((1 << 64) - 1))
        return Variables(address, self.size, self.local, self._names, self._strings)

    def find(self, addresses: U64) -> "npt.NDArray[np.int64]":
        """Return for each address the position of the variable that holds it, or -1."""
        if not len(self):
            return np.full(len(addresses), -1, np.int64)
        at = np.searchsorted(self.address, addresses, side="right").astype(np.int64) - 1
        kept = np.maximum(at, 0)
        return np.where((at >= 0) & (addresses - self.address[kept] < self.size[kept]), at, -1)


@dataclass(frozen=True)
class SymbolTable:
    """The variables of one file.

    :param data: those that have an address.
    :param thread_local: those of which each thread has one.
    :param first: what the first loaded segment's address is at file offset 0: the module's base less this is its bias.
    :param tls: size in memory and alignment of the thread-local block; None where there is none.
    :param whole: whether it is ``.symtab``; else only what other files may use has a name.
    """

    data: Variables
    thread_local: Variables
    first: int
    tls: Optional[Tuple[int, int]]
    whole: bool


def find_symbol_table(data: Buffer) -> Optional[SymbolTable]:
    """Return the variables that an ELF file names, or None when it is no ELF file or has no symbol table."""
    header = find_header(data)
    if header is None or header.phentsize not in (0, header.entry_size):
        return None
    sections = read_sections(lambda offset, size: memoryview(data)[offset : offset + size], header)
    for kind in (SHT_SYMTAB, SHT_DYNSYM):
        for section in sections:
            if section.type == kind and section.link < len(sections):
                return _table(data, header, section, sections[section.link])
    return None


def _symbol_type(header: ElfHeader) -> "np.dtype[np.void]":
    mark = header.order_mark
    if header.pointer_size == 8:
        return np.dtype(
            [("name", mark + "u4"), ("info", "u1"), ("other", "u1"), ("shndx", mark + "u2"), ("value", mark + "u8"),
             ("size", mark + "u8")]
        )  # fmt: skip
    return np.dtype(
        [("name", mark + "u4"), ("value", mark + "u4"), ("size", mark + "u4"), ("info", "u1"), ("other", "u1"),
         ("shndx", mark + "u2")]
    )  # fmt: skip


def _table(data: Buffer, header: ElfHeader, section: Section, strings: Section) -> SymbolTable:
    kind = _symbol_type(header)
    table = _part(data, section)
    symbols = np.frombuffer(table[: len(table) // kind.itemsize * kind.itemsize], kind)
    held = (symbols["shndx"] != SHN_UNDEF) & (symbols["shndx"] != SHN_ABS) & (symbols["size"] > 0)
    what = symbols["info"] & 0xF
    names = _part(data, strings)
    segments = _segments(data, header)
    first = min((one for one in segments if one.type == PT_LOAD), key=lambda one: one.offset, default=None)
    block = next(((one.memsz, max(one.align, 1)) for one in segments if one.type == PT_TLS), None)
    return SymbolTable(
        _variables(symbols[held & ((what == STT_OBJECT) | (what == STT_COMMON))], names),
        _variables(symbols[held & (what == STT_TLS)], names),
        0 if first is None else first.address - first.offset,
        block,
        section.type == SHT_SYMTAB,
    )


def _part(data: Buffer, section: Section) -> memoryview:
    return memoryview(data)[section.offset : section.offset + section.size]


def _segments(data: Buffer, header: ElfHeader) -> Sequence[Segment]:
    table = memoryview(data)[header.phoff : header.phoff + header.phnum * header.entry_size]
    return parse_segments(table, header)


def _variables(symbols: "npt.NDArray[np.void]", strings: Buffer) -> Variables:
    # Of several names for one address the last in this order is found: global before static, then larger.
    local = symbols["info"] >> 4 == STB_LOCAL
    order = np.lexsort((symbols["size"], ~local, symbols["value"]))
    taken = symbols[order]
    address, size = taken["value"].astype(np.uint64), taken["size"].astype(np.uint64)
    return Variables(address, size, local[order], taken["name"].astype(np.uint32), strings)
