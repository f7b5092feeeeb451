"""Memory made of pieces, and the fake built on it, against a plain dictionary of bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.errors import FaultError
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory


@given(
    st.lists(st.tuples(st.integers(0, 6), st.binary(max_size=12)), max_size=8),
    st.lists(st.tuples(st.integers(-3, 120), st.integers(-2, 40)), max_size=30),
)
def test_reads_are_the_bytes(gaps, asked):
    at, segments, truth = 0, [], {}
    for gap, data in gaps:
        at += gap
        segments.append((at, data))
        truth.update({at + i: byte for i, byte in enumerate(data)})
        at += len(data)
    memory = FakeMemory(reversed(segments))
    for address, size in asked:
        wanted = [truth.get(address + i) for i in range(max(size, 0))]
        if size > 0 and None not in wanted:
            assert bytes(memory.read(address, size)) == bytes(wanted)
            assert bytes(memory.view(address, size)) == bytes(wanted)
        elif size:
            with pytest.raises(FaultError) as fault:
                memory.read(address, size)
            assert (fault.value.address, fault.value.size) == (address, size)


def test_fake_regions():
    memory = FakeMemory([(0x2000, b"b"), (0x1000, b"a" * 4)])
    assert memory.regions() == [Region(0x1000, 0x1004), Region(0x2000, 0x2001)]
    given = [Region(0x9000, 0xA000, "r--", "x"), Region(0x1000, 0x2000)]
    assert [r.start for r in FakeMemory([], given).regions()] == [0x1000, 0x9000]


def test_fake_does_not_copy():
    data = bytearray(b"abcd")
    memory = FakeMemory([(0x1000, data)])
    part = memory.read(0x1001, 2)
    data[1] = 0x7A
    assert bytes(part) == b"zc"
