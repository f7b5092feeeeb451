"""What a recording says beside its samples, one line of JSON each: when a process began and ended, what was missed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional

from gdbext.wording import count_text, grouped, size_text, unicode_text

FORMAT = "gdbext/recording/1"
_LARGEST = 1 << 63
_LATEST = 2e11  # seconds since the epoch: the year 8307

OPENING = '{"format":"gdbext/recording/'  # of every line that is no sample, whatever its version

CREATED = "created"  # the first line
STARTED = "started"  # a recorder begins
PROCESS = "process"  # one begins to be recorded
ENDED = "ended"  # it has ended
MISSED = "missed"  # samples were due while one was taken
STRETCHED = "stretched"  # samples were left out to stay within the budget
FAILED = "failed"  # a sample could not be taken
LOST = "lost"  # there was no room for samples
RAISED = "raised"  # a condition became true
SNAPSHOT = "snapshot"  # one was taken
NO_SNAPSHOT = "no-snapshot"  # one was not
STOPPED = "stopped"  # the recorder ends

# What each kind has beside its time; numbers may be whole.
DETAILS: Mapping[str, Mapping[str, type]] = {
    CREATED: {"version": str},
    STARTED: {"interval": float, "budget": float, "conditions": list},
    PROCESS: {"pid": int, "name": str, "started": int},
    ENDED: {"pid": int, "started": int},
    MISSED: {"samples": int},
    STRETCHED: {"samples": int},
    FAILED: {"message": str},
    LOST: {"samples": int, "message": str},
    RAISED: {"condition": str, "value": float},
    SNAPSHOT: {"file": str, "bytes": int, "held_seconds": float, "reason": str},
    NO_SNAPSHOT: {"message": str, "reason": str},
    STOPPED: {"reason": str, "samples": int, "held_seconds": float, "elapsed": float},
}


@dataclass(frozen=True)
class Event:
    """Something that happened.

    :param kind: one of the words above; later versions may have others.
    :param time: seconds since the epoch.
    :param details: by name, as the kind has them.
    """

    kind: str
    time: float
    details: Mapping[str, Any] = field(default_factory=dict)


def event_text(event: Event) -> str:
    """Return an event as one line of JSON, without its end."""
    details = {name: unicode_text(value) if isinstance(value, str) else value for name, value in event.details.items()}
    document = {"format": FORMAT, "event": event.kind, "time": event.time, **details}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def find_event(text: str) -> Optional[Event]:
    """Return the event that a line holds; None where it is damaged, or none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        return None
    kind, time = document.pop("event", None), document.pop("time", None)
    whole = isinstance(kind, str) and _is(time, float) and 0 <= time < _LATEST
    if not whole or not all(_is(document.get(name), of) for name, of in DETAILS.get(kind, {}).items()):
        return None
    return Event(kind, time, document)


def _is(value: Any, wanted: type) -> bool:
    if wanted is float:
        return _is(value, int) or (isinstance(value, float) and math.isfinite(value))
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
    return isinstance(value, wanted)


_LINES: Mapping[str, Callable[..., str]] = {
    PROCESS: lambda pid, name, **_: f"process {pid} ({name}) is recorded",
    ENDED: lambda pid, **_: f"process {pid} has ended",
    MISSED: lambda samples, **_: _left_out(samples, "the one before took longer than the interval"),
    STRETCHED: lambda samples, **_: _left_out(samples, "the process would stand still for longer than the budget"),
    FAILED: lambda message, **_: f"no sample: {message}",
    RAISED: lambda condition, value, **_: f"{condition}: it is {_value_text(condition, value)}",
    SNAPSHOT: lambda file, bytes, reason, **_: f"snapshot {file}, {size_text(bytes)} ({reason})",
    NO_SNAPSHOT: lambda message, reason, **_: f"no snapshot ({reason}): {message}",
}


def _left_out(samples: int, why: str) -> str:
    return f"{count_text(samples, 'sample')} left out: {why}"


def event_line(kind: str, details: Mapping[str, Any]) -> Optional[str]:
    """Return an event in words; None where it is not for people."""
    return _LINES[kind](**details) if kind in _LINES else None


def _value_text(condition: str, value: float) -> str:
    if condition.startswith("grown"):
        return f"{100 * value:.0f} %"
    return size_text(int(value)) if condition.startswith(("rss", "heap")) else grouped(int(value))
