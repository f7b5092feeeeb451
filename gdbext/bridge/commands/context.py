"""What a command's function is given: the target, its heaps, the settings, and the user's expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

from gdbext.bridge.expressions.evaluate import evaluate
from gdbext.bridge.stops import session, settings
from gdbext.bridge.stops.progress import TerminalProgress
from gdbext.errors import NoHeapError

if TYPE_CHECKING:
    from gdbext.analysis.reach.graph import Reach
    from gdbext.analysis.reach.model import Reading
    from gdbext.analysis.types.model import BlockTypes
    from gdbext.analysis.types.shaped import ShapedTable
    from gdbext.bridge.commands.elements import Elements
    from gdbext.bridge.ports.discover import Discovery
    from gdbext.bridge.ports.stacks import GdbStacks
    from gdbext.bridge.ports.types import GdbTypes
    from gdbext.debuginfo import RootNames
    from gdbext.layout.types import Located, Type
    from gdbext.structures.shapes.library import Library
    from gdbext.target import Target


class Context:
    """One run of one command."""

    def __init__(self) -> None:
        self.settings: Mapping[str, int] = settings.current()
        self.progress = TerminalProgress(self.settings.get("time-budget", 0))
        self._session: Optional[session.Session] = None
        self._elements: Optional[Elements] = None

    @property
    def session(self) -> session.Session:
        """The selected inferior's session."""
        if self._session is None:
            self._session = session.current()
        return self._session

    @property
    def known_target(self) -> Optional[Target]:
        """The target if anything has asked for it, for an error's envelope."""
        return self._session.known_target if self._session else None

    @property
    def target(self) -> Target:
        """What is being looked at.

        :raises NoTargetError: when there is nothing, or it runs.
        """
        return self.session.target()

    def heaps(self) -> Sequence[Any]:
        """Return every heap of the target, as ``gdbext.heap.model.Heap``; it may be none."""
        return self.session.heaps(self.progress)

    def reach(self, reading: Reading) -> Reach:
        """Return what can be reached from the target's roots.

        :param reading: what counts as a pointer.
        :raises NoHeapError: when there is no heap.
        :raises TooLargeError: when more of a process would have to be copied than the settings allow.
        """
        return self.session.reach(reading, self.progress, self.settings["copied-memory"])

    def known_reach(self, reading: Reading) -> Optional[Reach]:
        """Return what :meth:`reach` would where a command has asked for it before, else None."""
        return self.session.known_reach(reading)

    @property
    def root_names(self) -> RootNames:
        """What gdb knows of variables, frames and registers."""
        from gdbext.bridge.ports.rootnames import GdbRootNames

        return GdbRootNames(self.target, self.types)

    def known_block_types(self, reach: Reach) -> Optional[BlockTypes]:
        """Return what :meth:`block_types` would return where a command has asked for it before, else None."""
        return self.session.known_block_types(reach)

    def leaked_types(self, reach: Reach) -> BlockTypes:
        """Return what the leaked blocks of ``reach`` are, and are like; others may be unknown."""
        return self.session.leaked_types(reach, self.progress, alike=True)

    def block_types(self, reach: Reach) -> BlockTypes:
        """Return what the blocks of ``reach`` are."""
        return self.session.block_types(reach, self.progress, self._shaped_tables)

    def _shaped_tables(self) -> Sequence[ShapedTable]:
        """Return the tables that the program's variables lead to, as far as ``set gx table-search-variables`` goes."""
        from gdbext.analysis.types.shaped import shaped_tables
        from gdbext.bridge.commands.tables import find_tables

        found: "list[ShapedTable]" = []
        find_tables(self, lambda looked: found.extend(shaped_tables(looked)))
        return found

    @property
    def known_heaps(self) -> Sequence[Any]:
        """The heaps as far as a command has walked them before, for what is not worth a walk."""
        return self.session.known_heaps

    def heap(self, allocator: str) -> Any:
        """Return the one heap of an allocator ("glibc").

        :raises NoHeapError: when the target has none.
        """
        return self.heaps_of(allocator)[0]

    def heaps_of(self, family: str, name: Optional[str] = None) -> Sequence[Any]:
        """Return the heaps of one allocator ("jemalloc"): there may be several, told apart by name.

        :param name: the one that is wanted, as reports call it or only what tells it apart ("je_"); None for all.
        :raises NoHeapError: when the target has none.
        """
        heaps = self.heaps()
        found = [heap for heap in heaps if heap.family == family and heap.detail is not None]
        if found and name is None:
            return found
        if found:
            named = [heap for heap in found if name in (heap.allocator, heap.allocator.partition(" ")[2])]
            if named:
                return named
            raise NoHeapError(f"no heap {name!r}", f"it has: {', '.join(heap.allocator for heap in found)}")
        raise _no_heap(heaps, family)

    def unread(self, family: str) -> Sequence[Any]:
        """Return the heaps of an allocator that are there and could not be read: they have problems and no detail."""
        return [heap for heap in self.heaps() if heap.family == family and heap.detail is None]

    def evaluate(self, expression: str) -> int:
        """Return an expression's value as an unsigned word.

        :raises UsageError: when it has none, or would write to the target or run it.
        """
        return evaluate(expression, self.target.abi.word_mask)

    def locate(self, expression: str) -> Located:
        """Return what an expression means: an object in memory, a pointer, or a number.

        :raises UsageError: as :meth:`evaluate`.
        """
        from gdbext.bridge.expressions.locate import locate

        self.session.target()  # where there is none, that is the error
        return locate(expression)

    def find_variables(self, matches: Callable[[Type], bool], limit: int, most: int) -> Discovery:
        """Find the variables whose type is wanted; see ``gdbext.bridge.ports.discover``."""
        from gdbext.bridge.ports.discover import find_variables

        return find_variables(matches, limit, most)

    @property
    def stacks(self) -> GdbStacks:
        """What unwinds the target's threads; hold it, since it keeps what it has unwound."""
        from gdbext.bridge.ports.stacks import GdbStacks

        return GdbStacks(self.target)

    @property
    def types(self) -> GdbTypes:
        """The target's types and globals."""
        return self.session.types()

    @property
    def shapes(self) -> Library:
        """The shapes of the pack and the user's own."""
        from gdbext.bridge.commands.shapes import read_shapes

        return read_shapes()

    @property
    def elements(self) -> Elements:
        """What prints elements, tests them, and runs commands for them."""
        if self._elements is None:
            from gdbext.bridge.commands.elements import Elements

            self._elements = Elements()
        return self._elements

    def close(self) -> None:
        """Put back what of gdb's settings was changed for the command."""
        if self._elements is not None:
            self._elements.close()


def _no_heap(heaps: Sequence[Any], family: str) -> NoHeapError:
    """Return what is known of an allocator that has no heap that could be read, else which others there are."""
    doubts = [problem.message for heap in heaps if heap.family == family for problem in heap.problems]
    if doubts:  # in the message: where the core lacks memory, the hint is about that
        return NoHeapError(f"no {family} heap in this target can be read: {'; '.join(doubts)}")
    others = ", ".join(sorted({heap.allocator for heap in heaps if heap.detail is not None}))
    known = f"it has: {others}" if others else "no heap of an allocator that gdbext knows was found"
    return NoHeapError(f"no {family} heap in this target", known)
