"""Who refers to an object, in Python's own terms."""

import ast

import pytest

import gdbext
from tests.support.parked import Parked
from tests.support.pythonframes import FRAMES, check_frames
from tests.support.pythons import VERSIONS

SCRIPT = """
import gc, os, signal, sys
class User:
    def __init__(self, n): self.id = n
class Session:
    def __init__(self, n): self.n, self.user, self.pair = n, User(n), (n, User(n))
class Slotted:
    __slots__ = ("first", "second")
    def __init__(self): self.first, self.second = User(7), User(8)
class Server:
    def __init__(self):
        self.sessions = {"alpha": Session(1), 5: [Session(2)]}
        self.queue = [Slotted(), Slotted()]
server = Server()
def write():
    alpha, five, last = server.sessions["alpha"], server.sessions[5], server.queue[1]
    truth = {
        "__main__.server": server, "['alpha']": alpha, "__main__.Session.user": alpha.user, "its type": Session,
        "__main__.Session.pair": alpha.pair, "[1]": alpha.pair[1], "[0]": five[0],
        "__main__.Slotted.second": last.second, "__main__.Server.sessions": server.sessions,
    }
    with open(sys.argv[1], "w") as out: out.write(repr({name: id(one) for name, one in truth.items()}))
def deep(n):
    return deep(n - 1) + 1 if n else 0
write()
deep(100)
gc.disable()
os.write(1, b"parked")
signal.pause()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_references_are_named(version, tmp_path):
    with Parked(version, tmp_path, SCRIPT) as parked, gdbext.open_process(parked.pid) as session:
        for name, address in ast.literal_eval((tmp_path / "truth").read_text()).items():
            answer = session.run(f"blocks refs {address:#x} --interior")
            places = [row.place for row in answer.data.references]
            assert any(place.endswith(f" {name}") for place in places), (name, places)


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_a_path_leads_along_references(version, tmp_path):
    with Parked(version, tmp_path, SCRIPT) as parked, gdbext.open_process(parked.pid) as session:
        truth = ast.literal_eval((tmp_path / "truth").read_text())
        for name in ("__main__.Session.user", "__main__.Slotted.second"):
            places = [step.place for step in session.run(f"blocks path {truth[name]:#x} --roots 1").data.steps]
            assert places[-1].endswith(f" {name}") and not [one for one in places if "collector" in one], places
            # since 3.11 frames are in no block, and tell more than the interpreter's own data
            assert version == "3.9" or places[0].endswith(", thread 1"), places


# Instructions that have called the method keep its address for themselves; they hold no reference.
CACHE = """
import functools, gc, os, signal
class Order:
    @functools.lru_cache(maxsize=None)
    def total(self, currency): return 1
def take(order): order.total("EUR")
for _ in range(50): take(Order())
gc.disable()
os.write(1, b"parked")
signal.pause()
"""


@pytest.mark.parametrize("version", ["3.11", "3.14"])
def test_what_instructions_have_cached_holds_nothing(version, tmp_path):
    with Parked(version, tmp_path, CACHE) as parked, gdbext.open_process(parked.pid) as session:
        (row,) = [row for row in session.run("gx python types").data.types if row.name == "__main__.Order"]
        assert row.objects == 50
        places = [step.place for step in session.run(f"blocks path {row.sample:#x} --roots 1").data.steps]
        assert any(place.endswith(" __main__.Order.total") for place in places), places


@pytest.mark.parametrize("version", VERSIONS)
def test_locals_of_frames_are_named(version, tmp_path):
    with Parked(version, tmp_path, FRAMES) as parked, gdbext.open_process(parked.pid) as session:
        check_frames(session, tmp_path)
