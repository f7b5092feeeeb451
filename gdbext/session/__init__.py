"""One target at one stop: whatever is expensive is made once, and kept here for whoever asks next."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from gdbext.debuginfo import NO_DEBUG_INFO, DebugInfo
from gdbext.errors import NoHeapError, NoTargetError, UsageError
from gdbext.progress import SILENT, Progress, limit_threads
from gdbext.report import Problem
from gdbext.session.answers import Answer, Table
from gdbext.session.stopping import Stops

if TYPE_CHECKING:  # in gdb every batch run pays for what is imported at start-up
    from gdbext.analysis.reach.graph import Reach
    from gdbext.analysis.reach.model import Reading
    from gdbext.analysis.tables.elements import ElementPort
    from gdbext.analysis.types.model import BlockTypes
    from gdbext.analysis.types.shaped import ShapedTable
    from gdbext.debuginfo import RootNames, Stacks, Types
    from gdbext.grammar.arguments import Arguments
    from gdbext.grammar.catalogue import CommandSpec
    from gdbext.heap.model import Heap
    from gdbext.layout.types import Located
    from gdbext.report import Report
    from gdbext.structures.shapes.library import Library
    from gdbext.target import Target

FEW_BLOCKS = 1 << 20  # the types of so many are found without being asked for

# For finding all types beside what leaked, which is no more than an addition.
_VARIABLES = 10_000
_OBJECTS = 1 << 22


class Session:
    """One target, and what was made of it.

    :param read_target: makes the target, when it is first asked for.
    :param debug: what a debugger knows of it.
    :param settings: values by name; every setting is there.
    :param shapes_folder: the user's own shapes; "" for none.
    :param let_go: called once, when the session is closed.
    :ivar progress: of what runs now.
    """

    def __init__(
        self,
        read_target: Callable[[], Target],
        debug: DebugInfo = NO_DEBUG_INFO,
        settings: Mapping[str, int] = {},  # noqa: B006  never changed
        shapes_folder: str = "",
        let_go: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.shapes_folder = shapes_folder
        self._stops = Stops()
        self.progress: Progress = self._stops
        self._debug = debug
        self._read_target = read_target
        self._let_go = let_go
        self._target: Optional[Target] = None
        self._heaps: Optional[Sequence[Heap]] = None
        self._reach: Dict[Reading, Reach] = {}
        self._block_types: Optional[Tuple[Reach, BlockTypes]] = None

    # ---- the target ----

    @property
    def known_target(self) -> Optional[Target]:
        """The target when somebody has asked for it before, else None."""
        return self._target

    @property
    def target(self) -> Target:
        """What is examined.

        :raises GdbextError: as what reads it.
        """
        if self._target is None:
            self._target = self._read_target()
        return self._target

    @property
    def debug(self) -> DebugInfo:
        """What a debugger knows of it."""
        return self._debug

    @property
    def types(self) -> Types:
        """The target's types and globals."""
        return self.debug.types

    @property
    def stacks(self) -> Stacks:
        """What unwinds the target's threads; hold it, since it keeps what it has unwound."""
        return self.debug.stacks

    @property
    def root_names(self) -> RootNames:
        """What roots are called."""
        return self.debug.names

    @property
    def shapes(self) -> Library:
        """The containers that are known: those of the pack, and the user's own."""
        from gdbext.structures.shapes.library import read_shapes

        return read_shapes(self.shapes_folder)

    @property
    def elements(self) -> ElementPort:
        """What prints elements, tests them, and runs commands for them.

        :raises UsageError: that needs gdb.
        """
        raise UsageError("elements are printed and tested in gdb alone")

    def evaluate(self, expression: str) -> int:
        """Return an expression's value as an unsigned word.

        :raises UsageError: when it has none, or would write to the target or run it.
        """
        return self.debug.evaluate(expression, self.target.abi.word_mask)

    def locate(self, expression: str) -> Located:
        """Return what an expression means: an object in memory, a pointer, or a number.

        :raises UsageError: as :meth:`evaluate`; or it is a variable whose bytes are not in the core: a debugger would
            take those of the program's file.
        """
        regions = self.target.memory.regions()
        found = self.debug.locate(expression)
        if found.value is None or found.address is None:
            return found
        region = next((one for one in regions if one.start <= found.address < one.end), None)
        if region is not None and region.writable and region.source == "absent":
            raise UsageError(f"cannot evaluate {expression!r}: memory at {found.address:#x} is not in the core")
        return found

    # ---- its heaps ----

    @property
    def known_heaps(self) -> Sequence[Heap]:
        """The heaps as far as they were walked before, for what is not worth a walk."""
        return self._heaps or ()

    def heaps(self) -> Sequence[Heap]:
        """Return every heap of the target. What was interrupted is made anew next time; absent memory stays absent."""
        if self._heaps is not None:
            return self._heaps
        from gdbext.heap.detect import find_heaps
        from gdbext.memory import spare_memory
        from gdbext.memory.room import give_back

        spare_memory(self.target.memory, self.settings.get("max-memory", 0))
        heaps = find_heaps(self.target, self.progress)
        give_back()
        if not any(heap.interrupted for heap in heaps):
            self._heaps = heaps
        return heaps

    def heap(self, allocator: str) -> Heap:
        """Return the one heap of an allocator ("glibc").

        :raises NoHeapError: when the target has none.
        """
        return self.heaps_of(allocator)[0]

    def heaps_of(self, family: str, name: Optional[str] = None) -> Sequence[Heap]:
        """Return the heaps of one allocator ("jemalloc"): there may be several, distinguished by name.

        :param name: the one that is wanted, as reports call it or only what distinguishes it ("je_"); None for all.
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

    def unread(self, family: str) -> Sequence[Heap]:
        """Return the heaps of an allocator that are there and could not be read: they have problems and no detail."""
        return [heap for heap in self.heaps() if heap.family == family and heap.detail is None]

    # ---- what of them can be reached, and what it is ----

    def reach(self, reading: Reading, progress: Optional[Progress] = None, most_copied: Optional[int] = None) -> Reach:
        """Return what can be reached from the target's roots; as :meth:`heaps`, made anew after an interruption.

        :param reading: what counts as a pointer; the last that was asked for is kept.
        :param most_copied: bytes of a process's memory that may be copied; None is what the settings allow.
        :raises NoHeapError: when there is no heap.
        :raises TooLargeError: when more would have to be copied, or there is not enough memory for it.
        """
        progress = progress or self.progress
        known = self._reach.get(reading)
        if known is None:
            from gdbext.analysis.reach.mark import read_reach

            most = self.settings.get("copied-memory", 0) if most_copied is None else most_copied
            known = read_reach(self.target, self.heaps(), reading, progress, most, self.settings.get("max-memory", 0))
            if known.marked.complete:
                self._reach = {reading: known}
        known.progress = progress  # of this question, not of the one that asked first
        return known

    def known_reach(self, reading: Reading) -> Optional[Reach]:
        """Return what :meth:`reach` would where somebody has asked for it before, else None."""
        return self._reach.get(reading)

    def known_block_types(self, reach: Reach) -> Optional[BlockTypes]:
        """Return what :meth:`block_types` would where somebody has asked for it before, else None."""
        known = self._block_types
        return known[1] if known is not None and known[0] is reach else None

    def leaked_types(self, reach: Reach, progress: Optional[Progress] = None, alike: bool = False) -> BlockTypes:
        """Return what the leaked blocks are; others may be unknown.

        :param alike: whether to say also what they are similar to, where blocks are few.
        """
        known = self.known_block_types(reach)
        if known is not None:
            return known
        from gdbext.analysis.types.find import find_types

        progress = progress or self.progress
        if not (alike and len(reach) <= FEW_BLOCKS and reach.any_leaked):
            return self._without_names(find_types(reach, self.debug.clues(), progress, leaked=True))
        found = find_types(reach, self.debug.clues(_VARIABLES), progress, objects=_OBJECTS)
        if not found.problems:
            self._block_types = reach, found
        # What was ended or lacked debug info concerns blocks that are not leaked, and similarity, which is no promise.
        cut = [one for one in found.problems if one.kind == "interrupted"]
        return self._without_names(replace(found, problems=cut))

    def block_types(self, reach: Reach) -> BlockTypes:
        """Return what the blocks are.

        :raises TooLargeError: there is not enough memory for it.
        """
        if self._block_types is None or self._block_types[0] is not reach:
            from gdbext.analysis.types.find import find_types

            reach.check_types()
            found = find_types(reach, self.debug.clues(), self.progress, tables=self._shaped_tables())
            if any(problem.kind == "interrupted" for problem in found.problems):
                return found  # made anew next time
            self._block_types = reach, self._without_names(found)
        return self._block_types[1]

    def _without_names(self, found: BlockTypes) -> BlockTypes:
        """Return types with the problem that no debugger named any, where that is so."""
        if self.debug is not NO_DEBUG_INFO:
            return found
        message = "no debugger: types by name were not examined"
        return replace(found, problems=[*found.problems, Problem("types-without-debug-info", None, message)])

    def _shaped_tables(self) -> Iterator[ShapedTable]:
        """Iterate over the tables that variables lead to, as far as ``set gx table-search-variables`` goes.

        They are searched when asked for: by then, the stacks of threads have been unwound for types.
        """
        from gdbext.analysis.tables.variables import find_tables
        from gdbext.analysis.types.shaped import shaped_tables

        found: List[ShapedTable] = []
        find_tables(self, lambda looked: found.extend(shaped_tables(looked)))
        yield from found

    # ---- for programs ----

    def run(self, line: str) -> Answer:
        """Answer any command, written as in gdb: ``session.run("blocks list --state in-use --min-size 1M")``.

        :raises UsageError: there is no such command, or it is wrong, or for gdb alone.
        :raises GdbextError: as the command.
        :raises StoppedError: :meth:`stop` was called before there was anything.
        """
        return self._stops.run(lambda: self._answer(line))

    def triage(self, leaks: bool = False) -> Answer:
        """Return what is wrong, worst first, and the memory by owner: a :class:`gdbext.analysis.page.Triage`.

        :param leaks: whether leaks are searched for whatever that costs.
        :raises StoppedError: :meth:`stop` was called before there was anything.
        """
        return self.run("triage --leaks" if leaks else "triage")

    def leaks(self) -> Answer:
        """Return what leaked: a :class:`gdbext.analysis.leaks.report.Leaks` with every block.

        :raises NoHeapError: there is no heap.
        """
        return self.run("blocks leaks --list --possible")

    def blocks(self, where: str = "", columns: str = "address,size,state,allocator,arena") -> Table:
        """Return blocks of all heaps.

        :param where: only those for which this is true, as ``blocks list --where`` takes it.
        :param columns: fields of each, comma-separated, as ``--columns`` takes them; ``type``, ``reach`` and ``refs``
            are worked out only where they are asked for.
        :raises UsageError: one of them is wrong.
        :raises NoHeapError: there is no heap.
        """
        words = ["--columns", columns, *(["--where", where] if where else [])]
        return self._stops.run(lambda: self._list(words))

    def stop(self) -> None:
        """End what runs in another thread, within 0.2 s.

        Its answer is incomplete, or a :class:`StoppedError` where there is none, or making it would take longer.
        """
        self._stops.stop()

    def close(self) -> None:
        """Let go of the target and its files.

        Answers keep what they have; a table that reads the target while it is made is a NoTargetError from now on.

        :raises UsageError: a question is being answered: stop() it, and wait for its thread.
        """
        self._stops.run(self._close)

    def _close(self) -> None:
        self._target = self._heaps = self._block_types = None
        self._reach = {}
        self._read_target = _closed
        self.progress = SILENT
        let_go, self._let_go = self._let_go, lambda: None
        let_go()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be copied or pickled: it holds files; open the core again where it is needed")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _answer(self, line: str) -> Answer:
        from gdbext.grammar.arguments import parse
        from gdbext.grammar.catalogue import find_command

        name, rest = _split(line)
        spec = find_command(name)
        if spec is None:
            raise UsageError(f"there is no command {line.strip()!r}", "gdbext.grammar.catalogue.COMMANDS has them")
        return self._run(spec, parse(rest, spec.all_options, spec.positional))

    def _list(self, words: Sequence[str]) -> Table:
        from gdbext.grammar.arguments import parse_words
        from gdbext.grammar.catalogue import find_command

        spec = find_command("blocks list")
        assert spec is not None
        answer = self._run(spec, parse_words(words, spec.all_options, spec.positional))
        return Table(answer.data.blocks, answer)

    def _run(self, spec: CommandSpec, arguments: Arguments) -> Answer:
        from gdbext.analysis.missing import explained, with_target
        from gdbext.grammar.arguments import COMMON_OPTIONS
        from gdbext.memory import check_reads

        function = _find_function(spec.run)
        if function is None or spec.raw:
            raise UsageError(f"{spec.name} is for gdb alone")
        if (form := next((one.name for one in COMMON_OPTIONS if one.name in arguments.given), None)) is not None:
            raise UsageError(f"--{form} is for the command line", "an answer has text(…), to_json() and tables")
        spec.check(arguments)
        limit_threads(self.settings.get("threads", 0))
        if self._target is not None:
            check_reads(self._target.memory)
        try:
            report = function(self, arguments)
        except NoHeapError as error:
            raise explained(error, self.target) from None
        return Answer(report if self._target is None else with_target(report, self._target), spec.schema, self._target)


def _split(line: str) -> Tuple[str, str]:
    """Return a command's name and what follows; of a line that begins with none, its first word."""
    from gdbext.grammar.catalogue import PREFIXES

    rest = line.strip().removeprefix("gx ").strip()
    name, _, rest = rest.partition(" ")
    if name in PREFIXES:
        second, _, rest = rest.strip().partition(" ")
        name = f"{name} {second}".strip()
    return name, rest


def _find_function(path: str) -> Optional[Callable[[Session, Arguments], Report]]:
    """Return what a row of the table of commands names, or None where it needs gdb."""
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(f"gdbext.commands.{module}")
    except ModuleNotFoundError as error:
        if error.name != "gdb":
            raise
        return None
    function: Callable[[Session, Arguments], Report] = getattr(found, name)
    return function


def _closed() -> Target:
    raise NoTargetError("the session is closed")


def _no_heap(heaps: Sequence[Heap], family: str) -> NoHeapError:
    """Return what is known of an allocator that has no heap that could be read, else which others there are."""
    doubts = [problem.message for heap in heaps if heap.family == family for problem in heap.problems]
    if doubts:  # in the message: where the core lacks memory, the hint is about that
        return NoHeapError(f"no {family} heap in this target can be read: {'; '.join(doubts)}")
    others = ", ".join(sorted({heap.allocator for heap in heaps if heap.detail is not None}))
    known = f"it has: {others}" if others else "no heap of an allocator that gdbext knows was found"
    return NoHeapError(f"no {family} heap in this target", known)
