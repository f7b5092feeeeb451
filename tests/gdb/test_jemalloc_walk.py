"""jemalloc's arenas, bins and extents as gdbext reads them, against what jemalloc said of itself just before.

Every version once, down to figures that no command shows; the boards and configurations are those of
``test_jemalloc_truth.py``, which asks the commands.
"""

from __future__ import annotations

import os
import re
import time

import pytest

from gdbext.heap.jemalloc.find.globals import find_jemallocs, heap_names
from gdbext.heap.jemalloc.model import ExtentState
from gdbext.heap.jemalloc.read import tsd
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.progress import SILENT
from tests.support.jecompare import differences
from tests.support.jedamage import ARENA, DAMAGES, UNPURGED
from tests.support.jemallocs import VERSIONS
from tests.support.jeread import check_equal, read, read_in_gdb, told_arenas
from tests.support.jestages import JeBoard
from tests.support.nmsymbols import target_of

# what the walk itself cannot overlook; the rest is for those who compare
TOLD = ("szind", "owner", "moved", "base", "arena")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_figure_is_equal(jestages, version):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--arenas=2", "--hooks")
    (heap,) = read_in_gdb(here)["heaps"]
    assert heap["differences"] == [] and heap["problems"] == []
    assert heap["figures"] > 3000
    assert any("debug info" in line for line in heap["evidence"])
    told = told_arenas(here)
    assert {tid: heap["threads"].get(str(tid)) for tid in told} == told
    check_equal(read(here), here)  # by the symbol table and the recorded layout


def test_live_blocks_lie_in_extents_of_their_size(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.1"), "jemalloc_zoo", "--arenas=2", "--hooks")
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
        assert all(arena.walked[ExtentState.ACTIVE].pages == arena.nactive for arena in heap.arenas)


def test_small_objects_are_counted_in_little_time(jestages):
    here = jestages(JeBoard("core", "debug", "5.3.0"), "jemalloc_small", "--count=200000")
    start = time.process_time()
    heap = read(here)
    assert time.process_time() - start < 2
    used = sum(one.used for arena in heap.arenas for one in arena.bins)
    assert used >= sum(count for _, count in here.truth.details["live_by_size"])
    assert differences(heap, here.je) == []


def check_damaged(here):
    """See with gdb that the damage is in the core."""
    (told,) = here.damage
    assert told["before"] != told["after"]
    found = here.gdb("output 0", f"output/x *(unsigned long *) {told['address']}").out
    assert int(found.rpartition("\n")[2][1:], 16) == told["after"]


@pytest.mark.parametrize(("turn", "damage"), list(enumerate(DAMAGES)), ids=str)
def test_damage_in_one_arena_leaves_the_others(jestages, turn, damage):
    version = VERSIONS[turn % len(VERSIONS)]
    here = jestages(JeBoard("gcore", "debug", version), "jemalloc_zoo", "--threads=2", conf=UNPURGED, damage=(damage,))
    check_damaged(here)
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


def test_threads_are_found_without_relocations_and_lists(jestages):
    """The library's file is gone, 5.1.0 has no list of threads, and without tcaches no other list either."""
    here = jestages(JeBoard("core", "gone", "5.1.0"), "jemalloc_zoo", "--threads=2", conf="tcache:false")
    heap = read(here, None)
    assert any("by the arenas that lie beside it" in one.message for one in heap.location.evidence)
    check_equal(heap, here)


@pytest.mark.parametrize("version", VERSIONS)
def test_threads_are_found_by_their_arenas_alone(jestages, version, monkeypatch):
    """As in a program that jemalloc is linked into without symbols and statistics: no slot, and no lists."""
    heap = read(jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--threads=2", conf="tcache:false"), None)
    for route in ("_by_symbol", "_by_slot", "_by_lists"):
        monkeypatch.setattr(tsd, route, lambda *_: [])
    found = tsd.find_tsd_offset(heap.target, heap.location)
    assert found is not None and found.offset == heap.location.tsd_offset


# -- cores that lack the library's data ----------------------------------------------------------------


def cut(here):
    """Return the stage with a core that ends where jemalloc's array of arenas begins, or before."""
    found = here.gdb("print &je_arenas", "maint info sections")
    arenas = int(re.findall(r"(0x[0-9a-f]+) <je_arenas>", found.out)[0], 16)
    sections = re.findall(r"0x([0-9a-f]+)->0x([0-9a-f]+) at 0x([0-9a-f]+): load", found.out)
    (offset,) = [int(at, 16) for low, high, at in sections if int(low, 16) <= arenas < int(high, 16)]
    short = here.altered("short")
    os.truncate(short.core, offset)
    return short


def only_problem(core, part):
    found = find_jemallocs(target_of(core, part), SILENT)
    assert found.locations == ()
    (problem,) = found.problems
    assert problem.kind == "absent-memory"
    return problem.message


def test_a_core_that_lost_the_librarys_data_says_so(jestages):
    short = cut(jestages(JeBoard("core", "debug", "5.3.0"), "jemalloc_zoo", "--threads=2"))
    library = str(short.jemalloc.library)
    message = only_problem(short.core, "jemalloc")
    assert message.startswith(f"jemalloc in {library} (by symbols) cannot be read: its array of arenas at 0x")
    assert message.endswith(" is not in the target")
    where = "holds jemalloc 5.3.0, but its variables are not in the target"
    assert only_problem(short.core, None) == f"{library} {where}"
    (told,) = short.answers("gx jemalloc arenas")
    assert told["error"]["kind"] == "no-heap"
    assert told["error"]["message"] == f"no jemalloc heap in this target can be read: {library} {where}"


def test_a_core_of_little_more_than_stacks_says_so(jestages):
    here = jestages(JeBoard("core", "gone", "5.2.1"), "jemalloc_zoo", "--threads=2", coredump_filter=0x10)
    message = only_problem(here.core, None)
    assert message.endswith("libjemalloc.so.2 holds a jemalloc, but its variables are not in the target")
