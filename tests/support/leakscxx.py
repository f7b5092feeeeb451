"""``tests/containers/leaks.cc``, built and brought to its point: C++ containers whose blocks it states itself."""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Optional, Sequence

from tests.support.boards import Board, Run, Stage, clean_environment, new_directory, require
from tests.support.cache import CHECKOUT, cache_dir, locked
from tests.support.glibcs import Unavailable, glibc

SOURCE = CHECKOUT / "tests" / "containers" / "leaks.cc"
FLAGS = ("-g", "-O1", "-Wall", "-Wextra", "-fno-builtin", "-std=c++17")


def place() -> Path:
    """Return where the program is kept."""
    return cache_dir("programs", "cxx") / "leaks"


@lru_cache(maxsize=None)
def build() -> Path:
    """Return the program.

    :raises Unavailable: no compiler for it on this machine.
    :raises AssertionError: it does not compile; with the compiler's complaints.
    """
    if not shutil.which("g++"):
        raise Unavailable("C++ test programs need g++")
    program = place()
    with locked("build-cxx-leaks"):
        if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
            command = ["g++", *FLAGS, str(SOURCE), "-o", str(program)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    return program


class _Run(Run):
    def installed(self, program: str, variant: str, home: Path) -> Path:
        if self.board.info != "bare":
            return build()
        copy = home / "leaks"
        shutil.copy2(build(), copy)
        subprocess.run(["strip", "-s", str(copy)], check=True)
        return copy


def set_up(board: Board, arguments: Sequence[str] = (), place: Optional[Path] = None) -> Stage:
    """Bring the program to its point on a board of the machine's own glibc.

    :raises Unavailable: the board can't be had here; the message says why.
    """
    require(board)
    run = _Run(board, glibc("system"), new_directory(place), None, clean_environment({}))
    return run.set_up("leaks", list(arguments))
