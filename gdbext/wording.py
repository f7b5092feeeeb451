"""Sizes, counts and shares in words: one style for sentences of findings and for cells of tables.

And text from outside (names of a target, of files, a debugger's words) made fit for a terminal.
"""

from __future__ import annotations

import locale
import os
from typing import Optional

_ASCII = str.maketrans(
    {"…": "...", "−": "-", "·": ".", "×": "x", "→": "->", "←": "<-", "µ": "u", "█": "#", "▌": "#", "‘": "'", "’": "'"}
)
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
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


def span_text(seconds: float) -> str:
    """Return a span of time with the largest fitting unit: "42 s", "5 min", "3.2 h", "12 days"."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            value = seconds / size
            return f"{_two_digits(value)} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(value: float) -> str:
    """Return a number in two digits and more; round ones without a decimal."""
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else grouped(round(value))


def printable(text: str, keep: str = "") -> str:
    """Return text on one line: controls, marks of direction and bytes that are no characters are escaped.

    :param keep: control characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte of a file's name, as Python keeps it
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def unicode_text(text: str) -> str:
    """Return text that every encoder takes: bytes that are no characters are escaped."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        known = all("\udc80" <= char <= "\udcff" for char in text if "\ud800" <= char <= "\udfff")
        data = text.encode("utf-8", "surrogateescape" if known else "backslashreplace")
        return data.decode("utf-8", "backslashreplace")
    return text


def encodable(text: str, charset: str) -> str:
    """Return the text in characters that a charset has; others are replaced, or written as an escape."""
    if text.isascii():
        return text
    try:
        text.encode(charset)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(charset, "backslashreplace").decode(charset)
    return text


def only_ascii() -> bool:
    """Whether the user's locale may have no more than ASCII, also where Python has taken C.UTF-8 in its place."""
    codeset = locale.nl_langinfo(locale.CODESET).lower().replace("-", "")
    return not codeset.startswith("utf") or _is_coerced()


def _is_coerced() -> bool:
    """Whether Python has set LC_CTYPE (PEP 538): then it is not in the environment that the process was given."""
    if os.environ.get("LC_CTYPE") not in _COERCED or os.environ.get("LC_ALL"):
        return False
    try:
        with open("/proc/self/environ", "rb") as file:
            return not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0"))
    except OSError:
        return False
