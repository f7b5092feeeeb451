"""One page: the verdict, why it died, the findings, worst first, memory by owner, and the commands that lead on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbext.analysis.beyond import NOTHING, Beyond
from gdbext.analysis.blocks.sums import CACHED, FREE, MMAPPED, TOP, USED, tally
from gdbext.analysis.crash.death import Death
from gdbext.analysis.footprint.fragmentation import find_fragmentation
from gdbext.analysis.footprint.ledger import ANONYMOUS, Account, Ledger, cost_of, notes_on, take_account
from gdbext.analysis.footprint.owners import OwnerRow, besides, is_free, labels_of, owner_rows
from gdbext.analysis.footprint.residency import OF_A_CORE, Knowledge, Residency
from gdbext.analysis.locks.unowned import UnownedWaits
from gdbext.analysis.missing import Unexamined, find_gap, is_whole
from gdbext.analysis.thresholds import Thresholds, thresholds
from gdbext.heap.model import Heap
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.report import (
    Confidence,
    Finding,
    Kind,
    Report,
    Settings,
    Severity,
    column,
    headline,
    line,
    passage,
    table,
)
from gdbext.target import Target
from gdbext.wording import address_text, count_text, size_text

_PLACES = 5
_LISTED = 100  # places in JSON
_LOOK_BEFORE = "Look at who writes to the block before the first damaged place; `blocks at ADDRESS` shows it."
_LARGE_FREE = 0.05  # a share of free memory that wants a word
_LARGE_REST = 0.2  # a share of memory without a known owner that wants a word
_NEXT = 2
_LEADS_ON = {
    "corruption": ("glibc check",),
    "leak": ("blocks leaks", "blocks retained"),
    "fragmentation": ("glibc trim", "blocks summary"),
    "shrink-realloc": ("glibc trim", "blocks summary"),
    "arena-proliferation": ("glibc arenas", "glibc trim"),
    "decay-stalled": ("gx jemalloc decay",),
    "cache-hoarding": ("blocks summary", "rss"),
    "arena-pinned": ("gx python blocks", "gx python types"),
    **dict.fromkeys(("deadlock", "self-deadlock", "lost-owner", "convoy", "spin-convoy"), ("lockwait",)),
}
_OF_JEMALLOC = {
    "corruption": ("gx jemalloc check",),
    "fragmentation": ("gx jemalloc bins", "blocks summary"),
    "shrink-realloc": ("gx jemalloc extents",),
}
_RANK = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True)
class HeapRow:
    """One heap in one line.

    :param allocator: ``glibc``, ``jemalloc``, ``pymalloc`` (CPython's), …, or of several of one that and what
        distinguishes each; one that could not be read has no arenas, ``complete`` false and a problem.
    :param arenas: its arenas.
    :param used_blocks: blocks in use, mmapped ones included, tcached ones not.
    :param used_bytes: usable bytes of them.
    :param tcache_bytes: usable bytes in thread caches; None when they could not be found: what they hold then counts as
        used.
    :param free_bytes: usable bytes in bins, fastbins and top; of jemalloc free regions, dirty and muzzy pages.
    :param complete: false when the walk of it was interrupted; what is missing from a core shows in the envelope's
        ``complete``.
    """

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

    :param died: why the process of a crash core died; None: it lives, or a debugger wrote the core of one that did.
    :type died: death
    :param ledger: the memory ledger.
    :type ledger: as ``rss``
    :param waits: as ``unowned`` of ``lockwait``: groups of at least ``set gx convoy-many`` threads, without places
        where idle threads wait.
    :type waits: waits
    """

    target: str = headline()
    verdict: str = headline()
    death: Sequence[str] = passage("died")
    findings: Sequence[Finding] = table("")
    memory: Sequence[OwnerRow] = table("", json=False)
    besides: Sequence[str] = passage("besides")
    died: Optional[Death] = line(None, Kind.OBJECT, default=None)
    heaps: Sequence[HeapRow] = table(None, default=())
    ledger: Optional[Ledger] = table(None, default=None)
    waits: Sequence[UnownedWaits] = table(None, default=())


def make_page(
    target: Target,
    heaps: Sequence[Heap],
    settings: Settings,
    known: Knowledge = OF_A_CORE,
    beyond: Beyond = NOTHING,
    died: Optional[Death] = None,
    taken: Optional[Account] = None,
) -> Report:
    """Gather what there is to say about a target on one page.

    :param settings: of ``set gx``; those not given have their defaults.
    :param known: which pages are in RAM.
    :param died: of ``find_death``.
    :param taken: the ledger, where it is known already.
    """
    residency = known.residency
    limits = thresholds(settings, target)
    of_heaps = [finding for heap in heaps for finding in _findings(heap, target, limits, residency)]
    found = ranked([*of_heaps, *beyond.findings])
    taken = taken or take_account(target, heaps, residency)
    account = taken.ledger
    page = Triage(
        target_text(target, heaps),
        _verdict(target, heaps, len(found), beyond.unexamined),
        death_text(died),
        found,
        owner_rows(account, [heap.allocator for heap in heaps], _remarks(heaps, found, account)),
        besides(account),
        died,
        [_heap_row(heap) for heap in heaps],
        account,
        beyond.waits,
    )
    return Report(
        page,
        evidence=[*evidence_of(heaps), *taken.evidence, *beyond.evidence],
        problems=[*problems_of(heaps, brief=True), *taken.problems, *(one.problem for one in beyond.unexamined)],
        complete=all(heap.complete for heap in heaps) and beyond.complete,
        notes=[
            *notes_on(heaps, known if target.live else Knowledge(unknown="")),
            *beyond.notes,
            *(group.sentence for group in beyond.waits),
        ],
        findings=bool(found),
        next=leads_on(found, heaps, [one.next for one in beyond.unexamined if one.next]),
        labels=labels_of(account),
    )


def death_text(died: Optional[Death]) -> Sequence[str]:
    """Return why a process ended, and where the thread was, each in a line."""
    return () if died is None else [line for line in (died.summary, died.trail) if line]


def leads_on(findings: Sequence[Finding], heaps: Sequence[Heap], further: Sequence[str] = ()) -> Sequence[str]:
    """Return the commands that lead on from a page, those of the worst finding first.

    :param further: what goes further where not all was examined; they come before all others.
    """
    glibc = any(heap.family == "glibc" for heap in heaps)
    usual: Sequence[str] = ("rss", "blocks retained") if heaps else ("rss",)
    of_kind = _LEADS_ON if glibc else {**_LEADS_ON, **_OF_JEMALLOC}
    commands = [of_kind.get(finding.kind, ()) for finding in findings]
    firsts, others = [each[0] for each in commands if each], [name for each in commands for name in each[1:]]
    return list(dict.fromkeys([*further, *firsts, *others, *usual]))[:_NEXT]


def _remarks(heaps: Sequence[Heap], findings: Sequence[Finding], account: Ledger) -> Mapping[str, str]:
    """Return what there is to say of rows of memory by owner."""
    remarks: Dict[str, str] = {}
    leaked = sum(finding.bytes or 0 for finding in findings if finding.kind == "leak")
    if leaked and len(heaps) == 1:
        remarks[f"{heaps[0].allocator} in use"] = f"{size_text(leaked)} of it leaked"
    whole = sum(map(cost_of, account.entries))
    for heap in heaps:
        free = sum(cost_of(entry) for entry in account.entries if is_free(entry.owner, heap.allocator))
        if heap.trimmable is not None and free > _LARGE_FREE * whole:
            bytes_, command = heap.trimmable()
            remarks[f"{heap.allocator} free"] = f"{size_text(min(bytes_, free))} would go back: {command}"
    rest = sum(cost_of(entry) for entry in account.entries if entry.owner == ANONYMOUS)
    if rest > _LARGE_REST * whole:
        remarks[ANONYMOUS] = "of no allocator that is known: a pool of the program's own, a JIT's code, plain mmap"
    return remarks


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


def target_text(target: Target, heaps: Sequence[Heap] = ()) -> str:
    """Return what is examined in one line."""
    identity = target.identity
    parts = [os.path.basename(identity.exe) if identity.exe else "unknown program"]
    if identity.pid is not None:
        parts.append(f"pid {identity.pid}")
    parts.append(count_text(len(target.threads), "thread"))
    when = [os.path.basename(identity.core)] if identity.core is not None else []
    if identity.time is not None:
        when.append(datetime.fromtimestamp(identity.time, timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))
    parts += [", ".join(when)] if when else []
    parts += [f"{heap.allocator}, {count_text(len(heap.arenas), 'arena')}" for heap in heaps]
    return " · ".join(parts)
