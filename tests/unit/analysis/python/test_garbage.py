"""Cycles that nothing leads to: counted by the programs that make them; where the collector has run there are none."""

import pytest

import gdbext
from tests.support.parked import Parked
from tests.support.pythons import VERSIONS

SCRIPT = """
import gc, os, signal, weakref
gc.disable()
class Node:
    def __init__(self, n): self.n, self.me = n, self
class Kept(Node): pass
watched = {}
def make():
    for n in range(3000):
        one = Node(n)
        watched[n] = weakref.ref(one)
        one.table = {"list": [one]}
def deep(n):
    return deep(n - 1) + 1 if n else 0
make()
kept = [Kept(n) for n in range(500)]
COLLECT
deep(80)
os.write(1, b"parked")
signal.pause()
"""
STALE = 250  # that old words may keep: on stacks, and in the interpreter's arrays of freed lists and dicts (80 each)


def ask(version, folder, collect):
    script = SCRIPT.replace("COLLECT", collect)
    with Parked(version, folder, script) as parked, gdbext.open_process(parked.pid) as session:
        return session.run("gx python garbage").data


@pytest.mark.parametrize("version", VERSIONS)
def test_cycles_that_nothing_leads_to(version, tmp_path):
    data = ask(version, tmp_path, "pass")
    rows = {row.name: row for row in data.types}
    assert 3000 - STALE <= rows["__main__.Node"].objects <= 3000
    assert 3000 - STALE <= rows["list"].objects <= 3000 + STALE
    assert "__main__.Kept" not in rows and data.tracked > data.objects
    assert data.kept_bytes >= sum(row.bytes for row in data.types)


@pytest.mark.parametrize("version", ["3.11", "3.14"])
def test_none_are_left_by_the_collector(version, tmp_path):
    data = ask(version, tmp_path, "gc.collect()")
    assert (data.objects, list(data.types)) == (0, [])


# The tables of instances' attributes (3.11, 3.12) are not written where they begin: there they look like freed text. Of
# each pool of text one is freed, whose link to the next free one is null, as a count of references may be.
REUSED = """
import gc, os, signal
gc.disable()
class Holder:
    def __init__(self, n): self.own = [n]
texts = [("%d " % n + "t" * 400)[:length] for length in range(100, 260, 8) for n in range(3000)]
del texts[::50]
holders = [Holder(n) for n in range(3000)]
gc.collect()
os.write(1, b"parked")
signal.pause()
"""


def test_tables_are_not_taken_for_what_was_there_before(tmp_path):
    with Parked("3.11", tmp_path, REUSED) as parked, gdbext.open_process(parked.pid) as session:
        data = session.run("gx python garbage").data
        assert (data.objects, list(data.types), data.kept_bytes) == (0, [], 0)
        (row,) = [row for row in session.run("gx python types").data.types if row.name == "__main__.Holder"]
        assert row.objects == 3000
