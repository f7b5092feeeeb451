"""The file of a snapshot: an ELF core whose memory lies where it was copied, with headers and notes behind it.

A mapping is one program header for each stretch that lies in one place of the file. Memory that was never touched is
zeros: all of it shares one hole of the file, so that the file is no larger than file systems take. What is not known
has no bytes (``p_filesz`` 0). ``elf(5)``; more than 65 534 headers as ``PN_XNUM`` has it.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.abi import Abi
from gdbext.errors import TooLargeError
from gdbext.memory.elf.elffile import ET_CORE, MACHINES, MAGIC, PN_XNUM, PT_LOAD, PT_NOTE
from gdbext.memory.intervals import U64, Coverage, columns, joined, shared, subtract, unite
from gdbext.memory.live.copying import Places
from gdbext.memory.live.mappings import Mapping
from gdbext.memory.live.presence import Presence

HOLE = 1 << 40  # bytes at most of the hole that untouched memory shares

_TOP = (1 << 64) - 4096
_WIDE = [
    ("type", "u4"),
    ("flags", "u4"),
    *((name, "u8") for name in ("offset", "address", "paddr", "filesz", "memsz", "align")),
]
_NARROW = [(name, "u4") for name in ("type", "offset", "address", "paddr", "filesz", "memsz", "flags", "align")]


@dataclass(frozen=True, eq=False)
class Loads:
    """Stretches of memory, by address.

    :param offsets: where their bytes are in the file, if they have any.
    :param held: which have bytes: a place, or the hole.
    :param mapping: the index of the mapping that each is in.
    :param end: where places and the hole end in the file.
    """

    starts: U64
    ends: U64
    offsets: U64
    held: "npt.NDArray[np.bool_]"
    mapping: "npt.NDArray[np.int64]"
    end: int


def lay_out(
    mappings: Sequence[Mapping],
    presence: Presence,
    copied: Coverage,
    lost: Coverage,
    places: Places,
    most: int = HOLE,
) -> Loads:
    """Return which stretches of the mappings the file has.

    :param copied: what is in its place in the file.
    :param lost: what was there, or may have been, and is not in the file.
    :param most: bytes of the hole.
    """
    whole = Coverage(*columns((one.start, min(one.end, _TOP)) for one in mappings))
    held = _find_held(mappings, whole, presence, copied, lost)
    placed = shared(Coverage(*shared(held, places.covered)[:2]), whole)[:2]
    empty = shared(Coverage(*subtract(held, places.covered)[:2]), whole)[:2]
    absent = subtract(whole, held)[:2]
    hole = min(max((empty[1] - empty[0]).tolist(), default=0), most)
    empty = _cut(*empty, hole) if hole else empty
    starts, ends = (np.concatenate(column) for column in zip(placed, empty, absent))
    offsets = np.concatenate((places.locate(placed[0]), np.full(len(empty[0]), places.end), np.zeros(len(absent[0]))))
    known = np.arange(len(starts)) < len(placed[0]) + len(empty[0])
    order = np.argsort(starts, kind="stable")
    offsets = offsets.astype(np.uint64)[order]
    return Loads(starts[order], ends[order], offsets, known[order], whole.index(starts[order]), places.end + hole)


def _find_held(
    mappings: Sequence[Mapping], whole: Coverage, presence: Presence, copied: Coverage, lost: Coverage
) -> Coverage:
    """Return what the file has: of memory that began as zeros all but what is known to be missing, else the copied."""
    zeros = np.array([one.starts_as_zeros for one in mappings], np.bool_)
    gone = unite([(part.starts, part.ends) for part in (presence.swapped, presence.guards, lost)]).covered
    gone = Coverage(*joined((gone.starts, gone.ends)))
    untouched = subtract(Coverage(whole.starts[zeros], whole.ends[zeros]), gone)[:2]
    others = shared(Coverage(whole.starts[~zeros], whole.ends[~zeros]), copied)[:2]
    return Coverage(*joined((np.concatenate((untouched[0], others[0])), np.concatenate((untouched[1], others[1])))))


def _cut(starts: U64, ends: U64, most: int) -> "Tuple[U64, U64]":
    """Cut stretches so that none is longer than ``most`` bytes."""
    counts = ((ends - starts + np.uint64(most - 1)) // np.uint64(most)).astype(np.int64)
    which = np.repeat(np.arange(len(starts)), counts)
    number = (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)).astype(np.uint64)
    lows = starts[which] + number * np.uint64(most)
    return lows, np.minimum(lows + np.uint64(most), ends[which])


def write_headers(descriptor: int, loads: Loads, flags: Sequence[int], notes: bytes, abi: Abi) -> int:
    """Write all of a core but its memory, and give the file its size; return that, in bytes.

    :param flags: ``p_flags`` of each mapping.
    :param notes: one after the other.
    :raises TooLargeError: an ELF file of this word size is not that large.
    """
    table = _table(loads, np.array(flags, np.uint64), len(notes), abi)
    at = -(-loads.end // abi.page_size) * abi.page_size
    size = at + len(table) + len(notes) + (0 if len(loads.starts) + 1 < PN_XNUM else _SECTION[abi.pointer_size])
    if size > abi.word_mask:
        raise TooLargeError("a core of this process would be larger than a 32-bit ELF file may be")
    section = _section(len(loads.starts) + 1, abi)
    for offset, data in (
        (0, _header(at, at + len(table) + len(notes), len(loads.starts) + 1, abi)),
        (at, table),
        (at + len(table), notes),
        (at + len(table) + len(notes), section),
    ):
        _write(descriptor, data, offset)
    os.ftruncate(descriptor, size)
    return size


_SECTION = {8: 64, 4: 40}  # bytes of a section header


def _table(loads: Loads, flags: U64, notes: int, abi: Abi) -> bytes:
    count, order = len(loads.starts), abi.order_mark
    table = np.zeros(
        count + 1, np.dtype([(name, order + kind) for name, kind in (_WIDE if abi.pointer_size == 8 else _NARROW)])
    )
    at = -(-loads.end // abi.page_size) * abi.page_size
    table[0] = tuple(
        {"type": PT_NOTE, "offset": at + table.nbytes, "filesz": notes, "align": 4}.get(name, 0)
        for name in table.dtype.names or ()
    )
    rows, sizes = table[1:], loads.ends - loads.starts
    rows["type"], rows["flags"] = PT_LOAD, flags[loads.mapping]
    rows["offset"] = np.where(loads.held, loads.offsets, np.uint64(at))
    rows["address"], rows["memsz"] = loads.starts, sizes
    rows["filesz"] = np.where(loads.held, sizes, np.uint64(0))
    rows["align"] = abi.page_size
    return table.tobytes()


def _header(table: int, section: int, count: int, abi: Abi) -> bytes:
    wide = abi.pointer_size == 8
    machine = next((number for number, name in MACHINES.items() if name == abi.machine), None) or int(abi.machine)
    many = count >= PN_XNUM
    ident = MAGIC + bytes((2 if wide else 1, 1 if abi.byteorder == "little" else 2, 1)) + bytes(9)
    sizes = (64, 56) if wide else (52, 32)
    numbers = (ET_CORE, machine, 1, 0, table, section if many else 0, 0, *sizes, min(count, PN_XNUM))
    sections = (_SECTION[abi.pointer_size], 1, 0) if many else (0, 0, 0)
    return ident + struct.pack(abi.order_mark + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"), *numbers, *sections)


def _section(count: int, abi: Abi) -> bytes:
    """Return section header 0 where it has the number of program headers, in ``sh_info``."""
    if count < PN_XNUM:
        return b""
    words = {5: 1, 7: count}  # sh_size, the number of sections; sh_info
    form = "IIQQQQIIQQ" if abi.pointer_size == 8 else "10I"
    return struct.pack(abi.order_mark + form, *(words.get(number, 0) for number in range(10)))


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done
