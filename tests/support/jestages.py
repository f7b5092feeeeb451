"""Boards of jemalloc: a test program running with one of the jemallocs, looked at in one way.

A board is a combination of three things:

* ``target``: as in :mod:`tests.support.boards`.
* ``symbols``: ``debug`` (jemalloc with debug info), ``symtab`` (with its symbol table only), ``stripped``
  (public dynamic symbols only; libc's debug info is missing too), ``gone`` (the same, and a core's
  executable and jemalloc are deleted before it is opened).
* ``build``: what :func:`tests.support.jemallocs.jemalloc` takes, or ``VERSION-static``: linked into the program
  under Rust's names (which leaves no debug info: ``debug`` is the same as ``symtab`` there).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from tests.support import gdbrun, programs
from tests.support.boards import TARGETS, Board, Run, Stage, Stages, clean_environment, new_directory, require
from tests.support.glibcs import glibc
from tests.support.jemallocs import SONAME, VERSIONS, Jemalloc, jemalloc
from tests.support.jetruth import JeTruth

SYMBOLS = ("debug", "symtab", "stripped", "gone")
JE_DIMENSIONS: Mapping[str, Sequence[str]] = {"target": TARGETS, "symbols": SYMBOLS, "build": VERSIONS}
STALL = "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:1000"
_INFOS = {"debug": "debug", "symtab": "plain", "stripped": "plain", "gone": "bare"}


@dataclass(frozen=True)
class JeBoard:
    """One way of looking at a program that uses jemalloc; its text is the test's id."""

    target: str = "core"
    symbols: str = "debug"
    build: str = "5.3.0"

    def __str__(self) -> str:
        return f"{self.target}-{self.symbols}-{self.build}"

    @property
    def plain(self) -> Board:
        """The same in the terms of other programs."""
        return Board(self.target, _INFOS[self.symbols], "system")


@dataclass
class JeStage(Stage):
    """A program on a board of jemalloc.

    :param jemalloc: what it runs with.
    :param damage: what :mod:`tests.support.jedamage` changed before the core was written.
    """

    jemalloc: Optional[Jemalloc] = None
    damage: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def je(self) -> JeTruth:
        """What the program and its jemalloc said."""
        return JeTruth(self.truth.raw)

    def answers(self, *commands: str) -> list[dict[str, Any]]:
        """Load gdbext, run commands with ``--json=FILE`` in one gdb, and return their envelopes."""
        files = [self.directory / f"answer-{number}-of-many.json" for number in range(len(commands))]
        for file in files:
            file.unlink(missing_ok=True)
        output = self.text(*(f"{command} --json={file}" for command, file in zip(commands, files)))
        return [gdbrun.read_envelope(file, output) for file in files]


@dataclass
class JeRun(Run):
    """How a program gets to run with jemallocs.

    :param libraries: they are preloaded in this order.
    :param damage: gdb's commands, executed before it writes its core.
    """

    symbols: str = "debug"
    libraries: tuple[Jemalloc, ...] = ()
    static: bool = False
    damage: tuple[str, ...] = ()

    def installed(self, program: str, variant: str, home: Path) -> Path:
        """Return the program; what is to be gone before a core is opened is put into its home."""
        first = self.libraries[0]
        executable = self._with_names(programs.build(program, self.libc, *_form(first, self.static)), home)
        if not self.static:
            own = [self._library(library, home) for library in self.libraries]
            self.environment["LD_PRELOAD"] = ":".join(map(str, own))
        return executable

    def _with_names(self, executable: Path, home: Path) -> Path:
        if not self.static and self.symbols != "gone":
            return executable
        return _copied(executable, home / executable.name, self.symbols)

    def _library(self, library: Jemalloc, home: Path) -> Path:
        if self.symbols == "debug":
            return library.library
        if self.symbols == "stripped":
            return library.stripped
        place = home / library.name
        place.mkdir()
        return _copied(library.library, place / SONAME, self.symbols)

    def gcore(self, process: subprocess.Popen[bytes], *before: str) -> Path:
        """Do the damage, then let gdb write the core."""
        return super().gcore(process, *before, *(word for line in self.damage for word in ("-ex", line)))


def _form(library: Jemalloc, static: bool) -> tuple[str, tuple[str, ...]]:
    """Return the program's form and the compiler's arguments: they follow from the names of the entry points."""
    names = (f"-DJE_PREFIX={library.prefix}",) if library.prefix else ()
    if not static:
        return f"names{library.prefix}" if names else "normal", names
    whole = ("-Wl,--whole-archive", str(library.archive), "-Wl,--no-whole-archive", "-lm")
    return f"static-{library.name}", (*names, *whole)


def _copied(file: Path, copy: Path, symbols: str) -> Path:
    """Copy a file with the symbols that are to be left."""
    kept = {"debug": None, "symtab": "--strip-debug", "stripped": "--strip-all", "gone": "--strip-all"}[
        symbols
    ]
    shutil.copy2(file, copy)
    if kept:
        subprocess.run(["strip", kept, str(copy)], check=True)
    return copy


def set_up(
    board: JeBoard,
    program: str,
    arguments: Sequence[str] = (),
    conf: str = "",
    also: Sequence[str] = (),
    damage: Sequence[str] = (),
    coredump_filter: Optional[int] = None,
    place: Optional[Path] = None,
) -> JeStage:
    """Bring a program to its interesting point on a board of jemalloc.

    :param conf: ``MALLOC_CONF``.
    :param also: more builds to be preloaded, after the board's.
    :param damage: names of :data:`tests.support.jedamage.DAMAGES`; only where gdb writes the core.
    :param coredump_filter: as for :func:`tests.support.boards.set_up`.
    :raises Unavailable: the board can't be had here; the message says why.
    """
    require(board.plain)
    static = board.build.endswith("-static")
    libraries = tuple(jemalloc(name) for name in (board.build.replace("-static", "-rjem"), *also))
    environment = clean_environment({"MALLOC_CONF": conf} if conf else {})
    directory = new_directory(place)
    answer = directory / "damage.json"
    run = JeRun(board.plain, glibc("system"), directory, coredump_filter, environment)
    run.symbols, run.libraries, run.static = board.symbols, libraries, static
    run.damage = _damage(board, libraries[0], damage, answer)
    stage = run.set_up(program, list(arguments))
    told = json.loads(answer.read_text()) if damage else []
    return JeStage(**vars(stage), jemalloc=libraries[0], damage=told)


def _damage(board: JeBoard, library: Jemalloc, names: Sequence[str], answer: Path) -> tuple[str, ...]:
    from tests.support.jedamage import commands

    assert not names or board.target == "gcore", "only gdb can do damage before it writes a core"
    return commands(library.version, names, answer) if names else ()


def get(stages: Stages, board: JeBoard, program: str, arguments: Sequence[str] = (), **how: Any) -> JeStage:
    """Return the stage of this program on this board, one of those kept; parameters as in :func:`set_up`."""
    key = (board, program, tuple(arguments), repr(sorted(how.items())))
    return stages.keep(key, lambda: set_up(board, program, arguments, place=stages.place, **how))
