"""A FIFO where gdb looks for a core's library: gdb by itself waits for it for ever, and gdbext answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

import gdbext
from tests.gdb.test_errors import program
from tests.support import gdbrun
from tests.support.boards import Board
from tests.support.glibcs import Unavailable

NO_FILE = "is no regular file: gdb, which would open it, is kept from it"


@pytest.fixture
def here(stages):
    try:
        return stages.get(Board("core", "debug", "system"), "mmapped_blocks", ("--healthy",))
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def renamed(here):
    """A core that has mapped a FIFO, by its name, and that name."""
    core = here.altered("fifo.core").core
    library = next(name for name in mapped(core) if "/ld-linux" in name or name.rpartition("/")[2].startswith("ld-"))
    fifo = f"/tmp/gdbext-{os.getpid()}-".ljust(len(library), "x")
    assert len(fifo) == len(library)
    data = core.read_bytes()
    core.write_bytes(data.replace(library.encode() + b"\0", fifo.encode() + b"\0"))
    os.mkfifo(fifo)
    yield core, fifo
    os.unlink(fifo)


def mapped(core):
    code = f"from gdbext.memory.elf.corefacts import read_facts; print(*read_facts({str(core)!r}).files, sep='\\n')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_a_mapped_fifo(here, renamed):
    core, fifo = renamed
    done = program("triage", "--core", core, "--exe", here.executable, "--timeout", 60)
    assert done.returncode in (0, 1, 3), done.stderr
    assert f"gdbext: {fifo} {NO_FILE}\n" in done.stderr
    assert "memory " in done.stdout


def test_a_mapped_fifo_and_a_borrowed_gdb(here, renamed, tmp_path, monkeypatch):
    core, fifo = renamed
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with gdbext.open_core(str(core), debugger=gdbrun.gdb_program()) as session:
        answer = session.triage()
        assert answer.data.ledger.total > 0
        assert ("absent-file", f"{fifo} {NO_FILE}") in [(one.kind, one.message) for one in answer.problems]
        (folder,) = tmp_path.iterdir()
        assert sorted(os.listdir(folder)) == ["lock", "sysroot"]
    assert not folder.exists()
    with gdbext.open_core(str(here.core), debugger=gdbrun.gdb_program()):
        assert not list(tmp_path.iterdir())


def test_a_fifo_below_the_sysroot(here, tmp_path):
    for name in mapped(here.core):
        place = tmp_path / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place) if "/libc" in name else place.symlink_to(name)
    done = program("triage", "--core", here.core, "--exe", here.executable, "--sysroot", tmp_path, "--timeout", 60)
    assert done.returncode in (0, 1, 3), done.stderr
    assert f"libc.so.6 {NO_FILE}\n" in done.stderr


@pytest.mark.parametrize("place", ["{name}", ".debug/{name}"])
def test_a_fifo_for_a_debug_file(here, tmp_path, place):
    if not shutil.which("objcopy"):
        pytest.skip("no objcopy")
    exe, debug = tmp_path / "program", tmp_path / "program.debug"
    shutil.copy(here.executable, exe)
    debug.write_bytes(b"x")
    subprocess.run(["objcopy", "-g", f"--add-gnu-debuglink={debug}", exe], check=True)
    debug.unlink()
    fifo = tmp_path / place.format(name=debug.name)
    fifo.parent.mkdir(exist_ok=True)
    os.mkfifo(fifo)
    done = program("triage", "--core", here.core, "--exe", exe, "--timeout", 60)
    assert done.returncode in (0, 1, 3), done.stderr
    assert f"gdbext: {fifo} {NO_FILE}\n" in done.stderr


def test_a_fifo_for_a_core_or_an_executable(here, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for line in (["--core", fifo], ["--core", here.core, "--exe", fifo]):
        done = program("triage", *line, "--timeout", 60)
        assert done.returncode == 2 and f"{fifo} is not a file" in done.stderr
