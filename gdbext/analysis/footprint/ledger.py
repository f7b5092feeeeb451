"""The memory ledger: every byte of every mapping attributed to one owner.

Heaps come first, by the charges that their allocators made; what they leave of a mapping goes to the
stack of a thread whose stack pointer is there, to the file that is mapped, to a module's ``.bss``,
to reserved address space (no access), else to the anonymous rest. The total is counted from the
mappings alone, so that the residual shows charges that overlap or lie in no mapping.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.footprint.residency import OF_A_CORE, Knowledge, Residency
from gdbext.errors import FaultError
from gdbext.heap.model import U64, Charge, Heap
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.memory import Region, RegionIndex, for_each_written
from gdbext.memory.bulk import words_at
from gdbext.memory.intervals import Coverage, Intervals, bytes_of, columns, subtract, unite
from gdbext.process import Module
from gdbext.report import Bar, Evidence, Kind, Labels, Memory, Problem, Report, column, hidden, line, table
from gdbext.target import Target
from gdbext.wording import count_text, size_text

if TYPE_CHECKING:  # what names owners is loaded where there is something to name
    from gdbext.analysis.unread.table import Part

RESERVED = "reserved, no access"
GUARDS = "thread stack guards"
MAIN_STACK = "main thread stack"
STACKS = "thread stacks"
ANONYMOUS = "anonymous rest"

FREE_PARTS = (
    "free", "bins", "top", "heap slack", "free regions", "free pools", "dirty", "muzzy", "cache of small extents",
    "huge pages (free)", "free objects", "free pages",
)  # fmt: skip

_RETAINED = " retained"  # address space that an allocator keeps, without pages
_CLASHES_TOLD = 5
_WORTH_NAMING = 1 << 20  # bytes without an owner from which on owners that are not read are searched for
_NO_FILE = re.compile(r"\[anon:|anon_inode:|/dev/|/anon_hugepage |/memfd:java_heap|/SYSV")  # names without a file
# With which the lines of :data:`gdbext.analysis.unread.table.OWNERS` begin.
_UNREAD = ("HotSpot ", "Go ", "V8 ", "PHP ", "Ruby ", "InnoDB ", "PostgreSQL ", "AddressSanitizer ", "ThreadSanitizer ",
           "MemorySanitizer ", "LeakSanitizer ", "PartitionAlloc", "TCMalloc ", "io_uring ", "devices")  # fmt: skip
_TOP_OF_STACK = 1 << 14  # bytes, in which libc has a thread's own structure
_GUARD_LIMIT = 1 << 20  # guards are a page or a few; larger reserves beside a stack are something else


@dataclass(frozen=True)
class Entry:
    """One owner of memory.

    :param owner: a mapped file's path, ``PATH (bss)``, ``glibc …``, or a kind of memory; see the guide.
    :param resident: of them in RAM; None on a core and on a remote process.
    :param in_core: of them in the core's file, but for its holes, which nobody ever wrote; gcore, and a copy without
        holes, hold those as zeros. Pages that are read from files instead are not among them; None on a process.
    :param share: of all that costs memory, see :func:`cost_of`.
    :param bytes: of address space.
    :param not_in_core: of them mapped in the target and absent from the core; None on a process.
    """

    owner: str = column("owner")
    resident: Optional[int] = column("resident", Kind.BYTES)
    in_core: Optional[int] = column("in core", Kind.BYTES)
    bar: Bar = column("share", Kind.BAR, json=False)
    share: Optional[float] = column("", Kind.SHARE, json=False)
    bytes: int = column("mapped", Kind.BYTES)
    not_in_core: Optional[int] = column("not in core", Kind.BYTES)


def cost_of(entry: Entry) -> int:
    """Return the bytes of an owner that cost memory: in RAM; else in the core; else all but reserves."""
    if entry.resident is not None:
        return entry.resident
    if is_reserve(entry.owner):
        return 0
    return entry.bytes if entry.in_core is None else entry.in_core


def is_reserve(owner: str) -> bool:
    """Return whether an owner's memory is address space alone."""
    return owner in (RESERVED, GUARDS) or owner.endswith(_RETAINED)


def memory_of(owner: str) -> Memory:
    """Return what an owner's memory is for."""
    if owner[:1] in "/[" or owner.endswith("(bss)") or ":" in owner:
        return Memory.FILE
    if is_reserve(owner):
        return Memory.RESERVED
    if owner in (STACKS, MAIN_STACK):
        return Memory.STACK
    if owner == ANONYMOUS or owner.startswith(_UNREAD):
        return Memory.ANONYMOUS
    if owner.endswith(" in use"):
        return Memory.USED
    return Memory.FREE if owner.endswith(tuple(f" {part}" for part in FREE_PARTS)) else Memory.OVERHEAD


@dataclass(frozen=True)
class Ledger:
    """What ``rss`` answers.

    :param total: of all mappings, counted from the mappings alone.
    :param residual: ``total`` less all entries; 0 unless owners overlap or lie in no mapping.
    :type residual: signed bytes
    :param resident: sum of the entries; None as there.
    :param rss: the kernel's count (smaps, Rss); None as above, like the three below.
    :param pss: Pss: shared pages divided by their sharers.
    :param anon_huge_pages: AnonHugePages.
    :param swap: Swap.
    :param rss_difference: ``rss`` less ``resident``.
    :type rss_difference: signed bytes
    """

    entries: Sequence[Entry] = table("Memory by owner")
    total: int = line("total", Kind.BYTES)
    residual: int = line("residual", Kind.BYTES)
    resident: Optional[int] = line("resident", Kind.BYTES, default=None)
    rss: Optional[int] = line("RSS of the kernel", Kind.BYTES, default=None)
    pss: Optional[int] = line("PSS", Kind.BYTES, default=None)
    anon_huge_pages: Optional[int] = line("AnonHugePages", Kind.BYTES, default=None)
    swap: Optional[int] = line("swap", Kind.BYTES, default=None)
    rss_difference: Optional[int] = line("RSS less resident", Kind.BYTES, default=None)


_OF_RESIDENCY = ("resident", "rss", "pss", "anon_huge_pages", "swap", "rss_difference")


def labels_of(account: Ledger) -> Labels:
    """Return what the text of a ledger shows: nothing of what is not known."""
    unknown = [] if account.resident is not None else ["resident"]
    unknown += [] if any(entry.in_core is not None for entry in account.entries) else ["in_core"]
    unknown += [] if any(entry.not_in_core for entry in account.entries) else ["not_in_core"]
    return {**hidden(Entry, unknown), **hidden(Ledger, () if account.resident is not None else _OF_RESIDENCY)}


def rss(target: Target, heaps: Sequence[Heap], known: Knowledge = OF_A_CORE) -> Report:
    """Attribute every byte of the target's mappings to one owner.

    :param known: which pages are in RAM.
    """
    account = take_account(target, heaps, known.residency)
    return Report(
        account.ledger,
        evidence=[*evidence_of(heaps), *account.evidence],
        problems=[*problems_of(heaps, brief=True), *account.problems],
        complete=all(heap.complete for heap in heaps),
        notes=[*notes_on(heaps, known), *account.notes],
        labels=labels_of(account.ledger),
    )


def notes_on(heaps: Sequence[Heap], known: Knowledge) -> Sequence[str]:
    """Return the lines on what the ledger could not know."""
    missing = "no heap of an allocator that gdbext knows was found: such memory is part of the anonymous rest"
    return [*([] if heaps else [missing]), *([known.unknown] if known.unknown else [])]


@dataclass(frozen=True)
class Account:
    """A ledger, and what it was made of.

    :param problems: what was wrong with the charges.
    :param charged: what heaps claim.
    :param named: what is known by its owner's name and was not read.
    """

    ledger: Ledger
    problems: Sequence[Problem]
    charged: Coverage
    named: Sequence[Part] = ()

    @property
    def evidence(self) -> Sequence[Evidence]:
        """Why owners that are not read have their names."""
        return [part.evidence for part in self.named]

    @property
    def notes(self) -> Sequence[str]:
        """What goes on where gdbext does not read, a line for each owner."""
        owners = dict.fromkeys(part.owner for part in self.named)
        return [f"{owner.name} is named, its inside is not read: {owner.further}" for owner in owners]


def ledger(
    target: Target, heaps: Sequence[Heap], residency: Optional[Residency] = None
) -> Tuple[Ledger, Sequence[Problem]]:
    """Return the ledger alone, and what was wrong with the charges."""
    account = take_account(target, heaps, residency)
    return account.ledger, account.problems


def take_account(target: Target, heaps: Sequence[Heap], residency: Optional[Residency] = None) -> Account:
    """Return the ledger with what heaps claim together."""
    regions = target.memory.regions()
    mapped = coverage_of(regions)
    charges = [charge for heap in heaps for charge in heap.charges]
    union = unite([(charge.starts, charge.ends) for charge in charges])
    absent = coverage_of([region for region in regions if region.source == "absent"])
    gauge = _Gauge(residency, absent, None if target.live or residency is not None else _held(target))
    sums: Dict[str, _Sum] = {}
    for charge in charges:
        gauge.add(sums, charge.owner, charge.starts, charge.ends)
    rows = list(_rest(target, heaps, regions, union.covered))
    named = _name(target, rows)
    known = unite([part.memory for part in named]).covered
    for part in named:
        gauge.add(sums, part.line, *part.memory)
    for owner, starts, ends in rows:
        starts, ends, _ = subtract(Coverage(starts, ends), known) if named else (starts, ends, None)
        gauge.add(sums, owner, starts, ends)
    problems = list(_overlap_problems(charges, union.clashes, union.overlap))
    if mapped.within(union.covered.starts, union.covered.ends) != union.covered.bytes:
        problems += _outside_problems(charges, mapped)
    return Account(_ledger(sums, mapped.bytes, gauge), problems, union.covered, named)


def _name(target: Target, rows: Sequence[Tuple[str, U64, U64]]) -> Sequence[Part]:
    """Return who owns what no heap claims, as far as gdbext has a name; that is only looked for where it is much."""
    pieces = _pieces([(starts, ends) for owner, starts, ends in rows if _is_open(owner)])
    if pieces.bytes < _WORTH_NAMING:
        return ()
    from gdbext.analysis.unread.table import name_owners

    stacks = _pieces([(starts, ends) for owner, starts, ends in rows if owner in (STACKS, MAIN_STACK)])
    return name_owners(target, pieces, stacks)


def _pieces(parts: Sequence[Intervals]) -> Coverage:
    """Return disjoint intervals in order, those of neighbouring mappings apart."""
    starts, ends = (np.concatenate([np.empty(0, np.uint64), *side]) for side in (zip(*parts) if parts else ((), ())))
    return Coverage(np.sort(starts), np.sort(ends))


def _is_open(owner: str) -> bool:
    """Whether a ledger line leaves open who owns the memory."""
    return owner == ANONYMOUS or bool(_NO_FILE.match(owner))


def find_anonymous_rest(target: Target, heaps: Sequence[Heap], charged: Coverage) -> Coverage:
    """Return the memory of the target that is there and stands as anonymous rest, or under a name given to such.

    :param charged: what heaps claim, and what else has an owner.
    """
    regions = [region for region in target.memory.regions() if region.source != "absent"]
    rest = [
        (starts, ends)
        for owner, starts, ends in _rest(target, heaps, regions, charged)
        if owner == ANONYMOUS or owner.startswith("[anon:")
    ]
    return unite(rest).covered


def _held(target: Target) -> Coverage:
    """Return what a core holds but holes of its file: pages of zeros that somebody wrote cost memory, too."""
    parts = [(one.start, one.end) for one in target.memory.regions() if one.source == "memory"]
    return Coverage(*columns([piece for part in parts for piece in for_each_written(target.memory, *part)]))


def coverage_of(regions: Sequence[Region]) -> Coverage:
    """Return the address ranges of regions that are sorted and disjoint."""
    starts = np.fromiter((region.start for region in regions), np.uint64, len(regions))
    ends = np.fromiter((region.end for region in regions), np.uint64, len(regions))
    return Coverage(starts, ends)


@dataclass
class _Sum:
    """What one owner has so far."""

    bytes: int = 0
    resident: int = 0
    absent: int = 0
    in_core: int = 0


@dataclass(frozen=True)
class _Gauge:
    """Measures intervals against what is in RAM, or what the core has.

    :param held: None on a process.
    """

    residency: Optional[Residency]
    absent: Coverage
    held: Optional[Coverage]

    def add(self, sums: Dict[str, _Sum], owner: str, starts: U64, ends: U64) -> None:
        """Add intervals to an owner's sum."""
        account = sums.setdefault(owner, _Sum())
        account.bytes += bytes_of(starts, ends)
        if self.residency is not None:
            account.resident += self.residency.resident(starts, ends)
        if self.absent.bytes:
            account.absent += self.absent.within(starts, ends)
        if self.held is not None:
            account.in_core += self.held.within(starts, ends)


def _entry(owner: str, account: _Sum, gauge: _Gauge) -> Entry:
    return Entry(
        owner,
        account.resident if gauge.residency is not None else None,
        None if gauge.held is None else account.in_core,
        Bar(None, memory_of(owner)),
        None,
        account.bytes,
        None if gauge.held is None else account.absent,
    )


def _with_share(entry: Entry, whole: int) -> Entry:
    share = cost_of(entry) / whole if whole else None
    return replace(entry, bar=replace(entry.bar, share=share), share=share)


def _ledger(sums: Mapping[str, _Sum], total: int, gauge: _Gauge) -> Ledger:
    entries = [_entry(owner, account, gauge) for owner, account in sums.items() if account.bytes]
    whole = sum(map(cost_of, entries))
    entries = [_with_share(entry, whole) for entry in entries]
    entries.sort(key=lambda entry: (entry.owner == RESERVED, -cost_of(entry), -entry.bytes))
    residual = total - sum(entry.bytes for entry in entries)
    if gauge.residency is None:
        return Ledger(entries, total, residual)
    resident = sum(account.resident for account in sums.values())
    use = gauge.residency.mappings()
    kernel = sum(mapping.rss for mapping in use)
    return Ledger(
        entries,
        total,
        residual,
        resident,
        kernel,
        sum(mapping.pss for mapping in use),
        sum(mapping.anon_huge for mapping in use),
        sum(mapping.swap for mapping in use),
        kernel - resident,
    )


def _rest(
    target: Target, heaps: Sequence[Heap], regions: Sequence[Region], charged: Coverage
) -> Iterator[Tuple[str, U64, U64]]:
    """Iterate over the owners of what no heap claims, with their intervals."""
    for owner, starts, ends in _unclaimed(target, regions, charged):
        if owner == ANONYMOUS:
            anonymous = Coverage(starts, ends)
            # gdb writes what may not be accessed as memory that may be written: then only the heap knows what it is.
            reserves = unite([columns(heap.reserves) for heap in heaps]).covered
            starts, ends, _ = subtract(anonymous, reserves)
            yield (RESERVED, *subtract(anonymous, Coverage(starts, ends))[:2])
        yield owner, starts, ends


def _unclaimed(target: Target, regions: Sequence[Region], charged: Coverage) -> Iterator[Tuple[str, U64, U64]]:
    pieces = list(_Bss(target.modules).split(regions))
    starts, ends, source = subtract(coverage_of(pieces), charged)
    owners = region_owners(target, pieces)
    labels = sorted(set(owners))
    code = {label: number for number, label in enumerate(labels)}
    codes = np.fromiter((code[owner] for owner in owners), np.int64, len(owners))[source]
    for number, label in enumerate(labels):
        mine = codes == number
        yield label, starts[mine], ends[mine]


class _Bss:
    """Finds anonymous memory that belongs to a module: what its last segment has beyond the file."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self._modules = sorted(modules, key=lambda module: module.base)
        self._bases = [module.base for module in self._modules]

    def find(self, region: Region) -> Optional[Module]:
        """Return the module whose address range an anonymous region begins in, or None."""
        at = bisect.bisect_right(self._bases, region.start) - 1
        if at < 0 or not region.anonymous or not region.writable:
            return None
        return self._modules[at] if region.start < self._modules[at].end else None

    def split(self, regions: Sequence[Region]) -> Iterator[Region]:
        """Iterate over the regions, cut where a module ends inside one: the kernel merges neighbours."""
        for region in regions:
            module = self.find(region)
            if module is not None and module.end < region.end:
                yield replace(region, end=module.end)
                yield replace(region, start=module.end)
            else:
                yield region


def region_owners(target: Target, regions: Sequence[Region]) -> Sequence[str]:
    """Return for each mapping who owns what no heap claims of it."""
    stacks, bss = _stacks(target), _Bss(target.modules)
    owners: List[str] = []
    for region, after in zip(regions, [*regions[1:], None]):
        owner = stacks.get(region.start)
        if owner is None and region.permissions == "---":
            owner = GUARDS if _is_guard(region, after, stacks) else RESERVED
        owners.append(owner or _owner(region, bss.find(region)))
    return owners


def _is_guard(region: Region, after: Optional[Region], stacks: Mapping[int, str]) -> bool:
    beside = after is not None and after.start == region.end and after.start in stacks
    return beside and region.anonymous and region.size <= _GUARD_LIMIT


def _owner(region: Region, bss_of: Optional[Module]) -> str:
    if region.name == "[stack]":
        return MAIN_STACK
    if bss_of is not None:
        return f"{bss_of.path} (bss)"
    if region.name and region.name != "[heap]":
        return region.name
    return ANONYMOUS


def _stacks(target: Target) -> Mapping[int, str]:
    """Return the start of each mapping that is a thread's stack, and its owner."""
    index: RegionIndex = target.index
    found: Dict[int, str] = dict.fromkeys(_for_each_kept_stack(target), STACKS)
    for thread in target.threads:
        region = index.find(thread.stack_pointer) if thread.stack_pointer is not None else None
        if region is None or not region.anonymous or region.name == "[heap]":
            continue
        main = region.name == "[stack]" or (thread.lwp is not None and thread.lwp == target.identity.pid)
        if found.get(region.start) != MAIN_STACK:
            found[region.start] = MAIN_STACK if main else STACKS
    return found


def _for_each_kept_stack(target: Target) -> Iterator[int]:
    """Iterate over the starts of stacks without a thread, which libc keeps for the next: a guard lies before each.

    At the top is a structure that has its own address twice (``tcbhead_t``, glibc's ``sysdeps/x86_64/nptl/tls.h``).
    """
    alive = {region.start for thread in target.threads if (region := target.index.find(thread.stack_pointer or 0))}
    regions = target.index.regions
    for guard, region in zip(regions, regions[1:]):
        beside = guard.end == region.start and guard.permissions == "---" and guard.size <= _GUARD_LIMIT
        fits = beside and region.anonymous and not region.name and region.readable
        if fits and region.start not in alive and _has_thread_on_top(target, region):
            yield region.start


def _has_thread_on_top(target: Target, region: Region) -> bool:
    start = max(region.start, region.end - _TOP_OF_STACK)
    try:
        words = words_at(target.memory, target.abi, start, (region.end - start) // target.abi.pointer_size)
    except FaultError:
        return False
    own = np.uint64(start) + np.arange(len(words), dtype=np.uint64) * np.uint64(target.abi.pointer_size)
    return bool(((words[:-2] == own[:-2]) & (words[2:] == own[:-2])).any())


def _outside_problems(charges: Sequence[Charge], mapped: Coverage) -> Iterator[Problem]:
    """Iterate over the owners that claim memory which is in no mapping."""
    for charge in charges:
        outside = charge.bytes - mapped.within(charge.starts, charge.ends)
        if outside > 0:
            first = _first_outside(charge, mapped)
            message = f'"{charge.owner}" claims {size_text(outside)} that no mapping holds'
            yield Problem("ledger-outside", first, message)


def _first_outside(charge: Charge, mapped: Coverage) -> int:
    held = mapped.below(charge.ends) - mapped.below(charge.starts)
    return int(charge.starts[np.flatnonzero(held < charge.ends - charge.starts)[0]])


def _overlap_problems(charges: Sequence[Charge], clashes: U64, overlap: int) -> Iterator[Problem]:
    """Iterate over the first places that two charges claim, and say how much it is in all."""
    for address in clashes[:_CLASHES_TOLD].tolist():
        names = " and ".join(f'"{name}"' for name in _claimants(charges, address))
        yield Problem("ledger-overlap", address, f"claimed twice: {names}")
    if len(clashes) > _CLASHES_TOLD:
        more = count_text(len(clashes) - _CLASHES_TOLD, "more place")
        yield Problem("ledger-overlap", None, f"claimed twice in {more}; {size_text(overlap)} in all")


def _claimants(charges: Sequence[Charge], address: int) -> Iterator[str]:
    for charge in charges:
        inside = (charge.starts <= address) & (charge.ends > address)
        for _ in range(int(np.count_nonzero(inside))):
            yield charge.owner
