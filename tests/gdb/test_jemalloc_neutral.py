"""Programs on jemalloc through the commands that know no allocator: ``blocks``, ``rss``, ``triage``.

Where gdb adds nothing, cores are looked at without it.
"""

from __future__ import annotations

from typing import Any, Sequence

import pytest

from gdbext.analysis.footprint.ledger import ledger
from gdbext.analysis.page import make_page
from gdbext.heap.detect import find_heaps
from gdbext.heap.model import Heap, State
from gdbext.progress import SILENT
from gdbext.report import Report
from tests.support.boards import Board
from tests.support.jedamage import DAMAGES, UNPURGED
from tests.support.jemallocs import VERSIONS
from tests.support.jestages import JeBoard, JeStage
from tests.support.nmsymbols import target_of
from tests.support.truth import address

BOARDS = (
    JeBoard("core", "debug", "5.1.0"),
    JeBoard("attach", "symtab", "5.2.1"),
    JeBoard("gcore", "stripped", "5.3.0"),
    JeBoard("attach", "stripped", "5.3.1"),
)
ZOO = ("jemalloc_zoo", "--threads=2")


def page_of(here: JeStage) -> tuple[Report, Sequence[Heap]]:
    """Return ``triage`` of a core, and its heaps, without gdb."""
    target = target_of(here.core)
    heaps = find_heaps(target, SILENT)
    return make_page(target, heaps, {}), heaps


def states(heaps: Sequence[Heap]) -> dict[int, tuple[int, str, str]]:
    """Return size, state and allocator of every block, by its address."""
    return {
        at: (size, State(state).label, heap.allocator)
        for heap in heaps
        for at, size, state in zip(
            heap.blocks.address.tolist(), heap.blocks.size.tolist(), heap.blocks.state.tolist()
        )
    }


def told_by(here: JeStage) -> dict[int, tuple[int, str, str]]:
    """Return the same of the program's own blocks as it told."""
    live = {at: (size, "in use", "jemalloc") for at, size in here.je.live.items()}
    return {**live, **{at: (size, "tcache", "jemalloc") for at, size in here.je.cached.items()}}


def owners(entries: Any) -> dict[str, int]:
    return {row["owner"]: row["bytes"] for row in entries}


def kinds(problems: Any) -> set[str]:
    return {problem.kind for problem in problems}


# -- sound programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", BOARDS, ids=str)
def test_a_sound_program_adds_up(jestages, where):
    here = jestages(where, *ZOO)
    after = here.je.after
    page = here.gdbext("triage")
    assert (page["data"]["findings"], page["problems"], page["complete"]) == ([], [], True)
    (heap,) = page["data"]["heaps"]
    assert (heap["allocator"], heap["arenas"]) == ("jemalloc", len(here.je.arenas))
    assert heap["used_bytes"] + heap["tcache_bytes"] == after["allocated"]
    charged = owners(page["data"]["ledger"]["entries"])
    assert page["data"]["ledger"]["residual"] == 0
    assert charged["jemalloc in use"] + charged["jemalloc tcache"] == after["allocated"]
    assert charged.get("jemalloc retained", 0) == after["retained"]
    slack = charged["jemalloc slab and size-class slack"] + charged["jemalloc free regions"]
    assert slack == after["active"] - after["allocated"]
    arenas = here.gdbext("blocks summary")["data"]["arenas"]
    assert sorted(row["used_bytes"] + row["tcache_bytes"] for row in arenas) == sorted(
        told["small.allocated"] + told["large.allocated"] for told in here.je.arenas.values()
    )


@pytest.mark.parametrize("version", [*VERSIONS, "5.1.0-nostats"])
def test_every_block_of_the_program_is_in_its_state(jestages, version):
    here = jestages(JeBoard("core", "debug", version), *ZOO)
    page, heaps = page_of(here)
    assert not page.findings and list(page.problems) == [] and page.complete
    found, known = states(heaps), told_by(here)
    assert {at: found.get(at) for at in known} == known
    dirty = sum(size for size, state, _ in found.values() if state == "dirty")
    assert dirty == sum(figures["pdirty"] for figures in here.je.arenas.values()) * here.je.raw["page"]


@pytest.mark.parametrize(
    ("version", "conf"),
    [("5.3.0", "hpa:true,narenas:1"), ("5.3.1", "hpa:true"), ("5.3.0", "muzzy_decay_ms:-1,dirty_decay_ms:1")],
)
def test_every_page_has_an_owner_whatever_the_configuration(jestages, version, conf):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--arenas=2", conf=conf)
    page, heaps = page_of(here)
    assert not page.findings and list(page.problems) == []
    account = page.data.ledger
    charged = {row.owner: row.bytes for row in account.entries}
    assert account.residual == 0
    assert charged["jemalloc in use"] + charged["jemalloc tcache"] == here.je.after["allocated"]
    assert charged.get("anonymous rest", 0) < 1 << 20
    if "hpa" in conf:
        assert charged["jemalloc huge pages (free)"] > 100 << 20
    else:
        pages = sum(figures["pmuzzy"] for figures in here.je.arenas.values())
        assert charged.get("jemalloc muzzy", 0) == pages * here.je.raw["page"]
    assert [arena.kind for arena in heaps[0].arenas].count("manual") == 2


# -- one address ---------------------------------------------------------------------------------------


def test_addresses_are_explained(jestages):
    here = jestages(JeBoard("core", "debug", "5.1.0"), *ZOO)
    live = here.je.live
    small = next(at for at, size in live.items() if 64 < size < 512)
    large = next(at for at, size in live.items() if size > 65536)
    found = here.gdbext(f"blocks at {small + 3:#x}")["data"]
    assert (address(found["block"]), found["offset"], found["state"]) == (small, 3, "in use")
    assert f"({live[small]} bytes each) in slab 0x" in found["details"]
    found = here.gdbext(f"blocks at {large + 100:#x}")["data"]
    assert found["details"].startswith(f"large block {large:#x} of {live[large]} bytes in extent 0x")
    found = here.gdbext(f"blocks at {next(iter(here.je.cached)):#x}")["data"]
    assert found["state"] == "tcache" and "; in the thread cache 0x" in found["details"]
    row = here.gdbext("blocks list --state dirty")["data"]["blocks"][0]
    assert here.gdbext(f"blocks at {row['address']}")["data"]["details"].endswith(", dirty")


def test_metadata_is_explained_in_text(jestages):
    here = jestages(JeBoard("core", "debug", "5.1.0"), *ZOO)
    _, (heap,) = page_of(here)
    text = " ".join(here.text(f"blocks at {heap.arenas[0].address:#x}").out.split())
    where = "is in no block: jemalloc, metadata of arena 0, its own structure, in the base block 0x"
    assert where in text and "behind the last block" not in text


# -- several allocators --------------------------------------------------------------------------------


def test_several_allocators_in_one_process_are_each_named(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.0-je"), "jemalloc_beside", also=("5.1.0-rjem", "5.2.1"))
    names = {"je_": "jemalloc 5.3.0", "_rjem_": "jemalloc 5.1.0", "": "jemalloc 5.2.1", "glibc": "glibc"}
    page = here.gdbext("triage")
    rows = {row["allocator"]: row for row in page["data"]["heaps"]}
    assert set(rows) == set(names.values())
    # what the program frees leaves a third of libc's heap free between its blocks
    findings = [(one["kind"], one["details"]["allocator"]) for one in page["data"]["findings"]]
    assert findings == [("fragmentation", "glibc")]
    assert (page["problems"], page["complete"]) == ([], True)
    assert page["data"]["ledger"]["residual"] == 0
    answer = here.gdbext("blocks list --limit 0")["data"]["blocks"]
    found = {address(row["address"]): (row["size"], row["state"], row["allocator"]) for row in answer}
    for one in here.truth.details["allocators"]:
        for text, size in one["live_blocks"]:
            told = found[address(text)]
            assert (told[0], told[2]) == (size, names[one["name"]])
            assert told[1] == "in use" or (told[1], told[2]) == ("mmapped", "glibc")
    totals = here.gdbext("blocks summary")["data"]["totals"]
    assert totals["used_bytes"] == sum(row["used_bytes"] for row in rows.values())


@pytest.mark.parametrize(("count", "names"), [(1, ["glibc", "jemalloc"]), (0, ["jemalloc"])])
def test_libc_is_listed_beside_jemalloc_if_it_is_used(jestages, count, names):
    here = jestages(JeBoard("core", "debug", "5.3.0"), "jemalloc_beside", f"--libc-threads={count}")
    page = here.gdbext("triage")
    assert [row["allocator"] for row in page["data"]["heaps"]] == names
    assert page["problems"] == [] and page["data"]["ledger"]["residual"] == 0


# -- damage --------------------------------------------------------------------------------------------

# these take blocks away, or change their state
SEEN = ("state", "szind", "owner", "moved", "base", "arena")


# All are in test_jemalloc_check.py.
THINNED = [pytest.param(*one, marks=[pytest.mark.full] * (one[0] % 2)) for one in enumerate(DAMAGES)]


@pytest.mark.parametrize(("turn", "damage"), THINNED, ids=str)
def test_damage_is_told_and_everything_else_is_reported(jestages, turn, damage):
    version = VERSIONS[turn % len(VERSIONS)]
    here = jestages(JeBoard("gcore", "debug", version), *ZOO, conf=UNPURGED, damage=(damage,))
    page, heaps = page_of(here)
    assert page.problems
    assert {"ledger-overlap", "ledger-outside"}.isdisjoint(kinds(page.problems))
    assert page.data.ledger.residual == 0
    found, known = states(heaps), told_by(here)
    wrong = [at for at, told in known.items() if found.get(at) != told]
    assert len(wrong) < len(known) / 2
    assert damage in SEEN or len(wrong) <= 1


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_a_core_that_was_cut_off(jestages, share):
    whole = jestages(JeBoard("core", "debug", "5.3.0"), *ZOO)
    here = whole.altered(f"cut-{share}")
    with open(here.core, "r+b") as file:
        file.truncate(int(whole.core.stat().st_size * share))
    page, heaps = page_of(here)
    problems = [*target_of(here.core).problems, *page.problems]
    assert "truncated-core" in kinds(problems)
    assert {"ledger-overlap", "ledger-outside"}.isdisjoint(kinds(problems))
    assert page.data.ledger.residual == 0
    assert [problem for problem in problems if problem.corruption] == []
    assert page.data.verdict.startswith("No findings in what could be read") or not heaps
    here.core.unlink()


# -- no jemalloc ---------------------------------------------------------------------------------------


def test_a_jemalloc_that_cannot_be_read_is_told(jestages):
    here = jestages(JeBoard("attach", "debug", "5.3.0"), "jemalloc_zoo", "--threads=1")
    spoil = [f"set var je_arenas[{index}].repr = &je_arenas" for index in here.je.arenas]
    page = here.gdbext("triage", *spoil)
    (told,) = [one for one in page["problems"] if "libjemalloc" in one["message"]]
    assert "(by symbols) is not believed: arenas[0]->base->ind is not 0" in told["message"]
    assert [(row["allocator"], row["complete"]) for row in page["data"]["heaps"]][-1] == ("jemalloc", False)
    assert not page["complete"]
    assert told in here.gdbext("rss")["problems"]
    for command in ("gx jemalloc arenas", "blocks summary"):
        error = here.gdbext(command)["error"]
        assert error["kind"] == "no-heap" and told["message"] in error["message"]


def test_a_jemalloc_that_cannot_be_read_is_told_beside_others(jestages):
    here = jestages(JeBoard("attach", "debug", "5.3.0-je"), "jemalloc_beside", also=("5.1.0-rjem",))
    spoil = [f"set var je_arenas[{index}].repr = &je_arenas" for index in range(1)]
    page = here.gdbext("gx jemalloc arenas", *spoil)
    (told,) = [one for one in page["problems"] if "is not believed" in one["message"]]
    assert not page["complete"] and {row["heap"] for row in page["data"]["heaps"]} == {"jemalloc"}
    known = here.gdbext("gx jemalloc arenas --heap jemalloc")
    assert known["complete"] and told not in known["problems"]
    (same,) = [one for one in here.gdbext("triage")["problems"] if "is not believed" in one["message"]]
    assert same["message"] == f"jemalloc (not read): {told['message']}"


def test_a_program_without_jemalloc_has_none(stages):
    here = stages.get(Board("core", "debug", "system"), "healthy_server")
    page = here.gdbext("triage")
    assert [row["allocator"] for row in page["data"]["heaps"]] == ["glibc"]
    error = here.gdbext("gx jemalloc arenas")["error"]
    assert (error["kind"], error["hint"]) == ("no-heap", "it has: glibc")
    target = target_of(here.core, None)
    assert ledger(target, find_heaps(target, SILENT))[0].residual == 0
