"""``triage`` on a program that leaks, and on its healthy twin: told, silent, and why it was not looked for."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

SMALL = ("set gx min-finding-bytes 1", "set gx min-finding-floor 1")


def get(stages, target, *arguments):
    try:
        return stages.get(Board(target), "leaks", arguments)
    except Unavailable as reason:
        pytest.skip(str(reason))


def leaks_in(answer):
    return [finding for finding in answer["data"]["findings"] if finding["kind"] == "leak"]


def said(answer):
    return [one["message"] for one in answer["evidence"] if one["subject"] == "leaks"]


def left(answer):
    (message,) = [one["message"] for one in answer["problems"] if one["kind"] == "not-examined"]
    return message


@pytest.mark.parametrize("target", ["core", "attach"])
def test_the_finding_is_what_the_program_says(stages, target):
    here = get(stages, target)
    (answer,) = ask(here, "triage", before=SMALL)
    leaked = {address(one["address"]): one for one in here.truth.details["blocks"] if one["state"] == "leaked"}
    (finding,) = leaks_in(answer)
    assert answer["findings"] and finding["confidence"] == "high"
    assert finding["bytes"] == sum(one["usable"] for one in leaked.values())
    assert f"leaked in {len(leaked)} blocks" in finding["summary"]
    largest = max((one for one in leaked.values() if one["role"] == "leak root"), key=lambda one: one["usable"])
    assert any(line.startswith(f"largest leak root {largest['address']}") for line in finding["evidence"])
    used = answer["data"]["heaps"][0]["used_blocks"]
    assert said(answer)[0].startswith(f"of {used} blocks in use {len(leaked)} leaked")


@pytest.mark.parametrize("target", ["core", "attach"])
def test_the_healthy_twin_is_silent_whatever_the_thresholds(stages, target):
    (answer,) = ask(get(stages, target, "--healthy"), "triage --leaks", before=SMALL)
    assert leaks_in(answer) == []
    assert " 0 leaked, 0 possibly leaked" in said(answer)[0]


def test_small_leaks_are_silent(stages):
    (answer,) = ask(get(stages, "core"), "triage")
    assert leaks_in(answer) == [] and len(said(answer)) == 1


def test_it_can_be_switched_off_and_asked_for(stages):
    off = (*SMALL, "set gx leak-search-seconds 0", "set gx leak-search-blocks 1")
    for target in ("core", "attach"):
        without, asked = ask(get(stages, target), "triage", "triage --leaks", before=off)
        assert leaks_in(without) == [] and said(without) == [] and not without["complete"]
        assert left(without).endswith("set gx leak-search-blocks is 1); next: triage --leaks")
        assert len(leaks_in(asked)) == 1 and asked["complete"]


def test_no_clock_has_a_part_in_a_core(stages):
    none = (*SMALL, "set gx leak-search-seconds 0")
    (answer,) = ask(get(stages, "core"), "triage", before=none)
    assert len(leaks_in(answer)) == 1 and answer["complete"]


def test_a_process_is_not_copied_beyond_the_setting(stages):
    bound = (*SMALL, "set gx copied-memory 4K")
    without, asked = ask(get(stages, "attach"), "triage", "triage --leaks", before=bound)
    line = left(without)
    assert "would be copied" in line and line.endswith("; next: triage --leaks")
    assert leaks_in(without) == [] and not without["complete"]
    assert len(leaks_in(asked)) == 1
