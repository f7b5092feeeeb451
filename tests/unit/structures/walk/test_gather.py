"""Numbers out of memories of all kinds: lent, copied in windows, read one by one, absent."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import I386, X86_64, Abi
from gdbext.errors import FaultError
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.structures.walk import gather as module
from gdbext.structures.walk.gather import Windows, gather
from gdbext.structures.walk.model import Scalar
from gdbext.target import Target
from tests.support.examples import examples

BASE = 0x10000
WORD = Scalar(0, 8)


class Copying:
    """A memory that can only be copied, as a process is; counts the bytes, refuses some pages."""

    def __init__(self, memory, refused=()):
        self._memory, self._refused = memory, refused
        self.copied = 0

    def regions(self):
        return self._memory.regions()

    def read(self, address, size):
        if any(address < page + 4096 and page < address + size for page in self._refused):
            raise FaultError(address, size)
        self.copied += size
        return bytes(self._memory.read(address, size))


class Unlisted(Copying):
    """A remote target that does not tell its mappings."""

    def regions(self):
        return []


def u64(values):
    return np.array(values, np.uint64)


KINDS = [lambda memory: memory, Copying, Unlisted]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(st.one_of(st.integers(0, 220), st.integers(4080, 4110)), max_size=12),
    st.sampled_from([(0, 8), (3, 4), (1, 2), (0, 1), (5, 3), (-4, 4)]),
    st.booleans(),
    st.sampled_from(["little", "big"]),
    st.sampled_from([None, (0, 1), (3, 2), (2, 5)]),
)
def test_each_number_is_what_the_bytes_say(kind, places, where, signed, order, bits):
    data = bytes((31 * at + 200) % 256 for at in range(4096))
    memory = FakeMemory([(BASE, data[:200]), (BASE + 200, data[200:])])
    target = Target(kind(memory), Abi(8, order))
    offset, size = where
    values, known = gather(target, u64([BASE + at for at in places]), Scalar(offset, size, signed, bits))
    for at, value, there in zip(places, values.tolist(), known.tolist()):
        low = at + offset
        assert there == (low >= 0 and low + size <= 4096)
        if there:
            number = int.from_bytes(data[low : low + size], order)
            width = 8 * size
            if bits:
                number, width = (number >> bits[0]) % (1 << bits[1]), bits[1]
            if signed and number >> (width - 1):
                number -= 1 << width
            assert value == number % (1 << 64)


def test_a_mapped_memory_is_lent_whole_and_not_read():
    class Lending(FakeMemory):
        asked = 0

        def read(self, address, size):
            self.asked += 1
            return super().read(address, size)

    memory = Lending([(BASE, bytes(1 << 20)), (1 << 30, bytes(1 << 20))])
    windows = Windows(Target(memory, X86_64))
    values, known = windows.read(u64([BASE + 8, BASE + 80_000, BASE + 800_000] * 1000), 8)
    assert known.all() and memory.asked <= 4  # two for each region
    assert [(start, len(buffer)) for start, buffer in windows.spans] == [(BASE, 1 << 20), (1 << 30, 1 << 20)]


def test_three_places_of_a_large_process_copy_three_windows():
    memory = Copying(FakeMemory([(BASE, bytes(64 << 20))]))
    _, known = gather(Target(memory, X86_64), u64([BASE + 5, BASE + (20 << 20), BASE + (63 << 20)]), WORD)
    assert known.all() and memory.copied <= 4 * 65536


def test_what_was_copied_is_not_copied_again():
    memory = Copying(FakeMemory([(BASE, bytes(1 << 20))]))
    windows = Windows(Target(memory, X86_64))
    for _ in range(3):
        for at in range(0, 1 << 20, 5000):
            assert windows.read(u64([BASE + at]), 8)[1].all()
    assert memory.copied == 1 << 20


def test_a_page_that_is_refused_loses_only_its_own_numbers():
    memory = Copying(FakeMemory([(BASE, bytes([1]) * (1 << 17))]), refused=[BASE + 0x3000])
    places = u64([BASE + at for at in (0, 0x2FF8, 0x2FFC, 0x3000, 0x3FF8, 0x4000, 0x1F000)])
    values, known = gather(Target(memory, X86_64), places, WORD)
    assert known.tolist() == [True, True, False, False, False, True, True]
    assert set(values[known].tolist()) == {0x0101010101010101}


def test_numbers_are_read_one_by_one_once_the_windows_are_full():
    memory = Copying(FakeMemory([(BASE, bytes(range(256)) * 4096)]))
    with patch.object(module, "MOST_KEPT", 1 << 17):
        windows = Windows(Target(memory, X86_64))
        places = u64([BASE + at for at in range(0, 1 << 20, 4099) if at + 2 <= 1 << 20])
        values, known = windows.read(places, 2, signed=True)
    assert known.all() and memory.copied <= (1 << 17) + (1 << 16) + 2 * len(places)
    expected = [
        int.from_bytes(bytes([at % 256, (at + 1) % 256]), "little", signed=True) for at in places.tolist()
    ]
    assert values.view(np.int64).tolist() == expected


def test_garbage_where_no_mapping_is_known_costs_few_reads():
    class Counting(Unlisted):
        asked = 0

        def read(self, address, size):
            self.asked += 1
            return super().read(address, size)

    memory = Counting(FakeMemory([(BASE, bytes(4096))]))
    windows = Windows(Target(memory, X86_64))
    places = u64([BASE + 16 + (at << 30) for at in range(20_000)])
    _, known = windows.read(places, 8)
    assert known.tolist() == [True] + [False] * 19_999 and memory.asked < 50_000


@pytest.mark.parametrize("kind", [lambda memory: memory, Copying])
def test_absent_memory_is_told_from_unmapped_memory(kind):
    regions = [Region(BASE, BASE + 4096), Region(BASE + 4096, BASE + 8192, source="absent")]
    target = Target(kind(FakeMemory([(BASE, bytes(4096))], regions)), X86_64)
    windows, places = Windows(target), u64([BASE, BASE + 4092, BASE + 5000, BASE + 8190, BASE + 9000, 0])
    assert windows.read(places, 8)[1].tolist() == [True, False, False, False, False, False]
    assert windows.absent(places, 8).tolist() == [False, True, True, True, False, False]


def test_a_region_that_holds_less_than_it_says_gives_what_it_holds():
    memory = FakeMemory([(BASE, bytes(4096))], [Region(BASE, BASE + (1 << 20))])
    values, known = gather(Target(memory, X86_64), u64([BASE, BASE + 4096]), WORD)
    assert known.tolist() == [True, False]


def test_nothing_at_all_to_gather():
    values, known = gather(Target(FakeMemory([]), I386), u64([]), WORD)
    assert not len(values) and not len(known)
    values, known = gather(Target(FakeMemory([]), I386), u64([8]), WORD)
    assert known.tolist() == [False]
