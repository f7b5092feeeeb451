"""gperftools' tcmalloc, as Debian has it, stripped: read as it says of itself, and as the program's ledger has it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any, Sequence

import pytest

import gdbext
from gdbext.heap.model import State
from tests.gdb.test_verdict import dumped
from tests.support import programs
from tests.support.glibcs import Unavailable
from tests.support.tcmallocs import SOURCES, sampling, tcmalloc

# One of each layout of thread caches; all of them with --boards=full.
MIB = 1 << 20
VERSIONS = [pytest.param(name, marks=[pytest.mark.full] if name in ("bullseye", "sid") else []) for name in SOURCES]


def built(codename: str) -> "tuple[Path, dict[str, str]]":
    """Return the program for a tcmalloc, and what it needs to run with it."""
    try:
        found = tcmalloc(codename)
        return programs.build("tcmalloc_zoo", found.libc), dict(found.environment)
    except Unavailable as reason:
        pytest.skip(str(reason))


def core_of(folder: Path, codename: str, *arguments: str) -> "tuple[Path, dict[str, Any]]":
    """Run the program to its abort and return its core and its truth."""
    program, environment = built(codename)
    truth = folder / "truth.json"
    core = dumped(program, folder, "--truth", str(truth), "--abort", *arguments, environment=environment)
    return core, json.loads(truth.read_text())["details"]


@pytest.fixture(scope="module", params=VERSIONS)
def zoo(request, tmp_path_factory):
    return core_of(tmp_path_factory.mktemp(request.param), request.param)


def heap_of(session):
    (heap,) = [one for one in session.heaps() if one.allocator == "tcmalloc"]
    return heap


def without_debugger(problems):
    """Without those that say what takes a debugger."""
    return [problem for problem in problems if "no debugger" not in problem.message]


def bytes_in(heap, owner):
    (charge,) = [charge for charge in heap.charges if charge.owner == f"tcmalloc {owner}"]
    return charge.bytes


def said(stats: str) -> "dict[str, int]":
    """The figures of the allocator's own page, by their words."""
    return {name: int(number) for number, name in re.findall(r"MALLOC: [+ =] +(\d+) \(.*?\) (.*)", stats)}


def test_every_figure_is_its_own(zoo):
    core, truth = zoo
    stats = said(truth["stats"])
    with gdbext.open_core(str(core)) as session:
        heap = heap_of(session)
        assert heap.complete and not heap.problems
        assert bytes_in(heap, "in use") == stats["Bytes in use by application"]
        assert bytes_in(heap, "tcache") == stats["Bytes in thread cache freelists"]
        # What a central list has beside its objects it counts with them.
        central = stats["Bytes in central cache freelist"] + stats["Bytes in transfer cache freelist"]
        assert bytes_in(heap, "free objects") + bytes_in(heap, "overhead") == central
        assert bytes_in(heap, "free pages") == stats["Bytes in page heap freelist"]
        assert bytes_in(heap, "retained") == stats["Bytes released to OS (aka unmapped)"]


def test_every_block_is_as_the_program_knows_it(zoo):
    core, truth = zoo
    with gdbext.open_core(str(core)) as session:
        blocks = heap_of(session).blocks
        used = blocks.having((State.IN_USE,))
        known = dict(zip(blocks.address[used].tolist(), blocks.size[used].tolist()))
        assert [pair for pair in truth["live"] if known.get(int(pair[0], 16)) != pair[1]] == []
        again = {pair[0] for pair in truth["live"]}  # a thread may get what another has freed
        assert [pair for pair in truth["freed"] if pair[0] not in again and int(pair[0], 16) in known] == []


def test_a_healthy_one_is_silent_and_every_byte_has_one_owner(zoo):
    with gdbext.open_core(str(zoo[0])) as session:
        page = session.triage()
        assert (list(page.findings), without_debugger(page.problems)) == ([], [])
        ledger = session.run("rss").data
        assert ledger.residual == 0
        rest = next(entry for entry in ledger.entries if entry.owner == "anonymous rest")
        assert rest.in_core * 20 < sum(entry.in_core or 0 for entry in ledger.entries)
        assert rest.bytes < MIB  # what it has taken for its own structures and not used yet is its own


def test_what_it_keeps_for_itself_has_not_leaked(zoo):
    with gdbext.open_core(str(zoo[0])) as session:
        assert session.run("blocks leaks").status == 0


def test_a_process_is_read_as_its_core(tmp_path):
    program, environment = built("bookworm")
    truth = tmp_path / "truth.json"
    process = subprocess.Popen(
        [str(program), "--truth", str(truth)], env={**os.environ, **environment}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"READY\n"
        stats = said(json.loads(truth.read_text())["details"]["stats"])
        with gdbext.open_process(process.pid) as session:
            heap = heap_of(session)
            assert (heap.complete, list(heap.problems)) == (True, [])
            assert bytes_in(heap, "in use") == stats["Bytes in use by application"]
            assert session.run("rss").data.residual == 0
    finally:
        process.kill()
        process.communicate()


def test_a_block_that_was_freed_twice_is_found(tmp_path):
    core, _ = core_of(tmp_path, "bookworm", "--twice")
    with gdbext.open_core(str(core)) as session:
        page = session.triage()
        assert page.status == 1 and [finding.kind for finding in page.findings] == ["corruption"]
        assert "cycle" in page.findings[0].evidence[0] and "freed twice" in page.findings[0].evidence[0]
        (problem,) = without_debugger(page.problems)
        assert session.run(f"blocks at {problem.address:#x}").complete


def test_what_it_has_sampled_has_its_size_and_who_asked_for_it(tmp_path):
    try:
        environment = sampling()
    except Unavailable as reason:
        pytest.skip(str(reason))
    truth, program = tmp_path / "truth.json", built("bookworm")[0]
    core = dumped(program, tmp_path, "--truth", str(truth), "--abort", "--count", "3000", environment=environment)
    with gdbext.open_core(str(core)) as session:
        heap = heap_of(session)
        used = heap.blocks.having((State.IN_USE,))
        known = dict(zip(heap.blocks.address[used].tolist(), heap.blocks.size[used].tolist()))
        live = json.loads(truth.read_text())["details"]["live"]
        assert [pair for pair in live if known.get(int(pair[0], 16)) != pair[1]] == []
        said = [text for pair in live if "sampled" in (text := heap.explain(int(pair[0], 16)))]
        assert len(said) > 10 and all("tcmalloc_zoo+0x" in text for text in said)


def debug_core(folder: Path, *arguments: str) -> "tuple[Path, dict[str, Any]]":
    """Run the program on the debug variant to its abort and return its core and its truth."""
    program, environment = built("bookworm")
    library = Path(environment["LD_PRELOAD"]).with_name("libtcmalloc_minimal_debug.so.4")
    truth, how = folder / "truth.json", {**environment, "LD_PRELOAD": str(library)}
    core = dumped(program, folder, "--truth", str(truth), "--abort", "--count", "3000", *arguments, environment=how)
    return core, json.loads(truth.read_text())["details"]


def test_the_debug_variant_has_the_sizes_that_were_asked_for(tmp_path):
    core, truth = debug_core(tmp_path)
    with gdbext.open_core(str(core)) as session:
        heap = heap_of(session)
        assert (heap.complete, list(heap.problems)) == (True, [])
        used = heap.blocks.having((State.IN_USE,))
        known = dict(zip(heap.blocks.address[used].tolist(), heap.blocks.size[used].tolist()))
        assert [pair for pair in truth["live"] if known.get(int(pair[0], 16)) != pair[1]] == []
        again = {pair[0] for pair in truth["live"]}
        assert [pair for pair in truth["freed"] if pair[0] not in again and int(pair[0], 16) in known] == []
        assert not session.triage().findings and session.run("rss").data.residual == 0


def test_the_debug_variant_knows_what_was_written_beyond_its_end(tmp_path):
    core, truth = debug_core(tmp_path, "--overrun")
    with gdbext.open_core(str(core)) as session:
        assert [(one.kind, one.address) for one in heap_of(session).problems] == [("overrun", int(truth["over"], 16))]
        assert [finding.kind for finding in session.triage().findings] == ["corruption"]


def test_what_an_address_is(zoo):
    core, truth = zoo
    with gdbext.open_core(str(core)) as session:
        explain = heap_of(session).explain
        small = next(pair for pair in truth["live"] if pair[1] < 4096)
        large = next(pair for pair in truth["live"] if pair[1] > 1 << 18)
        assert re.fullmatch(
            rf"object \d+ of \d+ \({small[1]} bytes each\) in span 0x\w+ of [\d.]+ \w+, in use",
            explain(int(small[0], 16)),
        )
        assert explain(int(large[0], 16)).startswith("large block, span")
        assert explain(0x1000) is None


# ---- hostile ----


def places(core: Path, ranges: "Sequence[tuple[int, int]]") -> "list[tuple[int, int]]":
    """Where in the file of a core ranges of addresses are: offset and bytes."""
    segments = subprocess.run(["readelf", "-lW", str(core)], capture_output=True, text=True).stdout
    loads = [[int(word, 16) for word in line.split()[1:5]] for line in segments.splitlines() if " LOAD " in line]
    return [
        (offset + max(start, base) - base, min(end, base + size) - max(start, base))
        for offset, base, _, size in loads
        for start, end in ranges
        if max(start, base) < min(end, base + size)
    ]


@lru_cache(maxsize=None)
def _places(core: Path) -> "list[tuple[int, int]]":
    """Where what the allocator keeps for itself is."""
    with gdbext.open_core(str(core)) as session:
        heap = heap_of(session)
        module = heap.detail.location.module
        return places(core, [*heap.metadata, (module.base, module.end)])


@pytest.mark.parametrize("seed", range(6))
def test_damage_ends_in_an_answer(seed, damaged_zoo, tmp_path):
    """Whatever its own structures hold, it ends in an answer: figures that do not add up are listed."""
    core = damaged_zoo
    chance, copy = random.Random(seed), tmp_path / "core"
    shutil.copy(core, copy)
    with copy.open("r+b") as file:
        for _ in range(200):
            offset, size = chance.choice(_places(core))
            file.seek(offset + chance.randrange(max(size // 8, 1)) * 8)
            word = chance.choice([0, 1, (1 << 64) - 1, chance.getrandbits(47) & ~15, chance.getrandbits(64)])
            file.write(word.to_bytes(8, "little"))
    with gdbext.open_core(str(copy)) as session:
        heaps = [one for one in session.heaps() if one.allocator == "tcmalloc"]
        for heap in heaps:
            address, size = heap.blocks.address, heap.blocks.size
            assert (address[1:] >= address[:-1] + size[:-1]).all()
        assert session.run("rss").data.residual == 0
        assert session.triage().status in (0, 1, 3)


@pytest.fixture(scope="module")
def damaged_zoo(tmp_path_factory):
    return core_of(tmp_path_factory.mktemp("whole"), "bookworm", "--count", "3000")[0]
