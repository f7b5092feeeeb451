"""Pythons of Debian's suites, held where they wait: pools and blocks are what ``sys._debugmallocstats()`` says."""

import re

import pytest

import gdbext
from gdbext.heap.cpython.read.convert import sums_by_class
from tests.support.parked import Parked
from tests.support.pythons import VERSIONS

# What it prints is its state at the call; nothing that follows allocates.
SCRIPT = """
import gc, os, signal, sys
class Session: pass
kept = [(i, "s%d" % i, {"n": i}, i * 1.5, [i]) for i in range(6000)]
del kept[::3]
pause, stats, write, parked = signal.pause, sys._debugmallocstats, os.write, b'parked'
gc.collect(); gc.disable()
os.dup2(1, 2)
stats()
write(1, parked)
pause()
"""
ROW = re.compile(r"^ +(\d+) +\d+ +(\d+) +(\d+) +(\d+)$", re.M)
FIGURE = re.compile(r"^(?:# )?(?P<what>[^=\n]*?) +(?:\* .*)?= +(?P<value>[\d,]+)$", re.M)


class Stats:
    """What it has said of its allocator."""

    def __init__(self, said):
        self.said = said

    @property
    def classes(self):
        """Pools, blocks in use and others of each class that has any."""
        return {int(row[0]): tuple(map(int, row[1:])) for row in ROW.findall(self.said)}

    def figure(self, what):
        found = {one["what"]: int(one["value"].replace(",", "")) for one in FIGURE.finditer(self.said)}
        return next(value for name, value in found.items() if name.startswith(what))


def pymalloc_of(session):
    return next(heap for heap in session.heaps() if heap.family == "pymalloc")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_class_is_as_the_process_counts_it(version, tmp_path):
    with Parked(version, tmp_path, SCRIPT) as parked, gdbext.open_process(parked.pid) as session:
        stats = Stats(parked.said)
        heap = pymalloc_of(session)
        assert heap.problems == [] and heap.complete
        runtime = heap.detail.runtime
        assert runtime.found_by == "exported _PyRuntime" and ".".join(map(str, runtime.version)) == version
        pools, used, free = sums_by_class(heap.detail)
        sums = {at: (int(pools[at]), int(used[at]), int(free[at])) for at in range(32) if pools[at]}
        assert sums == stats.classes
        assert len(heap.arenas) == stats.figure("arenas allocated current")
        entries = {one.owner: one.bytes for one in session.run("rss").data.entries}
        assert entries["pymalloc in use"] == stats.figure("bytes in allocated blocks")
        assert entries["pymalloc free"] == stats.figure("bytes in available blocks")
        lost = stats.figure("bytes lost to pool headers") + stats.figure("bytes lost to quantization")
        assert entries["pymalloc pool overhead"] == lost
        assert entries.get("pymalloc arena alignment", 0) == stats.figure("bytes lost to arena alignment")
        check_ledger(session)
        check_healthy(session)


def check_healthy(session):
    """Nothing is wrong, and nothing unknown but what needs a debugger."""
    triage = session.triage()
    assert list(triage.findings) == []
    assert [one.message for one in triage.problems] == ["tables and types by name (no debugger)"]


def check_ledger(session):
    account = session.run("rss").data
    rest = sum(one.resident for one in account.entries if one.owner == "anonymous rest")
    assert account.residual == 0 and rest < 0.05 * account.resident


def test_a_python_without_it_has_none_of_it(tmp_path):
    environment = {"PYTHONMALLOC": "malloc"}
    with Parked("3.11", tmp_path, SCRIPT, environment) as parked, gdbext.open_process(parked.pid) as session:
        assert [heap.family for heap in session.heaps()] == ["glibc"]
        check_healthy(session)


def test_hooks_of_its_debug_mode_change_nothing(tmp_path):
    environment = {"PYTHONMALLOC": "debug"}
    with Parked("3.11", tmp_path, SCRIPT, environment) as parked, gdbext.open_process(parked.pid) as session:
        used, classes = sums_by_class(pymalloc_of(session).detail)[1], Stats(parked.said).classes
        assert {at: int(used[at]) for at in classes} == {at: row[1] for at, row in classes.items()}
        check_healthy(session)
