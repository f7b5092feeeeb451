"""Pointers that a program stores mangled, on one that states of each block what ``--mangled`` is to make of it."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

BOARD = Board("core", "debug", "system")
LEAKS = "blocks leaks --list --possible"
WAYS = {LEAKS: "plain", f"{LEAKS} --mangled": "mangled", f"{LEAKS} --mangled --clear 0x7": "cleared"}


@pytest.fixture
def staged(stages):
    def get(*arguments):
        try:
            return stages.get(BOARD, "mangled", arguments)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return get


def told(here, name):
    return [address(one["address"]) for one in here.truth.details["blocks"] if one["name"] == name]


def held(here, answer, way):
    """Hold an answer to the truth, block by block."""
    blocks = here.truth.details["blocks"]
    listed = {one["address"]: one["usable"] for one in blocks if one[way] == "leaked"}
    assert answer["complete"] and {row["address"]: row["size"] for row in answer["data"]["leaked"]} == listed
    maybe = {one["address"] for one in blocks if one[way] == "possibly leaked"}
    assert {row["address"] for row in answer["data"]["possibly_leaked"]} == maybe
    roles = {one["address"]: one["role" if way == "plain" else "mangled_role"] for one in blocks}
    assert all(row["state"] == roles[row["address"]] for row in answer["data"]["leaked"])


@pytest.mark.parametrize("kernels", ("native", "reference"))
def test_what_is_lost_is_told_apart_from_what_mangled_pointers_lead_to(staged, kernels, monkeypatch):
    monkeypatch.setenv("GDBEXT_KERNELS", kernels)
    here = staged()
    for (command, way), answer in zip(WAYS.items(), ask(here, *WAYS)):
        held(here, answer, way)
        said = [one["message"] for one in answer["evidence"] if one["subject"] == "roots"]
        assert ("XORed with its own address >> 12" in said[0]) == ("--mangled" in command)


def test_the_healthy_twin_has_lost_nothing(staged):
    here = staged("--healthy")
    plain, mangled, cleared = ask(here, *WAYS)
    held(here, plain, "plain")
    assert plain["data"]["leaked"] and mangled["data"]["leaked"] == cleared["data"]["leaked"] == []
    assert mangled["data"]["possibly_leaked"] == cleared["data"]["possibly_leaked"] == []


def test_mangled_pointers_are_told_as_such(staged):
    here = staged()
    places = [*told(here, "first"), *told(here, "next")]
    (middle,) = told(here, "by its middle")
    refs, path, inside, at, types = ask(
        here,
        f"blocks refs {places[-1]:#x} --depth 0 --mangled",
        f"blocks path {places[-1]:#x} --mangled",
        f"blocks refs {middle:#x} --interior --mangled",
        f"blocks at {places[1]:#x} --mangled",
        "blocks types --mangled --list item",
    )
    assert [(address(row["address"]), row["mangled"]) for row in refs["data"]["references"][:5]] == [
        (one, True) for one in reversed(places[:-1])
    ]
    last = refs["data"]["references"][5]
    assert (last["mangled"], last["kind"]) == (False, "global") and last["place"].endswith("static first of mangled")
    steps = path["data"]["steps"]
    assert [row["mangled"] for row in steps] == [False, *[True] * 5] and path["data"]["reach"] == "reached"
    assert [(row["address"], row["into"], row["mangled"], row["place"]) for row in inside["data"]["references"]] == [
        (here.truth.details["in_middle"], 24, True, "static in_middle of mangled, mangled")
    ]
    assert at["data"]["dump"][0]["what"].startswith(f"-> block {places[2]:#x}")
    assert at["data"]["dump"][0]["what"].endswith(", mangled") and at["data"]["references"][0]["into"] == 0
    typed = {address(row["address"]) for row in types["data"]["blocks"]}
    assert typed >= {*places, *told(here, "in a variable")}


def test_another_way_of_reading_is_worked_out_anew(staged):
    here = staged()
    found = [one["data"]["totals"]["leaked_blocks"] for one in ask(here, LEAKS, f"{LEAKS} --mangled", LEAKS)]
    assert found[0] == found[2] > found[1] > 0
