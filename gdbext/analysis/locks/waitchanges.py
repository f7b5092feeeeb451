"""Two samples of the same process: which waits are stuck, and which only slow."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import Any, Iterator, Mapping, Optional, Sequence

from gdbext.analysis.locks.report import RESTARTED, LockRow, LockWaits
from gdbext.errors import UsageError
from gdbext.process import Identity
from gdbext.report import Kind, column, line, table
from gdbext.wording import count_text

_HINT = "give the file of an earlier lockwait --json=FILE"


@dataclass(frozen=True)
class ChangeRow:
    """One lock in both samples.

    :param lock: every lock that is waited for now, or was in the previous sample.
    :param name: as ``locks[].name``.
    :param before: threads that waited for it in the previous sample.
    :param now: that wait now.
    :param still: both times, by ``lwp``.
    :param holder: now.
    :param verdict: ``stuck`` (the same waiters and holder, which has not moved), ``slow`` (the same, and it has moved),
        ``moving`` (another holder, or other waiters), ``new``, ``gone``, ``same holder`` (nothing says whether it has
        moved), ``same waiters`` (of a lock without a holder).
    :type verdict: word
    :param overall: as ``verdict``, over all samples: ``stuck``, ``slow``, ``moving``, ``new``, ``gone``, ``same
        holder``, ``same waiters``.
    :type overall: word
    """

    lock: int = column("lock", Kind.ADDRESS)
    name: Optional[str] = column("name")
    before: int = column("waited before", Kind.COUNT)
    now: int = column("wait now", Kind.COUNT)
    still: int = column("both times", Kind.COUNT)
    holder: Optional[int] = column("holder now", Kind.COUNT)
    verdict: str = column("verdict")
    overall: str = column("all samples")


@dataclass(frozen=True)
class Sample:
    """One sample of the process.

    :param seconds: since the previous sample, or None: it is the first, or nothing says when it was.
    :param waiting: threads that waited for a lock or another thread.
    :param changes: against the previous sample.
    """

    seconds: Optional[float]
    waiting: int
    changes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ComparedLockWaits(LockWaits):
    """What ``lockwait --compare`` answers.

    :param samples: one for each comparison so far, the first sample included; as they were read from JSON.
    """

    changes: Sequence[ChangeRow] = table("Since the previous sample", default=())
    samples: Sequence[Any] = line(None, Kind.OBJECT, default=())
    counted: str = line("samples", json=False, default="")


@dataclass(frozen=True)
class QuietComparedLockWaits(ComparedLockWaits):
    """As :class:`ComparedLockWaits`, without sentences of its own."""

    more: Sequence[str] = table(None, json=False)


@dataclass(frozen=True)
class Earlier:
    """An earlier sample.

    :param data: what ``lockwait --json`` wrote as ``data``.
    :param time: when, in seconds since the epoch, or None.
    :param exe: the program's file as the target knew it, or None.
    :param build_id: the program's, hex, or None.
    """

    data: Mapping[str, Any]
    time: Optional[float] = None
    exe: Optional[str] = None
    build_id: Optional[str] = None


def read_earlier(path: str) -> Earlier:
    """Read the JSON of an earlier ``lockwait``.

    :raises UsageError: when the file cannot be read, or holds something else.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise UsageError(f"--compare: cannot read {path}: {reason}", _HINT) from None
    schema = document.get("schema", "") if isinstance(document, dict) else ""
    if not schema.startswith("gdbext/lockwait/") or not isinstance(document.get("data"), dict):
        raise UsageError(f"--compare: {path} is no answer of lockwait", _HINT)
    target = document["target"] if isinstance(document.get("target"), dict) else {}
    return Earlier(document["data"], *(target.get(name) for name in ("time", "exe", "build_id")))


def check_program(earlier: Earlier, now: Identity) -> None:
    """Check that an earlier sample is of the same program, as far as is known.

    :raises UsageError: it is of another.
    """
    if earlier.build_id and now.build_id:
        same = earlier.build_id == now.build_id
    else:
        same = not (earlier.exe and now.exe) or os.path.basename(earlier.exe) == os.path.basename(now.exe)
    if not same:
        known = f"{earlier.exe} (build-id {earlier.build_id})"
        raise UsageError(f"--compare: that sample is of another program: {known}", _HINT)


def compare(earlier: Earlier, now: LockWaits, time: Optional[float] = None) -> ComparedLockWaits:
    """Add every lock that was or is waited for; threads are matched by their LWP.

    :param time: of this sample, in seconds since the epoch.
    :raises UsageError: when the earlier sample is no whole answer of lockwait.
    """
    try:
        before = earlier.data.get("samples") or [Sample(None, _waiting(earlier.data["threads"]), ())]
        rows = tuple(_Comparison(earlier.data, now).rows())
        history = _history(before)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError("--compare: it is no whole answer of lockwait", _HINT) from None
    changes = [_as_kept(row) for row in rows]
    seconds = None if time is None or earlier.time is None else max(time - earlier.time, 0.0)
    waiting = sum(row.primitive is not None for row in now.threads)
    rows = tuple(replace(row, overall=_overall([*history.get(row.lock, ()), row.verdict])) for row in rows)
    samples = (*before, Sample(seconds, waiting, changes))
    fields = {field.name: getattr(now, field.name) for field in fields_of(now)}
    made = ComparedLockWaits if now.more else QuietComparedLockWaits
    return made(**{**fields, "changes": rows, "samples": samples, "counted": _samples_text(samples)})


def _as_kept(row: ChangeRow) -> Mapping[str, Any]:
    """Return a change as a sample keeps it: without what others say."""
    kept = {**row.__dict__, "lock": f"{row.lock:#x}"}
    del kept["overall"]
    return kept


def _samples_text(samples: Sequence[Any]) -> str:
    rows = [sample.__dict__ if isinstance(sample, Sample) else sample for sample in samples]
    gaps = [row["seconds"] for row in rows[1:]]
    text = count_text(len(rows), "sample")
    return text if None in gaps else f"{text} in {sum(gaps):.1f} s"


def _waiting(threads: Sequence[Mapping[str, Any]]) -> int:
    return sum(row["primitive"] is not None for row in threads)


def _history(samples: Sequence[Any]) -> Mapping[int, Sequence[str]]:
    """Return the verdicts on each lock, sample by sample."""
    verdicts: "dict[int, list[str]]" = {}
    for sample in samples:
        for row in sample.changes if isinstance(sample, Sample) else sample["changes"]:
            verdicts.setdefault(int(row["lock"], 16), []).append(row["verdict"])
    return verdicts


def _overall(verdicts: Sequence[str]) -> str:
    """Return one verdict for several: a holder that moved once is not stuck, and one that let go is not slow."""
    known = [verdict for verdict in verdicts if verdict != "new"] or list(verdicts)
    for weaker in ("gone", "moving", "same waiters", "same holder", "slow"):
        if weaker in known:
            return "moving" if weaker == "gone" and len(known) > 1 else weaker
    return known[-1]


class _Comparison:
    def __init__(self, earlier: Mapping[str, Any], now: LockWaits) -> None:
        self._then = {int(row["address"], 16): row for row in earlier["locks"]}
        self._now = {row.address: row for row in now.locks}
        self._lwps_then = {row["number"]: row["lwp"] for row in earlier["threads"]}
        self._lwps_now = {row.number: row.lwp for row in now.threads}
        self._threads_then = {row["lwp"]: row for row in earlier["threads"]}
        self._threads_now = {row.lwp: row for row in now.threads}

    def rows(self) -> Iterator[ChangeRow]:
        for lock, row in self._now.items():
            yield self._present(lock, row)
        for lock, old in self._then.items():
            if lock not in self._now:
                yield ChangeRow(lock, old["name"], old["waiters"], 0, 0, None, "gone", "gone")

    def _present(self, lock: int, row: LockRow) -> ChangeRow:
        old, holder = self._then.get(lock), _holder_of(row)
        if old is None:
            return ChangeRow(lock, row.name, 0, row.waiters, 0, holder, "new", "new")
        before = {self._lwps_then.get(number) for number in old["waiting"]}
        after = {self._lwps_now.get(number) for number in row.waiting}
        still = len((before & after) - {None})
        verdict = self._verdict(old, row, still)
        return ChangeRow(lock, row.name, len(before), len(after), still, holder, verdict, verdict)

    def _verdict(self, old: Mapping[str, Any], row: LockRow, still: int) -> str:
        then, now = _old_holder(old), _holder_of(row)
        if then is None or now is None:
            return "moving" if not still else "same waiters"
        lwp = self._lwps_now.get(now)
        if self._lwps_then.get(then) != lwp or not still:
            return "moving"
        position, earlier = row.holder_position, old["holder_position"]
        if position is not None and earlier is not None:
            same = (position.bin, position.position) == (earlier["bin"], earlier["position"])
            if same and position.position is None:
                return "same holder"
            return "stuck" if same else "slow"
        return self._by_state(lwp)

    def _by_state(self, lwp: Optional[int]) -> str:
        then, now = self._threads_then[lwp], self._threads_now[lwp]
        if "running" in (then["state"], now.state):
            return "same holder"
        # Sampling has interrupted a timed call, which then goes by another name.
        calls = {then["syscall"], now.syscall} - {RESTARTED}
        place = None if then["frame_address"] is None else int(then["frame_address"], 16)
        return "stuck" if len(calls) < 2 and place == now.frame_address else "slow"


def _holder_of(row: LockRow) -> Optional[int]:
    if row.owner is not None:
        return row.owner.number
    return row.holder_candidates[0].number if row.holder_candidates else None


def _old_holder(row: Mapping[str, Any]) -> Optional[int]:
    if row["owner"] is not None:
        number: Optional[int] = row["owner"]["number"]
        return number
    return row["holder_candidates"][0]["number"] if row["holder_candidates"] else None
