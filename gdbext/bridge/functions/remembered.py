"""What ``$gx_note`` remembers for each thread, and what ``$gx_every`` counts."""

from __future__ import annotations

from typing import NamedTuple, Optional

import gdb

from gdbext.bridge.expressions.selection import find_thread


class Sized(NamedTuple):
    """A number as wide as its type.

    :param size: bytes.
    """

    number: int
    size: int

    def differs(self, other: "Sized") -> bool:
        """Return whether they are unequal in the bytes that both have."""
        mask = (1 << (8 * min(self.size, other.size))) - 1
        return (self.number ^ other.number) & mask != 0


_noted: "dict[tuple[str, object], Sized]" = {}
_counts: "dict[str, int]" = {}


def note(name: str, value: Sized) -> None:
    """Remember a value for the selected thread."""
    _noted[name, _thread()] = value


def find(name: str) -> Optional[Sized]:
    """Return what the selected thread noted last, or None."""
    return _noted.get((name, _thread()))


def forget(name: str) -> None:
    """Forget what the selected thread noted."""
    _noted.pop((name, _thread()), None)


def count(name: str) -> int:
    """Return how many times this was called with a name, from 1 on."""
    _counts[name] = _counts.get(name, 0) + 1
    return _counts[name]


def find_count(name: str) -> int:
    """Return how many times :func:`count` was called with a name."""
    return _counts.get(name, 0)


def drop(name: str) -> None:
    """Forget all about a name."""
    _counts.pop(name, None)
    for key in [key for key in _noted if key[0] == name]:
        del _noted[key]


def listen() -> None:
    """Start afresh when a program ends."""
    gdb.events.exited.connect(_on_exit)


def _on_exit(event: object) -> None:
    _noted.clear()
    _counts.clear()


def _thread() -> object:
    thread = find_thread()
    return None if thread is None else thread.ptid
