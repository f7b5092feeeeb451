"""One sample of a process: small figures by names, types and sizes, which also another process of the program has.

A sample outlives its target: what grew is found by comparing several, of one process or of several runs. Its keys hold
no addresses, but for arenas that have no other name: see :func:`is_address_key`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Mapping, Optional, Sequence

# Kinds of rows, in the order in which they are shown.
TOTAL, OWNER, HEAP, ARENA_KIND, ARENA, ARENA_FREE = ("total", "owner", "heap", "arena-kind", "arena", "arena-free")
SIZE, TYPE, REACH, LEAK, LEAK_SIZE, ROOT = ("size", "type", "reach", "leak", "leak-size", "root")
TABLE, THREAD, MAPPING = ("table", "thread", "mapping")
KINDS = (
    TOTAL, OWNER, HEAP, ARENA_KIND, ARENA, ARENA_FREE, SIZE, TYPE, REACH, LEAK, LEAK_SIZE, ROOT, TABLE, THREAD, MAPPING,
)  # fmt: skip

IN_USE = " in use"  # how keys of ``heap`` end that are of blocks in use
OTHER = ""  # the key of what is not listed by itself
MOST_ROWS = 150  # of a kind, :data:`OTHER` besides

# Keys of ``total``.
MEMORY, MAPPED, THREADS, ARENAS = ("memory", "mapped", "threads", "arenas")

RESIDENT, IN_CORE = ("resident", "in core")


@dataclass(frozen=True)
class ProcessId:
    """Which process a sample is of; whatever is not known is None.

    :param pid: as its own PID namespace, or a core, numbers it.
    :param program: base name of the executable.
    :param build_id: of the executable, hex.
    :param started: clock ticks from the machine's boot to the process's start.
    :param boot: the kernel's random id of that boot.
    :param mark: hash of the random bytes that the kernel gave the program when it was started (``AT_RANDOM``), hex.
    """

    pid: Optional[int] = None
    program: Optional[str] = None
    build_id: Optional[str] = None
    started: Optional[int] = None
    boot: Optional[str] = None
    mark: Optional[str] = None


def is_same_process(one: ProcessId, other: ProcessId) -> bool:
    """Return whether two samples surely are of one run of one program; what is not known counts for nothing.

    A child that was forked has its parent's mark, and what was started by ``exec`` its caller's start.
    """
    if one.pid is None or one.pid != other.pid:
        return False
    of_start = _agree(one.boot, other.boot), _agree(one.started, other.started)
    of_mark = _agree(one.mark, other.mark)
    if False in (*of_start, of_mark, _agree(one.build_id, other.build_id)):
        return False
    return bool(of_mark) or all(of_start)


def is_same_program(one: ProcessId, other: ProcessId) -> bool:
    """Return whether two samples may be of one program, by its name: a new build of it is compared, too."""
    return _agree(one.program, other.program) is not False


def _agree(one: object, other: object) -> Optional[bool]:
    return None if one is None or other is None else one == other


@dataclass(frozen=True)
class Row:
    """One figure.

    :param key: what it is of, within its kind; :data:`OTHER` for the rest.
    :param count: blocks, entries, threads, arenas, mappings; None where bytes alone are counted.
    :param bytes: None where they are not the measure.
    """

    key: str
    count: Optional[int]
    bytes: Optional[int]


@dataclass(frozen=True)
class Limit:
    """What bounds the process's memory.

    :param what: ``cgroup``, ``RLIMIT_AS``.
    :param bytes: the limit.
    :param taken: of it, at the sample.
    """

    what: str
    bytes: int
    taken: int


@dataclass(frozen=True)
class Remark:
    """Why a sample is not complete: kind and message of a :class:`gdbext.report.Problem`."""

    kind: str
    message: str


@dataclass(frozen=True)
class Sample:
    """A process at one moment.

    :param time: seconds since the epoch; of a core when its file was written.
    :param held_seconds: for how long the process stood still for it.
    :param named: whether a debugger has named types and variables; keys of other samples are not the same then.
    :param measure: what costs of memory are: ``resident``, ``in core``, or ``mapped`` where neither is known.
    :param rows: by kind, most bytes first; a kind that was not measured is not there.
    :param limits: none where nothing is known of them.
    :param complete: whether everything that is in it was examined to its end.
    :param remarks: why not.
    """

    process: ProcessId = ProcessId()
    time: Optional[float] = None
    held_seconds: Optional[float] = None
    named: bool = False
    measure: str = "mapped"
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    limits: Sequence[Limit] = ()
    complete: bool = True
    remarks: Sequence[Remark] = ()

    def find(self, kind: str, key: str) -> Optional[Row]:
        """Return a row, or None where there is none."""
        return next((row for row in self.rows.get(kind, ()) if row.key == key), None)


def is_address_key(key: str) -> bool:
    """Return whether a key means something in the same process alone."""
    return "0x" in key


def add_up(rows: Iterable[Row]) -> Sequence[Row]:
    """Return rows of which those with one key are one, most bytes first; counts and bytes that are None add nothing."""
    sums: Dict[str, Row] = {}
    for row in rows:
        known = sums.get(row.key)
        sums[row.key] = (
            row if known is None else Row(row.key, _plus(known.count, row.count), _plus(known.bytes, row.bytes))
        )
    return ordered(sums.values())


def ordered(rows: Iterable[Row]) -> Sequence[Row]:
    """Return rows by bytes, then count, then key; the rest comes last."""
    return sorted(rows, key=lambda row: (row.key == OTHER, -(row.bytes or 0), -(row.count or 0), row.key))


def capped(rows: Sequence[Row], most: int = MOST_ROWS) -> Sequence[Row]:
    """Return the first rows, and the sum of all others as :data:`OTHER`.

    :param rows: in order.
    """
    kept: List[Row] = list(rows[:most])
    rest = [Row(OTHER, row.count, row.bytes) for row in rows[most:]]
    return [*kept, *add_up(rest)]


def _plus(one: Optional[int], other: Optional[int]) -> Optional[int]:
    return other if one is None else one if other is None else one + other
