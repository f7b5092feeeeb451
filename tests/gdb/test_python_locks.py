"""Who holds Python's GIL and who waits for it, in Pythons of Debian's suites; stacks are as the process has them."""

import ast
import subprocess
import time

import pytest

import gdbext
from tests.support import gdbrun
from tests.support.glibcs import Unavailable
from tests.support.parked import Parked
from tests.support.pythons import VERSIONS, python

# The last line waits for the GIL for ever: keep() holds it in a loop in C.
SCRIPT = """
import itertools, sys, threading, time, traceback
lock = threading.Lock()
lock.acquire()
def wait():
    lock.acquire()
def outer():
    wait()
def keep():
    begun.append(1)
    max(itertools.repeat(1))  # keeps it
begun = []
threads = [threading.Thread(target=outer, daemon=True) for _ in range(2)]
for one in threads:
    one.start()
def stack(one):
    return [(each.name, each.lineno) for each in traceback.extract_stack(sys._current_frames()[one.ident])][::-1]
while any(stack(one)[0][0] != "wait" for one in threads):
    time.sleep(0.01)
print([stack(one) for one in threads], flush=True)
if len(sys.argv) > 1:
    lock.acquire()  # rests
threading.Thread(target=keep, daemon=True).start()
while True:
    time.sleep(0)  # wants it
"""


def line_of(mark):
    return next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith(mark))


class Running:
    def __init__(self, version, folder, *arguments):
        try:
            found = python(version)
        except Unavailable as reason:
            pytest.skip(str(reason))
        (folder / "script.py").write_text(SCRIPT)
        self.process = subprocess.Popen(
            [*found.command, "-S", str(folder / "script.py"), *arguments],
            stdout=subprocess.PIPE,
            env=found.environment,
            preexec_fn=gdbrun.die_with_parent,
        )

    def __enter__(self):
        self.stacks = ast.literal_eval(self.process.stdout.readline().decode())
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()


def places(row):
    """Functions, without what qualifies them, and lines."""
    names = (one.rpartition(" (")[0].rpartition(".")[2] for one in row.stack)
    return [(name, int(one.rpartition(":")[2][:-1])) for name, one in zip(names, row.stack)]


def waits_of(running, enough):
    """Return the answer once it is as wanted: a thread that wants the GIL wakes each 5 ms to ask for it."""
    end = time.monotonic() + 20
    while True:
        with gdbext.open_process(running.process.pid) as session:
            data = session.run("lockwait").data
        if enough(data.python) or time.monotonic() > end:
            return data


def main_waits_while_it_is_kept(rows):
    """Whoever starts a thread is still in what it does then, at first."""
    return {"waits for the GIL", "holds the GIL"} <= {row.state for row in rows} and any(
        row.state == "holds the GIL" and places(row)[:1] == [("keep", line_of("# keeps it"))] for row in rows
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_who_holds_and_who_waits(version, tmp_path):
    with Running(version, tmp_path) as running:
        data = waits_of(running, main_waits_while_it_is_kept)
        main, first, second, keeper = data.python
        assert [row.number for row in data.python] == [1, 2, 3, 4]
        assert [row.state for row in (first, second)] == ["waits for a lock"] * 2
        assert (main.state, keeper.state) == ("waits for the GIL", "holds the GIL")
        assert [places(first), places(second)] == running.stacks
        assert places(keeper)[0] == ("keep", line_of("# keeps it"))
        where = f"keep ({tmp_path}/script.py:{line_of('# keeps it')})"
        assert f"1 thread waits for Python's GIL, held by thread 4, which is in {where}" in data.sentences


def test_at_rest_nobody_holds_it(tmp_path):
    with Running("3.11", tmp_path, "rest") as running:
        data = waits_of(running, lambda rows: [row.state for row in rows] == ["waits for a lock"] * 3)
        assert [row.state for row in data.python] == ["waits for a lock"] * 3
        assert places(data.python[0]) == [("<module>", line_of("# rests"))]
        assert not any("GIL" in one for one in data.sentences)


# Whoever starts a thread makes its state first, with its own thread's id in it until the new one runs.
STATE = """
import ctypes, os, signal
api = ctypes.pythonapi
api.PyInterpreterState_Get.restype = api.PyThreadState_New.restype = ctypes.c_void_p
api.PyThreadState_New.argtypes = [ctypes.c_void_p]
api.PyThreadState_New(api.PyInterpreterState_Get())
os.write(1, b"parked")
signal.pause()
"""


def test_a_thread_that_has_not_begun_is_none(tmp_path):
    with Parked("3.11", tmp_path, STATE) as parked, gdbext.open_process(parked.pid) as session:
        (row,) = session.run("lockwait").data.python
        assert row.number == 1 and places(row) == [("<module>", 8)]
