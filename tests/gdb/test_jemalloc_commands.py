"""The ``jemalloc`` commands in gdb, against what jemalloc and the program said of themselves just before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.gdb.answers import ask
from tests.gdb.test_errors import refusals
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable
from tests.support.jecompare import BUFFERED, PRINT_BUFFER
from tests.support.jestages import STALL, JeBoard
from tests.support.jestages import get as get_stage
from tests.support.truth import address

VERSIONS = ("5.1.0", "5.2.1", "5.3.1")
STATES = ("active", "dirty", "muzzy", "retained", "transition", "merging", "cached", "unknown")
COUNTED = ("nmalloc", "ndalloc", "curregs", "curslabs")
ALL = ("arenas", "bins", "extents", "large", "tcache", "decay", "check")


def staged(stages, board, program, *arguments, **how):
    try:
        return get_stage(stages, board, program, arguments, **how)
    except Unavailable as reason:
        pytest.skip(str(reason))


def answers(here, *commands):
    """Return the data of each ``gx jemalloc`` command, all run in one gdb."""
    return [envelope["data"] for envelope in ask(here, *(f"gx jemalloc {command}" for command in commands))]


@pytest.fixture(scope="module", params=VERSIONS)
def zoo(stages, request):
    """A program of many threads and all size classes: what the commands answered, and the truth."""
    here = staged(stages, JeBoard("core", "debug", request.param), "jemalloc_zoo")
    arenas, bins, extents, large, tcache, check = answers(here, *(one for one in ALL if one != "decay"))
    return SimpleNamespace(
        here=here, je=here.je, arenas=arenas, bins=bins, extents=extents, large=large, tcache=tcache, check=check
    )


def test_arenas_are_as_jemalloc_says(zoo):
    je, page = zoo.je, zoo.je.raw["page"]
    totals = zoo.arenas["totals"]
    for name in ("allocated", "active", "metadata", "resident", "mapped", "retained"):
        assert totals[name] == je.after[name], name
    assert [row["index"] for row in zoo.arenas["arenas"]] == sorted(je.arenas)
    for row in zoo.arenas["arenas"]:
        told = je.arenas[row["index"]]
        ours = [row[name] for name in ("small", "large", "active", "dirty", "muzzy", "retained", "mapped", "resident")]
        pages = [told[name] * page for name in ("pactive", "pdirty", "pmuzzy")]
        theirs = [told["small.allocated"], told["large.allocated"], *pages]
        assert ours == [*theirs, told["retained"], told["mapped"], told["resident"]]
        assert row["metadata"] == told["base"] + told["internal"]
        assert row["fragmentation"] == row["active"] - row["allocated"] >= 0
        assert row["attached"] == told["nthreads"]


def test_arenas_name_their_threads(zoo):
    told = {one["tid"]: one["arena"] for one in zoo.je.threads if one["alive"] and one.get("arena") is not None}
    bound = {ref["lwp"]: row["index"] for row in zoo.arenas["arenas"] for ref in row["threads"]}
    assert told and {lwp: bound.get(lwp) for lwp in told} == told


def test_bins_are_as_jemalloc_says(zoo):
    told: dict[int, Counter[str]] = {}
    for stats in zoo.je.arena_stats.values():
        for index, one in enumerate(stats["bins"]):
            told.setdefault(index, Counter()).update({name: one[name] for name in COUNTED})
    for row in zoo.bins["bins"]:
        one = told[row["index"]]
        assert row["size"] == zoo.je.bin_sizes[row["index"]]
        assert (row["used_regions"], row["slabs"]) == (one["curregs"], one["curslabs"])
        assert (row["curregs"], row["curslabs"]) == (one["curregs"], one["curslabs"])
        assert (row["nmalloc"], row["ndalloc"]) == (one["nmalloc"], one["ndalloc"])
        assert row["current"] + row["nonfull"] + row["full"] == row["slabs"]
        assert row["total_regions"] == row["slabs"] * row["nregs"]
        assert row["empty_bytes"] == (row["total_regions"] - row["used_regions"]) * row["size"]
        assert row["utilisation"] == row["used_regions"] / row["total_regions"]
        assert row["nonfull_slabs"] in (None, row["nonfull"])
    left = set(told) - {row["index"] for row in zoo.bins["bins"]}
    assert not any(told[index]["curslabs"] or told[index]["nmalloc"] for index in left)


def test_what_one_arena_has_adds_up_to_all(zoo):
    indices = sorted(zoo.je.arenas)
    found = answers(
        zoo.here, *(f"bins {index}" for index in indices), *(f"extents --arena {index}" for index in indices)
    )
    bins, extents = found[: len(indices)], found[len(indices) :]
    for name in ("slabs", "used_regions", "total_regions", "used_bytes", "empty_bytes", "tcache_regions"):
        assert sum(one[name] for one in bins) == zoo.bins[name], name
    assert [one["arena"] for one in bins] == indices
    assert sum(one["matching"] for one in extents) == zoo.extents["matching"]
    rows = sorted((row["address"], row["arena"]) for one in extents for row in one["extents"])
    assert rows == sorted((row["address"], row["arena"]) for row in zoo.extents["extents"])


def test_states_part_all_extents(zoo):
    each = answers(zoo.here, *(f"extents --state {state}" for state in STATES), "extents --state dirty,retained")
    both = each.pop()
    by_state = dict(zip(STATES, each))
    assert sum(one["matching"] for one in each) == zoo.extents["matching"]
    assert sum(one["bytes"] for one in each) == zoo.extents["bytes"]
    for state, one in by_state.items():
        assert {row["state"] for row in one["extents"]} <= {state}
    assert both["bytes"] == by_state["dirty"]["bytes"] + by_state["retained"]["bytes"]
    for state in ("active", "dirty", "muzzy", "retained"):
        assert by_state[state]["bytes"] == zoo.arenas["totals"][state], state


def test_slabs_of_extents_are_those_of_bins(zoo):
    slabs = [row for row in zoo.extents["extents"] if row["slab"] and row["state"] == "active"]
    count = Counter(row["class_bytes"] for row in slabs)
    assert count == {row["size"]: row["slabs"] for row in zoo.bins["bins"] if row["slabs"]}
    free = sum(row["nfree"] * row["class_bytes"] for row in slabs)
    assert free == zoo.bins["empty_bytes"]


def test_large_blocks_are_as_jemalloc_says(zoo):
    je, first = zoo.je, len(zoo.je.bin_sizes)
    sizes = [one["size"] for one in je.stats["arenas"]["lextent"]]
    told: Counter[int] = Counter()
    for stats in je.arena_stats.values():
        told.update({sizes[at]: one["curlextents"] for at, one in enumerate(stats["lextents"])})
    told[PRINT_BUFFER] -= je.version in BUFFERED
    known = {row["size"]: row["blocks"] for row in zoo.large["classes"]}
    assert {size: count for size, count in known.items() if count} == dict(+told)
    assert all(row["curlextents"] == row["blocks"] for row in zoo.large["classes"])
    assert all(row["szind"] >= first for row in zoo.large["classes"])
    largest = zoo.large["largest"]
    assert [row["bytes"] for row in largest] == sorted((row["bytes"] for row in largest), reverse=True)
    assert len(largest) == zoo.large["blocks"]
    assert sum(row["bytes"] for row in largest) == zoo.large["bytes"] == zoo.arenas["totals"]["large"]


def test_large_blocks_hold_what_the_program_has(zoo):
    small = max(zoo.je.bin_sizes)
    found = {address(row["address"]): row for row in zoo.large["largest"]}
    for start, usable in zoo.je.live.items():
        if usable > small:
            assert (found[start]["bytes"], found[start]["cached"]) == (usable, False)
    cached = {start for start, usable in zoo.je.cached.items() if usable > small}
    assert cached and all(found[start]["cached"] for start in cached)


def test_caches_hold_what_threads_freed(zoo):
    rows = {row["lwp"]: row for row in zoo.tcache["threads"]}
    owners = [one["tid"] for one in zoo.je.threads if one["alive"] and zoo.je.cached_by(one["tid"])]
    assert owners
    for tid in owners:
        freed = zoo.je.cached_by(tid)
        assert (rows[tid]["objects"], rows[tid]["bytes"]) == (len(freed), sum(freed.values()))
        classes = Counter(freed.values())
        mine = [row for row in zoo.tcache["classes"] if row["number"] == rows[tid]["number"]]
        assert {row["size"]: row["objects"] for row in mine} == classes
        (only,) = answers(zoo.here, f"tcache --thread {rows[tid]['number']}")
        assert (only["objects"], only["classes"]) == (rows[tid]["objects"], mine)
        break
    assert zoo.tcache["bytes"] == zoo.arenas["totals"]["tcache_bytes"]
    in_bins, in_large = zoo.bins["tcache_regions"], zoo.large["tcache_blocks"]
    assert zoo.tcache["objects"] == in_bins + in_large


def test_a_sound_heap_is_whole(zoo):
    assert zoo.check["damage"] == [] and zoo.check["kinds"] == []
    assert (zoo.check["extents"], zoo.check["slabs"]) == (zoo.extents["matching"], zoo.bins["slabs"])
    assert zoo.check["tcache_objects"] == zoo.tcache["objects"]
    assert zoo.check["walked_bytes"] == zoo.extents["bytes"]


def program(*arguments):
    line = [sys.executable, "-m", "gdbext.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment)
    assert "Traceback" not in done.stderr
    return done


def of_core(here):
    return ["--core", here.core, "--exe", here.executable]


def test_damage_is_found_and_the_shell_is_told(stages):
    here = staged(stages, JeBoard("gcore", "debug", "5.3.0"), "jemalloc_zoo", "--threads=2", damage=("szind",))
    (check,) = answers(here, "check")
    assert check["corrupt"] == len(check["damage"]) == sum(row["count"] for row in check["kinds"]) > 0
    done = program("jemalloc", "check", *of_core(here))
    assert done.returncode == 1 and check["damage"][0]["kind"] in done.stdout
    healthy = staged(stages, JeBoard("core", "debug", "5.3.1"), "jemalloc_zoo")
    assert program("jemalloc", "check", *of_core(healthy)).returncode == 0


@pytest.mark.parametrize("healthy", [False, True], ids=["stalled", "healthy"])
def test_stalled_decay(stages, healthy):
    words = ["--healthy"] if healthy else []
    board = JeBoard("core", "debug", "5.2.1")
    here = staged(stages, board, "jemalloc_stalled", *words, conf=f"{STALL},oversize_threshold:0")
    (envelope,) = ask(here, "gx jemalloc decay")
    data, je = envelope["data"], here.je
    (arena,) = data["arenas"]
    (told,) = je.arenas.values()
    for kind in ("dirty", "muzzy"):
        figures = [arena[kind][name] for name in ("decay_ms", "npages", "sweeps", "madvises", "purged")]
        counters = (f"p{kind}", f"{kind}_npurge", f"{kind}_nmadvise", f"{kind}_purged")
        assert figures == [1000, *(told[name] for name in counters)]
    never = {row["number"] for row in data["threads"] if row["can_fire"] is False}
    first = {ref["lwp"]: ref["number"] for row in answers(here, "arenas")[0]["arenas"] for ref in row["threads"]}
    assert never == {first[tid] for tid in je.tids_with("free-first")}
    assert bool(never) != healthy and envelope["findings"] != healthy
    assert [one["kind"] for one in data["findings"]] == ([] if healthy else ["decay-stalled"])
    done = program("jemalloc", "decay", *of_core(here))
    assert done.returncode == (0 if healthy else 1)
    assert max(map(len, done.stdout.splitlines())) <= 100


# ---- several in one process ----


@pytest.fixture(scope="module")
def beside(stages):
    return staged(stages, JeBoard("core", "debug", "5.3.0-je"), "jemalloc_beside", also=("5.1.0-rjem", "5.2.1"))


def test_rows_of_several_jemallocs_are_told_apart(beside):
    whole = answers(beside, *ALL)
    names = [row["heap"] for row in whole[0]["heaps"]]
    assert len(set(names)) == len(names) == 3
    wanted = [(name, at) for name in names for at in range(len(ALL))]
    each = answers(beside, *(f"{ALL[at]} --heap '{name}'" for name, at in wanted))
    for (name, at), only in zip(wanted, each):
        for table, rows in only.items():
            if isinstance(rows, list) and rows and "heap" in rows[0]:
                assert rows == [row for row in whole[at][table] if row["heap"] == name], (ALL[at], table)
    sums = whole[0]["totals"]["allocated"]
    assert sums == sum(row["allocated"] for row in whole[0]["heaps"])


def test_a_heap_is_named_by_what_tells_it_apart(beside):
    name = "jemalloc 5.2.1"
    short, long = answers(beside, "arenas --heap 5.2.1", f"arenas --heap '{name}'")
    assert short == long and [row["heap"] for row in short["heaps"]] == [name]
    done = program("jemalloc", "bins", "--heap", name, *of_core(beside))
    assert done.returncode == 0 and " heap " not in f" {done.stdout} "


@pytest.mark.parametrize("several", [True, False], ids=["several", "one"])
def test_text_fits_a_terminal(stages, beside, several):
    here = beside if several else staged(stages, JeBoard("core", "debug", "5.2.1"), "jemalloc_zoo")
    lines = [f"gx jemalloc {command}{exact}" for command in ALL for exact in ("", " --bytes")]
    output = here.text("echo \\nBEGIN\\n", *lines)
    shown = output.out.partition("\nBEGIN\n")[2].splitlines()
    assert len(shown) > 200 and "Traceback" not in output.err
    # build-ids and files' names are no words that could be broken
    assert [line for line in shown if len(line) > 100 and "/" not in line] == []


# ---- faults of the user ----

WRONG = [
    ("gx jemalloc bins", "77", "usage", "no arena 77", "there are "),
    ("gx jemalloc bins", "0x123456", "usage", "no arena at 0x123456", "there are "),
    ("gx jemalloc bins", "nosuch", "usage", "cannot evaluate 'nosuch'", None),
    ("gx jemalloc extents", "--arena 77", "usage", "no arena 77", "there are "),
    ("gx jemalloc extents", "--arena x", "usage", "--arena: 'x' is not a number", "write 0 or more"),
    ("gx jemalloc extents", "--state usde", "usage", 'no state "usde"', "the states are active, dirty, muzzy"),
    ("gx jemalloc tcache", "--thread 99", "usage", "no thread 99", "`info threads` lists them"),
    ("gx jemalloc arenas", "--heap nosuch", "no-heap", "no heap 'nosuch'", "it has: jemalloc"),
    ("gx jemalloc arenas", "foo", "usage", "takes no argument, got 'foo'", "-h shows how it is written"),
    ("gx jemalloc decay", "--state dirty", "usage", "unknown option --state", None),
]


def test_faults_of_the_user(stages):
    here = staged(stages, JeBoard("core", "debug", "5.2.1"), "jemalloc_zoo")
    errors = refusals(here.options(), here.directory, [row[:2] for row in WRONG])
    for (name, rest, kind, message, hint), error in zip(WRONG, errors):
        case = f"{name} {rest}: {error}"
        assert error["kind"] == kind and message in error["message"], case
        assert hint is None or (error["hint"] or "").startswith(hint), case


def test_a_program_without_jemalloc(stages):
    try:
        here = stages.get(Board("core", "debug", "system"), "mmapped_blocks", ("--healthy",))
    except Unavailable as reason:
        pytest.skip(str(reason))
    errors = refusals(here.options(), here.directory, [(f"gx jemalloc {name}", "") for name in ALL])
    for error in errors:
        assert (error["kind"], error["message"], error["hint"]) == (
            "no-heap",
            "no jemalloc heap in this target",
            "it has: glibc",
        )


def test_the_family_answers_under_gx_only(stages):
    here = staged(stages, JeBoard("core", "debug", "5.2.1"), "jemalloc_zoo")
    output = here.text("jemalloc arenas", "gx jemalloc arenas")
    assert 'Undefined command: "jemalloc"' in output.err and "Totals:" in output.out
    done = program("jemalloc", "arenas", "-h")
    assert done.stdout.startswith("Usage: gdbext jemalloc arenas CORE") and done.returncode == 0
    bare = program("jemalloc")
    assert "jemalloc is several commands" in bare.stderr and bare.returncode != 0
