"""Where gdb in batch mode writes: streams that are full or closed, or whose reader has left."""

from __future__ import annotations

import subprocess

import pytest

from tests.gdb.bridged import need_gdb
from tests.support import gdbrun

LOST = "gdbext: gx shapes list: standard output does not take the answer; is the disk full, or is it closed?\n"


def run(redirect, *commands):
    """Return gdb's status, and what it has written."""
    need_gdb()
    steps = [step for command in commands for step in ("-ex", command)]
    line = [gdbrun.gdb_program(), "-nx", "-batch", *gdbrun.load_pack(), *steps]
    line = ["sh", "-c", f'"$@" {redirect}', "sh", *line]
    done = subprocess.run(line, capture_output=True, text=True, env=gdbrun.environment(), timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["gx shapes list", "gx shapes list --json"])
@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
def test_an_answer_that_is_lost_is_an_error(redirect, command):
    assert run(redirect, command) == (1, "", LOST)  # gdb's own status for it


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full", "<&-"])
def test_other_streams_cost_no_answer(redirect):
    status, out, err = run(redirect, "gx shapes list")
    assert (status, err) == (0, "") and "std-map" in out


def test_a_reader_that_has_left_is_none():
    assert run("| :", "gx shapes list --limit 0", "gx shapes list --limit 0") == (0, "", "")


def test_an_answer_in_a_file_is_there_whatever_standard_output_is(tmp_path):
    assert run(">&-", f"gx shapes list --json={tmp_path}/out") == (0, "", "")
    assert "std-map" in (tmp_path / "out").read_text()
