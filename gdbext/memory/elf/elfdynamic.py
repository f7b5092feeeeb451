"""What a mapped ELF object exports, by name, from its own memory: the dynamic section and its GNU hash table.

Names of structures are those of ``elf.h``; the hash table is as glibc's ``elf/dl-lookup.c`` reads it. The bytes are of
unknown honesty: counts are bounded, and what does not fit is not there.
"""

from __future__ import annotations

import struct
from typing import Mapping, Optional

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.memory import Memory, Reader
from gdbext.memory.elf.elffile import Image

PT_DYNAMIC = 2
DT_STRTAB, DT_SYMTAB, DT_GNU_HASH = 5, 6, 0x6FFFFEF5

_MOST_TAGS = 256
_MOST_CHAIN = 1 << 12  # symbols of one bucket


def find_exported(memory: Memory, abi: Abi, image: Image, name: str) -> Optional[int]:
    """Return the address of a symbol that an object defines for others, or None where it does not.

    :raises FaultError: its tables are not in the target, or it has none.
    """
    reader = Reader(memory, abi)
    tags = _tags(reader, image)
    if not {DT_STRTAB, DT_SYMTAB, DT_GNU_HASH} <= set(tags):
        raise FaultError(image.base, 1, "exported names")
    index = _find_index(reader, tags, name)
    return None if index is None else _value(reader, image, tags[DT_SYMTAB], index)


def _tags(reader: Reader, image: Image) -> Mapping[int, int]:
    """Return the entries of the dynamic section; addresses as they are in the target, whoever relocated them."""
    found: "dict[int, int]" = {}
    for segment in image.segments:
        if segment.type != PT_DYNAMIC:
            continue
        count = min(segment.memsz // (2 * reader.abi.pointer_size), _MOST_TAGS)
        words = reader.words(image.bias + segment.address, 2 * count)
        for tag, value in zip(words[::2], words[1::2]):
            if not tag:
                break
            found[tag] = value if image.base <= value < image.end else value + image.bias
    return found


def _find_index(reader: Reader, tags: Mapping[int, int], name: str) -> Optional[int]:
    at, word = tags[DT_GNU_HASH], reader.abi.pointer_size
    buckets, first, blooms, shift = struct.unpack(f"{reader.abi.order_mark}4I", reader.bytes(at, 16))
    if not buckets or not blooms:
        return None
    wanted, bits = _hash(name), 8 * word
    bloom = reader.word(at + 16 + word * (wanted // bits % blooms))
    if not bloom >> wanted % bits & bloom >> (wanted >> shift) % bits & 1:
        return None
    table = at + 16 + word * blooms
    begin = reader.uint(table + 4 * (wanted % buckets), 4)
    for index in range(begin, begin + _MOST_CHAIN if begin >= first else begin):
        known = reader.uint(table + 4 * (buckets + index - first), 4)
        if known | 1 == wanted | 1 and _name(reader, tags, index) == name:
            return index
        if known & 1:
            break
    return None


def _hash(name: str) -> int:
    found = 5381
    for byte in name.encode():
        found = (found * 33 + byte) & 0xFFFF_FFFF
    return found


def _name(reader: Reader, tags: Mapping[int, int], index: int) -> Optional[str]:
    return reader.find_string(tags[DT_STRTAB] + reader.uint(_symbol(reader, tags[DT_SYMTAB], index), 4), 256)


def _symbol(reader: Reader, table: int, index: int) -> int:
    return table + index * (24 if reader.abi.pointer_size == 8 else 16)


def _value(reader: Reader, image: Image, table: int, index: int) -> Optional[int]:
    wide, at = reader.abi.pointer_size == 8, _symbol(reader, table, index)
    defined = reader.uint(at + (6 if wide else 14), 2)
    value = reader.word(at + (8 if wide else 4))
    return (image.bias + value) & reader.abi.word_mask if defined and value else None
