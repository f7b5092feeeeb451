"""musl's mallocng, as Debian has it, stripped, and linked in: each block as the program's ledger has it."""

from __future__ import annotations

import json
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
from tests.support import musls
from tests.support.glibcs import Unavailable

USED = (State.IN_USE, State.MMAPPED)
OWN = 16  # blocks that libc itself takes: threads, and gaps in pages of modules that it fills
FORMS = [
    "static",
    *(pytest.param(name, marks=pytest.mark.full) for name in musls.EXPECTED if name != "bookworm"),
    "bookworm",
]


def zoo_of(folder: Path, form: str) -> Path:
    """Return the program in a form: static and stripped, or on the library of a suite."""
    try:
        if form == "static":
            return musls.build("musl_zoo", folder, "-static", "-s")
        return musls.build("musl_zoo", folder, library=musls.musl(form))
    except Unavailable as reason:
        pytest.skip(str(reason))


def core_of(folder: Path, form: str, *arguments: str) -> "tuple[Path, dict[str, Any]]":
    """Run the program to its abort and return its core and its truth."""
    program, truth = zoo_of(folder, form), folder / "truth.json"
    core = dumped(program, folder, "--truth", str(truth), "--abort", *arguments)
    return core, json.loads(truth.read_text())["details"]


@pytest.fixture(scope="module", params=FORMS)
def zoo(request, tmp_path_factory):
    return core_of(tmp_path_factory.mktemp(request.param), request.param)


def heap_of(session):
    (heap,) = [one for one in session.heaps() if one.allocator == "musl"]
    return heap


def check_blocks(heap, truth):
    """Hold the blocks in use against the ledger: sizes are those that the program asked for."""
    used = heap.blocks.having(USED)
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


def test_what_an_address_is(zoo):
    core, truth = zoo
    with gdbext.open_core(str(core)) as session:
        explain = heap_of(session).explain
        assert ", in use" in explain(int(truth["live"][0][0], 16))
        assert explain(0x1000) is None


def test_a_process_is_read_as_its_core(tmp_path):
    program, truth = zoo_of(tmp_path, "bookworm"), tmp_path / "truth.json"
    process = subprocess.Popen([str(program), "--truth", str(truth)], stdout=subprocess.PIPE)
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


def test_a_byte_behind_a_block_is_found(tmp_path):
    core, truth = core_of(tmp_path, "bookworm", "--overrun")
    with gdbext.open_core(str(core)) as session:
        page = session.triage()
        assert page.status == 1 and [finding.kind for finding in page.findings] == ["corruption"]
        (problem,) = without_debugger(page.problems)
        size = {int(address, 16): size for address, size in truth["live"]}[problem.address]
        assert problem.message == f"the block {problem.address:#x} of {size} bytes was written beyond its end"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return core_of(tmp_path_factory.mktemp("whole"), "bookworm", "--count", "3000")[0]


@pytest.mark.parametrize("seed", range(6))
def test_damage_ends_in_an_answer(seed, whole, tmp_path):
    """Whatever its own structures hold, it ends in an answer: what does not hold is listed."""
    chance, copy = random.Random(seed), tmp_path / "core"
    shutil.copy(whole, copy)
    with gdbext.open_core(str(whole)) as session:
        heap = heap_of(session)
        starts = [(int(start), int(start) + 64) for start in heap.detail.groups.start]
        found = places(whole, [*heap.metadata, *heap.metadata, *starts])
    with copy.open("r+b") as file:
        for _ in range(200):
            offset, size = chance.choice(found)
            file.seek(offset + chance.randrange(max(size // 8, 1)) * 8)
            word = chance.choice([0, 1, (1 << 64) - 1, chance.getrandbits(47) & ~15, chance.getrandbits(64)])
            file.write(word.to_bytes(8, "little"))
    with gdbext.open_core(str(copy)) as session:
        for heap in (one for one in session.heaps() if one.allocator == "musl"):
            address, size = heap.blocks.address, heap.blocks.size
            assert (address[1:] >= address[:-1] + size[:-1]).all()
        assert session.run("rss").data.residual == 0
        assert session.triage().status in (0, 1, 3)
