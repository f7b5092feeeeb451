from __future__ import annotations

import pytest

from gdbext.errors import FaultError
from gdbext.memory import Region, cached
from gdbext.memory.cached import BLOCK, CachedMemory
from gdbext.memory.fake import FakeMemory

START = 0x100000


class Counting:
    """A fake memory that counts its reads."""

    def __init__(self, size):
        self.data = bytes(range(256)) * (size // 256)
        self.inner = FakeMemory([(START, self.data)])
        self.reads = 0

    def regions(self):
        return self.inner.regions()

    def read(self, address, size):
        self.reads += 1
        return self.inner.read(address, size)


def test_a_block_is_read_once():
    memory = Counting(4 * BLOCK)
    kept = CachedMemory(memory)
    for at in (0, 8, 100, BLOCK - 8):
        assert bytes(kept.read(START + at, 8)) == memory.data[at : at + 8]
    assert memory.reads == 1


def test_reads_across_blocks():
    memory = Counting(4 * BLOCK)
    kept = CachedMemory(memory)
    assert bytes(kept.read(START + BLOCK - 3, 2 * BLOCK)) == memory.data[BLOCK - 3 : 3 * BLOCK - 3]
    assert kept.regions() == memory.regions()


def test_the_end_of_a_region_is_kept_too():
    memory = Counting(BLOCK + 512)
    kept = CachedMemory(memory)
    for _ in range(2):
        assert bytes(kept.read(START + BLOCK, 512)) == memory.data[BLOCK:]
        assert bytes(kept.read(START, BLOCK + 512)) == memory.data
    assert memory.reads == 2


BAD = [(START - 8, 16), (START + 4 * BLOCK, 1), (START, -1), (-8, 8), (START + 4 * BLOCK - 4, 8)]


@pytest.mark.parametrize("address, size", BAD)
def test_a_fault_is_a_fault(address, size):
    with pytest.raises(FaultError):
        CachedMemory(Counting(4 * BLOCK)).read(address, size)


def test_beyond_the_limit_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(cached, "LIMIT", BLOCK)
    memory = Counting(4 * BLOCK)
    kept = CachedMemory(memory)
    for _ in range(3):
        kept.read(START, 8)
        kept.read(START + 2 * BLOCK, 8)
    assert memory.reads == 1 + 3


def test_a_page_that_cannot_be_read_spoils_no_others():
    """A guard in the midst of a mapping, as glibc makes them since 2.42."""
    data = bytes(range(256)) * (BLOCK // 256)
    holed = FakeMemory([(START, data[:0x1000]), (START + 0x2000, data[0x2000:])], [Region(START, START + BLOCK)])
    kept = CachedMemory(holed)
    assert bytes(kept.read(START + 8, 0xFF8)) == data[8:0x1000]
    assert bytes(kept.read(START + 0x2000, BLOCK - 0x2000)) == data[0x2000:]
    for address, size in ((START + 0x1000, 8), (START + 0xFFC, 8), (START, BLOCK)):
        with pytest.raises(FaultError):
            kept.read(address, size)
