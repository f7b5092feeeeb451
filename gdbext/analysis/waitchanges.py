"""Two looks at the same process: which waits are stuck, and which only slow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional, Sequence

from gdbext.analysis.lockwait import LockRow, LockWaits
from gdbext.errors import UsageError
from gdbext.report import Kind, column, table

_HINT = "give the file of an earlier lockwait --json=FILE"


@dataclass(frozen=True)
class ChangeRow:
    """One lock at both looks.

    :param still: threads that wait for it both times.
    :param verdict: ``stuck`` (same waiters, same holder, which has not moved), ``slow`` (same holder, moving),
        ``moving`` (another holder, or other waiters), ``gone`` (nobody waits any more), ``new``,
        ``same holder`` (which runs; nothing says whether it has moved).
    """

    lock: int = column("lock", Kind.ADDRESS)
    name: Optional[str] = column("name")
    before: int = column("waited before", Kind.COUNT)
    now: int = column("wait now", Kind.COUNT)
    still: int = column("both times", Kind.COUNT)
    holder: Optional[int] = column("holder now", Kind.COUNT)
    verdict: str = column("verdict")


@dataclass(frozen=True)
class ComparedLockWaits(LockWaits):
    """What ``lockwait --compare`` answers."""

    changes: Sequence[ChangeRow] = table("Since the earlier look", default=())


def read_earlier(path: str) -> Mapping[str, Any]:
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
    return dict(document["data"])


def compare(earlier: Mapping[str, Any], now: LockWaits) -> ComparedLockWaits:
    """Add every lock that was or is waited for; threads are matched by their LWP."""
    return ComparedLockWaits(**{**now.__dict__, "changes": tuple(_Comparison(earlier, now).rows())})


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
                yield ChangeRow(lock, old["name"], old["waiters"], 0, 0, None, "gone")

    def _present(self, lock: int, row: LockRow) -> ChangeRow:
        old, holder = self._then.get(lock), _holder_of(row)
        if old is None:
            return ChangeRow(lock, row.name, 0, row.waiters, 0, holder, "new")
        before = {self._lwps_then.get(number) for number in old["waiting"]}
        after = {self._lwps_now.get(number) for number in row.waiting}
        still = len((before & after) - {None})
        return ChangeRow(lock, row.name, len(before), len(after), still, holder, self._verdict(old, row, still))

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
            return "stuck" if same else "slow"
        return self._by_state(lwp)

    def _by_state(self, lwp: Optional[int]) -> str:
        then, now = self._threads_then[lwp], self._threads_now[lwp]
        if "running" in (then["state"], now.state):
            return "same holder"
        same = (then["syscall"], then["frame"]) == (now.syscall, now.frame)
        return "stuck" if same else "slow"


def _holder_of(row: LockRow) -> Optional[int]:
    if row.owner is not None:
        return row.owner.number
    return row.holder_candidates[0].number if row.holder_candidates else None


def _old_holder(row: Mapping[str, Any]) -> Optional[int]:
    if row["owner"] is not None:
        number: Optional[int] = row["owner"]["number"]
        return number
    return row["holder_candidates"][0]["number"] if row["holder_candidates"] else None
