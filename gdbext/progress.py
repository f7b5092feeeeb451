"""Where long work says how far it is, and asks whether it may go on."""

from __future__ import annotations

from typing import Optional, Protocol


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
