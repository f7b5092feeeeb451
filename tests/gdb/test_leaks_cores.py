"""``blocks leaks`` and ``triage`` on cores that lack a part: it is named, and nothing is found for want of it."""

from __future__ import annotations

import os

import pytest

from tests.gdb.answers import ask
from tests.gdb.test_leaks import LEAKS, check, stated
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

FILTERS = (0x00, 0x01, 0x21, 0x31, 0x33, 0x3F)
SHARED = 0x02
CUTS = (0.05, 0.5, 0.75, 0.85, 0.95, 0.97, 0.99)


def staged(stages, target, *arguments, **how):
    try:
        return stages.get(Board(target, "debug", "system"), "leaks", arguments, **how)
    except Unavailable as reason:
        pytest.skip(str(reason))


def listed(answer):
    """The names that are no addresses yet: addresses of all that is in a list."""
    return {address(row["address"]) for row in answer["data"]["leaked"] + answer["data"]["possibly_leaked"]}


BOARDS = [*(("core", mask) for mask in FILTERS), ("gcore", 0x00), ("gcore", 0x31)]


@pytest.mark.parametrize("target, mask", BOARDS, ids=str)
def test_filtered_cores(stages, target, mask):
    here = staged(stages, target, coredump_filter=mask)
    leaks, triage = ask(here, LEAKS, "triage")
    assert [finding for finding in triage["data"]["findings"] if finding["kind"] == "leak"] == []
    if not mask & 1:
        assert leaks["error"]["kind"] == "no-heap" and not leaks["complete"]
        assert "of its writable memory is not in the core" in leaks["error"]["hint"]
        return
    if mask & SHARED:
        check(here.truth, leaks)
        return
    assert not leaks["complete"]
    assert [one["what"] for one in leaks["data"]["missing"]] == ["/dev/zero (deleted)"]
    only_there = {address(one["address"]) for one in here.truth.details["blocks"] if one["name"] == "shared page"}
    leaked, maybe = stated(here.truth)
    assert listed(leaks) == only_there | leaked.keys() | maybe


def test_truncated_cores(stages):
    """Its healthy twin: whatever looks leaked does so for want of memory."""
    here = staged(stages, "core", "--healthy")
    size = here.core.stat().st_size
    judged = 0
    for share in CUTS:
        short = here.altered("cut.core")
        os.truncate(short.core, int(size * share))
        leaks, triage = ask(short, LEAKS, "triage")
        for answer in (leaks, triage):
            assert not answer["complete"], share
            assert [problem for problem in answer["problems"] if problem["corruption"]] == [], share
            assert [one["kind"] for one in answer["problems"]].count("truncated-core") == 1, share
        assert triage["data"]["findings"] == [], share
        if leaks["data"] is None:
            assert leaks["error"]["kind"] == "no-heap", share
            continue
        judged += 1
        assert leaks["data"]["missing"], share
    assert judged >= 4


def test_what_is_missing_is_told_before_what_leaked(stages):
    here = staged(stages, "core", "--healthy")
    short = here.altered("cut.core")
    os.truncate(short.core, int(here.core.stat().st_size * 0.97))
    text = short.text("blocks leaks").out
    assert "Traceback" not in text and "not complete: " in text
    assert "main thread stack" in text
