"""CPython without the global lock: its objects, where there is such an interpreter; else that it is not examined."""

import ast
import os
import shutil
import subprocess

import pytest

import gdbext
from tests.support.gdbrun import die_with_parent
from tests.support.pythonframes import FRAMES, check_frames
from tests.support.rest import wait_until

INTERPRETER = (
    "GDBEXT_FREE_THREADED"  # path of a python3.13t: no Debian package has one, docs/testing.md says how to build it
)

SCRIPT = """
import gc, os, signal, sys, threading
class Session:
    def __init__(self, n): self.n, self.name = n, "s%d" % n
class Slotted:
    __slots__ = ("a",)
class Lost:
    def __init__(self): self.me = self
def work():
    global others
    others = [Session(n) for n in range(500)]  # of a thread that has ended
sessions = [Session(n) for n in range(3000)]
slotted = [Slotted() for n in range(700)]
thread = threading.Thread(target=work)
thread.start(), thread.join()
plain = ["text %d" % n for n in range(4000)] + [n * 1.5 for n in range(2000)] + [b"b%d" % n for n in range(1000)]
gc.collect(), gc.disable()
truth = {id(one): type(one).__qualname__ for one in [*gc.get_objects(), *plain]}
with open(sys.argv[1], "w") as out: out.write(repr(truth))
for n in range(200): Lost()
os.write(1, b"parked")
signal.pause()
"""
RUNTIME = """
#include <stdint.h>
#include <unistd.h>
struct { char cookie[8]; uint64_t version, free_threaded, more[64]; } _PyRuntime = {"xdebugpy", VERSION, 1, {0}};
int main(void) { write(1, "parked", 6); pause(); return (int)_PyRuntime.version; }
"""


class Running:
    def __init__(self, folder, *command):
        with (folder / "output").open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=die_with_parent)
        wait_until(lambda: "parked" in (folder / "output").read_text(), "a parked program")

    def __enter__(self):
        return self.process.pid

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()


def test_every_object_has_its_type(tmp_path):
    interpreter = os.environ.get(INTERPRETER)
    if not interpreter:
        pytest.skip(f"{INTERPRETER} names no python3.13t")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = (interpreter, tmp_path / "script.py", tmp_path / "truth")
    with Running(tmp_path, *command) as pid, gdbext.open_process(pid) as session:
        check_objects(session, ast.literal_eval((tmp_path / "truth").read_text()))


def test_locals_of_frames_are_named(tmp_path):
    interpreter = os.environ.get(INTERPRETER)
    if not interpreter:
        pytest.skip(f"{INTERPRETER} names no python3.13t")
    (tmp_path / "script.py").write_text(FRAMES)
    command = (interpreter, tmp_path / "script.py", tmp_path / "truth")
    with Running(tmp_path, *command) as pid, gdbext.open_process(pid) as session:
        check_frames(session, tmp_path)
        assert {row.number: row.state for row in session.run("lockwait").data.python} == {
            1: None,
            2: "waits for a lock",
        }


def check_objects(session, truth):
    types = {row.name: row.objects for row in session.run("gx python types").data.types}
    assert (types["__main__.Session"], types["__main__.Slotted"]) == (3500, 700)
    garbage = session.run("gx python garbage").data
    lost = {row.name: row.objects for row in garbage.types}["__main__.Lost"]
    assert 198 <= lost <= 200  # old words may keep the last of them
    assert garbage.objects < 210  # and functions, which only the collector frees
    for address in list(truth)[::500]:
        kind = session.run(f"blocks refs {address:#x}").data.type
        assert kind.rpartition(".")[2] == truth[address].rpartition(".")[2], hex(address)
    assert session.run("rss").data.residual == 0
    assert any("without the global lock" in one.message for one in session.triage().problems)


@pytest.mark.parametrize("version", [0x030D05F0, 0x030F00F0])
def test_it_is_said_not_to_be_read(version, tmp_path):
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    (tmp_path / "runtime.c").write_text(RUNTIME)
    program = tmp_path / "service"
    subprocess.run(["gcc", f"-DVERSION={version}", "-rdynamic", "-o", program, tmp_path / "runtime.c"], check=True)
    with Running(tmp_path, program) as pid, gdbext.open_process(pid) as session:
        page = session.triage()
        assert not page.complete and "not examined" in page.data.verdict
        (line,) = [one.message for one in page.problems if "without the global lock" in one.message]
        what = "some may be freed" if version < 0x030E0000 else "neither its objects nor its threads are read"
        assert line.startswith(f"CPython 3.{version >> 16 & 255}.") and what in line
