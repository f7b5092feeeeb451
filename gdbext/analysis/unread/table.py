"""Who else owns memory: a row for each heap or runtime that gdbext names and does not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as np

from gdbext.analysis.unread.alignedpages import find_innodb, find_php, find_ruby, find_v8
from gdbext.analysis.unread.golang import find_go
from gdbext.analysis.unread.hotspot import find_hotspot
from gdbext.analysis.unread.model import Claim, Ground, Owner
from gdbext.analysis.unread.named import by_name, find_postgresql
from gdbext.analysis.unread.sanitizers import finder
from gdbext.memory.intervals import Coverage, Intervals, clip, subtract, unite
from gdbext.report import Evidence
from gdbext.target import Target

_SANITIZERS = "the sanitizer's own report goes on from there: it knows each block and its stacks"
_CHROME = "chrome://tracing goes on from there"
_TCMALLOC = "MallocExtension::GetStats(), and pprof on its heap profile, go on from there"  # Google's, not gperftools'
_GO = "dlv core, go tool viewcore, and of a process runtime/pprof go on from there"

OWNERS: Sequence[Owner] = (
    Owner("HotSpot", find_hotspot, "jcmd PID GC.heap_dump, of a core jhsdb jmap, and Eclipse MAT go on from there"),
    Owner("Go", find_go, _GO),
    Owner("V8", find_v8, "llnode, or node --heapsnapshot-signal and Chrome's DevTools, go on from there"),
    Owner("PHP", find_php, "memory_get_usage() and php-meminfo go on from there"),
    Owner("Ruby", find_ruby, "ObjectSpace.dump_all by way of rbtrace, and heapy, go on from there"),
    Owner("InnoDB", find_innodb, "information_schema.INNODB_BUFFER_PAGE, per table, goes on from there"),
    Owner("PostgreSQL", find_postgresql, "pg_shmem_allocations and pg_buffercache go on from there"),
    Owner("AddressSanitizer", finder("__asan_init", "AddressSanitizer"), _SANITIZERS),
    Owner("ThreadSanitizer", finder("__tsan_init", "ThreadSanitizer"), _SANITIZERS),
    Owner("MemorySanitizer", finder("__msan_init", "MemorySanitizer"), _SANITIZERS),
    Owner("LeakSanitizer", finder("__lsan_init", "LeakSanitizer"), _SANITIZERS),
    Owner("Go", by_name({"Go heap": r"^\[anon: Go: heap", "Go runtime": r"^\[anon: Go:"}), _GO),
    Owner("PartitionAlloc", by_name({"PartitionAlloc": r"^\[anon:partition_alloc"}), _CHROME),
    Owner("TCMalloc", by_name({"TCMalloc heap": r"^\[anon:tcmalloc_region_(?!METADATA)",
                               "TCMalloc metadata": r"^\[anon:tcmalloc_region_METADATA"}), _TCMALLOC),
    Owner("io_uring", by_name({"io_uring rings": r"^anon_inode:\[io_uring\]"}), "/proc/PID/fdinfo goes on from there"),
    Owner("devices", by_name({"devices": r"^/dev/(?!shm/|zero|hugepages)"}), "the driver's own tools go on from there"),
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Memory that one ledger line names.

    :param line: the ledger's.
    :param blocks: as in :class:`Claim`.
    """

    owner: Owner
    line: str
    memory: Intervals
    evidence: Evidence
    blocks: bool


def name_owners(target: Target, pieces: Coverage, stacks: Coverage) -> List[Part]:
    """Return who owns what no heap claims: disjoint parts of it, each byte of the first that claims it.

    :param pieces: memory whose owner is open.
    :param stacks: memory that stack pointers lie in.
    """
    ground = Ground(target, pieces, stacks)
    left = unite([(one.starts, one.ends) for one in (pieces, stacks)]).covered
    parts: List[Part] = []
    for owner in OWNERS:
        for claim in owner.find(ground):
            taken, left = _take(left, claim)
            if len(taken[0]):
                parts.append(Part(owner, claim.owner, taken, Evidence(claim.owner, claim.evidence), claim.blocks))
    return parts


def _take(left: Coverage, claim: Claim) -> Tuple[Intervals, Coverage]:
    """Return what a claim gets of what is left, and what is left then."""
    wanted = unite([claim.memory]).covered
    starts, ends, _ = subtract(left, wanted)
    rest = Coverage(starts, ends)
    got = [clip(left, low, high) for low, high in zip(wanted.starts.tolist(), wanted.ends.tolist())]
    none = np.empty(0, np.uint64)
    taken = np.concatenate([none, *(one[0] for one in got)]), np.concatenate([none, *(one[1] for one in got)])
    return taken, rest
