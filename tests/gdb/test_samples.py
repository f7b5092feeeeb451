"""Several looks at one process: ``gdbext lockwait --samples``, and what they tell: stuck, slow or moving."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable

VERDICTS = {"stuck", "slow", "moving", "gone", "new", "same holder", "same waiters"}


def run(*arguments):
    line = [sys.executable, "-m", "gdbext.cli", "lockwait", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def process(stages):
    """Return a function that starts a program and returns its stage; it is looked at, and goes on."""

    def start(program, *arguments):
        try:
            return stages.get(Board("attach", "debug", "system"), program, arguments)
        except Unavailable as reason:
            pytest.skip(str(reason))

    yield start
    stages.close_restless()


def sampled(here, count, interval, status):
    done = run("--pid", here.process.pid, "--samples", count, "--interval", interval, "--json")
    assert done.returncode == status, done.stderr
    data = json.loads(done.stdout)["data"]
    assert len(data["samples"]) == count
    assert data["samples"][0]["changes"] == [] and data["samples"][0]["seconds"] is None
    for look in data["samples"][1:]:
        assert look["seconds"] >= interval
        assert {change["verdict"] for change in look["changes"]} <= VERDICTS
    last = {row["lock"]: row["verdict"] for row in data["changes"]}
    assert last == {row["lock"]: row["verdict"] for row in data["samples"][-1]["changes"]}
    return data


def test_a_sleeping_holder_is_stuck(process):
    here = process("locks", "--mode=convoy")
    data = sampled(here, 3, 0.2, status=1)
    locks = {waiter["lock"] for waiter in here.truth.details["waiters"]}
    assert {row["lock"]: row["overall"] for row in data["changes"]} == dict.fromkeys(locks, "stuck")
    assert [look["waiting"] for look in data["samples"]] == [8, 8, 8]


def test_a_holder_in_a_long_chain_is_slow(process):
    here = process("spin_convoy")
    data = sampled(here, 3, 0.2, status=1)
    (row,) = data["changes"]
    assert row["lock"] == here.truth.details["lock"] and row["still"] == 3
    # Two looks may find the holder at the same entry by chance, hardly three.
    assert row["overall"] == "slow"
    done = run("--pid", here.process.pid, "--samples", "2", "--interval", "0")
    assert done.returncode == 1
    assert "Since the previous sample:" in done.stdout and "samples: 2 samples in " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_busy_program_moves(process):
    here = process("locks", "--healthy")
    data = sampled(here, 3, 0.1, status=0)
    assert data["findings"] == []
    # What is waited for without a holder (a queue's semaphore, a condition) stays as it is; no lock is stuck.
    assert not {row["overall"] for row in data["changes"]} & {"stuck", "slow"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--core", "x", "--samples", "2"], "--samples needs --pid"),
        (["--pid", "1", "--interval", "2"], "--interval needs --samples"),
        (["--pid", "1", "--samples", "1"], "'1' is not a number of samples"),
        (["--pid", "1", "--samples", "2", "--stacks"], "--samples and --stacks exclude each other"),
        (["--pid", "1", "--samples", "2", "--interval", "-1"], "'-1' is not a number of seconds"),
    ],
)
def test_usage(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2 and message in done.stderr


def test_only_lockwait_is_sampled():
    line = [sys.executable, "-m", "gdbext.cli", "triage", "--pid", "1", "--samples", "2"]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
    assert done.returncode == 2 and "--samples and --interval are for lockwait" in done.stderr


def test_a_process_that_is_gone():
    child = subprocess.Popen(["sleep", "1000"])
    try:
        child.kill()
        child.wait()
        done = run("--pid", child.pid, "--samples", "2")
    finally:
        child.poll()
    assert done.returncode == 2 and f"there is no process {child.pid}" in done.stderr


def test_two_cores_of_one_program(stages, tmp_path):
    """The same core twice: nothing moves between them."""
    try:
        here = stages.get(Board("core", "debug", "system"), "locks", ["--mode=abba"])
    except Unavailable as reason:
        pytest.skip(str(reason))
    before = tmp_path / "a.json"
    assert run("--core", here.core, f"--json={before}").returncode == 1
    done = run("--core", here.core, f"--compare={before}", "--json")
    data = json.loads(done.stdout)["data"]
    assert {row["overall"] for row in data["changes"]} == {"stuck"}
    assert [look["seconds"] for look in data["samples"]] == [None, 0]
    # A chain of looks goes on from file to file.
    after = tmp_path / "b.json"
    after.write_text(done.stdout)
    third = json.loads(run("--core", here.core, "--compare", after, "--json").stdout)["data"]
    assert len(third["samples"]) == 3
    # An answer that was cut to a few rows, and one that is no whole answer, end in one line.
    broken = json.loads(done.stdout)
    del broken["data"]["locks"]
    after.write_text(json.dumps(broken))
    done = run("--core", here.core, "--compare", after)
    assert done.returncode == 2 and "it is no whole answer of lockwait" in done.stderr
