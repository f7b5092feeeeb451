"""Samples: as one line of JSON and back, whatever that line holds; what is one process; what is summed up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gdbext.analysis.growth.sample import (
    KINDS,
    OTHER,
    OWNER,
    SIZE,
    TYPE,
    Limit,
    ProcessId,
    Remark,
    Row,
    Sample,
    add_up,
    capped,
    is_address_key,
    is_same_process,
    is_same_program,
)
from gdbext.analysis.growth.sampletext import FORMAT, is_sample, read_sample, sample_text
from gdbext.errors import UsageError

PROCESS = ProcessId(17, "server", "ab12", 4711, "boot-1", "beef")
SAMPLE = Sample(
    PROCESS,
    1_700_000_000.25,
    0.125,
    True,
    "resident",
    {
        OWNER: [Row("glibc in use", None, 1 << 40), Row(OTHER, None, 3)],
        TYPE: [Row("struct täg \x1b[1m", 3, 96)],
        SIZE: [],
    },
    [Limit("cgroup", 1 << 30, 1 << 20)],
    False,
    [Remark("truncated-core", "it ends early")],
)


def test_a_sample_is_one_line_and_comes_back():
    text = sample_text(SAMPLE)
    assert "\n" not in text and text.isascii() and is_sample(text)
    assert read_sample(text) == SAMPLE
    assert read_sample(sample_text(Sample())) == Sample(limits=[], remarks=[])


def test_what_is_too_long_is_cut_so_that_it_comes_back():
    long = replace(SAMPLE, rows={TYPE: [Row("x" * 5000, 1, 1)]}, remarks=[Remark("k", "m" * 9000)] * 100)
    back = read_sample(sample_text(long))
    assert len(back.rows[TYPE][0].key) == 4096 and back.rows[TYPE][0].key.endswith("…")
    assert len(back.remarks) == 64


def test_bytes_of_names_that_are_no_characters_are_written():
    odd = replace(SAMPLE, rows={OWNER: [Row("/tmp/\udcff", None, 1)]})
    assert read_sample(sample_text(odd)).rows[OWNER] == [Row("/tmp/\\xff", None, 1)]


def changed(*path, to):
    document = json.loads(sample_text(SAMPLE))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return json.dumps(document)


WRONG = {
    "empty": "",
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[]",
    "a number": "7",
    "not a number": changed("time", to=float("nan")),
    "huge": changed("time", to=1e300),
    "a time beyond calendars": changed("time", to=900e9),
    "a size that is none": changed("rows", SIZE, to=[["x", 1, 1]]),
    "a size in other digits": changed("rows", SIZE, to=[["\u0664", 1, 1]]),
    "negative time": changed("time", to=-1),
    "time is text": changed("time", to="now"),
    "time is a flag": changed("time", to=True),
    "another version": changed("format", to="gdbext/sample/2"),
    "no process": changed("process", to=None),
    "pid is text": changed("process", "pid", to="1"),
    "pid is a flag": changed("process", "pid", to=True),
    "pid is negative": changed("process", "pid", to=-1),
    "mark is a list": changed("process", "mark", to=[]),
    "rows is a list": changed("rows", to=[]),
    "an unknown kind": changed("rows", "zoo", to=[]),
    "a row of two": changed("rows", OWNER, to=[["a", 1]]),
    "a row of no text": changed("rows", OWNER, to=[[1, 1, 1]]),
    "a fraction": changed("rows", OWNER, to=[["a", 1.5, 1]]),
    "more than 63 bits": changed("rows", OWNER, to=[["a", 1, 1 << 63]]),
    "too many rows": changed("rows", OWNER, to=[["a", 1, 1]] * 5000),
    "a key that is too long": changed("rows", OWNER, to=[["a" * 5000, 1, 1]]),
    "complete is a number": changed("complete", to=1),
    "a limit without an end": changed("limits", to=[["cgroup", None, 1]]),
    "many remarks": changed("remarks", to=[["a", "b"]] * 65),
    "too long": changed("remarks", to=[["a", "b" * (5 << 20)]]),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=list(WRONG))
def test_what_is_no_sample_is_refused(text):
    with pytest.raises(UsageError, match="this is no sample"):
        read_sample(text)


def test_every_shortened_line_is_refused():
    text = sample_text(SAMPLE)
    for length in range(len(text)):
        with pytest.raises(UsageError):
            read_sample(text[:length])


def test_a_line_of_something_else_does_not_claim_to_be_one():
    assert not is_sample('{"schema": "gdbext/triage/2"}') and FORMAT in sample_text(SAMPLE)


@pytest.mark.parametrize(
    "other, same",
    [
        (PROCESS, True),
        (replace(PROCESS, pid=18), False),
        (replace(PROCESS, pid=None), False),
        (replace(PROCESS, build_id="cd"), False),  # another program since, by exec
        (replace(PROCESS, mark="dead"), False),
        (replace(PROCESS, started=4712), False),  # the number of a process that ended
        (replace(PROCESS, boot="boot-2"), False),
        (replace(PROCESS, started=None, boot=None), True),  # a core says no more
        (replace(PROCESS, mark=None), True),
        (replace(PROCESS, mark=None, boot=None), False),
        (ProcessId(17), False),
    ],
)
def test_only_what_is_known_makes_one_process(other, same):
    assert is_same_process(PROCESS, other) is same
    assert is_same_process(other, PROCESS) is same


def test_a_program_is_known_by_its_name():
    assert is_same_program(PROCESS, ProcessId(program="server", build_id="other"))
    assert is_same_program(PROCESS, ProcessId())
    assert not is_same_program(PROCESS, ProcessId(program="client"))


def test_rows_of_one_key_are_one_and_the_largest_come_first():
    rows = add_up([Row("b", 1, 5), Row("a", None, 5), Row("b", 2, None), Row(OTHER, 1, 99), Row("c", 9, 7)])
    assert rows == [Row("c", 9, 7), Row("b", 3, 5), Row("a", None, 5), Row(OTHER, 1, 99)]


def test_what_is_not_listed_is_summed_up():
    rows = add_up([Row(str(number), 1, number) for number in range(1, 8)])
    assert capped(rows, 2) == [Row("7", 1, 7), Row("6", 1, 6), Row(OTHER, 5, 15)]
    assert capped(rows, 7) == rows
    whole = [*capped(rows, 2)]
    assert capped(whole, 1) == [Row("7", 1, 7), Row(OTHER, 6, 21)]


def test_kinds_are_named_once_and_arenas_alone_have_addresses():
    assert len(set(KINDS)) == len(KINDS)
    assert is_address_key("glibc thread 0x7f0000000030") and not is_address_key("glibc main")
