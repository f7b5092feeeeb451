"""One page: the findings, worst first, and the memory ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import FrozenSet, Iterator, List, Optional, Sequence, Tuple, Type

from gdbext.analysis.death import Death
from gdbext.analysis.fragmentation import find_fragmentation
from gdbext.analysis.ledger import Ledger, ledger, notes_on
from gdbext.analysis.missing import find_gap, is_whole
from gdbext.analysis.quiet import quiet
from gdbext.analysis.residency import OF_A_CORE, Knowledge, Residency
from gdbext.analysis.tally import CACHED, FREE, MMAPPED, TOP, USED, tally
from gdbext.analysis.thresholds import Thresholds, thresholds
from gdbext.analysis.unowned import UnownedWaits
from gdbext.heap.model import Heap
from gdbext.heap.told import evidence_of, problems_of
from gdbext.report import (
    Confidence,
    Evidence,
    Finding,
    Kind,
    Report,
    Settings,
    Severity,
    column,
    line,
    table,
)
from gdbext.target import Target
from gdbext.wording import count_text

_PLACES = 5
_LOOK_BEFORE = "Look at who writes to the block before the first damaged place; `blocks at ADDRESS` shows it."
_RANK = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True)
class HeapRow:
    """One heap in one line."""

    allocator: str = column("heap")
    arenas: int = column("arenas", Kind.COUNT)
    used_blocks: int = column("used blocks", Kind.COUNT)
    used_bytes: int = column("used", Kind.BYTES)
    tcache_bytes: Optional[int] = column("tcached", Kind.BYTES)
    free_bytes: int = column("free", Kind.BYTES)
    complete: bool = column("whole", Kind.FLAG)


@dataclass(frozen=True)
class Triage:
    """What ``triage`` answers.

    :param died: why the process of a crash core died; None of one that lives, or lived when a debugger wrote its core.
    :param ledger: the same object as ``rss``'s data.
    """

    target: str = line("target", json=False)
    verdict: str = line("verdict", json=False)
    died_text: str = line("died", json=False)
    died_in: str = line("in", json=False)
    died: Optional[Death] = line(None, Kind.OBJECT)
    findings: Sequence[Finding] = table("Findings")
    heaps: Sequence[HeapRow] = table("Heaps")
    ledger: Optional[Ledger] = table("Ledger", default=None)
    waits: Sequence[UnownedWaits] = table(None, default=())


@dataclass(frozen=True)
class HealthyTriage(Triage):
    """As :class:`Triage`, without a finding."""

    findings: Sequence[Finding] = table(None)


@dataclass(frozen=True)
class Beyond:
    """What was found besides the heaps.

    :param complete: False when that search was stopped.
    :param waits: threads that wait where no lock names the owner, as far as they belong on the page.
    """

    findings: Sequence[Finding] = ()
    evidence: Sequence[Evidence] = ()
    complete: bool = True
    waits: Sequence[UnownedWaits] = ()


NOTHING = Beyond()


def joined(*parts: Beyond) -> Beyond:
    """Return several searches as one."""
    return Beyond(
        [finding for part in parts for finding in part.findings],
        [evidence for part in parts for evidence in part.evidence],
        all(part.complete for part in parts),
        [group for part in parts for group in part.waits],
    )


def triage(
    target: Target,
    heaps: Sequence[Heap],
    settings: Settings,
    known: Knowledge = OF_A_CORE,
    beyond: Beyond = NOTHING,
    died: Optional[Death] = None,
) -> Report:
    """Gather what there is to say about a target on one page.

    :param settings: of ``set gx``; those not given have their defaults.
    :param known: which pages are in RAM.
    :param died: of ``find_death``.
    """
    residency = known.residency
    limits = thresholds(settings, target)
    of_heaps = [finding for heap in heaps for finding in _findings(heap, target, limits, residency)]
    found = ranked([*of_heaps, *beyond.findings])
    account, problems = ledger(target, heaps, residency)
    page = _without_death(Triage if found else HealthyTriage, died)
    rows = [_heap_row(heap) for heap in heaps]
    return Report(
        page(
            target_text(target),
            _verdict(target, heaps, len(found), beyond.complete),
            died.summary if died else "",
            died.trail if died else "",
            died,
            found,
            rows,
            account,
            beyond.waits,
        ),
        evidence=[*evidence_of(heaps), *beyond.evidence],
        problems=[*problems_of(heaps, brief=True), *problems],
        complete=all(heap.complete for heap in heaps) and beyond.complete,
        notes=[*(group.sentence for group in beyond.waits), *notes_on(heaps, known)],
        findings=bool(found),
    )


def _without_death(page: type, died: Optional[Death]) -> Type[Triage]:
    """Return the page without the lines that would be empty."""
    missing = ("died_text", "died_in") if died is None else () if died.frames else ("died_in",)
    kept: Type[Triage] = quiet(page, missing)
    return kept


def _verdict(target: Target, heaps: Sequence[Heap], found: int, all_sought: bool) -> str:
    if found:
        return f"{count_text(found, 'finding')}."
    gap = find_gap(target) or _lack(heaps)
    if gap is None and heaps and not all_sought:
        return "No findings in what was looked at: not all of locks, tables and leaks was."
    if gap is None:
        return "No findings." if heaps else "No heap was found, so there is nothing to judge but the ledger."
    what = "No findings in what could be read" if heaps else "No heap was found, so nothing could be judged"
    return f"{what}: {gap}."


def _lack(heaps: Sequence[Heap]) -> Optional[str]:
    """Return in words that a heap was not read whole; None when all were."""
    if not all(is_whole(heap.problems) for heap in heaps):
        return "the heap is not all in the core"
    partial = [heap.allocator for heap in heaps if not heap.complete]
    return f"the {partial[0]} heap was not read whole" if partial else None


def ranked(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return findings worst first: by severity, then by bytes or waiters."""

    def key(finding: Finding) -> Tuple[int, int, int]:
        return _RANK[finding.severity], -(finding.bytes or 0), -(finding.waiters or 0)

    return sorted(findings, key=key)


def _findings(
    heap: Heap, target: Target, limits: Thresholds, residency: Optional[Residency]
) -> Iterator[Finding]:
    own = [finding for finding in heap.findings if limits.keep(finding)]
    yield from own
    if heap.shrinks_from_top:
        yield from find_fragmentation(heap, target, limits, residency, _accounted_arenas(heap, own))
    yield from find_corruption(heap)


def _accounted_arenas(heap: Heap, findings: Sequence[Finding]) -> FrozenSet[int]:
    """Return the arenas whose free bytes a finding of too many arenas has already told."""
    if not any(finding.kind == "arena-proliferation" for finding in findings):
        return frozenset()
    return frozenset(arena.index for arena in heap.arenas if arena.kind != "main")


def find_corruption(heap: Heap) -> Sequence[Finding]:
    """Return one finding when the heap is damaged, else none."""
    damage = [problem for problem in heap.problems if problem.corruption]
    if not damage:
        return ()
    evidence: List[str] = []
    for problem in damage[:_PLACES]:
        place = "" if problem.address is None else f"{problem.address:#x}: "
        evidence.append(f"{place}{problem.message}")
    if len(damage) > _PLACES:
        evidence.append(f"{len(damage) - _PLACES} more")
    summary = f"the {heap.allocator} heap is damaged in {count_text(len(damage), 'place')}"
    remedy = heap.remedies.get("corruption", _LOOK_BEFORE)
    return (
        Finding(
            "corruption",
            Severity.CRITICAL,
            Confidence.HIGH,
            summary,
            evidence=tuple(evidence),
            remedy=remedy,
        ),
    )


def _heap_row(heap: Heap) -> HeapRow:
    counts = tally(heap)
    return HeapRow(
        heap.allocator,
        len(heap.arenas),
        counts.count(USED, MMAPPED),
        counts.size(USED, MMAPPED),
        counts.size(CACHED) if heap.caches_known else None,
        counts.size(FREE, TOP),
        heap.complete,
    )


def target_text(target: Target) -> str:
    """Return what is being looked at in one line."""
    identity = target.identity
    parts = [identity.exe or "unknown program"]
    if identity.pid is not None:
        parts.append(f"pid {identity.pid}")
    parts.append(count_text(len(target.threads), "thread"))
    if identity.core is not None:
        parts.append(f"core {identity.core}")
    if identity.time is not None:
        parts.append(datetime.fromtimestamp(identity.time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"))
    return ", ".join(parts)
