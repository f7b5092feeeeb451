"""Blocks that only generated code keeps, and blocks behind a program's own headers, on programs that state each."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask
from tests.gdb.test_leaks import check
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

CORE, LIVE = Board("core", "debug", "system"), Board("attach", "bare", "system")
LEAKS = "blocks leaks --list --possible"


@pytest.fixture
def staged(stages):
    def get(board, *arguments):
        try:
            return stages.get(board, arguments[0], list(arguments[1:]))
        except Unavailable as reason:
            pytest.skip(str(reason))

    return get


@pytest.mark.parametrize("place, twin", [(CORE, "leaking"), (LIVE, "leaking"), (CORE, "healthy")])
def test_immediates_of_code_keep_blocks_and_code_hides_no_leak(staged, place, twin):
    here = staged(place, "jit_immediates", *(["--healthy"] if twin == "healthy" else []))
    (answer,) = ask(here, LEAKS)
    check(here.truth, answer)
    assert answer["data"]["totals"]["leaked_blocks"] == (200 if twin == "leaking" else 0)
    (roots,) = [one["message"] for one in answer["evidence"] if one["subject"] == "roots"]
    assert "the words at every byte of 6 MiB of code that the program made" in roots


@pytest.mark.parametrize(
    "arguments",
    [(), ("--healthy",), ("--header", "8", "--one-size")],
    ids=["16", "healthy", "8"],
)
def test_blocks_behind_headers_are_reached_and_those_like_them_that_are_lost_are_found(staged, arguments):
    here = staged(CORE, "header_offsets", *arguments)
    header, behind = (here.truth.details[name] for name in ("header", "behind_headers"))
    answer, listed = ask(here, LEAKS, "blocks list --where 'reach == reached' --columns address,reached_by_offset")
    check(here.truth, answer)
    data = answer["data"]
    ((offset, blocks),) = [(one["offset"], one["blocks"]) for one in data["headers"]]
    assert (offset, blocks) == (header, behind) and data["headers"][0]["chance"] < 0.1
    assert data["totals"]["reached_by_offset_blocks"] == len(data["reached_by_offset"]) == behind
    assert {row["reached_by_offset"] for row in data["reached_by_offset"]} == {header}
    by_offset = {row["address"] for row in data["reached_by_offset"]}
    rows = {row["address"]: row["reached_by_offset"] for row in listed["data"]["blocks"]}
    assert {at for at, bytes_ in rows.items() if bytes_} == by_offset and len(rows) == data["totals"]["reached_blocks"]


@pytest.mark.parametrize("kernels", ("native", "reference"))
def test_no_command_says_otherwise(staged, kernels, monkeypatch):
    monkeypatch.setenv("GDBEXT_KERNELS", kernels)
    here = staged(LIVE, "header_offsets")
    header = here.truth.details["header"]
    (leaks,) = ask(here, LEAKS)
    kept = address(leaks["data"]["reached_by_offset"][-1]["address"])
    inner = next(address(one["address"]) for one in here.truth.details["blocks"] if one["name"] == "inner")
    at, refs, path, of_inner = ask(
        here, f"blocks at {kept:#x}", f"blocks refs {kept:#x}", f"blocks path {kept:#x}", f"blocks at {inner:#x}"
    )
    assert (at["data"]["reach"], at["data"]["reached_by_offset"]) == ("reached", header)
    assert (at["data"]["pointers"], at["data"]["interior"]) == (1, 0)
    assert refs["data"]["reach"] == "reached" and [one["into"] for one in refs["data"]["references"]] == [header]
    assert path["data"]["reach"] == "reached" and path["data"]["steps"][-1]["into"] == header
    assert not any(step["interior"] for step in path["data"]["steps"])
    assert (of_inner["data"]["reach"], of_inner["data"]["reached_by_offset"]) == ("possibly leaked", None)
    for answer in (leaks, refs, path):
        assert [one["subject"] for one in answer["evidence"]].count("headers") == 1
