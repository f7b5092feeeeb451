"""What is known of an inferior at its present stop, kept between commands.

A session dies with the stop: when the inferior goes on, when its memory is written, when an object
file comes or goes, and when it is another core or process than before. The last is seen by holding
one of gdb's thread objects, which gdb invalidates on detach, kill and ``core-file``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Sequence

import gdb

from gdbext.bridge import dependencies
from gdbext.bridge.stops import settings

if TYPE_CHECKING:  # every batch run pays for what is imported at start-up
    from gdbext.analysis.reach.graph import Reach
    from gdbext.analysis.reach.model import Reading
    from gdbext.analysis.types.model import BlockTypes
    from gdbext.analysis.types.shaped import ShapedTable
    from gdbext.bridge.ports.types import GdbTypes
    from gdbext.progress import Progress
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

# For finding all types beside what leaked, which is no more than an addition.
_VARIABLES = 10_000
_OBJECTS = 1 << 22

_sessions: "dict[int, Session]" = {}
_objfile_calls: "list[Callable[[], None]]" = []


class Session:
    """One inferior at one stop."""

    def __init__(self) -> None:
        self._inferior = gdb.selected_inferior()
        self._anchor = next(iter(self._inferior.threads()), None)
        self._key = _identify(self._inferior)
        self._target: Optional[Target] = None
        self.core: Optional[str] = None  # the core's name, where gdb has another file open for it
        self._heaps: Optional[Sequence[Any]] = None
        self._types: Optional[GdbTypes] = None
        self._reach: "dict[Reading, Reach]" = {}
        self._block_types: "Optional[tuple[Reach, BlockTypes]]" = None

    @property
    def fresh(self) -> bool:
        """Whether the inferior is still at the stop that this session describes."""
        if not self._inferior.is_valid() or _identify(self._inferior) != self._key:
            return False
        return self._anchor is not None and self._anchor.is_valid()

    @property
    def known_target(self) -> Optional[Target]:
        """The target when a command has asked for it before, else None."""
        return self._target

    def target(self) -> Target:
        """Return the target.

        :raises MissingDependencyError: when gdb's Python lacks numpy.
        :raises GdbextError: as ``gdbext.bridge.ports.target.read_target``.
        """
        if self._target is None:
            dependencies.load()
            from gdbext.bridge.ports.target import read_target

            target = read_target()
            identity = replace(target.identity, core=self.core or target.identity.core)
            self._target = replace(target, identity=identity)
        return self._target

    def types(self) -> GdbTypes:
        """Return the types and globals of the inferior."""
        if self._types is None:
            from gdbext.bridge.ports.types import GdbTypes

            self._types = GdbTypes()
        return self._types

    @property
    def known_heaps(self) -> Sequence[Any]:
        """The heaps when a command has asked for them before, else none."""
        return self._heaps or ()

    def heaps(self, progress: Progress) -> Sequence[Any]:
        """Return every heap of the target. What was interrupted is made anew next time; absent memory stays absent."""
        if self._heaps is not None:
            return self._heaps
        from gdbext.heap.detect import find_heaps

        heaps = find_heaps(self.target(), progress)
        if not any(heap.interrupted for heap in heaps):
            self._heaps = heaps
        return heaps

    def reach(self, reading: Reading, progress: Progress, most_copied: int) -> Reach:
        """Return what can be reached from the target's roots; as :meth:`heaps`, made anew after an interruption.

        :param reading: what counts as a pointer; the last that was asked for is kept.
        :param most_copied: bytes of a process's memory that may be copied.
        :raises NoHeapError: when there is no heap.
        :raises TooLargeError: when more would have to be copied.
        """
        known = self._reach.get(reading)
        if known is None:
            from gdbext.analysis.reach.mark import read_reach

            known = read_reach(self.target(), self.heaps(progress), reading, progress, most_copied)
            if known.marked.complete:
                self._reach = {reading: known}
        known.progress = progress  # this command's, not that of the one that asked first
        return known

    def known_reach(self, reading: Reading) -> Optional[Reach]:
        """Return what :meth:`reach` would return where a command has asked for it before, else None."""
        return self._reach.get(reading)

    def known_block_types(self, reach: Reach) -> Optional[BlockTypes]:
        """Return what :meth:`block_types` would return where a command has asked for it before, else None."""
        known = self._block_types
        return known[1] if known is not None and known[0] is reach else None

    def leaked_types(self, reach: Reach, progress: Progress, alike: bool = False) -> BlockTypes:
        """Return what the leaked blocks of ``reach`` are; others may be unknown.

        :param alike: whether to tell also what they are like, where blocks are few.
        """
        known = self.known_block_types(reach)
        if known is not None:
            return known
        from gdbext.analysis.types.find import find_types
        from gdbext.bridge.commands.reachability import FEW_BLOCKS
        from gdbext.bridge.ports.typeclues import read_clues

        if not (alike and len(reach) <= FEW_BLOCKS and reach.any_leaked):
            return find_types(reach, read_clues(self.target()), progress, leaked=True)
        found = find_types(reach, read_clues(self.target(), _VARIABLES), progress, objects=_OBJECTS)
        if not found.problems:
            self._block_types = reach, found
        # What was ended or lacked debug info concerns blocks that are not leaked, and similarity, which is no promise.
        return replace(found, problems=[one for one in found.problems if one.kind == "interrupted"])

    def block_types(
        self, reach: Reach, progress: Progress, tables: Callable[[], Iterable[ShapedTable]] = tuple
    ) -> BlockTypes:
        """Return what the blocks of ``reach`` are.

        :param tables: looks for tables of known shapes.
        """
        if self._block_types is None or self._block_types[0] is not reach:
            from gdbext.analysis.types.find import find_types
            from gdbext.bridge.ports.typeclues import read_clues

            found = find_types(reach, read_clues(self.target()), progress, tables=tables())
            if any(problem.kind == "interrupted" for problem in found.problems):
                return found  # made anew next time
            self._block_types = reach, found
        return self._block_types[1]


def current() -> Session:
    """Return the selected inferior's session, a new one where the old has ended."""
    number = gdb.selected_inferior().num
    session = _sessions.get(number)
    if session is None or not session.fresh:
        session = _sessions[number] = Session()
    return session


def drop() -> None:
    """End every session."""
    _sessions.clear()


def call_when_objfiles_change(call: Callable[[], None]) -> None:
    """Have a cache dropped when an object file comes or goes, for what outlasts a stop: types, symbol tables."""
    if call not in _objfile_calls:
        _objfile_calls.append(call)


def listen() -> None:
    """End sessions on gdb's events, as far as this gdb has them."""
    for names, react in ((_ENDING_EVENTS, _on_event), (_OBJFILE_EVENTS, _on_objfile)):
        for name in names:
            registry = getattr(gdb.events, name, None)
            if registry is not None:
                registry.connect(react)


def _on_event(event: object) -> None:
    drop()


def _on_objfile(event: object) -> None:
    drop()
    for call in _objfile_calls:
        call()


def _identify(inferior: gdb.Inferior) -> tuple[object, ...]:
    # The sysroot decides which files stand in for what a core does not hold, the setting which pages are read.
    swapped = settings.current_value("swapped")
    return (inferior.pid, inferior.progspace.filename, gdb.parameter("sysroot"), swapped)
