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
