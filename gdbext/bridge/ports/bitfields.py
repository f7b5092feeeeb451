"""Where a bit-field is, as shift and width in a unit that can be read as a number."""

from __future__ import annotations

from typing import Optional, Tuple

_UNITS = (1, 2, 4, 8)


def place_bits(
    position: int, width: int, unit: int, size: int, little: bool
) -> Optional[Tuple[int, int, Tuple[int, int]]]:
    """Return (offset of the unit, its size, (shift, width)), or None when no unit of 8 bytes holds all bits.

    :param position: bits from the structure's start, counted as the target does: on a big-endian one from
        each byte's most significant bit (DWARF 5, 5.7.6, DW_AT_data_bit_offset).
    :param unit: bytes of the declared type.
    :param size: bytes of the structure; the unit stays inside.
    :param little: whether the target is little-endian.
    """
    for bytes_ in sorted(_UNITS, key=lambda tried: (tried != unit, tried)):
        for offset in _offsets(position, bytes_, size):
            before = position - 8 * offset
            if before >= 0 and before + width <= 8 * bytes_:
                shift = before if little else 8 * bytes_ - before - width
                return offset, bytes_, (shift, width)
    return None


def _offsets(position: int, unit: int, size: int) -> Tuple[int, ...]:
    """Return where the unit may start: aligned as compilers have it, else (packed) at or before the first byte."""
    first = position // 8
    last = size - unit
    if last < 0:
        return ()
    return tuple(offset for offset in (first - first % unit, first, last) if offset <= last)
