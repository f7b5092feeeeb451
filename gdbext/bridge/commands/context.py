"""One run of one command: the session that it asks, with its own settings and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional

from gdbext.bridge.stops import session, settings
from gdbext.bridge.stops.progress import TerminalProgress

if TYPE_CHECKING:
    from gdbext.target import Target


class Context:
    """It."""

    def __init__(self) -> None:
        self.settings: Mapping[str, int] = settings.current()
        self.progress = TerminalProgress(self.settings.get("time-budget", 0))
        self._session: Optional[session.GdbSession] = None

    @property
    def session(self) -> session.GdbSession:
        """The selected inferior's session."""
        if self._session is None:
            self._session = session.current()
            self._session.settings, self._session.progress = self.settings, self.progress
        return self._session

    @property
    def known_target(self) -> Optional[Target]:
        """The target if anything has asked for it, for an error's envelope."""
        return self._session.known_target if self._session else None

    def close(self) -> None:
        """Put back what of gdb's settings was changed for the command."""
        if self._session is not None:
            self._session.close_elements()
