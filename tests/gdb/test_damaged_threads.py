"""Cores whose notes give threads ids that cannot be: the same for several, 0, negative, beyond any.

gdb lists one of several threads with one id and has another selected, of which its Python knows nothing.
"""

from __future__ import annotations

import mmap
import struct

import pytest

from gdbext.errors import BadCoreError
from gdbext.starting.corefile import read_core
from tests.gdb.answers import ask
from tests.gdb.test_errors import ALL, program
from tests.support import gdbrun
from tests.support.boards import Board
from tests.support.glibcs import Unavailable

KERNEL, GCORE = Board("core", "debug", "system"), Board("gcore", "debug", "system")
PRSTATUS, PRPSINFO = 1, 3
IDS = {
    "same": lambda number: 4242,
    "none": lambda number: 0,
    "only-first-0": lambda number: None if number else 0,
    "only-later-0": lambda number: 0 if number else None,
    "all-threads": lambda number: -1,
    "negative": lambda number: -5 - number,
    "huge": lambda number: 2**31 - 1 - number,
    "first-twice": lambda number: 4242 if number < 2 else None,
}


@pytest.fixture
def damaged(stages):
    """A program's core with other ids in its notes."""

    def get(board, name, change, pid=None):
        try:
            here = stages.get(board, name).altered("damaged.core")
        except Unavailable as reason:
            pytest.skip(str(reason))
        with open(here.core, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            rename(data, change, pid)
        return here

    return get


def rename(data, change, pid):
    number = 0
    for kind, at in notes(data):
        if kind == PRSTATUS:
            if change(number) is not None:
                struct.pack_into("<i", data, at + 32, change(number))
            number += 1
        elif kind == PRPSINFO and pid is not None:
            struct.pack_into("<i", data, at + 24, pid)


def notes(data):
    """Type and offset of what the notes of "CORE" hold."""
    (table,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    for header in range(table, table + 56 * count, 56):
        kind, _, at, _, _, size = struct.unpack_from("<IIQQQQ", data, header)
        end = at + size if kind == 4 else at
        while at < end:
            name, length, kind = struct.unpack_from("<III", data, at)
            start = at + 12 + (name + 3 & ~3)
            if data[at + 12 : at + 16] == b"CORE":
                yield kind, start
            at = start + (length + 3 & ~3)


@pytest.mark.parametrize(
    "on, ids",
    [
        (KERNEL, "same"), (GCORE, "none"),
        *(pytest.param(KERNEL, ids, marks=pytest.mark.full) for ids in IDS if ids != "same"),
        pytest.param(GCORE, "same", marks=pytest.mark.full),
    ],
    ids=str,
)  # fmt: skip
def test_every_command_answers(damaged, on, ids):
    here = damaged(on, "arena_proliferation", IDS[ids])
    commands = (*ALL, "lockwait", "blocks leaks", "blocks types", "blocks retained")
    answers = dict(zip(commands, ask(here, *commands)))
    for name, answer in answers.items():
        assert answer.get("error") is None and answer["data"] is not None, name
        told = [problem["message"] for problem in answer["problems"] if problem["kind"] == "damaged-core"]
        assert len(told) == 1 and "threads have no id of their own" in told[0], name
        assert not answer["complete"], name
    kinds = [finding["kind"] for name in ("triage", "lockwait") for finding in answers[name]["data"]["findings"]]
    assert "lost-owner" not in kinds


@pytest.mark.parametrize("ids", ["same", "only-later-0"])
def test_what_follows_the_selected_thread(damaged, ids):
    """Expressions, conditions and what breakpoints say do without a selected thread, too."""
    here = damaged(KERNEL, "arena_proliferation", IDS[ids])
    event = "gx breakpoints event 1"
    output = here.text('print $gx_note("a", 5)', event, "gx safe walklist nosuch", "gx safe blocks at $pc")
    assert "Traceback" not in output.err and "SystemError" not in output.err, output
    assert "no thread breakpoint 1" in output.out
    assert 'No symbol "nosuch"' in output.err


@pytest.mark.parametrize(
    "on, name", [(KERNEL, "arena_proliferation"), (GCORE, "arena_proliferation"), (KERNEL, "no_heap")]
)
@pytest.mark.parametrize("pid", [None, 0, -1])
def test_on_what_gdb_aborts_is_seen_before(damaged, on, name, pid):
    """gdb 13 aborts where the process is -1 and the first thread of a kernel's core 0; on no other ids of these."""
    aborted = set()
    for ids in ("none", "only-first-0", "only-later-0"):
        here = damaged(on, name, IDS[ids], pid)
        output = gdbrun.run_gdb(["-iex", "maint set internal-error corefile no", *here.options()], cwd=here.directory)
        if "internal-error" in output.err:
            aborted.add(ids)
            with pytest.raises(BadCoreError, match="damaged: its notes are of process -1 and thread 0, and gdb aborts"):
                read_core(str(here.core))
        elif pid != -1:
            read_core(str(here.core))
    if gdbrun.gdb_version() < (14, 0):
        assert aborted == ({"none", "only-first-0"} if pid == -1 and on == KERNEL else set())


def test_the_program_refuses_what_gdb_aborts_on(damaged):
    here = damaged(KERNEL, "no_heap", IDS["none"], -1)
    done = program("triage", "--core", here.core, "--exe", here.executable)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        f"gdbext: triage: {here.core} is damaged: its notes are of process -1 and thread 0, "
        "and gdb aborts on that; take the core again\n"
    )
