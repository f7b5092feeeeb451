"""Objects of Pythons that wait: each that their collector knows has its type, and is as large as they say."""

import ast

import numpy as np
import pytest

import gdbext
from gdbext.analysis.python.objects import find_objects
from gdbext.analysis.python.owned import find_owned
from gdbext.analysis.reach.model import PLAIN
from gdbext.analysis.types.blockwords import Words
from gdbext.progress import SILENT
from tests.support.parked import Parked
from tests.support.pythons import VERSIONS

SCRIPT = """
import gc, os, signal, sys
class Session:
    def __init__(self, n):
        self.name, self.n = "s%d" % n, n
class Slotted:
    __slots__ = ("n",)
class Numbers(list): pass
def name_of(kind):
    return kind.__qualname__ if kind.__module__ == "builtins" else kind.__module__ + "." + kind.__qualname__
sessions = [Session(n) for n in range(700)]
slotted = [Slotted() for n in range(300)]
materialised = [Session(n).__dict__ for n in range(50)]
numbers = [Numbers(range(n)) for n in range(40)]
containers = [list(range(n * 7)) for n in range(60)]
containers += [dict.fromkeys(range(n * 3)) for n in range(60)] + [{str(i): i for i in range(n)} for n in range(40)]
containers += [set(range(n * 2)) for n in range(40)] + [frozenset(range(n)) for n in range(40)]
containers += [bytearray(n * 9) for n in range(1, 40)]
plain = [n * 1.5 for n in range(90)] + ["t%d" % n for n in range(90)] + [1 << 70 + n for n in range(90)]
plain += [b"b" * (n + 2) for n in range(90)] + ["\\u0434" * (n + 2) for n in range(90)]
truth = {"sizes": {id(one): sys.getsizeof(one) for one in containers}}
gc.collect(); gc.disable()
held = gc.get_objects()
truth["types"] = {id(one): name_of(type(one)) for one in held + plain + slotted}
truth["count"] = {"__main__.Session": 700, "__main__.Slotted": 300, "__main__.Numbers": 40, "bytearray": 39}
with open(sys.argv[1], "w") as out: out.write(repr(truth))
os.write(1, b"parked")
signal.pause()
"""
STATIC = 0.05  # of the collector's objects, those in the interpreter's own data


class Answer:
    def __init__(self, session, folder):
        self.truth = ast.literal_eval((folder / "truth").read_text())
        reach = session.reach(PLAIN)
        words = Words(reach)
        self.objects = find_objects(words, np.ones(len(reach), np.bool_), SILENT)
        self.owned = find_owned(words, self.objects, SILENT)
        self.size = reach.size.astype(np.int64)
        self.rows = np.flatnonzero((self.objects.code > 0) & ~self.objects.kept)
        before = self.objects.before[self.rows].astype(np.uint64) * np.uint64(8)
        address = (reach.address[self.rows] + before).tolist()
        self.row = dict(zip(address, self.rows.tolist()))
        self.blocks = reach.marked.blocks.index

    def name(self, row):
        return self.objects.types[int(self.objects.code[row])].name


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_has_its_type(version, tmp_path):
    with Parked(version, tmp_path, SCRIPT) as parked, gdbext.open_process(parked.pid) as session:
        answer = Answer(session, tmp_path)
        types = answer.truth["types"]
        found = {at: answer.name(answer.row[at]) for at in types if at in answer.row}
        assert {at: (name, types[at]) for at, name in found.items() if name != types[at]} == {}
        # the others are in the interpreter's own data: in no block of a heap
        others = np.array([at for at in types if at not in found], np.uint64)
        assert (answer.blocks.find(others) < 0).all() and len(others) < STATIC * len(types)
        report = {row.name: row for row in session.run("gx python types").data.types}
        assert {name: report[name].objects for name in answer.truth["count"]} == answer.truth["count"]
        check_sizes(answer)


def check_sizes(answer):
    """A block is rounded up: by up to 15 bytes, by malloc up to 24, and what is owned is another."""
    roots = answer.owned.roots()
    sums = np.bincount(roots, answer.size, len(roots)).astype(np.int64)
    sizes = answer.truth["sizes"]
    assert {at: int(sums[answer.row[at]]) - size for at, size in sizes.items()
            if not 0 <= sums[answer.row[at]] - size < 40} == {}  # fmt: skip


@pytest.mark.parametrize("version, how", [("3.11", "malloc"), ("3.11", "debug"), ("3.13", "mimalloc")])
def test_the_same_whatever_allocates(version, how, tmp_path):
    environment = {"PYTHONMALLOC": how}
    with Parked(version, tmp_path, SCRIPT, environment) as parked, gdbext.open_process(parked.pid) as session:
        answer = Answer(session, tmp_path)
        types = answer.truth["types"]
        found = {at: answer.name(answer.row[at]) for at in types if at in answer.row}
        assert all(found[at] == types[at] for at in found) and len(found) > 0.95 * len(types)
