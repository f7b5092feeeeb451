"""Looking at a process makes nothing of it resident, and what was never touched costs nothing.

The kernel is asked, before and after. With ``--boards=full`` each command runs for itself by the program, as root and
as owner; else all of them in one gdb.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import pytest

from tests.support import gdbrun
from tests.support.cache import CHECKOUT
from tests.support.figures import OWN_MOST, Run, growth, read_figures, resident, run_measured

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parent / "data" / "untouched.c"
COMMANDS = ("triage", "rss", "blocks leaks", "lockwait")
TIMEOUT = 100.0
MOST_SECONDS = 10.0
NOBODY = 65534
MAPPINGS = ("shared", "private", "shm", "disk")
SANITIZED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *kept[100];
int main(void) { for (int at = 0; at < 100; at++) kept[at] = malloc(1000); puts("ready"); fflush(stdout); pause(); }
"""
JAVA = """
public class Sleeper {
    static byte[][] kept = new byte[100][];
    public static void main(String[] none) throws Exception {
        for (int at = 0; at < kept.length; at++) kept[at] = new byte[100000];
        System.out.println("ready");
        Thread.sleep(1000000);
    }
}
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every user may read."""
    made = Path(tempfile.mkdtemp(prefix="no-harm-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def compile_c(folder: Path, name: str, source: str, *flags: str) -> Path:
    program = folder / name
    if not program.exists():
        if not shutil.which("gcc"):
            pytest.skip("test programs need gcc")
        command = ["gcc", "-g", "-O1", "-x", "c", "-", *flags, "-o", str(program)]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
        if done.returncode and flags and "cannot find" in done.stderr:
            pytest.skip(f"no library for gcc {' '.join(flags)}")
        assert not done.returncode, done.stderr
    return program


@contextlib.contextmanager
def started(command: Sequence[str], user: Sequence[str] = (), **more: Any) -> Iterator[int]:
    """Run a program until it says that it is ready."""
    process = subprocess.Popen(
        [*user, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=gdbrun.die_with_parent,
        **more,
    )
    try:
        assert process.stdout and process.stdout.readline() == b"ready\n", f"{command[0]} did not start"
        yield process.pid
    finally:
        gdbrun.kill_group(process)


@contextlib.contextmanager
def mapped(folder: Path, *what: str, user: Sequence[str] = ()) -> Iterator[int]:
    program = compile_c(folder, "untouched", SOURCE.read_text())
    with contextlib.ExitStack() as places:
        words = [_place(folder, word, places) for word in what]
        with started([str(program), *words], user) as pid:
            yield pid


def _place(folder: Path, what: str, places: contextlib.ExitStack) -> str:
    base = {"shm": "/dev/shm", "disk": str(folder)}.get(what)
    if base is None:
        return what
    place = Path(tempfile.mkdtemp(dir=base))
    places.callback(shutil.rmtree, place)
    place.chmod(0o777)
    return str(place / "file")


@contextlib.contextmanager
def sanitized(folder: Path, kind: str) -> Iterator[int]:
    with started([str(compile_c(folder, kind, SANITIZED, f"-fsanitize={kind}"))]) as pid:
        yield pid


@contextlib.contextmanager
def java(folder: Path) -> Iterator[int]:
    if not shutil.which("javac"):
        pytest.skip("no javac on this machine (Debian's package default-jdk-headless)")
    (folder / "Sleeper.java").write_text(JAVA)
    subprocess.run(["javac", "Sleeper.java"], cwd=folder, check=True)
    with started(["java", "-Xmx2g", "-cp", str(folder), "Sleeper"]) as pid:
        yield pid


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[int]:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not found:
        pytest.skip("no postgres on this machine (Debian's package postgresql)")
    user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups") if os.geteuid() == 0 else ()
    data = Path(tempfile.mkdtemp(dir=folder))
    if user:
        shutil.chown(data, "postgres", "postgres")
    subprocess.run([*user, f"{found[-1]}/initdb", "-D", f"{data}/db"], cwd=data, check=True, capture_output=True)
    settings = ("shared_buffers=2GB", "listen_addresses=", f"unix_socket_directories={data}")
    command = [f"{found[-1]}/postgres", "-D", f"{data}/db", *(word for one in settings for word in ("-c", one))]
    wait = f"until {found[-1]}/pg_isready -q -h {data}; do sleep 0.1; done; echo ready"
    with started(["sh", "-c", f"({wait}) & exec \"$@\"", "sh", *command], user, cwd=data) as pid:
        yield pid


OTHERS: "dict[str, Callable[[Path], contextlib.AbstractContextManager[int]]]" = {
    "address": lambda folder: sanitized(folder, "address"),
    "thread": lambda folder: sanitized(folder, "thread"),
    "java": java,
    "postgres": postgres,
}
PROGRAMS = {"mappings": lambda folder: mapped(folder, *MAPPINGS), **OTHERS}


def unharmed(pid: int, command: Sequence[str], folder: Path, user: Sequence[str] = ()) -> Run:
    """Run a command over a process; hold the process's figures, and what the command cost, to what they may be."""
    before = read_figures(pid)
    run = run_measured(command, folder, TIMEOUT, user)
    after = read_figures(pid)
    assert not growth(before, after), (command, before, after)
    most = OWN_MOST + 2 * resident(before)
    assert run.peak <= most, f"{command}: {run.peak >> 20} MiB of our own, {most >> 20} MiB allowed"
    return run


def gdbext(pid: int, command: str, *options: str) -> "list[str]":
    return [str(CHECKOUT / "bin" / "gdbext"), *command.split(), "--pid", str(pid), *options]


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_grows(program: str, folder: Path, tmp_path: Path) -> None:
    with PROGRAMS[program](folder) as pid:
        asked = [word for command in COMMANDS for word in ("-ex", f"{command} --json={tmp_path}/{len(command)}")]
        attach = [gdbrun.gdb_program(), "-nx", "-batch", *gdbrun.load_pack(), "-p", str(pid), *asked]
        run = unharmed(pid, attach, tmp_path)
    assert run.seconds < MOST_SECONDS * len(COMMANDS), run
    envelope = json.loads((tmp_path / str(len("triage"))).read_text())
    swapped = [one for one in envelope["problems"] if one["kind"] == "swapped-memory"]
    assert not swapped and not envelope["data"]["findings"]
    ledger = json.loads((tmp_path / str(len("rss"))).read_text())["data"]
    assert ledger["residual"] == 0
    assert ledger["resident"] == ledger["rss"]


def owners() -> Sequence[str]:
    """Return the command that runs another as somebody who is not root and may read what it needs."""
    if os.geteuid():
        return ()
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    reads = subprocess.run([*user, str(CHECKOUT / "bin" / "gdbext"), "--version"], capture_output=True)
    if reads.returncode:
        pytest.skip("this checkout cannot be read by others")
    return user


def test_an_owner_without_root_does_no_more_harm(folder: Path, tmp_path: Path) -> None:
    user = owners()
    with mapped(folder, *MAPPINGS, user=user) as pid:
        run = unharmed(pid, gdbext(pid, "triage", "--json"), tmp_path, user)
    assert run.status == 0 and json.loads(run.out)["complete"], run
    assert run.seconds < MOST_SECONDS, run


def test_what_is_swapped_out_stays_there(folder: Path, tmp_path: Path) -> None:
    with mapped(folder, "swapped") as pid:
        before = read_figures(pid)["VmSwap"]
        if before < 1 << 20:
            pytest.skip("nothing can be swapped out on this machine")
        run = unharmed(pid, gdbext(pid, "triage", "--json"), tmp_path)
        after = read_figures(pid)["VmSwap"]
    answer = json.loads(run.out)
    assert after >= before - (1 << 20)
    assert not answer["complete"] and "swapped-memory" in [one["kind"] for one in answer["problems"]]


def test_a_leak_beside_a_reservation_is_found(folder: Path, tmp_path: Path) -> None:
    with mapped(folder, "leak", "private") as pid:
        run = unharmed(pid, gdbext(pid, "triage", "--json"), tmp_path)
    findings = json.loads(run.out)["data"]["findings"]
    assert run.status == 1 and [one["kind"] for one in findings] == ["leak"], run
    assert findings[0]["bytes"] >= 23 * 1_000_000


@pytest.mark.full
@pytest.mark.parametrize("owned", [False, True], ids=["root", "owner"])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", MAPPINGS)
def test_each_command_over_each_mapping(what: str, command: str, owned: bool, folder: Path, tmp_path: Path) -> None:
    user = owners() if owned else ()
    with mapped(folder, what, user=user) as pid:
        run = unharmed(pid, gdbext(pid, command), tmp_path, user)
    assert run.seconds < MOST_SECONDS, run


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("program", OTHERS)
def test_each_command_over_each_program(program: str, command: str, folder: Path, tmp_path: Path) -> None:
    with OTHERS[program](folder) as pid:
        run = unharmed(pid, gdbext(pid, command), tmp_path)
    assert run.seconds < MOST_SECONDS, run
