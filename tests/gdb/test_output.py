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


PLAIN = [
    {"LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"},
    {},
]
ASKED = ("gx", "triage -h", "gx breakpoints -h", "help gx breakpoints", "show gx", "gx shapes list --limit 0",
         "gx shapes show std-map", "gx commands", "gx safe blocks at nothing", "gx safe shapes show no",
         "gx nothing")  # fmt: skip


@pytest.mark.parametrize("environment", PLAIN, ids=str)
def test_in_a_locale_without_more_all_is_ascii(environment, monkeypatch):
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    kept = {name: value for name, value in gdbrun.environment().items() if name != "LC_ALL"}
    monkeypatch.setattr(gdbrun, "environment", lambda: {**kept, **environment})
    _, out, err = run("", *ASKED)
    assert out.isascii() and err.isascii() and "std-map" in out and "no command 'nothing'" in err
    assert "NUMBER... or all" in out
