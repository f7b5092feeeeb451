"""What grows, as findings: the types first, else the sizes; threads, arenas and free memory; how long a limit lasts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from gdbext.analysis.footprint.ledger import GUARDS, MAIN_STACK, STACKS
from gdbext.analysis.growth import sample as kinds
from gdbext.analysis.growth.census import Ages, Generation
from gdbext.analysis.growth.sample import Limit
from gdbext.analysis.growth.series import Recording, Series
from gdbext.analysis.growth.trend import FEW, FEW_WITH_AGES, MANY, Trend, seconds_until
from gdbext.analysis.pins.retained import SHARED
from gdbext.report import Confidence, Finding, Severity
from gdbext.wording import count_text, grouped, size_text, span_text

GROWTH = "growth"
FRAGMENTATION = "fragmentation-growth"
ARENAS = "arena-growth"
THREADS = "thread-growth"

LEAST_BYTES = 256 << 10  # by which something must have grown
_LEAST_THREADS, _LEAST_ARENAS, _LEAST_ENTRIES = 5, 4, 100
_NEVER_FREED = 0.95  # of what came, that is still there
_FREED = 0.3
_TOGETHER = 0.2  # by how much the rates of what grows together may differ
_EXPLAINED = 0.5  # of what a heap has more, that types or sizes have
_MOST = 5
_BY_CONTENTS = ("unknown", "C string", "UTF-16 text", "zeros", "pointers")
_IN_USE = " in use"
_NAMELESS = "anonymous memory"
_OF_THREADS = (STACKS, MAIN_STACK, GUARDS)

_REMEDY = (
    "See who allocates {what} and who should free it; `blocks path ADDRESS` shows what keeps one, `blocks retained` "
    "what each root keeps."
)
_LEAKED = "Nothing points at these blocks any more: `blocks leaks` lists them with their leak roots."

# Given ``type`` or ``size``, a key, and whether that is sure to grow: what keeps the newest block of it, in words.
FindPath = Callable[[str, str, bool], Optional[str]]


def no_path(kind: str, key: str, sure: bool) -> Optional[str]:
    """Return None: nobody knows paths."""
    return None


@dataclass(frozen=True)
class Judged:
    """A series with what it does."""

    series: Series
    trend: Trend

    @property
    def rise(self) -> int:
        """By how much it has grown."""
        return self.series.change

    @property
    def weight(self) -> Tuple[Severity, Confidence]:
        """How bad it is, and how sure."""
        return Severity.WARNING if self.trend.warns else Severity.INFO, self.trend.confidence


def find_growth(
    recording: Recording, ages: Optional[Ages] = None, find_path: FindPath = no_path, limit: int = 0
) -> Sequence[Finding]:
    """Return what grows, what is surest and largest first.

    :param ages: of the blocks of one process; None where they are not known.
    :param find_path: asked for few types and sizes.
    :param limit: bytes that the process's memory may reach, 0: any number.
    """
    judge = _Judge(recording, ages, find_path, limit)
    found = [*judge.threads(), *judge.arenas(), *judge.blocks(), *judge.others(), *judge.free()]
    return sorted(found, key=lambda one: one.severity is not Severity.WARNING)


class _Judge:
    """Judges one recording."""

    def __init__(self, recording: Recording, ages: Optional[Ages], find_path: FindPath, limit: int) -> None:
        self._recording = recording
        self._ages = ages
        self._find_path = find_path
        self._limit = limit
        self._threads_grow = False
        self._trends: Dict[Tuple[str, str], Trend] = {}

    # -- by blocks

    def blocks(self) -> Iterator[Finding]:
        """Iterate over findings of types that grow; of sizes, where no type that a debugger knows does."""
        types = [one for one in self._growing(kinds.TYPE) if one.series.key not in _BY_CONTENTS]
        sizes = self._growing(kinds.SIZE)
        beside = [one for one in sizes if types and not self._is_apart(one, types)]
        main = sorted([*types, *(one for one in sizes if one not in beside)], key=_by_weight)
        for one in main[:_MOST]:
            yield self._block_finding(one, beside if one is main[0] else ())

    def _is_apart(self, one: Judged, types: Sequence[Judged]) -> bool:
        """Return whether a size grows by other blocks than those of types that grow, and what these hold."""
        unknown = sum(max(each.change, 0) for each in self._of_contents)
        enough = any(each.rise >= (1 - _TOGETHER) * one.rise and each.trend.warns >= one.trend.warns for each in types)
        return not enough and unknown >= one.rise / 2

    @cached_property
    def _of_contents(self) -> Sequence[Series]:
        return [one for one in self._recording.of_kind(kinds.TYPE) if one.key in _BY_CONTENTS]

    def _growing(self, kind: str, least: int = LEAST_BYTES) -> List[Judged]:
        """Return what grows of a kind, fastest first, what is surer before what is not."""
        found = [Judged(one, self._trend(one)) for one in self._recording.of_kind(kind) if one.change >= least]
        growing = [one for one in found if one.trend.shape.grows]
        return sorted(growing, key=_by_weight)

    def _trend(self, series: Series) -> Trend:
        known = self._trends.get((series.kind, series.key))
        if known is None:
            known = self._trends[series.kind, series.key] = self._find_trend(series.kind, series)
        return known

    def _find_trend(self, kind: str, series: Series) -> Trend:
        """Return what a series does, by its shape, and where they are known by what became of its blocks."""
        kept = self._survival(kind, series.key)
        if kept is None:
            return self._recording.trend(series)
        found = self._recording.trend(series, FEW_WITH_AGES if kept >= _NEVER_FREED else FEW)
        if kept < _FREED and len(self._recording.samples) < MANY:
            return Trend(found.shape, found.rate, found.chance, Confidence.LOW)
        return found

    def _survival(self, kind: str, key: str) -> Optional[float]:
        """Return how much of what came between samples is still there, of all bytes; None if that is not known."""
        if self._ages is None or kind not in (kinds.TYPE, kinds.SIZE) or self._ages.typed != (kind == kinds.TYPE):
            return None
        between = self._generations(key)[1:-1]
        came = sum(one.came_bytes for one in between)
        return sum(one.bytes for one in between) / came if came else None

    def _generations(self, key: str) -> Sequence[Generation]:
        return () if self._ages is None else self._ages.generations.get(key, ())

    def _block_finding(self, one: Judged, beside: Sequence[Judged]) -> Finding:
        kind, key = one.series.kind, one.series.key
        named = key if kind == kinds.TYPE else f"blocks of {grouped(int(key))} bytes"
        leaked = self._follows(kinds.LEAK if kind == kinds.TYPE else kinds.LEAK_SIZE, one)
        path = None if leaked else self._find_path(kind, key, one.trend.warns)
        root = None if leaked else self._follows(kinds.ROOT, one)
        holder = None if leaked else self._holder(path, root)
        kept = ": nothing points at them" if leaked else f", kept by {holder}" if holder else ""
        evidence = (
            *self._shape_lines(one),
            *self._age_lines(kind, one),
            *([f"what {_root_text(root)} has grown by {size_text(root.rise)}"] if root else []),
            *(f"the table {table.series.key} {_grows(self._recording, table)}" for table in self._tables_that_grow()),
            *_beside_lines(one, beside),
        )
        summary, remedy = f"{named} {_grows(self._recording, one)}{kept}", _REMEDY.format(what=named)
        details = {"of": kind, "key": key, "kept_by": holder, "leaked": leaked is not None}
        made = Finding(
            GROWTH, *one.weight, summary, evidence=evidence, remedy=_LEAKED if leaked else remedy, details=details
        )
        return self._completed(one, made)

    def _follows(self, kind: str, one: Judged) -> Optional[Judged]:
        """Return what of another kind grows as fast or faster, the nearest; None where nothing does."""
        found = [other for other in self._growing(kind) if other.rise >= (1 - _TOGETHER) * one.rise]
        of_name = [other for other in found if other.series.key == one.series.key]
        if kind in (kinds.LEAK, kinds.LEAK_SIZE):
            return next(iter(of_name), None)
        return min(found, key=lambda other: other.rise, default=None)

    def _tables_that_grow(self) -> Sequence[Judged]:
        return self._growing(kinds.TABLE, _LEAST_ENTRIES)[:_MOST]

    def _holder(self, path: Optional[str], root: Optional[Judged]) -> Optional[str]:
        """Return what keeps blocks, in words: a table whose bins lie in mappings of their own has no better name."""
        tables = self._tables_that_grow()
        if tables and (path is None or path.startswith(_NAMELESS)):
            return f"the table {tables[0].series.key}"
        return path or (root.series.key if root else None)

    # -- evidence

    def _shape_lines(self, one: Judged) -> Iterator[str]:
        values = [value for value in one.series.values if value is not None]
        size = size_text if one.series.values is one.series.bytes else grouped
        steps = sum(after > before for before, after in zip(values, values[1:]))
        yield f"from {size(values[0])} to {size(values[-1])}: more in {steps} of {len(values) - 1} steps"
        if len(values) >= FEW:
            yield f"values that do not grow come in such an order once in {grouped(round(1 / one.trend.chance))}"

    def _age_lines(self, kind: str, one: Judged) -> Iterator[str]:
        kept = self._survival(kind, one.series.key)
        generations = self._generations(one.series.key)
        if kept is None or len(generations) < 3:
            return
        last = len(generations)
        if kept >= _NEVER_FREED:
            yield "of what came between the samples nothing, or next to nothing, is gone in the last"
        oldest = next((each for each in generations[1:-1] if each.came_blocks), None)
        if oldest is not None:
            came = count_text(oldest.came_blocks, "block")
            between = f"between {oldest.sample} and {oldest.sample + 1}"
            yield f"allocated {between}: {came}, of which {grouped(oldest.blocks)} are still there in {last}"

    # -- what is no block

    def threads(self) -> Iterator[Finding]:
        """Iterate over the finding about threads."""
        total = self._recording.find(kinds.TOTAL, kinds.THREADS)
        one = self._judged(total, _LEAST_THREADS)
        if one is None:
            return
        self._threads_grow = one.trend.shape.grows
        named = self._growing(kinds.THREAD, _LEAST_THREADS)
        of = f", most of them {named[0].series.key}" if named else ""
        stacks = self._recording.find(kinds.OWNER, STACKS)
        cost = [f"thread stacks have {size_text(stacks.change)} more"] if stacks and stacks.change > 0 else []
        made = Finding(
            THREADS,
            *one.weight,
            f"the number of threads {_grows(self._recording, one)}{of}",
            evidence=(*self._shape_lines(one), *cost),
            remedy="Threads are started and do not end, or nobody joins them: `thread apply all bt 3` shows where they "
            "are.",
            details={"name": named[0].series.key if named else None},
        )
        yield self._completed(one, made)

    def arenas(self) -> Iterator[Finding]:
        """Iterate over the finding about arenas, unless each came with a thread of its own."""
        one = self._judged(self._recording.find(kinds.TOTAL, kinds.ARENAS), _LEAST_ARENAS)
        if one is None or self._threads_grow:
            return
        of_kind = self._growing(kinds.ARENA_KIND, 1)
        size = [f"{each.series.key} arenas hold {size_text(each.rise)} more" for each in of_kind[:_MOST]]
        made = Finding(
            ARENAS,
            *one.weight,
            f"the number of arenas {_grows(self._recording, one)}",
            evidence=(*self._shape_lines(one), *size),
            remedy="Bound them: MALLOC_ARENA_MAX of glibc, narenas of jemalloc; what makes arenas by itself has to "
            "destroy them.",
        )
        yield self._completed(one, made)

    def free(self) -> Iterator[Finding]:
        """Iterate over findings of heaps of which the free memory grows beside what is in use.

        Where what is in use falls, more is free, and the heap as a whole is no larger.
        """
        for one in self._growing(kinds.HEAP):
            allocator, _, part = one.series.key.rpartition(" ")
            used = self._recording.find(kinds.HEAP, f"{allocator} in use")
            if part != "free" or used is None or used.change > one.rise / 2 or not self._is_larger(used, one):
                continue
            command = "glibc trim" if allocator == "glibc" else "blocks summary"
            made = Finding(
                FRAGMENTATION,
                *one.weight,
                f"free memory of {allocator} {_grows(self._recording, one)}, and is not used again",
                evidence=(*self._shape_lines(one), *_used_line(used)),
                remedy=f"`{command}` shows what keeps it from being given back.",
                details={"allocator": allocator},
            )
            yield self._completed(one, made)

    def _is_larger(self, used: Series, free: Judged) -> bool:
        """Return whether a heap grows as its free memory does."""
        pairs = zip(used.bytes, free.series.bytes)
        whole = [None if one is None or other is None else one + other for one, other in pairs]
        both = Series(kinds.HEAP, "", [None] * len(whole), whole)
        return both.change >= free.rise / 2 and self._recording.trend(both).shape.grows

    def others(self) -> Iterator[Finding]:
        """Iterate over findings of memory of no heap, and of a heap of which no type and no size grows by itself."""
        explained = sum(one.rise for one in self._growing(kinds.SIZE, 1))
        for one in self._growing(kinds.OWNER):
            key = one.series.key
            of_heap = key.endswith(_IN_USE)
            if (of_heap and explained > _EXPLAINED * one.rise) or (not of_heap and self._is_judged(key)):
                continue
            why = "no type and no size has most of it" if of_heap else "it is of no heap"
            remedy = "`rss` shows the mappings; `blocks types` and `blocks retained` what is in the heap."
            yield self._simple(one, key, (*self._shape_lines(one), why), remedy)
        yield from self._tables()

    def _is_judged(self, owner: str) -> bool:
        """Return whether an owner is memory of a heap or of threads, which other figures are about."""
        heaps = [row.key[: -len(_IN_USE)] for row in self._recording.of_kind(kinds.HEAP) if row.key.endswith(_IN_USE)]
        return owner in _OF_THREADS or owner.startswith(tuple(f"{heap} " for heap in heaps))

    def _tables(self) -> Iterator[Finding]:
        if self._growing(kinds.TYPE) or self._growing(kinds.SIZE):
            return
        for one in self._tables_that_grow():
            key = one.series.key
            yield self._simple(one, f"the table {key}", self._shape_lines(one), f"`slabskew {key}` examines it.")

    def _simple(self, one: Judged, what: str, evidence: Iterable[str], remedy: str) -> Finding:
        """Return the finding that something grows of which nothing else is known."""
        details = {"of": one.series.kind, "key": one.series.key, "kept_by": None, "leaked": False}
        summary = f"{what} {_grows(self._recording, one)}"
        made = Finding(GROWTH, *one.weight, summary, evidence=tuple(evidence), remedy=remedy, details=details)
        return self._completed(one, made)

    def _judged(self, series: Optional[Series], least: int) -> Optional[Judged]:
        if series is None or series.change < least:
            return None
        one = Judged(series, self._recording.trend(series))
        return one if one.trend.shape.grows else None

    # -- all

    def _completed(self, one: Judged, made: Finding) -> Finding:
        """Return a finding with what all of them have: bytes, shape, rate, and when limits are reached."""
        limits = list(self._limits())
        return replace(
            made,
            bytes=one.rise if one.series.values is one.series.bytes else None,
            evidence=(*made.evidence, *(line for line, _ in limits)),
            details={
                **made.details,
                "shape": one.trend.shape.value,
                "rise": one.rise,
                "per_hour": per_hour(self._recording, one.trend.rate),
                "limits": [fields for _, fields in limits],
            },
        )

    def _limits(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """Iterate over when each limit is reached, in words and as fields."""
        for limit, rate in limit_rates(self._recording, self._limit):
            left = seconds_until(limit.bytes, limit.taken, rate) if self._recording.timed else None
            if left is not None:
                line = f"{limit.what} of {size_text(limit.bytes)} is reached in {span_text(left)} at this rate"
                yield line, {"what": limit.what, "bytes": limit.bytes, "taken": limit.taken, "seconds": left}


def limit_rates(recording: Recording, given: int = 0) -> Iterator[Tuple[Limit, float]]:
    """Iterate over the limits of the last sample, each with how fast what it bounds grows, in bytes a second.

    :param given: bytes that the memory may reach; 0: any number.
    """
    memory = recording.find(kinds.TOTAL, kinds.MEMORY)
    mapped = recording.find(kinds.TOTAL, kinds.MAPPED)
    for limit in recording.samples[-1].limits:
        yield limit, recording.rate(mapped if limit.what == "RLIMIT_AS" else memory)
    if given and memory is not None and memory.values[-1] is not None:
        yield Limit("--memory-limit", given, memory.values[-1]), recording.rate(memory)


def _by_weight(one: Judged) -> Tuple[bool, int, str]:
    """Return what puts the surest first, then what grew most."""
    return not one.trend.warns, -one.rise, one.series.key


def _root_text(root: Judged) -> str:
    return f"{SHARED} keep" if root.series.key == SHARED else f"{root.series.key} alone keeps"


def _beside_lines(one: Judged, beside: Sequence[Judged]) -> Iterator[str]:
    said = [f"of {grouped(int(other.series.key))} bytes by {size_text(other.rise)}" for other in beside[:_MOST]]
    if said:
        yield f"blocks by size: {', '.join(said)}"


def _grows(recording: Recording, one: Judged) -> str:
    """Return how much something has grown, and where it is known when samples were, how fast."""
    sized = one.series.values is one.series.bytes
    rise = size_text(one.rise) if sized else grouped(one.rise)
    rise += " entries" if one.series.kind == kinds.TABLE else ""
    if not recording.timed or not recording.times[-1]:
        return f"grew by {rise} in {count_text(len(recording.samples), 'sample')}"
    return f"grew by {rise} in {span_text(recording.times[-1])}{_rate_text(one, sized)}"


def _rate_text(one: Judged, sized: bool) -> str:
    hourly = round(one.trend.rate * 3600)
    return f", {size_text(hourly) if sized else grouped(hourly)} per hour" if hourly > 0 else ""


def per_hour(recording: Recording, rate: float) -> Optional[int]:
    """Return a rate by the hour; None where it is not known when samples were."""
    return round(rate * 3600) if recording.timed else None


def _used_line(used: Optional[Series]) -> Sequence[str]:
    if used is None or used.ends is None:
        return []
    return [f"in use: {size_text(used.ends[0])} at first, {size_text(used.ends[1])} at last"]
