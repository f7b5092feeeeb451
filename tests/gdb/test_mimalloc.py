"""mimalloc 2.x and 3.x, stripped, plain and secure: each block as the program's ledger has it, whoever freed it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import gdbext
from gdbext.heap.model import State
from tests.gdb.test_tcmalloc import places, without_debugger
from tests.gdb.test_verdict import dumped
from tests.support import mimallocs, programs
from tests.support.glibcs import Unavailable, glibc

OWN = 16  # blocks that libc itself takes
FULL = ("2.1.2", "2.1.7", "2.2.4-debug", "3.3.2-debug", "debian-trixie")
NAMES = ["debian", "2.2.4", "2.2.4-secure", "3.3.2", "3.3.2-secure",
         *(pytest.param(name, marks=pytest.mark.full) for name in FULL)]  # fmt: skip


def built(name: str) -> "tuple[Path, dict[str, str]]":
    """Return the program, and what it needs to run with a mimalloc."""
    try:
        return programs.build("mimalloc_zoo", glibc("system")), {"LD_PRELOAD": str(mimallocs.mimalloc(name))}
    except Unavailable as reason:
        pytest.skip(str(reason))


def core_of(folder: Path, name: str, *arguments: str) -> "tuple[Path, dict[str, Any]]":
    """Run the program to its abort and return its core and its truth."""
    program, environment = built(name)
    truth = folder / "truth.json"
    core = dumped(program, folder, "--truth", str(truth), "--abort", *arguments, environment=environment)
    return core, json.loads(truth.read_text())["details"]


@pytest.fixture(scope="module", params=NAMES)
def zoo(request, tmp_path_factory):
    return core_of(tmp_path_factory.mktemp(request.param), request.param)


def heap_of(session):
    (heap,) = [one for one in session.heaps() if one.allocator == "mimalloc"]
    return heap


def check_blocks(heap, truth):
    """Hold the blocks in use against the ledger."""
    used = heap.blocks.having((State.IN_USE,))
    known = dict(zip(heap.blocks.address[used].tolist(), heap.blocks.size[used].tolist()))
    assert [pair for pair in truth["live"] if known.get(int(pair[0], 16)) != pair[1]] == []
    others = known.keys() - {int(pair[0], 16) for pair in truth["live"]}
    assert [pair for pair in truth["freed"] if int(pair[0], 16) in others] == []
    assert len(others) <= OWN


def test_every_block_is_as_the_program_knows_it(zoo):
    core, truth = zoo
    with gdbext.open_core(str(core)) as session:
        heap = heap_of(session)
        assert (heap.complete, list(heap.problems)) == (True, [])
        check_blocks(heap, truth)


def test_a_healthy_one_is_silent_and_every_byte_has_one_owner(zoo):
    with gdbext.open_core(str(zoo[0])) as session:
        page = session.triage()
        assert (list(page.findings), without_debugger(page.problems)) == ([], [])
        ledger = session.run("rss").data
        assert ledger.residual == 0
        rest = sum(entry.in_core for entry in ledger.entries if entry.owner == "anonymous rest")
        assert rest * 20 < sum(entry.in_core or 0 for entry in ledger.entries)
        # What an arena of a GiB reserves is address space alone: gdb's core of a process has it as zeros.
        assert sum(entry.bytes for entry in ledger.entries if entry.owner == "anonymous rest") < 8 << 20


def test_what_an_address_is(zoo):
    core, truth = zoo
    with gdbext.open_core(str(core)) as session:
        explain = heap_of(session).explain
        assert explain(int(truth["live"][0][0], 16)).endswith(", in use")
        assert explain(0x1000) is None


@pytest.mark.parametrize("name", ["debian", "3.3.2"])
def test_a_process_is_read_as_its_core(name, tmp_path):
    program, environment = built(name)
    truth = tmp_path / "truth.json"
    process = subprocess.Popen(
        [str(program), "--truth", str(truth)], env={**os.environ, **environment}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"READY\n"
        with gdbext.open_process(process.pid) as session:
            heap = heap_of(session)
            assert (heap.complete, list(heap.problems)) == (True, [])
            check_blocks(heap, json.loads(truth.read_text())["details"])
            assert session.run("rss").data.residual == 0
    finally:
        process.kill()
        process.communicate()


def test_a_block_that_was_freed_twice_is_found(tmp_path):
    core, _ = core_of(tmp_path, "debian", "--twice")
    with gdbext.open_core(str(core)) as session:
        page = session.triage()
        assert page.status == 1 and [finding.kind for finding in page.findings] == ["corruption"]
        assert "double-free" in {problem.kind for problem in page.problems}


@pytest.mark.parametrize("name", ["2.2.4-secure", "3.3.2-secure"])
def test_a_block_that_was_written_beyond_its_end_is_found(name, tmp_path):
    core, truth = core_of(tmp_path, name, "--count", "2000", "--overrun")
    with gdbext.open_core(str(core)) as session:
        page = session.triage()
        assert page.status == 1 and [finding.kind for finding in page.findings] == ["corruption"]
        assert [one.address for one in heap_of(session).problems] == [int(truth["over"], 16)]


@pytest.fixture(scope="module", params=["debian", "3.3.2-secure"])
def whole(request, tmp_path_factory):
    return core_of(tmp_path_factory.mktemp("whole"), request.param, "--count", "3000")[0]


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 8))])
def test_damage_ends_in_an_answer(seed, whole, tmp_path):
    """Whatever its own structures hold, it ends in an answer: what does not hold is listed."""
    chance, copy = random.Random(seed), tmp_path / "core"
    shutil.copy(whole, copy)
    with gdbext.open_core(str(whole)) as session:
        found = places(whole, [(start, start + 4096) for start, _ in heap_of(session).metadata])
    with copy.open("r+b") as file:
        for _ in range(60):
            offset, size = chance.choice(found)
            file.seek(offset + chance.randrange(max(size // 8, 1)) * 8)
            word = chance.choice([0, 1, (1 << 64) - 1, chance.getrandbits(47) & ~15, chance.getrandbits(64)])
            file.write(word.to_bytes(8, "little"))
    with gdbext.open_core(str(copy)) as session:
        for heap in (one for one in session.heaps() if one.allocator == "mimalloc"):
            address, size = heap.blocks.address, heap.blocks.size
            assert (address[1:] >= address[:-1] + size[:-1]).all()
        assert session.run("rss").data.residual == 0
        assert session.triage().status in (0, 1, 3)
