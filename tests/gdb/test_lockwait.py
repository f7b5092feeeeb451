"""``lockwait`` on every board, against what the program says of its own threads."""

from __future__ import annotations

import subprocess

import pytest

from tests.gdb.answers import ask

FUTEX = "futex"
# gcore loses thread stacks of newer glibcs; registers stay, which is all that is needed here.
MODES = {
    "abba": "deadlock",
    "ring": "deadlock",
    "self": "self-deadlock",
    "lost": "lost-owner",
    "convoy": "convoy",
    "join": "deadlock",
    "lonely": None,
    "readers": None,
    "restarted": None,
    "lost-robust": None,
}


def expected(waiter):
    owner = waiter["owner"]
    return waiter["primitive"], waiter["lock"], owner


def told(row):
    owner = row["owner"]["tid"] if row["owner"] else None
    return row["primitive"], row["lock"], owner


def rows_by_tid(answer):
    return {row["tid"]: row for row in answer["data"]["threads"]}


def check_waiters(here, answer):
    """Every waiter waits for what it says it waits for; everybody else waits for nothing."""
    rows = rows_by_tid(answer)
    waiters = {waiter["tid"]: waiter for waiter in here.truth.details["waiters"]}
    for tid, waiter in waiters.items():
        row = rows[tid]
        if waiter["primitive"] == "join":
            assert (row["primitive"], row["owner"]["tid"]) == ("join", waiter["owner"])
        else:
            assert told(row) == expected(waiter)
        if waiter["primitive"] != "spinlock":
            assert row["state"] == FUTEX
            assert row["timed"] == waiter["timed"]
    for tid, row in rows.items():
        if tid not in waiters:
            assert row["primitive"] is None, row


@pytest.mark.boards(once=("glibc",))
def test_every_primitive_is_recognised(stage, board):
    here = stage("locks")
    (answer,) = ask(here, "lockwait")
    check_waiters(here, answer)
    assert answer["data"]["cycles"] == []
    # Parked, main sleeps with all these locks held: a convoy if ever there was one. Aborting, it runs.
    kinds = [finding["kind"] for finding in answer["data"]["findings"]]
    assert kinds == ([] if board.target == "core" else ["convoy"])
    spinner = next(row for row in answer["data"]["threads"] if row["primitive"] == "spinlock")
    # The code is what tells; a core has none of it, and on the bare board nor has the machine.
    blind = board.target in ("core", "gcore") and board.info == "bare"
    assert (spinner["state"], spinner["confidence"]) == ("spinning", "low" if blind else "high")
    counts = {row["address"]: row["waiters"] for row in answer["data"]["locks"]}
    for lock in {waiter["lock"] for waiter in here.truth.details["waiters"]} - {None}:
        waiting = [waiter for waiter in here.truth.details["waiters"] if waiter["lock"] == lock]
        assert counts[lock] == len(waiting)


@pytest.mark.boards(
    mode=tuple(MODES), target=("attach", "core"), info=("bare",), glibc=("system",), once=("target",)
)
def test_each_pathology_is_named(stage, board, mode):
    here = stage("locks", f"--mode={mode}")
    answer, triage = ask(here, "lockwait", "triage")
    check_waiters(here, answer)
    kinds = [finding["kind"] for finding in answer["data"]["findings"]]
    assert kinds == ([MODES[mode]] if MODES[mode] else [])
    assert answer["findings"] is bool(kinds)
    ours = [finding["kind"] for finding in triage["data"]["findings"]]
    assert ours == kinds
    check_cycles(here, answer)


def check_cycles(here, answer):
    """A cycle is what the program says: each thread of it waits for the next."""
    owners = {waiter["tid"]: waiter["owner"] for waiter in here.truth.details["waiters"]}
    tids = {row["number"]: row["tid"] for row in answer["data"]["threads"]}
    for cycle in answer["data"]["cycles"]:
        ring = [tids[number] for number in cycle]
        assert [owners[tid] for tid in ring] == ring[1:] + ring[:1]


@pytest.mark.boards(target=("attach", "core"), info=("debug",), glibc=("system",))
def test_a_convoy_has_one_root(stage, board):
    here = stage("locks", "--mode=convoy")
    (answer,) = ask(here, "lockwait")
    (convoy,) = answer["data"]["convoys"]
    waiters = here.truth.details["waiters"]
    tids = {row["number"]: row["tid"] for row in answer["data"]["threads"]}
    assert len(convoy["waiters"]) == len(waiters) == 8
    assert tids[convoy["holder"]] == waiters[0]["owner"]
    assert "clock_nanosleep" in convoy["holder_is"] or "nanosleep" in convoy["holder_is"]


@pytest.mark.boards(
    target=("attach", "core"), info=("debug", "bare"), glibc=("system", "trixie"), once=("info", "glibc")
)
def test_busy_locks_are_healthy(stage, board):
    here = stage("locks", "--healthy")
    for _ in range(2 if board.target == "attach" else 1):
        answer, triage = ask(here, "lockwait", "triage")
        assert answer["data"]["findings"] == []
        assert answer["data"]["cycles"] == []
        assert triage["data"]["findings"] == []


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_files_and_groups(stage, board, tmp_path):
    here = stage("locks", "--mode=abba")
    dot, flame, earlier = tmp_path / "w.dot", tmp_path / "w.folded", tmp_path / "w.json"
    here.text(f"lockwait --json={earlier} --dot {dot} --flame={flame}")
    graph = dot.read_text()
    assert graph.startswith('digraph "wait-for" {') and graph.count("->") == 2 and "color=red" in graph
    lines = flame.read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == 3
    assert any(line.startswith("thread;") and "link_ring" in line and "[mutex]" in line for line in lines)
    again, groups = ask(here, f"lockwait --compare={earlier}", "lockwait --stacks")
    assert {row["verdict"] for row in again["data"]["changes"]} == {"stuck"}
    assert sum(row["count"] for row in groups["data"]["stacks"]) == 3
    if subprocess.run(["which", "dot"], capture_output=True).returncode == 0:
        subprocess.run(["dot", "-Tsvg", "-o", str(tmp_path / "w.svg"), str(dot)], check=True)


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_errors_are_one_line(stage, board, tmp_path):
    here = stage("locks", "--mode=abba")
    other = tmp_path / "other.json"
    other.write_text('{"schema": "gdbext/rss/2", "data": {}}')
    junk = tmp_path / "junk.json"
    junk.write_text("{")
    for command, message in (
        (f"lockwait --compare={tmp_path}/none.json", "cannot read"),
        (f"lockwait --compare={junk}", "it is not JSON"),
        (f"lockwait --compare={other}", "is no answer of lockwait"),
        (f"lockwait --dot={tmp_path}/no/where.dot", "cannot write"),
        ("lockwait 17", "takes no argument"),
    ):
        output = here.text(command)
        text = output.out + output.err
        (line,) = [line for line in text.splitlines() if line.startswith("gdbext:")]
        assert line.startswith("gdbext: lockwait: ") and message in line
        assert "Traceback" not in text
