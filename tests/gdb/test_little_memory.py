"""With less memory than an answer takes there is a line that says so and status 2, however gdbext was asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import gdbrun
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable


@pytest.fixture(scope="module")
def here(stages):
    """A core with more blocks than little memory has room for."""
    try:
        return stages.get(Board("core", "debug", "system"), "million_chunks")
    except Unavailable as reason:
        pytest.skip(str(reason))


def limited(line, size):
    """Run a program with so many MB of address space."""
    line = ["sh", "-c", f'ulimit -c 0; ulimit -v {size << 10}; exec "$@"', "sh", *map(str, line)]
    environment = {**gdbrun.environment(), "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def check(done):
    """Check that there is an answer, or a line that says why there is none; return whether there is one."""
    if done.returncode in (0, 1, 3):
        assert "memory " in done.stdout
        return True
    told = [line for line in done.stderr.splitlines() if line.startswith("gdbext: ")]
    assert (done.returncode, done.stdout, len(told)) == (2, "", 1), done.stderr
    return False


STEPS = (200, 300, 400, 700, 1000)  # MB; 1000 are enough


def test_the_program(here):
    line = [sys.executable, "-m", "gdbext.cli", "triage", here.core, "--gdb", gdbrun.gdb_program()]
    for named in ([], ["--exe", here.executable]):
        answers = [check(limited([*line, *named], size)) for size in STEPS]
        assert answers == sorted(answers)  # more memory is never worse
        assert not answers[0]


def test_in_gdb(here):
    said = []
    for size in STEPS[2:]:  # with less gdb itself dies, or numpy ends it
        options = ["-nx", "-batch", *here.options(), *gdbrun.load_pack(), "-ex", "gx safe gx triage"]
        done = limited([gdbrun.gdb_program(), *options], size)
        told = [line for line in done.stderr.splitlines() if line.startswith("gdbext: ")]
        assert done.returncode == 0 and bool(told) != ("evidence: " in done.stdout), done.stderr
        said += told
    why = "there is not enough memory for an answer; the machine, a cgroup or ulimit -v bounds it"
    assert f"gdbext: triage: {why}" in said
