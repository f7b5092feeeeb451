"""The hash tables of a target that nobody has named: opened, walked and judged for ``triage``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set

from gdbext.analysis.beyond import Beyond
from gdbext.analysis.missing import Unexamined
from gdbext.debuginfo import Types
from gdbext.errors import FaultError, ShapeError, UsageError
from gdbext.layout.types import Located, Type
from gdbext.progress import Progress, WorkLimit
from gdbext.report import Evidence, Finding, Settings
from gdbext.structures.shapes.library import Library
from gdbext.structures.walk.model import Group
from gdbext.target import Target
from gdbext.wording import count_text, grouped

if TYPE_CHECKING:  # most programs have no table, and triage of them pays for none
    from gdbext.analysis.tables.counts import Walked
    from gdbext.structures.shapes.resolve import Opened

VARIABLES = "table-search-variables"
ENTRIES = "table-search-entries"
MOST = 4096  # variables that are looked at

DEFAULT_ENTRIES = 50_000_000
WHAT = "hash tables"
INTERRUPTED = Unexamined(WHAT, "interrupted", "slabskew EXPR")

_KINDS = ("bins", "group", "probe")
_NAMED = 8  # variables that the evidence names
_REMOTE = 64


def allowed(most: int, target: Target) -> int:
    """Return how much of a setting's number may be examined: of a process behind a wire a part, for each read waits."""
    return most // _REMOTE if target.live and target.local_pid is None else most


def table_shapes(library: Library) -> Library:
    """Return the shapes of tables that are known by the names of types: members alone prove too little."""
    kept = {name: shape for name, shape in library.shapes.items() if shape.kind in _KINDS and shape.types}
    return Library(kept)


def may_have_tables(types: Types, shapes: Library) -> bool:
    """Return whether the program knows any type that a shape of :func:`table_shapes` fits: cheap to ask."""
    names = {name for shape in shapes.shapes.values() for name in shape.types}
    return any(_is_known(name, types) for name in sorted(names))


def _is_known(name: str, types: Types) -> bool:
    plain = name
    for mark in "*?[":
        plain = plain.partition(mark)[0]
    if plain == name:
        return types.find_type(name) is not None
    # Of a pattern no more can be asked for than its namespace.
    return "::" not in plain or types.find_type(plain.partition("::")[0]) is not None


def matcher(shapes: Library) -> Callable[[Type], bool]:
    """Return the function that tells whether one of the shapes fits a type."""
    return lambda type: next(iter(shapes.for_each_fitting(type)), None) is not None


def wanted(shapes: Library) -> str:
    """Return what :func:`matcher` goes by: the names of types, in order."""
    return "\n".join(sorted({name for shape in shapes.known.values() for name in shape.types}))


class Looked(NamedTuple):
    """A table, or a group of them, that a variable leads to.

    :param name: the expression for it.
    :param walked: each of its tables; the last one in part where too many entries were walked.
    """

    name: str
    opened: Opened
    walked: Sequence[Walked]


def for_each_table(
    target: Target,
    types: Types,
    library: Library,
    variables: Iterable[Located],
    progress: Progress,
    settings: Settings,
) -> Tables:
    """Open and walk the tables that variables lead to, each once.

    What cannot be opened is passed over: a variable may not be initialised yet, or no longer.

    :param variables: as ``gdbext.bridge.ports.discover`` finds them.
    :param settings: :data:`ENTRIES`: bins and entries that are walked, of all tables.
    :return: an iterator, which raises KeyboardInterrupt as ``progress`` says.
    """
    most = allowed(settings.get(ENTRIES, DEFAULT_ENTRIES), target)
    return Tables(target, types, library, variables, WorkLimit(progress, most))


def search(
    target: Target,
    types: Types,
    library: Library,
    variables: Iterable[Located],
    settings: Settings,
    progress: Progress,
    each: Callable[[Looked], None] = lambda looked: None,
) -> Beyond:
    """Open, walk and judge the tables that variables lead to; arguments as :func:`for_each_table`.

    :param each: is told of each table.
    """
    tables = for_each_table(target, types, library, variables, progress, settings)
    findings: List[Finding] = []
    unexamined: Sequence[Unexamined] = ()
    try:
        for looked in tables:
            from gdbext.analysis.tables.skew import find_table_findings

            each(looked)
            findings += find_table_findings(
                target, looked.opened.structure, looked.walked, looked.name, settings
            )
    except KeyboardInterrupt:
        unexamined = [INTERRUPTED]
    return Beyond(findings, tables.evidence, [*tables.unexamined, *unexamined])


class Tables(Iterator[Looked]):
    """The tables that variables lead to; made by :func:`for_each_table`."""

    def __init__(
        self,
        target: Target,
        types: Types,
        library: Library,
        variables: Iterable[Located],
        progress: WorkLimit,
    ) -> None:
        self._target = target
        self._types = types
        self._library = library
        self._progress = progress
        self._seen: Set[int] = set()
        self._named: List[str] = []
        self._partly: List[str] = []
        self._closed = 0
        self._found = self._look_at(variables)

    def __next__(self) -> Looked:
        return next(self._found)

    @property
    def evidence(self) -> Sequence[Evidence]:
        """What was looked at until now, and what was passed over."""
        return list(self._evidence())

    @property
    def unexamined(self) -> Sequence[Unexamined]:
        """The tables that were left, or walked in part."""
        if not self._partly:
            return ()
        named = ", ".join(self._partly[:_NAMED]) + (", …" if len(self._partly) > _NAMED else "")
        why = f"stopped after {grouped(self._progress.units)} entries at {named}"
        return [Unexamined(WHAT, why, f"slabskew {self._partly[0]}, or set gx {ENTRIES} N")]

    def _look_at(self, variables: Iterable[Located]) -> Iterator[Looked]:
        found = [(located, opened) for located in variables for opened in self._opened(located)]
        # A group before its own tables, to which locals of the code at work lead.
        found.sort(key=lambda pair: not isinstance(pair[1].structure, Group))
        for located, opened in found:
            looked = self._look(located, opened)
            if looked is not None:
                yield looked

    def _opened(self, located: Located) -> Iterator[Opened]:
        from gdbext.structures.shapes.overrides import Overrides
        from gdbext.structures.shapes.resolve import open_located

        try:
            yield open_located(self._target, self._types, self._library, located, Overrides())
        except (ShapeError, UsageError, FaultError):
            self._closed += 1

    def _look(self, located: Located, opened: Opened) -> Optional[Looked]:
        if self._progress.over:
            self._partly.append(located.text)
            return None
        structure = opened.structure
        addresses = {table.address for table in (structure.tables if isinstance(structure, Group) else [structure])}
        if addresses <= self._seen:
            return None
        self._seen |= addresses
        try:
            walked = self._walk(opened, located.text)
        except (ShapeError, UsageError, FaultError):
            self._closed += 1
            return None
        self._named.append(located.text)
        return Looked(located.text, opened, walked)

    def _walk(self, opened: Opened, name: str) -> Sequence[Walked]:
        from gdbext.analysis.tables.counts import walk_structure

        before = self._progress.done
        walked = walk_structure(self._target, opened.structure, None, self._progress)
        # What a kernel walks at once it does not report.
        self._progress.done = max(self._progress.done, before + sum(len(each.nodes) for each in walked))
        if any(each.interrupted for each in walked):
            if not self._progress.over:
                raise KeyboardInterrupt
            self._partly.append(name)
        return walked

    def _evidence(self) -> Iterator[Evidence]:
        if self._named:
            more = f", and {len(self._named) - _NAMED} more" if len(self._named) > _NAMED else ""
            names = ", ".join(self._named[:_NAMED])
            yield Evidence("tables", f"{count_text(len(self._named), 'hash table')} examined: {names}{more}")
        if self._closed:
            yield Evidence(
                "tables", f"{count_text(self._closed, 'variable')} passed over that cannot be a table now"
            )
