"""The variables that an ELF file's symbol table names, as columns: addresses, sizes, names.

Names of structures are those of ``elf.h``. The bytes are of unknown honesty: what does not fit is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.memory import Buffer
from gdbext.memory.elf.elffile import PT_LOAD, ElfHeader, Segment, find_header, parse_segments

U64 = npt.NDArray[np.uint64]

PT_TLS = 7
SHT_SYMTAB, SHT_DYNSYM = 2, 11
STT_OBJECT, STT_COMMON, STT_TLS = 1, 5, 6
STB_LOCAL = 0
SHN_UNDEF, SHN_ABS = 0, 0xFFF1

_SECTIONS = 1 << 16
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
    sections = _sections(data, header)
    for kind in (SHT_SYMTAB, SHT_DYNSYM):
        for section in sections:
            if section[1] == kind and section[6] < len(sections):
                return _table(data, header, section, sections[section[6]])
    return None


# sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize
_Section = Tuple[int, ...]


def _sections(data: Buffer, header: ElfHeader) -> Sequence[_Section]:
    kind = _section_type(header)
    counts = header.order_mark + "u2"
    at = 58 if header.pointer_size == 8 else 46
    size, count = np.frombuffer(memoryview(data)[at : at + 4], counts).tolist()
    if size != kind.itemsize or not header.shoff:
        return ()
    table = memoryview(data)[header.shoff : header.shoff + min(count or _SECTIONS, _SECTIONS) * size]
    rows: List[_Section] = np.frombuffer(table[: len(table) // size * size], kind).tolist()
    # More than fit into e_shnum: section 0 says how many.
    return rows[: rows[0][5]] if not count and rows else rows


def _section_type(header: ElfHeader) -> "np.dtype[np.void]":
    word = header.order_mark + ("u8" if header.pointer_size == 8 else "u4")
    half = header.order_mark + "u4"
    names = ("name", "type", "flags", "addr", "offset", "size", "link", "info", "align", "entsize")
    wide = {"flags", "addr", "offset", "size", "align", "entsize"}
    return np.dtype([(name, word if name in wide else half) for name in names])


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


def _table(data: Buffer, header: ElfHeader, section: _Section, strings: _Section) -> SymbolTable:
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
        section[1] == SHT_SYMTAB,
    )


def _part(data: Buffer, section: _Section) -> memoryview:
    return memoryview(data)[section[4] : section[4] + section[5]]


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
