"""One page: the findings, worst first, and the memory ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import FrozenSet, Iterator, List, Optional, Sequence, Tuple

from gdbext.analysis.fragmentation import find_fragmentation
from gdbext.analysis.ledger import Ledger, ledger, notes_on
from gdbext.analysis.missing import Unexamined, find_gap, is_whole
from gdbext.analysis.residency import OF_A_CORE, Knowledge, Residency
from gdbext.analysis.tally import CACHED, FREE, MMAPPED, TOP, USED, tally
from gdbext.analysis.thresholds import Thresholds, thresholds
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
from gdbext.wording import address_text, count_text

_PLACES = 5
_LISTED = 100  # places in JSON
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

    :param ledger: the same object as ``rss``'s data.
    """

    target: str = line("target", json=False)
    verdict: str = line("verdict", json=False)
    findings: Sequence[Finding] = table("Findings")
    heaps: Sequence[HeapRow] = table("Heaps")
    ledger: Optional[Ledger] = table("Ledger", default=None)


@dataclass(frozen=True)
class HealthyTriage(Triage):
    """As :class:`Triage`, without a finding."""

    findings: Sequence[Finding] = table(None)


@dataclass(frozen=True)
class Beyond:
    """What was found besides the heaps.

    :param unexamined: what was not, as far as it may hide a finding.
    """

    findings: Sequence[Finding] = ()
    evidence: Sequence[Evidence] = ()
    unexamined: Sequence[Unexamined] = ()
    notes: Sequence[str] = ()

    @property
    def complete(self) -> bool:
        """Whether everything was examined."""
        return not self.unexamined


NOTHING = Beyond()


def joined(*parts: Beyond) -> Beyond:
    """Return several searches as one."""
    return Beyond(
        [finding for part in parts for finding in part.findings],
        [evidence for part in parts for evidence in part.evidence],
        [one for part in parts for one in part.unexamined],
        [note for part in parts for note in part.notes],
    )


def triage(
    target: Target,
    heaps: Sequence[Heap],
    settings: Settings,
    known: Knowledge = OF_A_CORE,
    beyond: Beyond = NOTHING,
) -> Report:
    """Gather what there is to say about a target on one page.

    :param settings: of ``set gx``; those not given have their defaults.
    :param known: which pages are in RAM.
    """
    residency = known.residency
    limits = thresholds(settings, target, residency)
    of_heaps = [finding for heap in heaps for finding in _findings(heap, target, limits, residency)]
    found = ranked([*of_heaps, *beyond.findings])
    account, problems = ledger(target, heaps, residency)
    page = Triage if found else HealthyTriage
    rows = [_heap_row(heap) for heap in heaps]
    return Report(
        page(target_text(target), _verdict(target, heaps, len(found), beyond.unexamined), found, rows, account),
        evidence=[*evidence_of(heaps), *beyond.evidence],
        problems=[*problems_of(heaps, brief=True), *problems, *(one.problem for one in beyond.unexamined)],
        complete=all(heap.complete for heap in heaps) and beyond.complete,
        notes=[*notes_on(heaps, known), *beyond.notes],
        findings=bool(found),
    )


def _verdict(target: Target, heaps: Sequence[Heap], found: int, unexamined: Sequence[Unexamined]) -> str:
    """Return the page in one line; what was not examined stands in it, whatever was found."""
    missing = [*_gaps(target, heaps), *map(str, unexamined)]
    if not missing and not found:
        return "No findings." if heaps else "No heap was found, so there is nothing to judge but the ledger."
    none = "No findings in what was examined" if heaps else "No heap was found"
    lead = count_text(found, "finding") if found else none
    return f"{lead}; not examined: {'; '.join(missing)}" if missing else f"{lead}."


def _gaps(target: Target, heaps: Sequence[Heap]) -> Iterator[str]:
    """Iterate over what is missing of the core and of heaps, the core's own as one."""
    gap = find_gap(target)
    if gap is not None:
        yield f"{gap} (not in the core)"
    elif not all(is_whole(heap.problems) for heap in heaps):
        yield "a part of the heap (not in the core)"
    else:
        yield from (f"a part of the {heap.allocator} heap" for heap in heaps if not heap.complete)


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
            details={
                "allocator": heap.allocator,
                "count": len(damage),
                "places": [
                    {"kind": one.kind, "address": address_text(one.address), "message": one.message}
                    for one in damage[:_LISTED]
                ],
            },
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
