"""What a recording says beside its samples."""

from __future__ import annotations

from gdbext.recording.events import DETAILS, Event, event_line
from gdbext.recording.reading import Recorded
from gdbext.recording.story import story_of

VALUES = {int: 3, float: 2.5, str: "word", list: []}


def story(*events, total=0):
    return story_of(Recorded([], total, events, []))


def process(pid, time=86400.0):
    return Event("process", time, {"pid": pid, "name": "a\x1b[1m", "started": 1})


def test_what_happened_is_said_with_its_time():
    lines = story(
        process(7),
        Event("raised", 86460.0, {"condition": "rss > 2G", "value": 3 << 30}),
        Event("raised", 86461.0, {"condition": "grown > 20%", "value": 0.25}),
        Event(
            "snapshot", 86462.0, {"file": "snapshot-0001.core", "bytes": 1 << 30, "held_seconds": 1, "reason": "asked"}
        ),
        Event("ended", 86463.0, {"pid": 7, "started": 1}),
    )
    assert lines == [
        "1970-01-02 00:00:00 UTC: process 7 (a\\x1b[1m) is recorded",
        "1970-01-02 00:01:00 UTC: rss > 2G: it is 3 GiB",
        "1970-01-02 00:01:01 UTC: grown > 20%: it is 25 %",
        "1970-01-02 00:01:02 UTC: snapshot snapshot-0001.core, 1 GiB (asked)",
        "1970-01-02 00:01:03 UTC: process 7 has ended",
    ]


def test_samples_that_are_missing_are_summed_up():
    lines = story(
        *[Event("lost", 1.0, {"samples": 2, "message": "full"})] * 2,
        *[Event("failed", 1.0, {"message": "no"})] * 3,
        Event("missed", 1.0, {"samples": 1}),
    )
    assert lines == [
        "4 samples lost: there was no room",
        "3 samples could not be taken",
        "1 sample left out: the one before took longer than the interval",
    ]


def test_of_many_events_some_are_said():
    lines = story(*map(process, range(100)))
    assert len(lines) == 13 and lines[-1] == "and 88 events more in samples.jsonl"


def test_samples_that_are_not_compared_are_said():
    assert story(total=10_000) == ["of 10 000 samples 0 are compared, evenly spread"]


def test_every_kind_with_its_details_can_be_said():
    for kind, details in DETAILS.items():
        event_line(kind, {name: VALUES[of] for name, of in details.items()})
