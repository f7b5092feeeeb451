"""Running gdb in batch: bounded in time, in a process group of its own, its exit status never believed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Optional, Sequence

from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable

LOADER = CHECKOUT / "gdbext" / "load.py"
TIMEOUT = 120.0
PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Output:
    """What a run of gdb, or of another program, left."""

    out: str
    err: str

    def __str__(self) -> str:
        return f"--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"


def gdb_program() -> str:
    """Return the gdb to test with: ``$GDB``, or the one on PATH.

    :raises Unavailable: there is none.
    """
    found = shutil.which(os.environ.get("GDB") or "gdb")
    if not found:
        raise Unavailable("no gdb on this machine")
    return found


@lru_cache(maxsize=None)
def gdb_version() -> tuple[int, int]:
    """Return gdb's version, for example (13, 1)."""
    out = run_gdb(["-ex", "python print(gdb.VERSION)"]).out
    numbers = "".join(c if c.isdigit() else " " for c in out).split()
    return int(numbers[0]), int(numbers[1])


def run_gdb(arguments: Sequence[str], timeout: float = TIMEOUT, cwd: Optional[Path] = None) -> Output:
    """Run ``gdb -nx -batch`` with these arguments.

    :raises AssertionError: it did not end in time, with what it wrote.
    """
    return run([gdb_program(), "-nx", "-batch", *arguments], timeout, cwd)


def run(command: Sequence[str], timeout: float, cwd: Optional[Path] = None) -> Output:
    """Run a program to its end in a process group of its own, and kill what is left of the group.

    Its output goes through files: a pipe would wait for whatever the program left behind.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env=environment(),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        late = _outlasts(process, timeout)
        kill_group(process)
        output = Output(content(out), content(err))
    assert not late, f"{command[0]} did not end in {timeout} s\n{output}"
    return output


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends; for use after fork."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _outlasts(process: subprocess.Popen[bytes], timeout: float) -> bool:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return True
    except BaseException:
        kill_group(process)
        raise
    return False


def environment() -> dict[str, str]:
    """Return ours, in English, without what leads gdb's Python or its search for debug info astray."""
    foreign = ("PYTHONPATH", "PYTHONHOME", "DEBUGINFOD_URLS")
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    return {**kept, "LC_ALL": "C.UTF-8"}


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what is left of its group, and reap it."""
    kill_group_of(process.pid)
    process.wait()
    if process.stdout:
        process.stdout.close()


def kill_group_of(pid: int) -> None:
    """Kill what there is of the process group that this process leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def content(file: IO[bytes]) -> str:
    """Return what was written to a file, which may be open elsewhere too."""
    file.seek(0)
    return file.read().decode(errors="replace")


def load_pack() -> list[str]:
    """Return the arguments that load gdbext."""
    return ["-ex", f"source {LOADER}"]


def read_envelope(path: Path, output: Output) -> dict[str, Any]:
    """Return the JSON that a command left in a file.

    :raises AssertionError: there is none, or it is broken; with what gdb wrote.
    """
    assert path.exists() and path.stat().st_size, f"the command wrote no JSON\n{output}"
    try:
        envelope: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise AssertionError(f"broken JSON: {error}\n{output}") from None
    return envelope
