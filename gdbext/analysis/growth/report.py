"""``compare``: what grew and what shrank between samples, and what of it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from gdbext.analysis.growth import sample as kinds
from gdbext.analysis.growth.census import Ages, Exchange, Generation
from gdbext.analysis.growth.findings import FindPath, find_growth, limit_rates, no_path, per_hour
from gdbext.analysis.growth.sample import ProcessId, Remark, Sample
from gdbext.analysis.growth.series import Recording, Series
from gdbext.analysis.growth.trend import FEW, seconds_until
from gdbext.report import (
    Finding,
    Kind,
    Labels,
    Problem,
    Report,
    Severity,
    column,
    headline,
    hidden,
    line,
    table,
)
from gdbext.wording import count_text, size_text, span_text

_SHOWN = 5  # rows of a kind
_LEAST = 0.01  # of the largest change of a kind: smaller ones are not shown
_OWNERS = 20  # of memory, that are listed sample by sample
_AGES = 12  # groups
_NO_AGES = 255  # samples beyond which ages are not told apart

# Kinds in the order in which a person wants them.
_SHOWN_KINDS = (
    kinds.TYPE, kinds.LEAK, kinds.ROOT, kinds.TABLE, kinds.SIZE, kinds.HEAP, kinds.OWNER, kinds.ARENA_KIND,
    kinds.THREAD, kinds.MAPPING, kinds.TOTAL,
)  # fmt: skip


@dataclass(frozen=True)
class SampleRow:
    """One sample.

    :param number: from 1 on, in the order of time.
    :param source: the file, or the process.
    :param pid: of the process.
    :param time: seconds since the epoch; of a core when its file was written.
    :type time: number
    :param at: that in words.
    :param seconds: since the first sample; None where it is not known when each was.
    :type seconds: number
    :param held: for how long the process stood still for it, in seconds; None where that is not known, and of the last.
    :type held: number
    :param memory: what costs memory: resident, or in the core.
    :param used_blocks: blocks in use of all heaps.
    :param used_bytes: usable bytes of them.
    :param threads: how many.
    :param complete: whether everything in it was examined.
    """

    number: int = column("sample", Kind.NUMBER)
    source: str = column("of")
    pid: Optional[int] = column("pid", Kind.NUMBER)
    time: Optional[float] = column(None)
    at: str = column("when", json=False)
    seconds: Optional[float] = column(None)
    held: Optional[float] = column(None)
    memory: Optional[int] = column("memory", Kind.BYTES)
    used_blocks: Optional[int] = column("blocks in use", Kind.COUNT)
    used_bytes: Optional[int] = column("in use", Kind.BYTES)
    threads: Optional[int] = column("threads", Kind.COUNT)
    complete: bool = column("whole", Kind.FLAG)


@dataclass(frozen=True)
class ChangeRow:
    """One figure over all samples.

    :param kind: ``total``, ``owner``, ``heap``, ``arena-kind``, ``arena``, ``arena-free``, ``size``, ``type``,
        ``reach``, ``leak``, ``leak-size``, ``root``, ``table``, ``thread``, ``mapping``.
    :type kind: word
    :param key: what it is of; empty for what samples do not list by itself.
    :param before: bytes in the first sample that has the figure; None where bytes are not its measure, or not known.
    :param now: in the last; None as above.
    :param change: ``now`` less ``before``.
    :type change: signed bytes
    :param before_count: blocks, entries, threads, arenas or mappings; None as above.
    :param now_count: likewise.
    :param change_count: ``now_count`` less ``before_count``.
    :type change_count: signed
    :param per_hour: the median rate, of bytes, else of the count; None where it is not known when samples were.
    :type per_hour: signed
    :param shape: ``flat``, ``warming up``, ``one jump``, ``up and down``, ``growing``, ``up and down but
        rising``, ``shrinking``, ``too few samples``.
    :type shape: word
    """

    kind: str = column("kind")
    key: str = column("of")
    before: Optional[int] = column("before", Kind.BYTES)
    now: Optional[int] = column("now", Kind.BYTES)
    change: Optional[int] = column("change", Kind.BYTES)
    before_count: Optional[int] = column("number before", Kind.COUNT)
    now_count: Optional[int] = column("now", Kind.COUNT)
    change_count: Optional[int] = column("change", Kind.COUNT)
    per_hour: Optional[int] = column(None)
    shape: str = column("shape")


@dataclass(frozen=True)
class SeriesRow(ChangeRow):
    """One of these figures, sample by sample.

    :param bytes: of each sample; null: not known in that; empty where bytes are not the measure.
    :type bytes: numbers
    :param counts: likewise.
    :type counts: numbers
    """

    bytes: Sequence[Optional[int]] = column(None, Kind.OBJECT)
    counts: Sequence[Optional[int]] = column(None, Kind.OBJECT)


@dataclass(frozen=True)
class AgeRow:
    """The blocks of one type, or size where types are not known, that came between two samples of one process.

    :param group: the type, or the size in bytes; empty for all others.
    :param since: number of the first sample that has them; 1: they are as old as that, or older.
    :param came_blocks: how many that sample has that the one before has not.
    :param came_bytes: usable bytes of them.
    :param blocks: of them, those that all later samples have, too.
    :param bytes: usable bytes of these.
    """

    group: str = column("of")
    since: int = column("since sample", Kind.NUMBER)
    came_blocks: int = column("came", Kind.COUNT)
    came_bytes: int = column("bytes", Kind.BYTES)
    blocks: int = column("still there", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class AgeLine:
    """The same for people: one line for each group."""

    group: str = column("blocks of")
    first: int = column("since sample 1", Kind.BYTES)
    later: int = column("since a later one", Kind.BYTES)
    newest: int = column("new in the last", Kind.BYTES)
    kept: Optional[float] = column("still there of what came between", Kind.SHARE)


@dataclass(frozen=True)
class BlockRow:
    """What became of the blocks in use from the first to the last sample of one process.

    :param blocks_are: ``new``, ``gone``, ``kept``.
    :type blocks_are: word
    :param blocks: how many.
    :param bytes: usable bytes of them.
    """

    blocks_are: str = column("blocks")
    blocks: int = column("number", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class LimitRow:
    """What bounds the memory of the last sample.

    :param limit: ``cgroup``, ``RLIMIT_AS``, ``--memory-limit``.
    :type limit: word
    :param bytes: the limit.
    :param taken: of it.
    :param per_hour: how fast that grows, in bytes; None where it is not known when samples were.
    :type per_hour: signed bytes
    :param seconds: until it is reached; None: not at this rate.
    :type seconds: number
    :param left: that in words.
    """

    limit: str = column("limit")
    bytes: int = column("bytes", Kind.BYTES)
    taken: int = column("taken", Kind.BYTES)
    per_hour: Optional[int] = column(None)
    seconds: Optional[float] = column(None)
    left: str = column("reached in", json=False)


@dataclass(frozen=True)
class Compared:
    """What ``compare`` answers.

    :param program: what runs in the last sample, by the base name of its executable.
    :param one_process: whether all samples are of one run of the program; else nothing is compared by address.
    :param series: of ``changes`` the largest of each kind, memory by owner, and what findings are about.
    """

    verdict: str = headline()
    program: Optional[str] = line(None)
    findings: Sequence[Finding] = table("")
    samples: Sequence[SampleRow] = table("Samples")
    one_process: bool = line(None, Kind.FLAG)
    shown: Sequence[ChangeRow] = table("What grew and what shrank, by kind, most first", json=False)
    blocks: Sequence[BlockRow] = table("Blocks in use, from the first to the last sample")
    shown_ages: Sequence[AgeLine] = table("How old what is live is", json=False)
    ages: Sequence[AgeRow] = table(None)
    limits: Sequence[LimitRow] = table("Limits")
    series: Sequence[SeriesRow] = table(None)
    changes: Sequence[ChangeRow] = table(None)


@dataclass(frozen=True)
class Of:
    """What is known of blocks where all samples are of one process, and what is asked.

    :param exchange: between the first and the last sample.
    :param find_path: see :func:`gdbext.analysis.growth.findings.find_growth`.
    :param limit: bytes that the memory may reach; 0: any number.
    """

    exchange: Optional[Exchange] = None
    ages: Optional[Ages] = None
    find_path: FindPath = no_path
    limit: int = 0


def compare(samples: Sequence[Sample], sources: Sequence[str], known: Of = Of()) -> Report:  # noqa: B008  frozen
    """Return what grew and what shrank.

    :param samples: two or more, in the order of time.
    :param sources: what each was taken of, in words.
    """
    recording = Recording(samples)
    findings = find_growth(recording, known.ages, known.find_path, known.limit)
    changes = [_change(recording, one) for one in recording.series.values()]
    shown = list(_shown(changes))
    data = Compared(
        _verdict(recording, findings),
        samples[-1].process.program,
        findings,
        [_sample_row(recording, number, source) for number, source in enumerate(sources)],
        recording.one_process,
        shown,
        list(_blocks(known.exchange)),
        list(_age_lines(known.ages)),
        list(_ages(known.ages)),
        list(_limits(recording, known.limit)),
        list(_drawn(recording, changes, shown, findings)),
        changes,
    )
    return Report(
        data,
        problems=list(_problems(samples)),
        complete=all(one.complete for one in samples),
        notes=list(_notes(recording)),
        findings=any(one.severity is not Severity.INFO for one in findings),
        next=_next(recording, findings),
        labels=_labels(data),
    )


def _labels(data: Compared) -> Labels:
    empty = [name for name in ("blocks", "shown_ages", "limits") if not getattr(data, name)]
    return hidden(Compared, empty)


def _verdict(recording: Recording, findings: Sequence[Finding]) -> str:
    worst = [one for one in findings if one.severity is not Severity.INFO]
    if worst:
        return f"{count_text(len(worst), 'finding')}: {worst[0].summary}."
    samples = len(recording.samples)
    if findings and samples < FEW:
        few = f"{count_text(samples, 'sample')} cannot tell growth from a start: {FEW} or more can"
        return f"No findings, but more than before; {few}."
    if findings:
        return "No findings; something may grow."
    return f"Nothing grows in {count_text(samples, 'sample')}."


def _change(recording: Recording, one: Series) -> ChangeRow:
    trend = recording.trend(one)
    before, now = _ends(one.bytes)
    count, counts = _ends(one.counts)
    return ChangeRow(
        one.kind,
        one.key,
        before,
        now,
        _less(now, before),
        count,
        counts,
        _less(counts, count),
        per_hour(recording, trend.rate),
        trend.shape.value,
    )


def _ends(values: Sequence[Optional[int]]) -> Tuple[Optional[int], Optional[int]]:
    return next((value for value in values if value is not None), None), values[-1]


def _less(now: Optional[int], before: Optional[int]) -> Optional[int]:
    return None if now is None or before is None else now - before


def _shown(changes: Sequence[ChangeRow]) -> Iterator[ChangeRow]:
    """Iterate over the largest changes of each kind."""
    for kind in _SHOWN_KINDS:
        mine = sorted((one for one in changes if one.kind == kind and one.key and _size(one)), key=_size, reverse=True)
        yield from (one for one in mine[:_SHOWN] if _size(one) >= _LEAST * _size(mine[0]))


def _size(row: ChangeRow) -> int:
    return abs((row.change_count if row.change is None else row.change) or 0)


def _drawn(
    recording: Recording, changes: Sequence[ChangeRow], shown: Sequence[ChangeRow], findings: Sequence[Finding]
) -> Iterator[SeriesRow]:
    """Iterate over what a picture of growth needs, in the order of the changes."""
    about = {(one.details.get("of"), one.details.get("key")) for one in findings}
    owners = sorted((one for one in changes if one.kind == kinds.OWNER and one.key), key=_highest(recording))
    wanted = {(one.kind, one.key) for one in (*shown, *owners[-_OWNERS:])} | {(kinds.TOTAL, kinds.MEMORY)} | about
    for change in changes:
        if (change.kind, change.key) in wanted:
            one = recording.series[change.kind, change.key]
            yield SeriesRow(**vars(change), bytes=_measured(one.bytes), counts=_measured(one.counts))


def _highest(recording: Recording) -> Callable[[ChangeRow], int]:
    return lambda row: max((value for value in recording.series[row.kind, row.key].bytes if value), default=0)


def _measured(values: Sequence[Optional[int]]) -> Sequence[Optional[int]]:
    return [] if all(value is None for value in values) else values


def _sample_row(recording: Recording, number: int, source: str) -> SampleRow:
    sample = recording.samples[number]
    heaps = [row for row in sample.rows.get(kinds.HEAP, ()) if row.key.endswith(" in use")]
    memory, threads = sample.find(kinds.TOTAL, kinds.MEMORY), sample.find(kinds.TOTAL, kinds.THREADS)
    return SampleRow(
        number + 1,
        source,
        sample.process.pid,
        sample.time,
        _when(sample, recording.times[number] if recording.timed else None),
        recording.times[number] if recording.timed else None,
        sample.held_seconds,
        memory.bytes if memory else None,
        sum(row.count or 0 for row in heaps) if heaps else None,
        sum(row.bytes or 0 for row in heaps) if heaps else None,
        threads.count if threads else None,
        sample.complete,
    )


def _when(sample: Sample, seconds: Optional[float]) -> str:
    if seconds:
        return f"+{span_text(seconds)}"
    if sample.time is None:
        return "?"
    return datetime.fromtimestamp(sample.time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _blocks(known: Optional[Exchange]) -> Iterator[BlockRow]:
    if known is not None:
        yield BlockRow("new", known.new_blocks, known.new_bytes)
        yield BlockRow("gone", known.gone_blocks, known.gone_bytes)
        yield BlockRow("kept", known.kept_blocks, known.kept_bytes)


def _ages(ages: Optional[Ages]) -> Iterator[AgeRow]:
    for name, generations in _young(ages):
        for one in generations:
            yield AgeRow(name, one.sample + 1, one.came_blocks, one.came_bytes, one.blocks, one.bytes)


def _young(ages: Optional[Ages]) -> Sequence[Tuple[str, Sequence[Generation]]]:
    """Return the groups that have anything that came since the first sample, those with most of it first."""
    if ages is None:
        return ()
    groups = sorted(ages.generations.items(), key=lambda item: -sum(one.bytes for one in item[1][1:]))
    return [(name, generations) for name, generations in groups if any(one.bytes for one in generations[1:])]


def _age_lines(ages: Optional[Ages]) -> Iterator[AgeLine]:
    for name, generations in _young(ages)[:_AGES]:
        between = generations[1:-1]
        came, stayed = sum(one.came_bytes for one in between), sum(one.bytes for one in between)
        share = stayed / came if came else None
        text = name if ages is None or ages.typed or not name else f"{name} bytes"
        yield AgeLine(text or "others", generations[0].bytes, stayed, generations[-1].bytes, share)


def _limits(recording: Recording, given: int) -> Iterator[LimitRow]:
    for limit, rate in limit_rates(recording, given):
        left = seconds_until(limit.bytes, limit.taken, rate) if recording.timed else None
        words = "not at this rate" if left is None else span_text(left)
        yield LimitRow(limit.what, limit.bytes, limit.taken, per_hour(recording, rate), left, words)


def _problems(samples: Sequence[Sample]) -> Iterator[Problem]:
    """Iterate over what keeps samples from being complete, each once with the samples that it is true of."""
    found: Dict[Remark, List[int]] = {}
    for number, sample in enumerate(samples, 1):
        for one in sample.remarks:
            found.setdefault(one, []).append(number)
    for one, numbers in found.items():
        which = "all samples" if len(numbers) == len(samples) else f"sample {', '.join(map(str, numbers))}"
        yield Problem(one.kind, None, f"{which}: {one.message}")


def _notes(recording: Recording) -> Iterator[str]:
    samples = recording.samples
    if not recording.one_process:
        yield "the samples are not all of one process: compared by names, types and sizes alone"
    if not recording.timed:
        yield "it is not known when each sample was: rates are left out, and samples count as equally far apart"
    if len({one.measure for one in samples}) > 1:
        yield "some samples know what was in RAM, others what is in the core: memory by owner is compared in part"
    if len({one.named for one in samples}) > 1:
        yield "a debugger has named types and variables of some samples only: these are not compared"


def _next(recording: Recording, findings: Sequence[Finding]) -> Sequence[str]:
    commands: List[str] = []
    if kinds.TYPE not in recording.samples[-1].rows:
        commands.append("compare --types")
    if findings:
        commands += ["blocks types", "blocks retained"]
    return commands[:2]


def source_text(process: ProcessId) -> str:
    """Return what a sample of a process is called where it has no file."""
    return "the process" if process.pid is None else f"process {process.pid}"


def memory_text(sample: Sample) -> str:
    """Return what a sample is about in a few words."""
    memory = sample.find(kinds.TOTAL, kinds.MEMORY)
    return "memory not known" if memory is None or memory.bytes is None else f"{size_text(memory.bytes)} of memory"


def may_age(samples: Sequence[Sample]) -> bool:
    """Return whether blocks of these samples can be followed by address."""
    return len(samples) <= _NO_AGES and Recording(samples).one_process


def kept(sample: Sample) -> Any:
    """Return what is answered where a sample is only kept."""
    return Kept(memory_text(sample))


@dataclass(frozen=True)
class Kept:
    """What ``compare`` answers where there is nothing to compare with yet."""

    sample: str = line("sample")
