"""The program that the bridge's tests look at, live, as a core and through gdbserver."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Sequence

import pytest

from tests.support import preloaded
from tests.support.gdbrun import Output, gdb_program, kill_group, load_pack, run_gdb
from tests.support.glibcs import Unavailable

DATA = Path(__file__).parent / "data"
PROBES = ["-ex", f"source {DATA / 'probe_commands.py'}"]


def gdb(*commands: str, options: Sequence[str] = (), load: bool = True, fresh: bool = False, **how: Any) -> Output:
    """Run commands in a gdb of their own, the loader first.

    :param fresh: whether that gdb must be started for them, since what it has loaded is the question.
    """
    arguments = list(options) + (load_pack() if load else [])
    for command in commands:
        arguments += ["-ex", command]
    return (preloaded.run_gdb if load and not fresh else run_gdb)(arguments, **how)


def python(path: Path, text: str) -> str:
    """Return the command that runs Python text in gdb, by way of a file."""
    path.write_text(text)
    return f"source {path}"


def need_gdb() -> None:
    try:
        gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))


def build(folder: Path) -> Path:
    """Compile the program, or skip the test."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    program = folder / "bridge"
    subprocess.run(
        ["gcc", "-g", "-O0", "-pthread", "-Wl,--build-id", str(DATA / "bridge.c"), "-o", str(program)],
        check=True,
    )
    return program


class Running:
    """The program, parked, with what it says of itself."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([str(program)], stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        self.truth: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.pid = self.process.pid

    def close(self) -> None:
        """Kill it."""
        kill_group(self.process)
        assert self.process.stdout is not None
        self.process.stdout.close()
