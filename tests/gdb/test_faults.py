"""Processes that change, end, stop and are refused while they are examined: one line or an answer, and they go on.

``--boards=full`` lets many more faults meet them, through all doors. The first thing that is wrong names its run.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import gdbext
from gdbext.errors import DebuggerError, GdbextError
from gdbext.memory.live import procmem
from gdbext.tracing import stalled
from tests.gdb.test_no_harm import NOBODY, compile_c, folder, started
from tests.support import faults, gdbrun
from tests.support.cache import CHECKOUT
from tests.support.rest import wait_until

assert folder  # a fixture

DATA = Path(__file__).parent / "data"
USUAL, MANY = 2, 100  # runs
SEED = 4
USER = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
NO_CAPABILITY = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be somebody else, and setpriv makes it so"
)
FULL_DOORS = [pytest.param(one, marks=pytest.mark.full) for one in ("program", "gdb")]
PAUSING = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#ifdef OTHER
char *filler[1000] = {"x"};
#endif
char *first = "a", *here;
int main(int many, char **words) {
    if (many > 2) prctl(PR_SET_NAME, words[2]);
    else if (many > 1) prctl(PR_SET_DUMPABLE, 0);
    here = malloc(100);
    fprintf(stderr, "%p\\n", (void *)here);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"""


@pytest.fixture
def fickle(folder):
    return compile_c(folder, "fickle", (DATA / "fickle.c").read_text(), "-pthread")


@contextmanager
def calm(fickle, tmp_path):
    target = faults.Examined(fickle, tmp_path, "calm")
    try:
        yield target
    finally:
        faults.thaw(target)
        target.end()
        faults.clear(target)


def test_faults_of_all_kinds_at_any_moment(fickle, tmp_path, request):
    many = MANY if request.config.getoption("--boards") == "full" else USUAL
    for number, fault in enumerate(itertools.islice(faults.draw(SEED), many)):
        outcome, wrong = faults.run(fault, fickle, tmp_path)
        assert not wrong, (number, fault, wrong, outcome)


# What the kernel refuses in the midst of it.


@pytest.mark.parametrize("number", (errno.EFAULT, errno.EPERM, errno.ESRCH, errno.ENOMEM, 0))
def test_memory_that_fails_half_way(fickle, tmp_path, monkeypatch, number):
    with calm(fickle, tmp_path) as target:
        for allowed, command in itertools.product((0, 3, 20), ("triage", "rss", "lockwait")):
            count, readv, pread = itertools.count(), procmem._readv, os.pread

            def fails(*arguments, count=count, readv=readv, allowed=allowed):
                if next(count) < allowed:
                    return readv(*arguments)
                ctypes.set_errno(number)
                return -1 if number else 0

            def fails_too(descriptor, size, offset, count=count, pread=pread, allowed=allowed):
                if not os.readlink(f"/proc/self/fd/{descriptor}").endswith("/mem") or next(count) < allowed:
                    return pread(descriptor, size, offset)
                if number:
                    raise OSError(number, os.strerror(number))
                return pread(descriptor, size, offset)[: size // 2] if size > 1 else b""

            with monkeypatch.context() as patch, suppress(GdbextError), gdbext.open_process(target.pid) as session:
                patch.setattr(procmem, "_readv", fails)
                patch.setattr(os, "pread", fails_too)
                assert str(session.run(command))
        assert target.goes_on()


@pytest.mark.skipif(not faults.can_freeze(), reason="no freezer of cgroups that this user may use")
def test_a_frozen_process_is_a_line_and_goes_on_once_thawed(fickle, tmp_path, monkeypatch):
    monkeypatch.setattr("gdbext.tracing.tracer.PATIENCE", 0.3)
    with calm(fickle, tmp_path) as target:
        faults.FROM_OUTSIDE["frozen"](target, None)
        wait_until(lambda: stalled.is_frozen(target.pid), "it is frozen")
        with pytest.raises(DebuggerError, match="did not stop in .*; its cgroup is frozen: thaw that"):
            gdbext.open_process(target.pid)
        faults.thaw(target)
        assert target.goes_on()
        faults.FROM_OUTSIDE["frozen"](target, None)
        error = refused("program", target.pid)
        assert f"process {target.pid} does not run; its cgroup is frozen: thaw that" in error
        faults.thaw(target)
        assert target.goes_on()


@pytest.mark.full
@pytest.mark.skipif(not faults.can_freeze(), reason="no freezer of cgroups that this user may use")
def test_what_gdb_was_killed_over_goes_on_once_thawed(fickle, tmp_path, monkeypatch):
    with calm(fickle, tmp_path) as target:
        process = subprocess.Popen(
            faults.DOORS["program"][0](target.pid, "triage"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        until = time.monotonic() + 60
        while not any("P" in one for one in target.state()) and time.monotonic() < until:
            time.sleep(0.0005)
        faults.FROM_OUTSIDE["frozen"](target, None)
        faults.FROM_OUTSIDE["gdb-killed"](target, process)
        process.communicate()
        faults.thaw(target)
        assert target.goes_on()


@pytest.mark.parametrize("door", ("library", *FULL_DOORS))
def test_a_clock_that_jumps_ends_nothing_early_or_late(fickle, folder, tmp_path, door):
    library = compile_c(folder, "clock.so", (DATA / "clock.c").read_text(), "-shared", "-fPIC")
    with calm(fickle, tmp_path) as target:
        environment = {**gdbrun.environment(), "LD_PRELOAD": str(library)}
        line = faults.DOORS[door][0](target.pid, "rss")
        done = subprocess.run(line, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0 and "Memory by owner" in done.stdout, done
        assert "Traceback" not in done.stderr and target.goes_on()


# What may not be examined.


def refused(door, pid, user=(), command="rss"):
    """Return the one line for why a process is not examined."""
    line = [*user, *faults.DOORS[door][0](pid, command)]
    done = subprocess.run(line, cwd=CHECKOUT, env=gdbrun.environment(), capture_output=True, text=True, timeout=90)
    if "ModuleNotFoundError" in done.stderr or "Permission denied" in done.stderr.split("gdbext:")[0]:
        pytest.skip("this checkout cannot be read by others")
    said = done.stderr.splitlines()
    assert done.returncode == 2 and len(said) == 1 and said[0].startswith(f"gdbext: {command}: "), done
    return said[0]


WAYS = {
    "another's": ((), USER, "run as the process's user or as root"),
    "setuid": (USER, USER, "run as root: it has other rights than its user, or had them"),
    "undumpable": (USER, USER, "run as root: it has other rights than its user, or had them"),
    "no-capability": ((), NO_CAPABILITY, "root has no CAP_SYS_PTRACE here: give it to the container"),
    "hidden": ((), USER, "is hidden from this user (/proc is mounted with hidepid); run as the process's user or as"),
    "user-namespace": ((), ("unshare", "-r"), "it is in another user namespace, or a security module forbids it"),
}
EACH = [
    pytest.param(door, what, marks=() if door == "library" else pytest.mark.full)
    for door in ("library", "program", "borrowed")
    for what in WAYS
]


@needs_root
@pytest.mark.parametrize("door,what", EACH)
def test_what_is_not_permitted_says_what_helps(folder, tmp_path, door, what):
    owner, asker, said = WAYS[what]
    program = compile_c(folder, "pausing", PAUSING)
    if what == "setuid":
        program = Path(shutil.copy(program, folder / "setuid"))
        program.chmod(0o4755)
    if what == "hidden":
        script = folder / "hidden"
        script.write_text('mount -t proc -o hidepid=invisible proc /proc && exec "$@"\n')
        asker = ("unshare", "-m", "sh", str(script), *USER)
    words = ["undumpable"] if what == "undumpable" else []
    with started([str(program), *words], owner, cwd="/") as pid:
        assert said in refused(door, pid, asker)
        assert Path(f"/proc/{pid}/stat").read_text().split()[2] == "S"


@needs_root
@pytest.mark.parametrize("door", ("library", "program"))
@pytest.mark.parametrize("name", ("a\x0cb", "a\x0cState:\tD", "a\u2028b"))
def test_a_process_may_have_any_name(folder, door, name):
    program = compile_c(folder, "pausing", PAUSING)
    with started([str(program), "named", name], cwd="/") as pid:
        assert Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"
        line = faults.DOORS[door][0](pid, "rss")
        done = subprocess.run(line, cwd=CHECKOUT, env=gdbrun.environment(), capture_output=True, text=True, timeout=90)
        assert done.returncode == 0 and not done.stderr, done
        assert "run as the process's user or as root" in refused(door, pid, USER)


@needs_root
@pytest.mark.parametrize("door", ("library", pytest.param("borrowed", marks=pytest.mark.full)))
def test_a_core_of_somebody_else_says_what_helps(folder, door):
    core = folder / "private"
    core.write_bytes(b"\x7fELF")
    core.chmod(0o600)
    debugger = "gdb" if door == "borrowed" else None
    script = f"import gdbext; gdbext.open_core({str(core)!r}, debugger={debugger!r})"
    done = subprocess.run([*USER, sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip("this checkout cannot be read by others")
    assert f"cannot open {core}: Permission denied; give the path of a core file that you may" in done.stderr
    line = [*USER, sys.executable, str(CHECKOUT / "bin" / "gdbext"), "rss", "--core", str(core)]
    done = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.stderr == f"gdbext: rss: {core} may not be read; run as its owner or as root\n"
    assert done.returncode == 2


@contextmanager
def in_namespaces(folder, tmp_path):
    """A process in namespaces of its own: here another program is where its own lies; its id here, and its block."""
    ours, theirs = compile_c(folder, "shown", PAUSING, "-DOTHER"), compile_c(folder, "pausing", PAUSING)
    script = f"mount --bind {theirs} {ours} && exec {ours} 2>{tmp_path}/address"
    with started(["unshare", "-pfm", "--mount-proc", "sh", "-c", script]) as outer:
        (pid,) = faults.children(outer)
        yield pid, int((tmp_path / "address").read_text(), 16), ours


@needs_root
@pytest.mark.parametrize("door", ("library", *FULL_DOORS))
def test_the_file_at_its_path_here_is_not_taken_for_its_own(folder, tmp_path, door):
    with in_namespaces(folder, tmp_path) as (pid, block, program):
        assert os.readlink(f"/proc/{pid}/exe") == str(program)
        assert not os.path.samefile(program, f"/proc/{pid}/exe")
        if door == "library":
            with gdbext.open_process(pid) as session:
                notes = subprocess.run(["readelf", "-n", f"/proc/{pid}/exe"], capture_output=True, text=True).stdout
                assert session.target.identity.build_id == re.search("Build ID: (.*)", notes)[1]
                assert f"{block:#x} is the start of the block" in str(session.run(f"blocks at {block:#x}"))
            return
        line = faults.DOORS[door][0](pid, "blocks at")
        line = [*line, "here"] if door == "program" else [*line[:-1], "gx safe blocks at here"]
        done = subprocess.run(line, cwd=CHECKOUT, env=gdbrun.environment(), capture_output=True, text=True, timeout=90)
        assert f"{block:#x} is the start of the block {block:#x}" in done.stdout, done
