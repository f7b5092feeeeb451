"""Sizes, counts and shares in words: one style for sentences of findings and for cells of tables."""

from __future__ import annotations

from typing import Optional

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int) -> str:
    """Return bytes with the largest fitting unit, in three digits and more; round figures without a decimal."""
    value, unit = float(size), "B"
    for larger in _UNITS:
        if abs(value) < 1023.5:
            break
        value, unit = value / 1024, larger
    digits = f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
    return f"{digits[:-2] if digits.endswith('.0') else digits} {unit}"


def address_text(address: Optional[int]) -> Optional[str]:
    """Return "0x…" for what JSON has as an address, None where it is not known."""
    return None if address is None else f"{address:#x}"


def grouped(number: int) -> str:
    """Return a count, its thousands set apart by spaces."""
    return f"{number:,}".replace(",", " ")


def count_text(count: int, noun: str, plural: Optional[str] = None) -> str:
    """Return "1 run", "2 runs", "20 000 runs"."""
    return f"{grouped(count)} {noun if count == 1 else plural or noun + 's'}"


def share_text(part: int, whole: int) -> str:
    """Return a part as per cent of the whole, or "?" of nothing."""
    return per_cent(part / whole) if whole else "?"


def per_cent(share: float) -> str:
    """Return a share as per cent: below 10 with a decimal, unless it is round."""
    value = 100 * share
    digits = f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    return f"{digits[:-2] if digits.endswith('.0') else digits} %"
