"""A sample taken of a session: the figures of its own reports, each worked out once."""

from __future__ import annotations

import hashlib
import os
import re
from enum import IntEnum
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from gdbext.analysis.blocks.sums import CACHED, FREE, MMAPPED, TOP, USED, Tally, tally
from gdbext.analysis.footprint.ledger import Ledger, cost_of, take_account
from gdbext.analysis.footprint.residency import Residency, residency_of
from gdbext.analysis.growth import sample as kinds
from gdbext.analysis.growth.sample import Limit, ProcessId, Remark, Row, Sample, add_up, capped
from gdbext.analysis.leaks.groups import group_leaks
from gdbext.analysis.leaks.tables import Tables
from gdbext.analysis.missing import is_whole
from gdbext.analysis.pins.retained import SHARED, find_keepers, root_rows, sum_up
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import GLOBAL, PLAIN, REGISTER, STACK, STATE_NAMES, TLS
from gdbext.analysis.sources import Sources
from gdbext.analysis.tables.variables import find_tables
from gdbext.analysis.types.model import BlockTypes
from gdbext.analysis.types.report import summarise
from gdbext.debuginfo import NO_DEBUG_INFO
from gdbext.errors import FaultError, TooLargeError
from gdbext.heap.model import Heap
from gdbext.heap.reading import problems_of
from gdbext.kernels import NOT_REACHED
from gdbext.memory import Region, check_reads
from gdbext.memory.elf.corenotes import AT_RANDOM
from gdbext.memory.room import for_each_bound
from gdbext.report import Problem
from gdbext.target import Target

_MARK = 16  # bytes that the kernel gives each program: random, its stack protector among them
_REMARKS = 16
_ADDRESSES = re.compile(r"(?: at| behind)? ?\b0x[0-9a-f]+(?:-0x[0-9a-f]+)?")


class Depth(IntEnum):
    """How much is measured; each has what those before it have."""

    SIZES = 0  # owners, arenas, sizes, threads, mappings
    TABLES = 1  # the entries of the hash tables that variables lead to
    TYPES = 2  # types, leaks and roots: what takes as long as the analyses of these names


def measure_sample(sources: Sources, depth: Depth = Depth.TYPES) -> Sample:
    """Measure a target at its present stop.

    What could not be worked out (no heap, too little memory, no debugger) is left out, and the sample says why.

    :param sources: a session.
    :raises NoTargetError: there is none, or it is gone.
    """
    return _Measurement(sources).take(depth)


class _Measurement:
    """One sample in the making."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._target = sources.target
        self._rows: Dict[str, Sequence[Row]] = {}
        self._problems: List[Problem] = [*sources.target.problems]
        self._complete = True

    def take(self, depth: Depth) -> Sample:
        """Return the sample."""
        heaps, target = self._sources.heaps(), self._target
        residency = residency_of(target).residency
        measure = self._take_memory(heaps, residency)
        self._take_heaps(heaps)
        if depth >= Depth.TABLES:
            self._take_tables()
        if depth >= Depth.TYPES and any(len(heap.blocks) for heap in heaps):
            self._take_reach()
        self._problems += [*problems_of(heaps, brief=True), *check_reads(target.memory)]
        whole = self._complete and all(heap.complete for heap in heaps) and is_whole(self._problems)
        return Sample(
            identify(target),
            target.identity.time,
            None,
            self._sources.debug is not NO_DEBUG_INFO,
            measure,
            {kind: self._rows[kind] for kind in kinds.KINDS if kind in self._rows},
            limits_of(target),
            whole,
            [Remark(one.kind, one.message) for one in self._problems[:_REMARKS]],
        )

    def _keep(self, kind: str, rows: Iterable[Row]) -> None:
        self._rows[kind] = capped(add_up(rows))

    def _take_memory(self, heaps: Sequence[Heap], residency: Optional[Residency]) -> str:
        """Take what the ledger says; return what its costs are."""
        target = self._target
        account = take_account(target, heaps, residency).ledger
        cost = sum(map(cost_of, account.entries))
        self._keep(kinds.OWNER, (Row(entry.owner, None, cost_of(entry)) for entry in account.entries))
        self._keep(kinds.MAPPING, _mappings(target.memory.regions()))
        self._keep(kinds.THREAD, (Row(thread.name or "unnamed", 1, None) for thread in target.threads))
        self._rows[kinds.TOTAL] = [
            Row(kinds.MEMORY, None, cost),
            Row(kinds.MAPPED, None, account.total),
            Row(kinds.THREADS, len(target.threads), None),
            Row(kinds.ARENAS, sum(len(heap.arenas) for heap in heaps), None),
        ]
        return _measure(account)

    def _take_heaps(self, heaps: Sequence[Heap]) -> None:
        if not any(heap.arenas or heap.complete for heap in heaps):
            return
        tallies = [(heap, tally(heap)) for heap in heaps]
        arenas = [row for heap, counts in tallies for row in _arenas(heap, counts)]
        self._keep(kinds.HEAP, (row for heap, counts in tallies for row in _heap_rows(heap, counts)))
        self._keep(kinds.ARENA_KIND, (row for heap, counts in tallies for row in _arena_kinds(heap, counts)))
        self._keep(kinds.ARENA, (row for row, _ in arenas))
        self._keep(kinds.ARENA_FREE, (row for _, row in arenas))
        self._keep(kinds.SIZE, (row for _, counts in tallies for row in _sizes(counts)))

    def _take_tables(self) -> None:
        if self._sources.debug is NO_DEBUG_INFO:
            return
        rows: List[Row] = []
        found = find_tables(
            self._sources,
            lambda looked: rows.append(Row(looked.name, sum(len(one.nodes) for one in looked.walked), None)),
        )
        self._complete &= found.complete
        self._problems += [one.problem for one in found.unexamined]
        self._keep(kinds.TABLE, rows)

    def _take_reach(self) -> None:
        try:
            reach = self._sources.reach(PLAIN)
            self._take_states(reach)
            self._take_types(reach)
            self._take_roots(reach)
        except TooLargeError as error:
            self._complete = False
            self._problems.append(Problem("not-searched", None, error.message))

    def _take_states(self, reach: Reach) -> None:
        rows = []
        for state, name in STATE_NAMES.items():
            mine = reach.states == state
            rows.append(Row(name, int(mine.sum()), int(reach.size.sum(where=mine))))
        self._keep(kinds.REACH, rows)
        self._complete &= reach.whole

    def _take_types(self, reach: Reach) -> None:
        types = self._sources.block_types(reach)
        self._problems += types.problems
        self._complete &= not any(problem.kind == "interrupted" for problem in types.problems)
        found = summarise(reach, types).data.types
        self._keep(kinds.TYPE, (Row(row.name, row.blocks, row.bytes) for row in found))
        self._take_leaks(reach, types)

    def _take_leaks(self, reach: Reach, types: BlockTypes) -> None:
        if not (reach.states == NOT_REACHED).any():
            self._rows[kinds.LEAK] = self._rows[kinds.LEAK_SIZE] = []
            return
        tables = Tables(reach, group_leaks(reach), types)
        self._keep(kinds.LEAK, (Row(row.type, row.blocks, row.bytes) for row in tables.by_type() or ()))
        self._keep(kinds.LEAK_SIZE, (Row(str(row.size), row.blocks, row.bytes) for row in tables.by_size()))

    def _take_roots(self, reach: Reach) -> None:
        kept = sum_up(reach, find_keepers(reach, self._sources.debug.names))
        shared, blocks = kept.shared
        rows = [Row(_root_key(row.kind, row.root), row.blocks, row.retained) for row in root_rows(kept, 0)]
        self._keep(kinds.ROOT, [*rows, Row(SHARED, blocks, shared)])


def _measure(account: Ledger) -> str:
    if account.resident is not None:
        return kinds.RESIDENT
    return kinds.IN_CORE if any(entry.in_core is not None for entry in account.entries) else "mapped"


def _mappings(regions: Sequence[Region]) -> Iterator[Row]:
    """Iterate over mappings by what is mapped; parts of one that differ in their source alone are one."""
    end, last = 0, None
    for region in regions:
        key = (region.name, region.permissions)
        joined = region.start == end and key == last
        yield Row(_without_addresses(region.name) or "anonymous", 0 if joined else 1, region.size)
        end, last = region.end, key


def _heap_rows(heap: Heap, counts: Tally) -> Iterator[Row]:
    yield Row(f"{heap.allocator}{kinds.IN_USE}", counts.count(USED, MMAPPED), counts.size(USED, MMAPPED))
    if heap.caches_known:
        yield Row(f"{heap.allocator} in thread caches", counts.count(CACHED), counts.size(CACHED))
    yield Row(f"{heap.allocator} free", counts.count(FREE, TOP), counts.size(FREE, TOP))


def _sizes(counts: Tally) -> Iterator[Row]:
    """Iterate over the sizes of blocks in use."""
    used = counts.by_size[:, [USED, MMAPPED]].sum(axis=1)
    for size, count in zip(counts.sizes.tolist(), used.tolist()):
        if count:
            yield Row(str(size), count, size * count)


_EVERY = (USED, MMAPPED, CACHED, FREE, TOP)


def _sums(figures: Sequence[int]) -> int:
    return sum(int(figures[one]) for one in _EVERY)


def _arena_kinds(heap: Heap, counts: Tally) -> Iterator[Row]:
    for arena, size in zip(heap.arenas, counts.bytes.tolist()):
        yield Row(f"{heap.allocator} {arena.kind}", 1, _sums(size))


def _arenas(heap: Heap, counts: Tally) -> Iterator[Tuple[Row, Row]]:
    """Iterate over arenas: their blocks of any state, and of these the free ones."""
    for arena, blocks, size in zip(heap.arenas, counts.blocks.tolist(), counts.bytes.tolist()):
        named = arena.kind == "main" or heap.family != "glibc"
        key = f"{heap.allocator} {arena.kind}" + ("" if arena.kind == "main" else f" {arena.index}")
        key = key if named else f"{heap.allocator} {arena.kind} {arena.address:#x}"
        yield Row(key, _sums(blocks), _sums(size)), Row(key, blocks[FREE] + blocks[TOP], size[FREE] + size[TOP])


_OF_THREADS = {REGISTER: "registers", STACK: "stacks", TLS: "thread-local storage"}


def _root_key(kind: str, name: str) -> str:
    """Return a root's name as another run of the program has it."""
    if kind in _OF_THREADS:
        return f"{_OF_THREADS[kind]} of threads"
    return name if kind == GLOBAL else _without_addresses(name)


def _without_addresses(name: str) -> str:
    return _ADDRESSES.sub("", name).strip()


def identify(target: Target) -> ProcessId:
    """Return which process a target is, by what a later sample can be held against."""
    identity = target.identity
    started, boot = (None, None) if target.local_pid is None else _find_start(target.local_pid)
    program = os.path.basename(identity.exe) if identity.exe else None
    return ProcessId(identity.pid, program, identity.build_id, started, boot, _find_mark(target))


def _find_start(pid: int) -> Tuple[Optional[int], Optional[str]]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None, None
    return int(stat.rpartition(b")")[2].split()[19]), boot


def _find_mark(target: Target) -> Optional[str]:
    """Return the hash of the program's own random bytes: they themselves are a secret of the process."""
    address = target.auxv.get(AT_RANDOM)
    if not address:
        return None
    try:
        return hashlib.sha256(bytes(target.memory.read(address, _MARK))).hexdigest()[:32]
    except FaultError:
        return None


def limits_of(target: Target) -> Sequence[Limit]:
    """Return the tightest limit of each kind that a process has; none of a core, which does not say."""
    if target.local_pid is None:
        return []
    bounds = sorted(for_each_bound(str(target.local_pid)), key=lambda one: one.taken - one.most)
    return list({one.what: Limit(one.what, one.most, one.taken) for one in bounds}.values())
