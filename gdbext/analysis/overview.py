"""Everything that a page about one target shows: the answers of several commands, each as that command has it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterator, List, Optional, Sequence, TypeVar

from gdbext.analysis.blocks.summary import Summary
from gdbext.analysis.footprint.ledger import Entry, cost_of, memory_of
from gdbext.analysis.footprint.owners import OwnerRow
from gdbext.analysis.growth.report import Compared
from gdbext.analysis.leaks.examples import LeakExample
from gdbext.analysis.leaks.report import Leaks
from gdbext.analysis.locks.report import LockWaits
from gdbext.analysis.locks.stackgroups import StackGroups
from gdbext.analysis.map.cells import AddressMap
from gdbext.analysis.page import Triage
from gdbext.analysis.pins.retained import Retained
from gdbext.analysis.pins.retainedtree import TreeRow
from gdbext.analysis.tables.skew import SkewReport
from gdbext.errors import NoHeapError, TooLargeError
from gdbext.report import Kind, Memory, Problem, Report, column, line, table
from gdbext.wording import count_text

_Part = TypeVar("_Part")


_NOTHING = Triage("", "", (), (), (), ())


@dataclass(frozen=True)
class CostRow:
    """One kind of owner, as ``triage`` shows it; the last row is the sum.

    :param owner: what memory is for; "" of the sum.
    :param bytes: resident on a process, in the core of a core's.
    :param share: of the sum.
    :param remark: what there is to say of it.
    """

    owner: str = column("memory")
    bytes: int = column("bytes", Kind.BYTES)
    share: Optional[float] = column("share", Kind.SHARE)
    remark: str = column("")


@dataclass(frozen=True)
class ShareRow:
    """One owner of memory, within what it belongs to.

    :param group: an allocator, ``files``, or the owner itself.
    :param owner: as in ``ledger.entries``.
    :param kind: what the memory is for: ``used``, ``free``, ``overhead``, ``stack``, ``file``, ``anonymous``,
        ``reserved``.
    :type kind: word
    :param bytes: as in ``memory``.
    """

    group: str = column("of")
    owner: str = column("owner")
    kind: str = column("kind")
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class NamedTable:
    """One hash table, or a group of them, that a variable leads to.

    :param name: the expression for it.
    :param answer: what ``slabskew`` says of it.
    :type answer: as ``slabskew``
    """

    name: str = column("table")
    answer: SkewReport = column(None, Kind.OBJECT)


@dataclass(frozen=True)
class Overview:
    """What ``report`` answers; a part is null where there is nothing that it could be about.

    Of several targets all but ``growth`` is about the last one; samples alone have nothing else.

    :param target: what was examined, in words.
    :param verdict: the answer in one line.
    :param death: why the process of a crash core died, line by line.
    :type death: texts
    :param file: the page that was written; None: none was.
    :param growth: what grows, of several targets or samples.
    :type growth: as ``compare``
    :param triage: findings, ledger, heaps; nothing of all of them where samples alone are examined.
    :type triage: as ``triage``
    :param memory: memory by owner.
    :param shares: the ledger's owners that cost memory, most bytes first.
    :param address_space: all that is mapped, as cells.
    :type address_space: as ``heapmap``
    :param heap_map: the heaps alone.
    :type heap_map: as ``heapmap``
    :param summary: the blocks.
    :type summary: as ``blocks summary``
    :param retained: what keeps how much alive.
    :type retained: as ``blocks retained``
    :param retained_tree: the same as a tree.
    :param leaks: what leaked.
    :type leaks: as ``blocks leaks``
    :param leak_examples: of the leaked types that cost most, one block each.
    :param locks: who waits for whom.
    :type locks: as ``lockwait``
    :param stacks: equal stacks of threads.
    :param tables: the hash tables that the program's variables lead to.
    :param notes: what ``triage`` says besides.
    :type notes: texts
    """

    target: str = line(None)
    verdict: str = line("verdict")
    death: Sequence[str] = line(None, Kind.OBJECT, default=())
    file: Optional[str] = line("written", default=None)
    growth: Optional[Compared] = line(None, Kind.OBJECT, default=None)
    triage: Triage = line(None, Kind.OBJECT, default=_NOTHING)
    memory: Sequence[CostRow] = table(None, default=())
    shares: Sequence[ShareRow] = table(None, default=())
    address_space: Optional[AddressMap] = line(None, Kind.OBJECT, default=None)
    heap_map: Optional[AddressMap] = line(None, Kind.OBJECT, default=None)
    summary: Optional[Summary] = line(None, Kind.OBJECT, default=None)
    retained: Optional[Retained] = line(None, Kind.OBJECT, default=None)
    retained_tree: Sequence[TreeRow] = table(None, default=())
    leaks: Optional[Leaks] = line(None, Kind.OBJECT, default=None)
    leak_examples: Sequence[LeakExample] = table(None, default=())
    locks: Optional[LockWaits] = line(None, Kind.OBJECT, default=None)
    stacks: Optional[StackGroups] = line(None, Kind.OBJECT, default=None)
    tables: Sequence[NamedTable] = table(None, default=())
    notes: Sequence[str] = line(None, Kind.OBJECT, default=())


@dataclass
class Gathering:
    """Answers as they come: their data is kept, and what they say of themselves is joined.

    :ivar problems: of all answers, each once.
    :ivar notes: of those that a page has.
    """

    problems: List[Problem] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)

    def take(self, report: Report) -> Any:
        """Return the data of an answer, and keep its problems."""
        self.problems += [one for one in report.problems if one not in self.problems]
        return report.data

    def find(self, make: Callable[[], _Part]) -> Optional[_Part]:
        """Return a part, or None where there is no heap for it, or not enough memory, which is a problem then."""
        try:
            return make()
        except NoHeapError:
            return None
        except TooLargeError as error:
            self.problems.append(Problem("not-examined", None, error.message))
            return None


def cost_rows(page: Triage) -> Iterator[CostRow]:
    """Iterate over memory by owner as a page has it."""
    rows: Sequence[OwnerRow] = page.memory
    return (CostRow(row.owner, row.bytes, row.share, row.remark) for row in rows)


def share_rows(page: Triage) -> Sequence[ShareRow]:
    """Return the owners of memory that cost anything, most bytes first."""
    allocators = sorted((row.allocator for row in page.heaps), key=len, reverse=True)
    entries = () if page.ledger is None else page.ledger.entries
    rows = [_share_row(entry, allocators) for entry in entries if cost_of(entry)]
    return sorted(rows, key=lambda row: -row.bytes)


def _share_row(entry: Entry, allocators: Sequence[str]) -> ShareRow:
    kind = memory_of(entry.owner)
    of = next((name for name in allocators if entry.owner.startswith(f"{name} ")), None)
    group = of or ("files" if kind is Memory.FILE else entry.owner)
    return ShareRow(group, entry.owner, kind.value, cost_of(entry))


def completed(report: Report, gathered: Gathering, data: Overview) -> Report:
    """Return the report on everything; what it amounts to is what ``triage`` says.

    :param report: of ``triage``.
    """
    return replace(
        report,
        data=replace(data, notes=tuple(gathered.notes)),
        problems=gathered.problems,
        notes=(),
        next=(),
        labels={},
    )


def grown(report: Report, growth: Report) -> Report:
    """Return the report on everything with what grew, which is said first.

    :param report: on the last target.
    :param growth: of ``compare``.
    """
    known = {(one.kind, text) for one in report.problems for text in (one.message, f"all samples: {one.message}")}
    verdict = f"{growth.data.verdict} In the last sample: {report.data.verdict}"
    return replace(
        report,
        data=replace(report.data, verdict=verdict, growth=growth.data, notes=(*growth.notes, *report.data.notes)),
        problems=[*report.problems, *(one for one in growth.problems if (one.kind, one.message) not in known)],
        complete=report.complete and growth.complete,
        findings=report.findings or growth.findings,
    )


def only_grown(growth: Report) -> Report:
    """Return the report on samples alone.

    :param growth: of ``compare``.
    """
    data: Compared = growth.data
    target = f"{data.program or 'a program'} · {count_text(len(data.samples), 'sample')}"
    page = Overview(target=target, verdict=data.verdict, growth=data, notes=tuple(growth.notes))
    return replace(growth, data=page, notes=(), next=(), labels={})
