"""Where bit-fields are. The bytes are those that gcc writes on each machine for the structures beside them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gdbext.bridge.ports.bitfields import place_bits


def read(data, placed, order):
    offset, size, (shift, width) = placed
    return int.from_bytes(data[offset : offset + size], order) >> shift & ((1 << width) - 1)


# struct { unsigned a : 3; unsigned b : 13; unsigned long long c : 40; } = {5, 0x1234, 0x9876543210}; gcc, x86-64.
LITTLE = bytes.fromhex("a591 1032547698 00".replace(" ", ""))
# struct { unsigned a : 4; unsigned b : 12; unsigned c : 16; } = {1, 0x234, 0x5678}; on a big-endian machine the
# first member has the most significant bits.
BIG = bytes.fromhex("12345678")


@pytest.mark.parametrize(
    "position, width, unit, value", [(0, 3, 4, 5), (3, 13, 4, 0x1234), (16, 40, 8, 0x9876543210)]
)
def test_little_endian(position, width, unit, value):
    placed = place_bits(position, width, unit, len(LITTLE), little=True)
    assert placed[0] % unit == 0 and placed[1] == unit
    assert read(LITTLE, placed, "little") == value


@pytest.mark.parametrize("position, width, value", [(0, 4, 1), (4, 12, 0x234), (16, 16, 0x5678)])
def test_big_endian(position, width, value):
    placed = place_bits(position, width, 4, len(BIG), little=False)
    assert placed[:2] == (0, 4) and read(BIG, placed, "big") == value


def test_packed_fields_may_start_at_any_byte():
    # struct { char a; int b : 30; } packed: five bytes, b in the last four.
    assert place_bits(8, 30, 4, 5, little=True) == (1, 4, (0, 30))


def test_the_unit_is_smaller_where_the_structure_is():
    assert place_bits(0, 3, 4, 1, little=True) == (0, 1, (0, 3))


def test_bits_of_nine_bytes_are_in_no_unit():
    assert place_bits(7, 63, 8, 9, little=True) is None


@given(st.integers(0, 200), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.data())
def test_a_unit_holds_all_bits_and_stays_inside(position, width, unit, little, data):
    size = data.draw(st.integers((position + width + 7) // 8, 40))
    placed = place_bits(position, width, unit, size, little)
    assume(placed is not None)
    offset, bytes_, (shift, got) = placed
    assert got == width and offset >= 0 and offset + bytes_ <= size and shift >= 0 and shift + width <= 8 * bytes_
    order = "little" if little else "big"
    one = bytearray(size)
    for bit in range(position, position + width):
        one[bit // 8] |= 1 << bit % 8 if little else 0x80 >> bit % 8
    assert read(bytes(one), placed, order) == (1 << width) - 1
