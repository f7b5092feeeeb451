"""``walklist`` and ``listcount``: how many entries lists and tables hold, and why each chain ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import numpy as np

from gdbext.errors import FaultError, ShapeError
from gdbext.progress import Progress
from gdbext.report import Kind, Problem, Report, column, line, table
from gdbext.structures.shapes.opening import Structure
from gdbext.structures.shapes.resolve import Opened
from gdbext.structures.walk import bins, lists, probes, trees
from gdbext.structures.walk.bins import check_bins, walk_bins
from gdbext.structures.walk.chainwalk import Repeats
from gdbext.structures.walk.lists import check_list, walk_list
from gdbext.structures.walk.model import (
    U64,
    BinsWalk,
    End,
    Group,
    ListHead,
    ListWalk,
    ProbeTable,
    Table,
    TreeRoot,
    Walkable,
)
from gdbext.structures.walk.probes import ProbeWalk, check_probes, walk_probes
from gdbext.structures.walk.tallying import BinsTally, check_tally, tally_bins
from gdbext.structures.walk.trees import TreeWalk, check_tree, walk_tree
from gdbext.target import Target
from gdbext.wording import count_text, grouped

Walk = Union[ListWalk, BinsWalk]
_REPEATED = "like those after it, for most entries were met in tables before"


@dataclass(frozen=True)
class Walked:
    """One table or list with its walk.

    :param index: of the table in its group; 0 for a single one.
    :param problem: why it could not be walked at all, or None.
    """

    index: int
    table: Walkable
    walk: Walk
    problem: Optional[Problem] = None

    @property
    def nodes(self) -> U64:
        """The addresses of its nodes, in order."""
        return self.walk.nodes

    @property
    def elements(self) -> U64:
        """The addresses of its elements, in order."""
        elements: U64 = self.walk.nodes - np.uint64(_element_offset(self.table) % (1 << 64))
        return elements

    @property
    def element_type(self) -> Optional[str]:
        """The elements' type, or None when it is not known."""
        if isinstance(self.table, (ProbeTable, TreeRoot)):
            return self.table.element_type
        return self.table.node.type

    @property
    def complete(self) -> bool:
        """Whether neither an interrupt nor missing memory has cut the walk short."""
        if isinstance(self.walk, BinsWalk):
            return self.walk.complete
        return self.walk.end.reason not in (End.ABSENT, End.INTERRUPTED)

    @property
    def interrupted(self) -> bool:
        """Whether the user or the time budget stopped it."""
        if isinstance(self.walk, BinsWalk):
            return bool((self.walk.reasons == End.INTERRUPTED).any())
        return self.walk.end.reason is End.INTERRUPTED


@dataclass(frozen=True)
class Tallied:
    """The sums over one table whose nodes nobody asked for."""

    index: int
    table: Table
    tally: BinsTally
    problem: Optional[Problem] = None

    @property
    def complete(self) -> bool:
        """As of :class:`Walked`."""
        return not self.tally.interrupted

    @property
    def interrupted(self) -> bool:
        """As of :class:`Walked`."""
        return self.tally.interrupted


Summed = Union[Walked, Tallied]


def _element_offset(walkable: Walkable) -> int:
    if isinstance(walkable, TreeRoot):
        return walkable.element
    return 0 if isinstance(walkable, ProbeTable) else walkable.node.element


def walk_structure(target: Target, structure: Structure, most: Optional[int], progress: Progress) -> List[Walked]:
    """Walk a list or table, or every table of a group; an interrupt leaves the tables that were not begun out.

    Of a group whose tables have mostly the same entries the rest is left out, and the last of the answer says so.

    :param most: nodes of one chain after which its walk ends with ``LIMIT``; None: only the memory bounds it.
    :raises FaultError: when a single table cannot be read; of a group the others go on.
    :raises ShapeError: when a single table cannot be what it says, likewise.
    """
    if not isinstance(structure, Group):
        return [Walked(0, structure, _walk(target, structure, most, progress))]
    walked: List[Walked] = []
    repeats = Repeats()
    for index, each in enumerate(structure.tables):
        if repeats.rule():
            walked.append(_lost(index, each, _REPEATED))
            break
        walked.append(_walk_one(target, index, each, most, progress))
        if walked[-1].interrupted:
            break
        if walked[-1].complete:
            repeats.add(walked[-1].nodes)
    return walked


def sum_structure(target: Target, structure: Structure, progress: Progress) -> Sequence[Summed]:
    """As :func:`walk_structure` without a limit; tables that are sound come without their nodes, which is quicker."""
    tables = structure.tables if isinstance(structure, Group) else [structure]
    if not all(isinstance(each, Table) for each in tables):
        return walk_structure(target, structure, None, progress)
    summed: List[Summed] = []
    repeats = Repeats()
    for index, each in enumerate(tables):
        if repeats.rule():
            summed.append(_lost(index, each, _REPEATED))
            break
        if repeats.unsure:
            return walk_structure(target, structure, None, progress)
        summed.append(_sum_one(target, index, each, isinstance(structure, Group), progress))
        if summed[-1].interrupted:
            break
        _note(repeats, summed[-1])
    return summed


def _sum_one(target: Target, index: int, each: Walkable, grouped: bool, progress: Progress) -> Summed:
    assert isinstance(each, Table)
    try:
        tally = tally_bins(target, each, progress)
        if tally is not None:
            return Tallied(index, each, tally)
        return Walked(index, each, walk_bins(target, each, None, progress))
    except (FaultError, ShapeError) as error:
        if not grouped:
            raise
        return _lost(index, each, error.message)


def _note(repeats: Repeats, each: Summed) -> None:
    if isinstance(each, Tallied):
        repeats.add_sample(each.tally.sample, each.tally.nodes)
    elif each.complete:
        repeats.add(each.nodes)


def _walk_one(target: Target, index: int, each: Walkable, most: Optional[int], progress: Progress) -> Walked:
    try:
        return Walked(index, each, _walk(target, each, most, progress))
    except (FaultError, ShapeError) as error:
        return _lost(index, each, error.message)


def _lost(index: int, each: Walkable, why: str) -> Walked:
    problem = Problem("table", each.address, f"table {index} is left out: {why}")
    nothing: U64 = np.empty(0, np.uint64)
    return Walked(index, each, BinsWalk(nothing, np.empty(0, np.uint8), nothing, nothing, {}, False), problem)


def _walk(target: Target, walkable: Walkable, most: Optional[int], progress: Progress) -> Walk:
    if isinstance(walkable, ListHead):
        return walk_list(target, walkable, most, progress)
    if isinstance(walkable, Table):
        return walk_bins(target, walkable, most, progress)
    if isinstance(walkable, ProbeTable):
        return walk_probes(target, walkable, progress)
    return walk_tree(target, walkable, most, progress)


def check_structure(target: Target, walked: Sequence[Walked]) -> List[Problem]:
    """Return what contradicts itself: links back, counts, entries in the wrong bin, …"""
    problems: List[Problem] = []
    for each in walked:
        if each.problem is None:
            problems += _of_table(each, len(walked), _check(target, each))
    return problems


def _check(target: Target, each: Walked) -> Sequence[Problem]:
    walkable, walk = each.table, each.walk
    if isinstance(walkable, ListHead) and isinstance(walk, ListWalk):
        return check_list(target, walkable, walk)
    if isinstance(walkable, TreeRoot) and isinstance(walk, TreeWalk):
        return check_tree(target, walkable, walk)
    if isinstance(walkable, Table) and isinstance(walk, BinsWalk):
        return check_bins(target, walkable, walk)
    assert isinstance(walkable, ProbeTable) and isinstance(walk, ProbeWalk)
    return check_probes(target, walkable, walk)


# ---- rows ----


@dataclass(frozen=True)
class TableRow:
    """One table of bins.

    :param index: place in the group; 0 for a single table, list or tree.
    :param address: of the object; of the first node where there is none.
    :param bins: of all its arrays; slots of open addressing; None: it has none.
    :param entries: its own count; None: it keeps none, or the shape does not say where.
    :param walked: entries that were walked.
    :param nonempty: bins that hold any; None as ``bins``.
    :param max_len: the longest chain; of a list or tree all of it.
    :param max_bin: where the longest chain is, the lowest of several; None: no bins, or all empty.
    :param end: chains by the reason of their end, empty ones included: ``null``, ``head``, ``sentinel``, ``count``,
        ``limit``, ``cycle``, ``bad-pointer``, ``decode-error``, ``forbidden``, ``absent``, ``interrupted``.
    :type end: named counts
    """

    index: int = column("table", Kind.NUMBER)
    address: int = column("address", Kind.ADDRESS)
    bins: Optional[int] = column("bins", Kind.COUNT)
    entries: Optional[int] = column("counted", Kind.COUNT)
    walked: int = column("entries", Kind.COUNT)
    nonempty: Optional[int] = column("not empty", Kind.COUNT)
    max_len: int = column("longest", Kind.COUNT)
    max_bin: Optional[int] = column("in bin", Kind.NUMBER)
    end: Mapping[str, int] = column("ends", Kind.OBJECT)


@dataclass(frozen=True)
class ListRow(TableRow):
    """One list, or a tree: it has no bins."""

    bins: Optional[int] = column(None, Kind.COUNT)
    nonempty: Optional[int] = column(None, Kind.COUNT)
    max_len: int = column(None, Kind.COUNT)
    max_bin: Optional[int] = column(None, Kind.COUNT)
    end: Mapping[str, int] = column("end", Kind.OBJECT)


def table_row(each: Summed) -> TableRow:
    """Return the row of one table or list."""
    if isinstance(each, Tallied):
        return _tallied_row(each.index, each.table, each.tally)
    count = len(each.nodes)
    if not isinstance(each.walk, BinsWalk):
        end = {each.walk.end.reason.word: 1}
        return ListRow(each.index, each.table.address, None, each.table.entries, count, None, count, None, end)
    lengths = each.walk.lengths
    reasons = np.bincount(each.walk.reasons, minlength=len(End)).tolist()
    return TableRow(
        each.index,
        each.table.address,
        len(lengths),
        each.table.entries,
        count,
        int(np.count_nonzero(lengths)),
        int(lengths.max()) if len(lengths) else 0,
        int(lengths.argmax()) if count else None,
        {End(at).word: number for at, number in enumerate(reasons) if number},
    )


def _tallied_row(index: int, table: Table, tally: BinsTally) -> TableRow:
    ends = {end.word: number for end, number in tally.ends.items()}
    sums = (tally.nodes, tally.nonempty, tally.longest, tally.at, ends)
    return TableRow(index, table.address, tally.bins, table.entries, *sums)


# ---- what went wrong ----


def problems_of(opened: Opened, walked: Sequence[Summed], more: Sequence[Problem] = ()) -> List[Problem]:
    """Return what is wrong: of opening; a chain that does not end as it should, a count that does not agree; more.

    :param more: of a check; what it repeats of the rest is left out.
    """
    problems = [*opened.problems]
    for each in walked:
        problems += [each.problem] if each.problem else []
        problems += _of_table(each, len(walked), _outcome_problems(each))
    seen: Dict[object, Problem] = {}
    for problem in [*problems, *more]:
        place = problem.message if problem.address is None else problem.address
        seen.setdefault((problem.kind, place), problem)
    return list(seen.values())


def _of_table(each: Summed, tables: int, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Iterate over problems with the table's number in front, where there are several."""
    for problem in problems:
        lead = f"table {each.index}: " if tables > 1 else ""
        yield replace(problem, message=lead + problem.message)


def _outcome_problems(each: Summed) -> Iterator[Problem]:
    if each.problem is None:
        yield from check_tally(each.table, each.tally) if isinstance(each, Tallied) else _check_outcome(each)
    if each.interrupted:
        count = each.tally.nodes if isinstance(each, Tallied) else len(each.nodes)
        yield Problem("interrupted", None, f"stopped after {_counted(count, 'entry', 'entries')}")


def _check_outcome(each: Walked) -> Sequence[Problem]:
    walkable, walk = each.table, each.walk
    if isinstance(walkable, TreeRoot) and isinstance(walk, TreeWalk):
        return trees.check_outcome(walkable, walk)
    if isinstance(walkable, ListHead) and isinstance(walk, ListWalk):
        return lists.check_outcome(walkable, walk)
    if isinstance(walkable, Table) and isinstance(walk, BinsWalk):
        return bins.check_outcome(walkable, walk)
    assert isinstance(walkable, ProbeTable) and isinstance(walk, ProbeWalk)
    return probes.check_outcome(walkable, walk)


# ---- walklist ----


@dataclass(frozen=True)
class WalkReport:
    """What ``walklist`` answers.

    :param shape: what EXPR was taken for, and where it is.
    :param total: entries of all tables.
    :param bins: of all tables; None: none has any.
    :param nonempty: as ``bins``.
    :param max_len: the longest chain of all.
    :param max_table: index of the table that it is in; None: there are no tables.
    :param max_bin: as ``tables[].max_bin``.
    """

    shape: str = line("shape")
    tables: Sequence[TableRow] = table("Tables")
    summary: str = line("in all", json=False)
    total: int = line(None, Kind.COUNT)
    bins: Optional[int] = line(None, Kind.COUNT)
    nonempty: Optional[int] = line(None, Kind.COUNT)
    max_len: int = line(None, Kind.COUNT)
    max_table: Optional[int] = line(None, Kind.COUNT)
    max_bin: Optional[int] = line(None, Kind.COUNT)


def walk_report(opened: Opened, walked: Sequence[Summed], checked: Optional[Sequence[Problem]] = None) -> Report:
    """Return the sums over what was walked.

    :param checked: what ``check_structure`` found; None when it was not asked for.
    """
    rows = [table_row(each) for each in walked]
    longest = max(rows, key=lambda row: row.max_len, default=None)
    data = WalkReport(
        opened.described,
        rows,
        _summary(rows, longest, "tree" if walked and isinstance(walked[0].table, TreeRoot) else "list"),
        sum(row.walked for row in rows),
        _sum_of([row.bins for row in rows]),
        _sum_of([row.nonempty for row in rows]),
        longest.max_len if longest else 0,
        longest.index if longest else None,
        longest.max_bin if longest else None,
    )
    unknown = [one for one in checked or () if one.kind == "absent-memory"]
    return Report(
        data,
        evidence=opened.evidence,
        problems=problems_of(opened, walked, checked or ()),
        complete=is_complete(opened, walked) and not unknown,
        notes=notes_of(walked, checked),
        findings=len(unknown) < len(checked or ()),
    )


def is_complete(opened: Opened, walked: Sequence[Summed]) -> bool:
    """Whether every table was walked, and neither an interrupt nor missing memory has cut a walk short."""
    structure = opened.structure
    lost = isinstance(structure, Group) and (structure.problems or len(walked) < len(structure.tables))
    return not lost and all(each.complete for each in walked)


def _summary(rows: Sequence[TableRow], longest: Optional[TableRow], what: str) -> str:
    """Return the sums in words; ``what`` is that which has no bins, a list or a tree."""
    total = sum(row.walked for row in rows)
    bins = _sum_of([row.bins for row in rows])
    if longest is None:
        return "no tables"
    if bins is None:
        return f"{_counted(total, 'entry', 'entries')} in {count_text(len(rows), what)}"
    where = f"table {longest.index}, bin {longest.max_bin}" if len(rows) > 1 else f"bin {longest.max_bin}"
    chain = f"; the longest chain has {grouped(longest.max_len)}, in {where}" if longest.max_len else ""
    tables = f" of {count_text(len(rows), 'table')}" if len(rows) > 1 else ""
    return f"{_counted(total, 'entry', 'entries')} in {_counted(bins, 'bin', 'bins')}{tables}{chain}"


def _counted(number: int, one: str, several: str) -> str:
    return f"{grouped(number)} {one if number == 1 else several}"


def _sum_of(numbers: Sequence[Optional[int]]) -> Optional[int]:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def notes_of(walked: Sequence[Summed], checked: Optional[Sequence[Problem]] = None) -> List[str]:
    """Return what the text says below: chains that were cut at ``--max``, and that a check found nothing."""
    notes = []
    cut = sum(_limited(each.walk) for each in walked if isinstance(each, Walked))
    if cut:
        were = count_text(cut, "chain was", "chains were")
        notes.append(f"{were} not followed beyond --max; figures are lower bounds")
    if checked is not None and not checked:
        notes.append("The check found nothing wrong.")
    return notes


def _limited(walk: Walk) -> int:
    if isinstance(walk, ListWalk):
        return int(walk.end.reason is End.LIMIT)
    return 0 if walk.given_up else int(np.count_nonzero(walk.reasons == End.LIMIT))


# ---- listcount ----


@dataclass(frozen=True)
class CountReport:
    """What ``listcount`` answers.

    :param count: nodes, those of a cycle once.
    :param end: ``null``, ``head``, ``sentinel``, ``count``, ``limit``, ``cycle``, ``bad-pointer``, ``decode-error``,
        ``forbidden``, ``absent``, ``interrupted``.
    :type end: word
    :param address: what the last link held: the bad pointer, the cycle's first node; None where it ended by ``null``.
    :param cycle: nodes in the cycle; None: there is none.
    """

    count: int = line("entries", Kind.COUNT)
    end: str = line("end")
    address: Optional[int] = line(None, Kind.ADDRESS)
    cycle: Optional[int] = line(None, Kind.COUNT)


def count_report(opened: Opened, walked: Walked) -> Report:
    """Return the count of one list, and why it ended."""
    assert isinstance(walked.walk, ListWalk)
    end = walked.walk.end
    return Report(
        CountReport(len(walked.nodes), end.reason.word, end.address, end.cycle),
        evidence=opened.evidence,
        problems=problems_of(opened, [walked]),
        complete=walked.complete,
        notes=notes_of([walked]),
    )
