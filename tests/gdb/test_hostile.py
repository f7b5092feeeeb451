"""Cores that were cut or filtered, programs without a glibc heap, and unusual builds of programs.

What a core lacks is said once in every answer, makes it incomplete, and is never taken for damage.
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
import time

import pytest

from tests.gdb.answers import ask
from tests.gdb.test_errors import ALL, refusals, refused
from tests.gdb.test_glibc import check_arenas, check_blocks
from tests.support import gdbrun, preloaded
from tests.support.boards import Board
from tests.support.glibcs import Unavailable

KERNEL, GCORE = Board("core", "debug", "system"), Board("gcore", "debug", "system")
HEAPLESS = "no heap of an allocator that gdbext knows was found"
SECONDS = 40  # for one gdb and all commands; a few where it was written


@pytest.fixture
def staged(stages):
    """A program on a board of the test's choice."""

    def get(board, program, *arguments, **how):
        try:
            return stages.get(board, program, arguments, **how)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return get


# Truncated.


def cut(stage, size):
    """Return the stage with a core that ends after so many bytes, or so much of its size."""
    short = stage.altered("cut.core")
    whole = short.core.stat().st_size
    with open(short.core, "r+b") as file:
        file.truncate(int(whole * size) if size < 1 else size)
    return short


def ask_all(stage, *commands):
    """Ask every command; return the envelopes by command, with what must hold of all."""
    begun = time.monotonic()
    answers = dict(zip((*ALL, *commands), ask(stage, *ALL, *commands)))
    assert time.monotonic() - begun < SECONDS
    for name, answer in answers.items():
        assert [p for p in answer["problems"] if p["corruption"]] == [], name
        if answer.get("error"):
            assert answer["error"]["kind"] == "no-heap", name
    assert answers["glibc check"]["data"] is None or answers["glibc check"]["data"]["damage"] == []
    for name in ("triage", "rss"):
        assert answers[name]["data"] is not None
    assert answers["rss"]["data"]["residual"] == 0
    return answers


def check_cut(stage):
    answers = ask_all(stage)
    for name, answer in answers.items():
        told = [problem for problem in answer["problems"] if problem["kind"] == "truncated-core"]
        assert len(told) == 1 and " bytes missing" in told[0]["message"], name
        assert answer["complete"] is False, name
        if answer.get("error"):
            assert "of its writable memory is not in the core" in answer["error"]["hint"], name
    kinds = {finding["kind"] for finding in answers["triage"]["data"]["findings"]}
    assert kinds <= {"arena-proliferation"}
    return answers


CUTS = [
    ("million_chunks --chunks=20000", "", (0.05, 0.95, 12345677)),
    ("million_chunks --chunks=20000", "static", (0.05, 0.96, 38000001)),
    ("arena_proliferation", "", (0.05, 0.2, 0.5, 0.8, 0.95, 33333333)),
    ("arena_proliferation", "static", (0.05, 0.5, 0.95, 33333334)),
    ("mmapped_blocks", "", (0.5, 0.95)),
]


@pytest.mark.parametrize("program, variant, sizes", CUTS, ids=lambda value: value if isinstance(value, str) else "")
def test_truncated_kernel_cores(staged, program, variant, sizes):
    name, *arguments = program.split()
    here = staged(KERNEL, name, *arguments, variant=variant)
    for size in sizes:
        answers = check_cut(cut(here, size))
    if variant == "static":  # its main arena lies before what was cut
        arenas = answers["glibc arenas"]["data"]["arenas"]
        walked = sum(row["walked_bytes"] for row in arenas)
        assert 0 < walked <= sum(row["system_mem"] for row in arenas)


def test_truncation_is_told_in_text(staged):
    here = cut(staged(KERNEL, "arena_proliferation"), 0.5)
    output = here.text(*ALL)
    assert "Traceback" not in output.err
    assert output.out.count("truncated-core") == len(ALL)
    assert output.out.count("not complete: ") == len(ALL)
    assert "No findings." not in output.out


def test_no_heap_left_is_not_no_finding(staged):
    here = cut(staged(KERNEL, "mmapped_blocks"), 0.3)
    output = here.text("triage", "glibc arenas")
    assert "No heap was found; not examined: " in " ".join(output.out.split())
    assert "No findings" not in output.out
    lines = [line for line in output.err.splitlines() if line.startswith("gdbext: ")]
    assert len(lines) == 1 and "is not in the core, and the heap may be there" in lines[0]


def test_truncated_gcore(staged):
    """gcore writes the notes last, and gdb opens no core without them."""
    here = cut(staged(GCORE, "stranded_arena"), 0.8)
    error = refused("triage", "--core", here.core)
    assert error["kind"] == "bad-core" and "is truncated" in error["message"]
    output = here.text("triage")
    assert output.err.splitlines()[-1].startswith("gdbext: triage: there is no process and no core")


# Filtered.

FILTERS = (0x00, 0x01, 0x21, 0x31, 0x33, 0x3F)


@pytest.mark.parametrize(
    "on, mask", [*((KERNEL, mask) for mask in FILTERS), (GCORE, 0x00), (GCORE, 0x01), (GCORE, 0x33)], ids=str
)
def test_filtered_cores(staged, on, mask):
    here = staged(on, "stranded_arena", coredump_filter=mask)
    answers = ask_all(here)
    kinds = [problem["kind"] for problem in answers["triage"]["problems"]]
    if not mask & 1:
        assert "filtered-core" in kinds
        assert not answers["triage"]["complete"]
        assert "of its writable memory is not in the core" in answers["glibc arenas"]["error"]["hint"]
        return
    assert "filtered-core" not in kinds
    assert all(answer["complete"] for answer in answers.values())
    check_sound(here, answers)


def check_sound(here, answers):
    data = {name: answer["data"] for name, answer in answers.items()}
    check_arenas(here.truth, data["glibc arenas"]["arenas"], data["glibc bins"]["bins"])
    check_blocks(here.truth, data["blocks summary"]["totals"], len(data["glibc tcache"]["threads"]))


# No glibc heap.


@pytest.fixture
def jemalloc_pid():
    """A process whose allocator is jemalloc."""
    library = ctypes.util.find_library("jemalloc")
    if not library:
        pytest.skip("no libjemalloc2 on this machine")
    code = "x = [bytearray(n) for n in range(9999)]; print('ready', flush=True); input()"
    environment = {**os.environ, "LD_PRELOAD": library, "PYTHONMALLOC": "malloc"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    process.kill()
    process.communicate()


def test_jemalloc_is_not_taken_for_glibc(jemalloc_pid, tmp_path):
    glibc = [(name, "") for name in ALL if name.startswith("glibc")]
    for error in refusals(["-p", str(jemalloc_pid)], tmp_path, glibc):
        assert (error["kind"], error["hint"]) == ("no-heap", "it has: jemalloc")
    files = {name: tmp_path / f"{name.replace(' ', '-')}.json" for name in ("triage", "blocks summary")}
    lines = [word for name, file in files.items() for word in ("-ex", f"{name} --json={file}")]
    output = preloaded.run_gdb(["-p", str(jemalloc_pid), *gdbrun.load_pack(), *lines])
    triage, blocks = (gdbrun.read_envelope(file, output) for file in files.values())
    assert triage["complete"] and triage["data"]["findings"] == []
    assert [row["allocator"] for row in triage["data"]["heaps"]] == ["jemalloc"]
    ledger = triage["data"]["ledger"]
    assert ledger["residual"] == 0 and ledger["total"] > 0
    assert blocks["data"]["totals"]["used_bytes"] >= sum(range(9999))


@pytest.mark.parametrize("on", [KERNEL, Board("attach", "debug", "system")], ids=str)
def test_a_program_that_never_allocates(staged, on):
    here = staged(on, "no_heap")
    answers = ask_all(here)
    for name, answer in answers.items():
        if name in ("triage", "rss"):
            assert answer["complete"] and answer["problems"] == []
            continue
        error = answer["error"]
        assert error["kind"] == "no-heap"
        assert HEAPLESS in str(error["hint"]) or "no heap of a known allocator" in error["message"], name
    assert answers["triage"]["data"]["findings"] == []
    assert answers["triage"]["data"]["ledger"]["total"] == answers["rss"]["data"]["total"] > 0
    output = here.text("glibc arenas")
    assert sum(line.startswith("gdbext: ") for line in output.err.splitlines()) == 1, output


# Unusual builds.


@pytest.mark.parametrize("variant", ["static", "i386"])
@pytest.mark.parametrize(
    "on, program",
    [
        (Board("attach", "debug"), "two_waves --healthy"),
        (Board("attach", "plain"), "arena_proliferation"),
        (Board("core", "debug"), "arena_proliferation"),
        (Board("core", "bare"), "two_waves --healthy"),
    ],
    ids=str,
)
def test_unusual_builds_reconcile(staged, on, program, variant):
    name, *arguments = program.split()
    here = staged(on, name, *arguments, variant=variant)
    answers = ask_all(here)
    for answer in answers.values():
        assert answer["complete"], answer["problems"]
    check_sound(here, answers)
    found = [finding["kind"] for finding in answers["triage"]["data"]["findings"]]
    assert found == ([] if arguments else ["arena-proliferation"])
