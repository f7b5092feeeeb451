"""Waits at condition variables with a past, told from read-write locks and others by memory alone.

Since glibc 2.41 the awaited word counts the signals, so that it takes the values of every other object's word. No
names help here: neither gdb nor libc's symbols take part.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from gdbext.coretarget import read_core_target
from gdbext.structures.locks.census import take_census
from gdbext.structures.locks.model import State
from tests.gdb.bridged import DATA, gdb, need_gdb
from tests.support.glibcs import Unavailable, glibc
from tests.support.programs import FLAGS, _link_flags

SUITES = ["system", "bullseye", "trixie", "sid"]


@pytest.fixture(scope="module", params=SUITES)
def core(request, tmp_path_factory):
    """A core of the program with one glibc, and what it says: condition by thread id."""
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    try:
        libc = glibc(request.param)
        flags = _link_flags(libc, "normal")
    except Unavailable as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("signalled")
    program, path = folder / "signalled", folder / "core"
    subprocess.run(["gcc", *FLAGS, "-Werror", str(DATA / "signalled.c"), *flags, "-o", str(program)], check=True)
    output = gdb("run", f"gcore {path}", options=[str(program)], load=False)
    told = {int(tid): int(address, 16) for tid, address in re.findall(r"WAITS (\d+) (0x[0-9a-f]+)", output.out)}
    if not path.exists():
        pytest.skip("no gcore here")
    assert len(told) == 160, output
    yield path, told
    path.unlink()


def test_every_wait_is_at_its_condition(core):
    path, told = core
    waits = {wait.tid: wait for wait in take_census(read_core_target(path)).waits if wait.state is State.FUTEX}
    assert set(waits) == set(told)
    wrong = [
        (waits[tid].primitive.value, hex(waits[tid].lock - address), waits[tid].because, waits[tid].alternatives)
        for tid, address in told.items()
        if (waits[tid].primitive.value, waits[tid].lock) != ("condition", address)
    ]
    assert not wrong, "\n".join(map(str, wrong))
