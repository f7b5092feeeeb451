"""jemalloc's arenas, bins and extents as gdbext reads them, against what jemalloc said of itself just before."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from gdbext.heap.jemalloc.build import read_jemalloc
from gdbext.heap.jemalloc.find import find_jemallocs, heap_names
from gdbext.heap.jemalloc.model import Jemalloc
from gdbext.progress import SILENT
from tests.support.jecompare import differences
from tests.support.jedamage import ARENA, DAMAGES
from tests.support.jemallocs import VERSIONS
from tests.support.jestages import JeBoard, JeStage
from tests.support.nmsymbols import target_of

pytestmark = pytest.mark.skipif(
    not os.environ.get("GDBEXT_TEST_JEMALLOC"),
    reason="no command reads jemalloc yet: GDBEXT_TEST_JEMALLOC=1 tests what will",
)

CONFS = (
    "tcache:false",
    "narenas:1",
    "background_thread:true",
    "percpu_arena:percpu",
    "dirty_decay_ms:0",
    "muzzy_decay_ms:-1,dirty_decay_ms:0",
    "abort_conf:false,oversize_threshold:0",
)
# what the walk itself cannot overlook; the rest is for those who compare
TOLD = ("szind", "owner", "moved", "base", "arena")
HPA = ("hpa:true", "hpa:true,narenas:1", "hpa:true,tcache:false,hpa_sec_nshards:2")

_IN_GDB = """
import json, sys
sys.path.insert(0, {root!r})
from gdbext.bridge import dependencies
dependencies.load()
from gdbext.bridge.target import read_target
from gdbext.heap.jemalloc.build import read_jemalloc
from gdbext.heap.jemalloc.find import find_jemallocs
from gdbext.progress import SILENT
from tests.support.jecompare import differences, figures
from tests.support.jedamage import ARENA, DAMAGES
from tests.support.jetruth import JeTruth
found = find_jemallocs(read_target(), SILENT)
truth = JeTruth(json.load(open({truth!r})))
heaps = [read_jemalloc(read_target(), one, SILENT) for one in found.locations]
told = dict(
    heaps=[
        dict(
            differences=differences(heap, truth),
            figures=sum(1 for _ in figures(heap, truth)),
            evidence=[one.message for one in heap.location.evidence],
            problems=[one.message for one in heap.problems],
            threads={{arena.index: [ref.lwp for ref in arena.threads or ()] for arena in heap.arenas}},
        )
        for heap in heaps
    ],
    problems=[one.message for one in found.problems],
)
json.dump(told, open({answer!r}, "w"))
"""


def read(here: JeStage, part: str | None = "jemalloc") -> Jemalloc:
    """Return the only jemalloc of a core, read without gdb; ``part`` as for :func:`target_of`."""
    target = target_of(here.core, part)
    (location,) = find_jemallocs(target, SILENT).locations
    return read_jemalloc(target, location, SILENT)


def read_in_gdb(here: JeStage, tmp_path: Any) -> Any:
    """Return what gdb's Python found, with jemalloc's debug info where there is some."""
    truth, answer, script = (tmp_path / name for name in ("truth.json", "answer.json", "script.py"))
    truth.write_text(json.dumps(here.truth.raw))
    root = __file__.rpartition("/tests/")[0]
    script.write_text(_IN_GDB.format(root=root, truth=str(truth), answer=str(answer)))
    output = here.text(f"source {script}")
    assert answer.exists(), output
    return json.loads(answer.read_text())


def check_equal(heap: Jemalloc, here: JeStage) -> None:
    assert differences(heap, here.je) == []
    assert [one.message for one in heap.problems] == []
    assert heap.complete
    arenas = {thread["tid"]: thread.get("arena") for thread in here.je.threads if thread["alive"]}
    bound = {ref.lwp: arena.index for arena in heap.arenas for ref in arena.threads or ()}
    assert {tid: bound.get(tid) for tid, arena in arenas.items() if arena is not None} == {
        tid: arena for tid, arena in arenas.items() if arena is not None
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_figure_is_equal(jestages, tmp_path, version):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo")
    (heap,) = read_in_gdb(here, tmp_path)["heaps"]
    assert heap["differences"] == [] and heap["problems"] == []
    assert heap["figures"] > 3000
    assert any("debug info" in line for line in heap["evidence"])
    arenas = {
        thread["tid"]: thread["arena"] for thread in here.je.threads if thread["alive"] and "arena" in thread
    }
    found = {lwp: int(index) for index, lwps in heap["threads"].items() for lwp in lwps}
    known = {tid: arena for tid, arena in arenas.items() if arena is not None}
    assert {tid: found.get(tid) for tid in known} == known
    check_equal(read(here), here)  # by the symbol table and the recorded layout


@pytest.mark.parametrize(("turn", "conf"), list(enumerate(CONFS)), ids=str)
def test_every_figure_is_equal_whatever_the_configuration(jestages, turn, conf):
    version = VERSIONS[turn % len(VERSIONS)]
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--arenas=2", "--hooks", conf=conf)
    check_equal(read(here), here)


@pytest.mark.parametrize(("version", "conf"), [("5.3.0", HPA[0]), ("5.3.1", HPA[1]), ("5.3.1", HPA[2])])
def test_extents_in_hpas_cache_are_not_active(jestages, version, conf):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", conf=conf)
    heap = read(here)
    check_equal(heap, here)
    assert sum(arena.sec_bytes or 0 for arena in heap.arenas) > 0


@pytest.mark.parametrize("build", [*VERSIONS, "5.2.1-vaddr57", "5.3.0-vaddr57", "debian"])
def test_every_figure_is_equal_without_symbols(jestages, build):
    here = jestages(JeBoard("core", "stripped", build), "jemalloc_zoo")
    heap = read(here, None)
    check_equal(heap, here)
    assert heap.location.found_by == "structure" or build == "debian"


@pytest.mark.parametrize("build", ["5.1.0-nostats", "5.3.0-nostats"])
def test_without_statistics_extents_speak(jestages, build):
    here = jestages(JeBoard("core", "debug", build), "jemalloc_zoo", "--threads=2")
    heap = read(here)
    assert [one.message for one in heap.problems] == []
    live = sum(here.je.live.values()) + sum(here.je.cached.values())
    assert sum(arena.allocated for arena in heap.arenas) >= live
    for arena in heap.arenas:
        assert not arena.stats
        assert arena.walked.active == arena.nactive
        assert (arena.mapped, arena.metadata, arena.base.allocated, arena.decay_dirty.npurge) == (None,) * 4


@pytest.mark.parametrize("symbols", ["symtab", "stripped"])
def test_a_jemalloc_linked_into_the_program_is_found(jestages, tmp_path, symbols):
    here = jestages(JeBoard("core", symbols, "5.3.0-static"), "jemalloc_zoo", "--threads=2")
    (heap,) = read_in_gdb(here, tmp_path)["heaps"]
    assert heap["differences"] == [] and heap["problems"] == []
    assert ("_rjem_je_" in heap["evidence"][0]) == (symbols == "symtab")


def test_live_blocks_lie_in_extents_of_their_size(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.1"), "jemalloc_zoo")
    heap = read(here)
    sizes, infos = heap.location.sizes, heap.location.bin_infos
    for start, usable in here.je.live.items():
        at = heap.extents.find(start)
        assert at is not None
        if heap.extents.slab[at]:
            info = infos[int(heap.extents.szind[at])]
            assert info.reg_size == usable == sizes[info.index]
            assert (start - int(heap.extents.address[at])) % info.reg_size == 0
        else:
            assert (int(heap.extents.pointer[at]), int(heap.extents.usable[at])) == (start, usable)


def test_several_jemallocs_in_one_process_are_each_found(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.0-je"), "jemalloc_beside", also=("5.1.0-rjem", "5.2.1"))
    target = target_of(here.core, "jemalloc")
    found = find_jemallocs(target, SILENT)
    assert [one.message for one in found.problems] == []
    seen = sorted((one.prefix or "", one.layout.version) for one in found.locations)
    assert seen == [("_rjem_je_", "5.1.0"), ("je_", "5.2.1"), ("je_", "5.3.0")]
    assert sorted(heap_names(found.locations)) == ["jemalloc 5.1.0", "jemalloc 5.2.1", "jemalloc 5.3.0"]
    for location in found.locations:
        heap = read_jemalloc(target, location, SILENT)
        assert [one.message for one in heap.problems] == []
        assert all(arena.walked.active == arena.nactive for arena in heap.arenas)


def test_small_objects_are_counted_in_little_time(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.0"), "jemalloc_small", "--count=200000")
    start = time.process_time()
    heap = read(here)
    assert time.process_time() - start < 2
    used = sum(one.used for arena in heap.arenas for one in arena.bins)
    assert used >= sum(count for _, count in here.truth.details["live_by_size"])
    assert differences(heap, here.je) == []


@pytest.mark.parametrize(("turn", "damage"), list(enumerate(DAMAGES)), ids=str)
def test_damage_in_one_arena_leaves_the_others(jestages, turn, damage):
    version = VERSIONS[turn % len(VERSIONS)]
    here = jestages(JeBoard("gcore", "debug", version), "jemalloc_zoo", "--threads=2", damage=(damage,))
    heap = read(here)
    spoilt = f"arena {ARENA} "
    others = [
        line
        for line in differences(heap, here.je)
        if line.startswith("arena ") and not line.startswith(spoilt)
    ]
    assert others == []
    assert differences(heap, here.je) or heap.problems or damage == "link"  # no list is walked here
    if damage in TOLD:
        assert any(problem.corruption for problem in heap.problems)
