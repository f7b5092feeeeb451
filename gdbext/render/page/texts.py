"""Values of the document as people read them; all text is printable and short, whatever the target named it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Optional

from gdbext.render.values import shorten
from gdbext.wording import grouped, per_cent, printable, size_text, span_text

MOST = 300
_LEAST = 0.0005  # shares below are shown as 0 per cent
UNKNOWN = "–"  # not known, or there is none


def text(value: Any, most: int = MOST) -> str:
    """Return text on one line of a bounded length."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shorten(printable(str(value)[: 4 * most]), most)


def size(value: Optional[float]) -> str:
    """Return bytes as people read them."""
    return UNKNOWN if value is None else size_text(int(value))


def count(value: Optional[int]) -> str:
    """Return a count, its thousands set apart."""
    return UNKNOWN if value is None else grouped(int(value))


def share(value: Optional[float]) -> str:
    """Return a share as per cent; what would be shown as nothing is less than the least."""
    if value is not None and 0 < value < _LEAST:
        return f"< {per_cent(2 * _LEAST)}"
    return UNKNOWN if value is None else per_cent(value)


def when(value: Optional[float]) -> str:
    """Return a time, in seconds since the epoch, as date and minute (UTC); 0 is not known."""
    try:
        known = datetime.fromtimestamp(value, timezone.utc) if value else None
    except (ValueError, OverflowError, OSError):  # a clock that was set to anything
        known = None
    return UNKNOWN if known is None else known.strftime("%Y-%m-%d %H:%M")


def span(value: Optional[float]) -> str:
    """Return a span of time, given in seconds."""
    return UNKNOWN if value is None else span_text(value)


def fixed(value: float) -> str:
    """Return a length of a picture in no more digits than are seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
