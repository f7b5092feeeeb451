"""The jemalloc test programs and their boards: what they claim lies in memory, by gdb's own means, without gdbext."""

from __future__ import annotations

import pytest

from tests.support.glibcs import Unavailable
from tests.support.jemallocs import VERSIONS, jemalloc
from tests.support.jestages import STALL, JeBoard


@pytest.mark.jeboards(target=("core", "attach", "gdbserver"), build=("5.1.0", "5.3.1"))
def test_a_program_stands_on_every_board(jestage, jeboard):
    here = jestage("jemalloc_zoo", "--threads=2")
    assert here.je.version == jeboard.build.split("-")[0]
    assert (here.core is None) == jeboard.plain.live
    assert len(here.je.tids_with("worker")) == 2
    text = here.gdb("info sharedlibrary", "print je_arenas[0]", "output (long) sizeof(arena_t)")
    assert ("No symbol" in text.err) == (jeboard.symbols != "debug")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_figures_are_those_in_memory(jestages, version):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--threads=2")
    member = "nactive" if version < "5.3" else "pa_shard.nactive"
    expressions = {index: f"((arena_t *) je_arenas[{index}].repr)->{member}.repr" for index in here.je.arenas}
    out = here.python(
        f"for index, text in {expressions}.items(): print('ARENA', index, int(gdb.parse_and_eval(text)))"
    )
    found = (line.split() for line in out.splitlines())
    assert {int(words[1]): int(words[2]) for words in found if words[:1] == ["ARENA"]} == {
        index: figures["pactive"] for index, figures in here.je.arenas.items()
    }


def test_what_statistics_say_agrees_with_what_mallctl_says(jestages):
    here = jestages(JeBoard("core", "debug", "5.1.0"), "jemalloc_zoo")
    assert {name: here.je.stats["stats"][name] for name in ("allocated", "active")} == {
        name: here.je.after[name] for name in ("allocated", "active")
    }
    live = sum(here.je.live.values())
    assert live <= here.je.after["allocated"]


OVERSIZE = f"{STALL},oversize_threshold:0"


@pytest.mark.parametrize("twin", ["", "--healthy"])
@pytest.mark.parametrize(("version", "conf"), [("5.1.0", STALL), ("5.2.1", OVERSIZE), ("5.3.1", STALL)])
def test_only_threads_that_freed_first_stall(jestages, version, conf, twin):
    stalls = version in ("5.1.0", "5.2.1")
    here = jestages(JeBoard("core", "debug", version), "jemalloc_stalled", *twin.split(), conf=conf)
    figures = here.je.arenas[0]
    assert figures["pdirty"] > 0
    assert (figures["dirty_npurge"] == 0) == (stalls and not twin)
    assert bool(here.je.tids_with("free-first")) == (not twin)


def test_several_allocators_are_used_in_one_process(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.0-je"), "jemalloc_beside", also=("5.1.0-rjem", "5.2.1"))
    told = here.truth.details["allocators"]
    assert [row["name"] for row in told] == ["je_", "_rjem_", "", "glibc", "glibc"]
    assert [row.get("version", "")[:5] for row in told] == ["5.3.0", "5.1.0", "5.2.1", "", ""]


@pytest.mark.parametrize("symbols", ["symtab", "stripped"])
def test_a_jemalloc_is_linked_into_the_program(jestages, symbols):
    here = jestages(JeBoard("core", symbols, "5.3.0-static"), "jemalloc_zoo", "--threads=1")
    assert here.truth.raw["prefix"] == "_rjem_"
    found = here.gdb("info symbol &_rjem_je_arenas", "info sharedlibrary")
    assert ("_rjem_je_arenas" in found.out) == (symbols == "symtab")
    assert "jemalloc" not in found.out.partition("From")[2]


def test_small_objects_are_counted(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.0"), "jemalloc_small", "--count=20000")
    live = sum(size * count for size, count in here.truth.details["live_by_size"])
    assert 0 <= here.je.after["allocated"] - live - here.je.arenas[0]["tcache_bytes"] < 100_000


def test_debian_has_one():
    try:
        assert jemalloc("debian").version.startswith("5.")
    except Unavailable as reason:
        pytest.skip(str(reason))


CACHED = """
for thread in gdb.selected_inferior().threads():
    thread.switch()
    bins = gdb.parse_and_eval("je_tsd_tls.cant_access_tsd_items_directly_use_a_getter_or_setter_tcache.bins_small")
    for i in range(%d):
        for n in range(int(bins[i]["ncached"])):
            print("CACHED", thread.ptid[1], int(bins[i]["avail"][-1 - n]))
"""


def test_cached_blocks_are_all_that_workers_cache(jestages):
    here = jestages(JeBoard("core", "debug", "5.2.1"), "jemalloc_zoo", "--threads=2")
    sizes = here.je.bin_sizes
    lines = (line.split() for line in here.python(CACHED % len(sizes)).splitlines())
    found = {(int(words[1]), int(words[2])) for words in lines if words[:1] == ["CACHED"]}
    for tid in here.je.tids_with("worker"):
        told = {(tid, at) for at, size in here.je.cached_by(tid).items() if size <= sizes[-1]}
        assert told == {(owner, at) for owner, at in found if owner == tid}
        assert told
