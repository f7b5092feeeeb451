"""The incident: threads that spin behind one that is inside a long chain; who holds the lock is told by mention."""

from __future__ import annotations

import os
import re

import pytest

from tests.gdb.answers import ask

NO_SEARCH = "set gx table-search-variables 0"


def by_tid(answer):
    return {row["tid"]: row for row in answer["data"]["threads"]}


def lock_row(here, answer):
    return {row["address"]: row for row in answer["data"]["locks"]}[here.truth.details["lock"]]


def check_incident(here, answer, table):
    assert answer["data"] is not None, answer["error"]
    truth, rows = here.truth.details, by_tid(answer)
    assert {tid for tid, row in rows.items() if row["state"] == "spinning"} == set(truth["spinners"])
    row, numbers = lock_row(here, answer), {one["number"]: tid for tid, one in rows.items()}
    assert (row["waiters"], row["primitive"]) == (3, "spinlock")
    assert row["name"] == f"lock of slab {truth['slab']} of {table}"
    assert row["owner"] is None
    assert numbers[row["holder_candidates"][0]["number"]] == truth["holder"]
    position = row["holder_position"]
    assert (position["table"], position["bin"], position["length"]) == (truth["table"], truth["bin"], truth["chain"])
    assert position["position"] is None or 1 <= position["position"] <= truth["chain"]
    (finding,) = answer["data"]["findings"]
    assert (finding["kind"], finding["waiters"]) == ("spin-convoy", 3)
    assert finding["summary"].startswith(f"3 threads wait for the {row['name']}, probably held by thread ")
    place = rf"running in look_up \(spin_convoy\.c:\d+\), in the chain of bin {truth['bin']} of slab {truth['slab']}"
    assert re.search(place, finding["summary"])
    assert answer["findings"] is True and finding["summary"] in answer["data"]["sentences"]


@pytest.mark.boards(
    target=("attach", "core", "gcore", "gdbserver"), info=("debug", "plain"), glibc=("system",), once=("info",)
)
def test_holder_lock_and_place_are_named(stage, board):
    here = stage("spin_convoy")
    answer, triage = ask(here, "lockwait", "triage")
    check_incident(here, answer, "cache")
    assert [one["message"] for one in answer["evidence"]] == ["1 hash table examined: cache"]
    kinds = [finding["kind"] for finding in triage["data"]["findings"]]
    assert sorted(kinds) == ["spin-convoy", "stale-hash"]
    assert sum(" examined: " in one["message"] for one in triage["evidence"]) == 1


@pytest.mark.boards(target=("attach",), info=("debug",), glibc=("system",))
def test_a_fair_table_is_healthy_at_every_look(stage, board):
    here = stage("spin_convoy", "--healthy")
    for _ in range(4):
        answer, triage = ask(here, "lockwait", "triage")
        assert answer["data"]["findings"] == [] and triage["data"]["findings"] == []
        assert answer["findings"] is False and answer["problems"] == []
        assert not any("initialised" in sentence for sentence in answer["data"]["sentences"])
        for row in answer["data"]["locks"]:
            assert " of slab " in row["name"]


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_a_table_that_the_user_names(stage, board):
    here = stage("spin_convoy")
    commands = ("lockwait --in cache", "lockwait --in *&cache --shape unbound-slabhash")
    named, shaped = ask(here, *commands, before=[NO_SEARCH])
    check_incident(here, named, "cache")
    check_incident(here, shaped, "*&cache")
    assert named["evidence"] == []
    text = here.text("lockwait --in nosuch")
    assert "gdbext: lockwait: " in text.err and "nosuch" in text.err


@pytest.mark.boards(target=("attach", "core"), info=("debug", "bare"), glibc=("system",))
def test_without_a_table_the_lock_is_named_by_its_block(stage, board):
    here = stage("spin_convoy")
    plain, heap = ask(here, "lockwait", "lockwait --heap", before=[NO_SEARCH])
    sizes = dict(here.truth.ledger["live_blocks"])
    assert lock_row(here, heap)["name"] == f"block of {sizes[here.truth.details['lock']]} bytes"
    name = lock_row(here, plain)["name"]
    assert name is None or name.startswith("[heap] + 0x")
    # Three spinners at a holder of which nothing is known but that it runs: a busy lock.
    assert plain["data"]["findings"] == []
    # A heap that was walked already gives names for nothing.
    _, again = ask(here, "blocks summary", "lockwait", before=[NO_SEARCH])
    assert lock_row(here, again)["name"] == lock_row(here, heap)["name"]


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_the_graph_is_drawn_where_graphviz_is(stage, board, tmp_path):
    here = stage("locks", "--mode=abba")
    tools = tmp_path / "tools"
    tools.mkdir()
    picture = tmp_path / "w.svg"
    path = f"python import os; os.environ['PATH'] = '{tools}:' + os.environ['PATH']"
    alone = f"python import os; os.environ['PATH'] = '{tools}'"
    missing = here.text(alone, f"lockwait --dot {picture}")
    (line,) = [line for line in (missing.out + missing.err).splitlines() if line.startswith("gdbext:")]
    assert "there is no program dot here; install graphviz" in line
    # One that only says what it was given stands in for graphviz.
    (tools / "dot").write_text('#!/bin/sh\n[ "$*" = -Tsvg ] && { echo "<svg>"; cat; }\n')
    os.chmod(tools / "dot", 0o755)
    here.text(path, f"lockwait --dot {picture}")
    assert picture.read_text().startswith("<svg>\ndigraph") and picture.read_text().count("->") == 2
    (tools / "dot").write_text("#!/bin/sh\ncat > /dev/null; echo no way >&2; exit 1\n")
    broken = here.text(path, f"lockwait --dot {picture}")
    assert f"cannot draw {picture}: no way; name a file that ends in .dot" in broken.out + broken.err
