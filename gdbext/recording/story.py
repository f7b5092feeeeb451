"""What a recording says beside its samples, in a few sentences."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Iterator, Sequence

from gdbext.grammar.exchange import SAMPLES
from gdbext.recording import events
from gdbext.recording.events import Event, event_line
from gdbext.recording.reading import Recorded
from gdbext.wording import count_text, printable

_SINGLE = (events.PROCESS, events.ENDED, events.RAISED, events.SNAPSHOT, events.NO_SNAPSHOT)
_SUMMED = {
    events.LOST: "{} lost: there was no room",
    events.FAILED: "{} could not be taken",
    events.MISSED: "{} left out: the one before took longer than the interval",
    events.STRETCHED: "{} left out: the process would have stood still for longer than the budget",
}
_MOST = 12  # sentences of single events


def story_of(recorded: Recorded) -> Sequence[str]:
    """Return what happened: processes that began and ended, conditions, snapshots, and what is missing."""
    return [*_spread_text(recorded), *_singles(recorded.events), *_sums(recorded.events)]


def _spread_text(recorded: Recorded) -> Iterator[str]:
    if recorded.total > len(recorded.samples):
        yield f"of {count_text(recorded.total, 'sample')} {len(recorded.samples)} are compared, evenly spread"


def _singles(found: Sequence[Event]) -> Iterator[str]:
    shown = [event for event in found if event.kind in _SINGLE]
    for event in shown[:_MOST]:
        moment = datetime.fromtimestamp(event.time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield f"{moment}: {printable(event_line(event.kind, event.details) or '')}"
    if len(shown) > _MOST:
        yield f"and {count_text(len(shown) - _MOST, 'event')} more in {SAMPLES}"


def _sums(found: Sequence[Event]) -> Iterator[str]:
    for kind, text in _SUMMED.items():
        samples = sum(event.details.get("samples", 1) for event in found if event.kind == kind)
        if samples:
            yield text.format(count_text(samples, "sample"))
