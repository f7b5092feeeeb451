"""Where long work says how far it is, and asks whether it may go on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator, List, Optional, Protocol


class Progress(Protocol):
    """Told by every loop that may last. The bridge prints; elsewhere :data:`SILENT` serves."""

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Note that ``done`` of ``total`` (None: unknown) units of ``doing`` are behind us.

        :raises KeyboardInterrupt: when the user has asked to stop or the time is up; walkers
            catch it in one place, at the heap builder, and return what they have.
        """


class Silent:
    """Progress that nobody watches."""

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Do nothing."""


SILENT: Progress = Silent()

_checks: List[Callable[[], None]] = []


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Have ``check`` called between the steps of kernels, which know of no progress; what it raises ends them."""
    _checks.append(check)
    try:
        yield
    finally:
        _checks.remove(check)


def check() -> None:
    """Ask whether long work may go on.

    :raises KeyboardInterrupt: when it may not.
    """
    for one in _checks:
        one()
