"""Open addressing, against tables that a few lines of textbook insertion have filled."""

from __future__ import annotations

import struct
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import X86_64, Abi
from gdbext.errors import FaultError, ShapeError
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.progress import SILENT
from gdbext.structures.walk import probes
from gdbext.structures.walk.model import End, ProbeTable, Scalar, SlotField
from gdbext.structures.walk.probes import UNKNOWN, check_probes, misplaced, read_field, walk_probes
from gdbext.target import Target

HASHES, KEYS = 0x10000, 0x80000
BIG = Abi(4, "big", "ppc")


def filled(slots, hashes, triangular=False, removed=()):
    """Insert hashes one by one; return the slots' contents (0 unused, 1 removed) and {slot: (home, probes)}."""
    table, where = [0] * slots, {}
    for value in hashes:
        home = at = value % slots
        steps = 0
        while table[at]:
            steps += 1
            at = (at + (steps if triangular else 1)) % slots
        table[at], where[at] = value, (home, steps)
    for at in [at for at in where if table[at] in removed]:
        table[at] = 1
        del where[at]
    return table, where


@contextmanager
def batches_of(slots):
    before, probes.BATCH = probes.BATCH, slots
    try:
        yield
    finally:
        probes.BATCH = before


def memory_of(table, abi=X86_64):
    """Hashes of 4 bytes; keys, hash times 3, in items of 16 bytes, 8 in."""
    mark = abi.order_mark
    hashes = struct.pack(f"{mark}{len(table)}I", *table)
    keys = b"".join(struct.pack(f"{mark}8xII", value * 3 % (1 << 32), 0xFFFFFFFF) for value in table)
    return FakeMemory([(HASHES, hashes), (KEYS, keys)])


def table_of(slots, **changes):
    fields = {
        "hash": SlotField(HASHES, 4, Scalar(0, 4)),
        "key": SlotField(KEYS, 16, Scalar(8, 4)),
    }
    described = {
        "address": 0x1000,
        "slots": slots,
        "fields": fields,
        "occupied": lambda columns: columns["hash"] >= 2,
        "home": lambda columns: columns["hash"] % np.uint64(slots),
        "hash": "hash",
        "key": "key",
        "element_type": "struct item",
    }
    return ProbeTable(**{**described, **changes})


def walked(table, memory, abi=X86_64):
    target = Target(memory, abi)
    return target, walk_probes(target, table, SILENT)


def placed(walk):
    """{slot: (home, probes)} as the walk has it."""
    rows = zip(walk.slots.tolist(), walk.owners.tolist(), walk.distances.tolist())
    return {slot: (home, steps) for slot, home, steps in rows}


HASH_LISTS = st.lists(st.integers(2, 200), max_size=30, unique=True)


@settings(max_examples=60, deadline=None)
@given(HASH_LISTS, st.booleans(), st.sampled_from([X86_64, BIG]), st.sampled_from([3, 7, 1 << 18]))
def test_every_entry_is_found_with_its_home_and_distance(hashes, triangular, abi, batch):
    table, where = filled(32, hashes, triangular, removed=hashes[::3])
    described = table_of(32, step="triangular" if triangular else "linear")
    with batches_of(batch):
        target, walk = walked(described, memory_of(table, abi), abi)
        values, known = read_field(target, described, walk, "key")
    assert placed(walk) == where
    assert walk.lengths.tolist() == [sum(home == at for home, _ in where.values()) for at in range(32)]
    assert walk.nodes.tolist() == [KEYS + 16 * slot for slot in walk.slots.tolist()]
    assert known.all() and values.tolist() == [3 * table[slot] for slot in walk.slots.tolist()]
    assert walk.complete and set(walk.reasons.tolist()) == {End.NULL}
    assert walk.owners.tolist() == sorted(walk.owners.tolist())


def test_entries_of_one_home_come_in_the_order_of_probing():
    table, _ = filled(8, [7, 15, 23, 6, 2])
    _, walk = walked(table_of(8), memory_of(table))
    assert walk.owners.tolist() == [2, 6, 7, 7, 7]
    assert walk.distances.tolist() == [0, 0, 0, 1, 2]
    assert walk.slots.tolist() == [2, 6, 7, 0, 1]


def test_a_stored_distance_gives_the_home():
    distances = bytes([2, 0xFF, 0xFF, 0, 1, 0xFF, 0, 1])
    memory = FakeMemory([(HASHES, distances), (KEYS, bytes(8 * 8))])
    table = table_of(
        8,
        fields={"dib": SlotField(HASHES, 1, Scalar(0, 1)), "key": SlotField(KEYS, 8, Scalar(0, 8))},
        occupied=lambda columns: columns["dib"] != 0xFF,
        home=None,
        distance=lambda columns: columns["dib"],
        hash=None,
    )
    _, walk = walked(table, memory)
    assert placed(walk) == {0: (6, 2), 3: (3, 0), 4: (3, 1), 6: (6, 0), 7: (6, 1)}


def test_a_stored_distance_gives_the_home_of_triangular_probing():
    distances = bytes([0xFF, 2, 0xFF, 0xFF, 3, 0xFF, 0, 1])  # 6, 7, 6 + 3, 6 + 6
    memory = FakeMemory([(HASHES, distances)])
    table = table_of(
        8,
        fields={"dib": SlotField(HASHES, 1, Scalar(0, 1))},
        occupied=lambda columns: columns["dib"] != 0xFF,
        home=None,
        step="triangular",
        distance=lambda columns: columns["dib"],
        hash=None,
        key=None,
    )
    _, walk = walked(table, memory)
    assert placed(walk) == {6: (6, 0), 7: (6, 1), 1: (6, 2), 4: (6, 3)}


def test_without_home_or_distance_nothing_tells():
    table, where = filled(8, [7, 15, 23])
    _, walk = walked(table_of(8, home=None), memory_of(table))
    assert walk.distances is None
    assert walk.slots.tolist() == walk.owners.tolist() == sorted(where)
    assert walk.lengths.tolist() == [1, 1, 0, 0, 0, 0, 0, 1]
    assert misplaced(walk).tolist() == []


def test_slots_that_share_an_item():
    flags = [
        0xAAAAAAAA,
        0xAAAAAAA8,
        0x2,
    ]  # two bits a slot, 2 is never used; the last word counts for two slots
    memory = FakeMemory([(HASHES, struct.pack("<3I", *flags)), (KEYS, bytes(8 * 34))])
    table = table_of(
        34,
        fields={"flags": SlotField(HASHES, 4, Scalar(0, 4), 16), "key": SlotField(KEYS, 8, Scalar(0, 8))},
        occupied=lambda columns: (
            (columns["flags"] >> (columns["index"] % np.uint64(16) * np.uint64(2))) & np.uint64(3) == 0
        ),
        home=None,
        hash=None,
    )
    for batch in (5, 1 << 18):
        with batches_of(batch):
            _, walk = walked(table, memory)
        assert walk.slots.tolist() == [16, 33]


def test_signed_and_bit_fields_are_as_expressions_have_them():
    memory = FakeMemory([(HASHES, struct.pack("<4h", -1, 5, 0, -7))])
    field = {"hash": SlotField(HASHES, 2, Scalar(0, 2, signed=True))}
    _, walk = walked(
        table_of(4, fields=field, key=None, home=None, occupied=lambda c: c["hash"] >> np.uint64(63)), memory
    )
    assert walk.slots.tolist() == [0, 3]
    field = {"hash": SlotField(HASHES, 2, Scalar(0, 2, bits=(2, 1)))}
    _, walk = walked(table_of(4, fields=field, key=None, home=None, occupied=lambda c: c["hash"]), memory)
    assert walk.slots.tolist() == [0, 1]
    assert walk.nodes.tolist() == [HASHES, HASHES + 2]


def test_an_empty_table():
    target, walk = walked(table_of(0, entries=0), FakeMemory([]))
    assert (len(walk.lengths), len(walk.nodes), walk.complete) == (0, 0, True)
    assert check_probes(target, table_of(0, entries=0), walk) == []
    assert len(read_field(target, table_of(0), walk, "key")[0]) == 0


def test_an_absurd_count_is_one_error():
    with pytest.raises(ShapeError, match="18446744073709551615 slots is more than can be"):
        walked(table_of((1 << 64) - 1), memory_of([0] * 8))


def test_slots_beyond_memory_are_one_error():
    with pytest.raises(FaultError, match="bytes of a table's hash, items 0 to 262143 at 0x10000"):
        walked(table_of(1 << 20), memory_of([0] * 8))


def test_a_field_that_is_no_number_fails_only_where_it_is_read():
    table, where = filled(8, [7, 15])
    wide = {**table_of(8).fields, "key": SlotField(KEYS, 16, Scalar(0, 16))}
    target, walk = walked(table_of(8, fields=wide), memory_of(table))
    assert placed(walk) == where
    with pytest.raises(ShapeError, match="key cannot be read as a number: 16 bytes, every 16"):
        read_field(target, table_of(8, fields=wide), walk, "key")


def absent(table, start, end):
    """The table's memory, of which the core lacks a part."""
    whole = memory_of(table)
    last = HASHES + 4 * len(table)
    regions = [
        Region(HASHES, start),
        Region(start, end, source="absent"),
        Region(end, last),
        Region(KEYS, KEYS + 16 * len(table)),
    ]
    pieces = [(region.start, whole.read(region.start, region.size)) for region in regions if region.readable]
    return FakeMemory(pieces, regions)


def test_memory_that_the_core_lacks_is_unknown():
    table, where = filled(16, [2, 3, 18, 20, 9, 15])
    target, walk = walked(table_of(16, entries=6), absent(table, HASHES + 4 * 3, HASHES + 4 * 9 + 2))
    assert placed(walk) == {slot: place for slot, place in where.items() if slot < 3 or slot > 9}
    assert not walk.complete
    assert walk.reasons.tolist() == [End.NULL] * 3 + [End.ABSENT] * 7 + [End.NULL] * 6
    (problem,) = check_probes(target, table_of(16, entries=6), walk)
    assert (problem.kind, problem.message, problem.corruption) == (
        "absent-memory",
        "the core does not hold 7 slots",
        False,
    )


def test_counts_and_homes_are_checked():
    table, _ = filled(16, [2, 18, 5])
    target, walk = walked(table_of(16, entries=3), memory_of(table))
    assert check_probes(target, table_of(16, entries=3), walk) == []
    (problem,) = check_probes(target, table_of(16, entries=4), walk)
    assert (problem.kind, problem.address) == ("table-count", 0x1000)
    assert problem.message == "the table counts 4 entries, 3 were walked"
    outside = table_of(16, home=lambda columns: columns["hash"])  # 18 is no slot
    target, walk = walked(outside, memory_of(table))
    (problem,) = check_probes(target, outside, walk)
    assert (problem.kind, problem.address) == ("misplaced-entry", KEYS + 16 * 3)
    assert walk.distances.tolist().count(UNKNOWN) == 1


def test_a_slot_that_triangular_steps_never_reach():
    # Modulo 5 the triangular numbers are 0, 1, 3.
    table = [2, 0, 0, 0, 7]
    walk = walked(table_of(5, step="triangular"), memory_of(table))[1]
    assert placed(walk) == {0: (2, 2), 4: (2, UNKNOWN)}


def test_an_interrupt_keeps_what_was_met():
    class Impatient:
        def at(self, doing, done, total):
            if done:
                raise KeyboardInterrupt

    table, where = filled(16, [2, 18, 15])
    with batches_of(8):
        walk = walk_probes(Target(memory_of(table), X86_64), table_of(16), Impatient())
    assert placed(walk) == {slot: place for slot, place in where.items() if slot < 8}
    assert not walk.complete
    assert walk.reasons.tolist() == [End.NULL] * 8 + [End.INTERRUPTED] * 8


def test_a_million_slots():
    hashes = np.arange(1 << 20, dtype=np.uint32) * np.uint32(2654435761)
    slots = 1 << 20
    memory = FakeMemory([(HASHES, hashes.tobytes())])
    table = table_of(slots, fields={"hash": SlotField(HASHES, 4, Scalar(0, 4))}, key=None, step="triangular")
    _, walk = walked(table, memory)
    assert len(walk.nodes) == int((hashes >= 2).sum()) == int(walk.lengths.sum())
