"""What is called when an object file comes or goes, for caches that outlast a stop: types, symbol tables."""

from __future__ import annotations

from typing import Callable, List

_calls: List[Callable[[], None]] = []


def call_when_objfiles_change(call: Callable[[], None]) -> None:
    """Have a cache dropped when an object file comes or goes."""
    if call not in _calls:
        _calls.append(call)


def objfiles_changed() -> None:
    """Drop them all."""
    for call in _calls:
        call()
