"""One value as text: sizes, shares, addresses, threads; ``None`` is "?" in every kind.

What comes from a target is untrusted: control characters in names would reach the terminal, so all
text is shown with the unprintable escaped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Optional, Sequence

from gdbext.report import Bar, Kind, Labels, Show, ThreadRef
from gdbext.wording import grouped, per_cent, printable, size_text

UNKNOWN = "?"
_NUMERIC = frozenset((Kind.ADDRESS, Kind.BYTES, Kind.COUNT, Kind.NUMBER, Kind.SHARE))


def is_numeric(kind: Kind) -> bool:
    """Return whether values of that kind are right-aligned and never shortened."""
    return kind in _NUMERIC


def show_of(field: "dataclasses.Field[Any]") -> Optional[Show]:
    """Return a field's declaration, or None when it has none."""
    show = field.metadata.get("show")
    return show if isinstance(show, Show) else None


def shown_fields(record_type: type, labels: Labels) -> list[tuple[str, Show]]:
    """Return the fields that a dataclass shows in text, with how they are shown.

    :param labels: what one report shows otherwise than is declared.
    """
    fields = [(field.name, show_of(field)) for field in dataclasses.fields(record_type)]
    labelled = [
        (name, show._replace(label=labels.get((record_type, name), show.label)))
        for name, show in fields
        if show is not None
    ]
    return [(name, show) for name, show in labelled if show.label is not None]


def value_text(value: Any, kind: Kind, *, exact: bool = False) -> str:
    """Return a value of a field as text, on one line.

    :param exact: sizes as plain digits.
    """
    if value is None:
        return UNKNOWN
    if kind is Kind.ADDRESS:
        return f"{int(value):#x}"
    if kind is Kind.BYTES:
        return str(int(value)) if exact else size_text(int(value))
    if kind is Kind.COUNT:
        return grouped(int(value))
    if kind is Kind.NUMBER:
        return str(int(value))
    if kind is Kind.SHARE:
        return per_cent(float(value)) if math.isfinite(value) else UNKNOWN
    if kind is Kind.FLAG:
        return "yes" if value else "no"
    if kind is Kind.THREADS:
        return ", ".join(thread_text(thread) for thread in value)
    if isinstance(value, Bar):
        return UNKNOWN if value.share is None else per_cent(value.share)
    return object_text(value, exact=exact)


def thread_text(thread: ThreadRef) -> str:
    """Return "3 worker-1"; the lwp stands in for an unknown number."""
    number = f"lwp {thread.lwp}" if thread.number is None else str(thread.number)
    if thread.number is None and thread.lwp is None:
        number = UNKNOWN
    return f"{number} {printable(thread.name)}" if thread.name else number


def object_text(value: Any, *, exact: bool = False) -> str:
    """Return any value compactly on one line: "label value, label value" for what has members."""
    if value is None:
        return UNKNOWN
    if isinstance(value, ThreadRef):
        return thread_text(value)
    if isinstance(value, Enum):
        return printable(str(value.value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _members_text(value, exact)
    if isinstance(value, Mapping):
        pairs = (f"{object_text(key)} {object_text(item, exact=exact)}" for key, item in value.items())
        return ", ".join(pairs)
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return ", ".join(object_text(item, exact=exact) for item in value)
    return printable(str(value))


def _members_text(value: Any, exact: bool) -> str:
    parts = []
    for field in dataclasses.fields(value):
        show = show_of(field) or Show("line", field.name.replace("_", " "), Kind.OBJECT)
        if show.label is not None:
            shown = value_text(getattr(value, field.name), show.kind, exact=exact)
            parts.append(f"{show.label} {shown}")
    return ", ".join(parts)


def shorten(text: str, width: int) -> str:
    """Return ``text`` within ``width`` characters: paths and names of templates lose their middle, the rest its end."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    if "/" not in text and "<" not in text:
        return text[: width - 1] + "…"
    tail = (width - 1) * 2 // 3
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]


def threads_within(threads: Iterable[ThreadRef], width: int) -> str:
    """Return as many threads as fit ``width``, then "+N more"; at least that."""
    names = [thread_text(thread) for thread in threads]
    whole = ", ".join(names)
    if len(whole) <= width:
        return whole
    for shown in range(len(names) - 1, 0, -1):
        cut = _cut(names, shown)
        if len(cut) <= width:
            return cut
    return shorten(f"+{len(names)} more" if len(names) > 1 else whole, width)


def threads_width(threads: Iterable[ThreadRef]) -> int:
    """Return the characters that :func:`threads_within` needs to name one thread at least."""
    names = [thread_text(thread) for thread in threads]
    if len(names) < 2:
        return sum(map(len, names))
    return min(len(", ".join(names)), len(_cut(names, 1)))


def _cut(names: Sequence[str], shown: int) -> str:
    return f"{', '.join(names[:shown])} +{len(names) - shown} more"
