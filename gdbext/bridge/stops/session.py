"""What is known of an inferior at its present stop, kept between commands.

A session dies with the stop: when the inferior goes on, when its memory is written, when an object
file comes or goes, and when it is another core or process than before. The last is seen by holding
one of gdb's thread objects, which gdb invalidates on detach, kill and ``core-file``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Dict, Optional

import gdb

from gdbext.bridge.decoded import decoded, name_of
from gdbext.bridge.expressions import language, selection
from gdbext.bridge.ports.debuginfo import GdbDebugInfo
from gdbext.bridge.stops import settings
from gdbext.bridge.stops.changes import objfiles_changed
from gdbext.bridge.stops.progress import TerminalProgress
from gdbext.errors import DebuggerError, NoTargetError
from gdbext.progress import checked
from gdbext.session import Session
from gdbext.starting import dependencies

if TYPE_CHECKING:  # every batch run pays for what is imported at start-up
    from gdbext.bridge.commands.elements import Elements
    from gdbext.grammar.arguments import Arguments
    from gdbext.grammar.catalogue import CommandSpec
    from gdbext.session.answers import Answer
    from gdbext.structures.shapes.library import Library
    from gdbext.target import Target

_ENDING_EVENTS = (
    "cont",
    "exited",
    "memory_changed",
    "register_changed",
    "inferior_call",
    "inferior_deleted",
)
_OBJFILE_EVENTS = ("new_objfile", "free_objfile", "clear_objfiles", "executable_changed")

_sessions: "Dict[int, GdbSession]" = {}


class GdbSession(Session):
    """One inferior at one stop.

    :ivar core: the core's name, where gdb has another file open for it.
    :ivar copy_of: a process of this machine of which gdb has a copy open as a core, or None.
    """

    def __init__(self) -> None:
        super().__init__(self._read, GdbDebugInfo(lambda: self.target))
        self._inferior = gdb.selected_inferior()
        # Each list of all threads takes its time where there are thousands.
        self._anchor = selection.find_thread() or next(iter(self._inferior.threads()), None)
        self._key = _identify(self._inferior)
        self._elements: Optional[Elements] = None
        self._ended = False
        self.core: Optional[str] = None
        self.copy_of: Optional[int] = None

    @property
    def fresh(self) -> bool:
        """Whether the inferior is still at the stop that this session describes."""
        if self._ended or not self._inferior.is_valid() or _identify(self._inferior) != self._key:
            return False
        return self._anchor is not None and self._anchor.is_valid()

    def _read(self) -> Target:
        dependencies.load()
        from gdbext.bridge.ports.target import read_target
        from gdbext.coretarget import as_process

        target = read_target()
        if self.copy_of is not None:
            return as_process(target, self.copy_of)
        return replace(target, identity=replace(target.identity, core=self.core or target.identity.core))

    @property
    def shapes(self) -> Library:
        """The shapes of the pack and the user's own."""
        return read_shapes()

    @property
    def elements(self) -> Elements:
        """What prints elements, tests them, and runs commands for them."""
        if self._elements is None:
            from gdbext.bridge.commands.elements import Elements

            self._elements = Elements()
        return self._elements

    def end(self) -> None:
        """Answer no more: the program has run since, or is gone."""
        self._ended = True

    def close(self) -> None:
        """Let go of the target; gdb's commands get a session of their own."""
        super().close()
        self.end()

    def _run(self, spec: CommandSpec, arguments: Arguments) -> Answer:
        if not self.fresh:
            raise NoTargetError("the session has ended with its stop", "gdbext.current() is the session of this one")
        if gdb.selected_inferior() != self._inferior:
            raise NoTargetError(f"inferior {self._inferior.num} is not selected", f"inferior {self._inferior.num}")
        self.settings = settings.current()
        self.progress = TerminalProgress(self.settings.get("time-budget", 0))
        dependencies.load()
        with language.like_c(), selection.kept(), checked(self.progress.check):
            try:
                return super()._run(spec, arguments)
            except gdb.error as error:
                raise DebuggerError(" ".join(str(error).split())) from None
            finally:
                self.progress.clear()
                self.close_elements()

    def close_elements(self) -> None:
        """Put back what of gdb's settings was changed for a command."""
        if self._elements is not None:
            self._elements.close()
            self._elements = None


def read_shapes() -> Library:
    """Return the pack's shapes and those in the folder of ``set gx shapes-folder``, which rule."""
    dependencies.load("tomli")
    from gdbext.structures.shapes import library

    return library.read_shapes(settings.current_text("shapes-folder").strip())


def current() -> GdbSession:
    """Return the selected inferior's session, a new one where the old has ended."""
    number = gdb.selected_inferior().num
    session = _sessions.get(number)
    if session is None or not session.fresh:
        session = _sessions[number] = GdbSession()
    return session


def drop() -> None:
    """End every session."""
    for session in _sessions.values():
        session.end()
    _sessions.clear()


def listen() -> None:
    """End sessions on gdb's events, as far as this gdb has them."""
    for events, react in ((_ENDING_EVENTS, _on_event), (_OBJFILE_EVENTS, _on_objfile)):
        for name in events:
            registry = getattr(gdb.events, name, None)
            if registry is not None:
                registry.connect(react)


def _on_event(event: object) -> None:
    drop()


def _on_objfile(event: object) -> None:
    drop()
    objfiles_changed()


def _identify(inferior: gdb.Inferior) -> tuple[object, ...]:
    # The sysroot decides which files stand in for what a core does not hold, the setting which pages are read.
    swapped = settings.current_value("swapped")
    return (inferior.pid, name_of(inferior.progspace), decoded(lambda: gdb.parameter("sysroot")), swapped)
