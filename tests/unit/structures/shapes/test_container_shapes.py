"""The pack's shapes of open-addressing tables on bytes laid out by hand, from their own declarations.

The real libraries are in tests/gdb; here are the other word size and byte order, and layouts of versions that the
machine does not have.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from gdbext.abi import I386, X86_64, Abi
from gdbext.debuginfo import NoDebugInfo
from gdbext.errors import ShapeError
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.progress import SILENT
from gdbext.structures.shapes.bind import bind
from gdbext.structures.shapes.library import read_library
from gdbext.structures.shapes.opening import check_valid, open_shape
from gdbext.structures.shapes.shape import StructPart
from gdbext.structures.walk.probes import read_field, walk_probes
from gdbext.target import Target

LIBRARY = read_library([str(Path(__file__).resolve().parents[4] / "shapes")])
OBJECT, ARRAYS = 0x1000, 0x20000
PPC = Abi(4, "big", "ppc")
PPC64 = Abi(8, "big", "ppc64")
MAPPED = [Region(OBJECT, OBJECT + 0x1000), Region(ARRAYS, ARRAYS + 0x2000)]


def target_of(abi, thing, arrays=b""):
    return Target(FakeMemory([(OBJECT, thing.ljust(0x1000)), (ARRAYS, arrays.ljust(0x2000))], MAPPED), abi)


def opened(name, target):
    shape = LIBRARY.find_shape(name) if isinstance(name, str) else name
    bound = bind(shape, None, NoDebugInfo(), LIBRARY, target.abi)
    assert check_valid(bound, target, OBJECT, NoDebugInfo())
    return open_shape(bound, target, OBJECT, NoDebugInfo())


def walked(name, target):
    table = opened(name, target)
    walk = walk_probes(target, table, SILENT)
    keys = read_field(target, table, walk, table.key)[0].tolist()
    return {
        slot: (key, home, steps)
        for slot, key, home, steps in zip(
            walk.slots.tolist(), keys, walk.owners.tolist(), walk.distances.tolist()
        )
    }


def glib_table(abi, newer, big_keys, mask=7):
    """Size 8, modulus 7: hashes 3 and 10 both start at 33 % 7 = 110 % 7 = 5, 4 at 44 % 7 = 2; slot 0 is a tombstone."""
    mark = abi.order_mark
    hashes = struct.pack(f"{mark}8I", 1, 0, 4, 0, 0, 3, 10, 0)
    keys = struct.pack(f"{mark}8{abi.word_format[-1] if big_keys else 'I'}", 0, 0, 44, 0, 0, 33, 110, 0)
    size = struct.pack(f"{mark}I", 8) if newer else struct.pack(abi.word_format, 8)
    # The first bit-field is the lowest bit on little-endian machines, the highest on others.
    first, other = (1, 2) if abi.byteorder == "little" else (1 << 31, 1 << 30)
    numbers = struct.pack(f"{mark}5I", 7, mask, 3, 4, first if big_keys else other)
    start = size + numbers
    start = start.ljust(abi.align_up(len(start), abi.pointer_size), b"\0")
    pointers = b"".join(struct.pack(abi.word_format, at) for at in (ARRAYS + 0x100, ARRAYS, ARRAYS + 0x100))
    return target_of(abi, start + pointers, hashes.ljust(0x100, b"\0") + keys)


@pytest.mark.parametrize("abi", [X86_64, I386, PPC, PPC64], ids=["64", "32", "big-32", "big-64"])
@pytest.mark.parametrize("newer", [False, True], ids=["2.74", "2.88"])
@pytest.mark.parametrize("big_keys", [False, True], ids=["ints", "pointers"])
def test_hash_tables_of_glib(abi, newer, big_keys):
    target = glib_table(abi, newer, big_keys)
    found = walked("glib-hash-table-2-88" if newer else "glib-hash-table", target)
    assert found == {2: (44, 2, 0), 5: (33, 5, 0), 6: (110, 5, 1)}


@pytest.mark.parametrize("newer", [False, True])
def test_the_other_version_of_glib_is_not_valid(newer):
    target = glib_table(X86_64, newer, True)
    shape = LIBRARY.find_shape("glib-hash-table" if newer else "glib-hash-table-2-88")
    assert not check_valid(bind(shape, None, NoDebugInfo(), LIBRARY, X86_64), target, OBJECT, NoDebugInfo())


def test_a_hash_table_of_glib_that_counts_more_slots_than_are_mapped():
    target = target_of(X86_64, struct.pack("<Q5I4x3Q", 1 << 40, 7, 7, 3, 4, 0, ARRAYS, ARRAYS, ARRAYS))
    bound = bind(LIBRARY.find_shape("glib-hash-table"), None, NoDebugInfo(), LIBRARY, X86_64)
    assert not check_valid(bound, target, OBJECT, NoDebugInfo())
    with pytest.raises(ShapeError, match="1099511627776 slots of 4 bytes .* only 8192 bytes are mapped"):
        open_shape(bound, target, OBJECT, NoDebugInfo())


def hashmap(abi, form, direct, storage=b"", count=0, buckets=0):
    """systemd's: hash_ops, then a packed union of word + 31 bytes, then a byte of bit-fields."""
    word, mark = abi.pointer_size, abi.order_mark
    indirect = (
        struct.pack(abi.word_format, ARRAYS) + bytes(16) + struct.pack(f"{mark}3I3x", count, buckets, 0)
    )
    union = storage.ljust(word + 31, b"\0") if direct is not None else indirect
    bits = form | (0 if direct is not None else 1 << 2) | (direct or 0) << 3
    thing = struct.pack(abi.word_format, 0x7777) + union + bytes([bits])
    return target_of(abi, thing, storage)


def entries(abi, form, keys):
    tail = {0: abi.pointer_size, 1: abi.pointer_size + 8, 2: 0}[form]
    return b"".join(struct.pack(abi.word_format, key) + b"\xee" * tail for key in keys)


@pytest.mark.parametrize("abi", [X86_64, I386], ids=["64", "32"])
@pytest.mark.parametrize("form", [0, 1, 2], ids=["plain", "ordered", "set"])
def test_hash_maps_of_systemd(abi, form):
    # Home 3: 30, 31, 32 (at 0); home 0: 33 (at 1).
    storage = entries(abi, form, [32, 33, 0, 30, 31]) + bytes([2, 1, 0xFF, 0, 1])
    target = hashmap(abi, form, None, storage, count=4, buckets=5)
    assert opened("systemd-hashmap", target).entries == 4
    assert walked("systemd-hashmap", target) == {0: (32, 3, 2), 1: (33, 0, 1), 3: (30, 3, 0), 4: (31, 3, 1)}


# How many fit, as sizeof (direct_storage) / (sizeof (entry) + 1): 39 bytes on 64 bits, 35 on 32.
DIRECT = {
    (X86_64, 0): 39 // 17,
    (X86_64, 1): 39 // 25,
    (X86_64, 2): 39 // 9,
    (I386, 0): 35 // 9,
    (I386, 1): 35 // 17,
    (I386, 2): 35 // 5,
}


@pytest.mark.parametrize(("abi", "form"), DIRECT)
def test_entries_of_systemd_that_stand_in_the_object(abi, form):
    buckets = DIRECT[abi, form]
    storage = entries(abi, form, [21, *[0] * (buckets - 1)]) + bytes([0, *[0xFF] * (buckets - 1)])
    target = hashmap(abi, form, 1, storage)
    table = opened("systemd-hashmap", target)
    assert (table.slots, table.entries) == (buckets, 1)
    assert walked("systemd-hashmap", target) == {0: (21, 0, 0)}


def khash_int():
    """khash declares no structure, since each table has a type of its own: here is one."""
    numbers = ("u32 n_buckets", "u32 size", "u32 n_occupied", "u32 upper")
    declared = StructPart("struct kh", (*numbers, "u32 *flags", "u32 *keys", "ptr vals"))
    return replace(LIBRARY.find_shape("khash-int"), types=("struct kh",), structs=(declared,))


def test_a_khash_of_another_machine():
    """Big-endian, 32 bits: keys 5, 13 and 21 of 8 slots all start at 5; slot 6 was removed."""
    flags = 0
    for slot in range(8):
        flags |= {5: 0, 6: 1, 0: 0, 3: 0}.get(slot, 2) << 2 * slot
    arrays = struct.pack(">I", flags).ljust(0x100, b"\0") + struct.pack(">8I", 13, 0, 0, 21, 0, 5, 99, 0)
    thing = struct.pack(">4I3I", 8, 3, 4, 6, ARRAYS, ARRAYS + 0x100, 0)
    assert walked(khash_int(), target_of(PPC, thing, arrays)) == {5: (5, 5, 0), 0: (13, 5, 2), 3: (21, 5, 3)}
