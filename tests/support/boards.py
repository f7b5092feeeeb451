"""Boards: how a target is looked at. Stages: one test program standing on one board.

A board is a combination of three things:

* ``target``: ``attach`` (gdb attaches), ``gdbserver`` (it attaches; gdb talks to it through a pipe),
  ``gcore`` (gdb's core), ``core`` (the kernel's core of an abort);
* ``info``: ``debug`` (libc with debug info), ``plain`` (libc without; the program keeps its own), ``bare``
  (nothing has debug info, gdb is told no executable, and a core's executable and libraries are deleted);
* ``glibc``: a suite of ``glibcs.MATRIX``.

A stage is closed by its owner; everything it started ends then.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence, TypeVar

from tests.support import gdbrun, preloaded, programs
from tests.support.glibcs import MATRIX, Glibc, Unavailable, glibc
from tests.support.rest import wait_for_sleep
from tests.support.truth import Truth, read_truth

TARGETS = ("attach", "gdbserver", "gcore", "core")
INFOS = ("debug", "plain", "bare")
DIMENSIONS: Mapping[str, Sequence[str]] = {"target": TARGETS, "info": INFOS, "glibc": MATRIX}
START_TIMEOUT = 60.0
NOWHERE = "/nonexistent"
_SERIAL = itertools.count(1)


@dataclass(frozen=True)
class Board:
    """One way of looking; its text is the test's id."""

    target: str = "core"
    info: str = "debug"
    glibc: str = "system"

    def __str__(self) -> str:
        return f"{self.target}-{self.info}-{self.glibc}"

    @property
    def live(self) -> bool:
        """Is there a process to examine?"""
        return self.target in ("attach", "gdbserver")


@dataclass
class Stage:
    """A program on a board, at its interesting point.

    :param executable: what runs; None where gdb must not be told.
    :param core: the core, if the board has one.
    :param process: the parked process, if the board is live.
    :param extra: more options of gdb's, after the board's own and before the target.
    """

    board: Board
    glibc: Glibc
    directory: Path
    truth: Truth
    executable: Optional[Path]
    core: Optional[Path] = None
    process: Optional[subprocess.Popen[bytes]] = None
    extra: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """Return gdb's arguments up to the point where it has the target."""
        if self.board.info == "debug":
            before = self.glibc.gdb_options()
        else:
            before = ["-iex", f"set debug-file-directory {NOWHERE}"]
        return [*before, *self.extra, *self._target_options()]

    def _target_options(self) -> list[str]:
        executable = [str(self.executable)] if self.executable else []
        if self.core:
            return [*executable, *([] if executable else ["-core"]), str(self.core)]
        assert self.process
        if self.board.target == "attach":
            return [*executable, "-p", str(self.process.pid)]
        server = f"target remote | exec gdbserver --once --attach - {self.process.pid}"
        return ["-iex", "set sysroot", *executable, "-ex", server]

    def gdb(self, *commands: str, timeout: float = gdbrun.TIMEOUT) -> gdbrun.Output:
        """Run gdb's own commands on this target, without gdbext."""
        return gdbrun.run_gdb([*self.options(), *_each(commands)], timeout, self.directory)

    def python(self, code: str, timeout: float = gdbrun.TIMEOUT) -> str:
        """Run Python inside gdb on this target, without gdbext, and return what it prints.

        :raises AssertionError: the code did not reach its end.
        """
        script = self.directory / f"script-{next(_SERIAL)}.py"
        script.write_text(f"import gdb\n{code}\nprint('REACHED THE END')\n")
        output = self.gdb(f"source {script}", timeout=timeout)
        assert "REACHED THE END" in output.out, f"the script failed\n{output}"
        return output.out.replace("REACHED THE END\n", "")

    def text(self, *commands: str, timeout: float = gdbrun.TIMEOUT) -> gdbrun.Output:
        """Load gdbext and run commands; return what gdb wrote."""
        arguments = [*self.options(), *gdbrun.load_pack(), *_each(commands)]
        return preloaded.run_gdb(arguments, timeout, self.directory, indexed=True)

    def gdbext(self, command: str, *before: str, timeout: float = gdbrun.TIMEOUT) -> dict[str, Any]:
        """Load gdbext, run ``before``, then one command with ``--json=FILE``; return its envelope.

        :raises AssertionError: no JSON came; with what gdb wrote.
        """
        answer = self.directory / f"answer-{next(_SERIAL)}.json"
        output = self.text(*before, f"{command} --json={answer}", timeout=timeout)
        return gdbrun.read_envelope(answer, output)

    def altered(self, name: str) -> Stage:
        """Return the same stage with a copy of its core, to be damaged; it lives as long as this one."""
        assert self.core, "only a stage with a core can be altered"
        copy = self.directory / name
        subprocess.run(["cp", "--sparse=always", str(self.core), str(copy)], check=True)
        return replace(self, core=copy)

    def with_options(self, *options: str) -> Stage:
        """Return the same stage looked at with more options of gdb's; it lives as long as this one."""
        return replace(self, extra=(*self.extra, *options))

    def on_disk(self) -> int:
        """Return how many bytes the stage's files take; a core's holes take none."""
        return sum(file.lstat().st_blocks * 512 for file in self.directory.rglob("*"))

    def close(self) -> None:
        """End the process and delete the stage's files."""
        if self.process:
            gdbrun.kill_group(self.process)
        shutil.rmtree(self.directory, ignore_errors=True)


AnyStage = TypeVar("AnyStage", bound=Stage)


def _each(commands: Sequence[str]) -> list[str]:
    return [word for command in commands for word in ("-ex", command)]


# ---- setting one up ----


def set_up(
    board: Board,
    program: str,
    arguments: Sequence[str] = (),
    variant: str = "",
    environment: Optional[Mapping[str, str]] = None,
    coredump_filter: Optional[int] = None,
    place: Optional[Path] = None,
) -> Stage:
    """Bring a program to its interesting point on a board.

    :param variant: ``i386`` or ``static`` runs it in that form on this machine's glibc, whatever the board's.
    :param environment: added to the program's environment.
    :param coredump_filter: what the kernel, and gcore, put into a core (core(5)); None is the usual.
    :param place: where to make the stage's directory; None is the usual place for temporary files.
    :raises Unavailable: the board can't be had here; the message says why.
    """
    libc = glibc("i386" if variant == "i386" else "system" if variant == "static" else board.glibc)
    require(board)
    run = Run(board, libc, new_directory(place), coredump_filter, clean_environment(environment or {}))
    return run.set_up(program, list(arguments), variant)


def new_directory(place: Optional[Path]) -> Path:
    """Make a stage's directory; None is the usual place for temporary files."""
    return Path(tempfile.mkdtemp(prefix="gdbext-stage-", dir=place))


def clean_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return our environment and what is added, without what would change malloc or the libraries under it."""
    steers = ("MALLOC_", "GLIBC_TUNABLES", "LD_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steers)}
    return {**kept, **added}


def require(board: Board) -> None:
    """Raise :class:`Unavailable` where this machine has no such board."""
    gdbrun.gdb_program()
    if board.target == "gdbserver" and not shutil.which("gdbserver"):
        raise Unavailable("no gdbserver on this machine")
    if board.target == "core":
        pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
        if pattern.startswith("|") or "/" in pattern:
            raise Unavailable(f"the kernel puts cores elsewhere: core_pattern is {pattern}")
    if board.target != "core" and _ptrace_scope() > (2 if os.geteuid() == 0 else 1):
        raise Unavailable("this machine forbids ptrace")


def _ptrace_scope() -> int:
    file = Path("/proc/sys/kernel/yama/ptrace_scope")
    return int(file.read_text()) if file.exists() else 0


@dataclass
class Run:
    """How a program gets onto a board; a kind of program that is installed otherwise has a subclass."""

    board: Board
    libc: Glibc
    directory: Path
    coredump_filter: Optional[int]
    environment: dict[str, str]

    def set_up(self, program: str, arguments: list[str], variant: str = "") -> Stage:
        """Return the stage, or leave nothing behind."""
        try:
            return self._staged(program, arguments, variant)
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _staged(self, program: str, arguments: list[str], variant: str) -> Stage:
        home = self.directory / "run"
        home.mkdir()
        executable = self.installed(program, variant, home)
        truth = self.directory / "truth.json"
        ending = "--abort" if self.board.target == "core" else "--park"
        command = [str(executable), *arguments, "--truth", str(truth), ending]
        process = self._started(command, home)
        try:
            _wait_until_ready(process, truth)
            if ending == "--park":
                wait_for_sleep(process.pid)
            core = self._core(process, home)
        except BaseException:
            gdbrun.kill_group(process)
            raise
        live = process if self.board.live else None
        if not live:
            gdbrun.kill_group(process)
        told = None if self.board.info == "bare" else executable
        stage = Stage(self.board, self.libc, self.directory, read_truth(truth), told, core, live)
        if core and self.board.info == "bare":
            shutil.rmtree(home)
        return stage

    def installed(self, program: str, variant: str, home: Path) -> Path:
        """Build the program; ``home`` is its working directory, deleted before a bare core is opened."""
        form = "static" if variant == "static" else "normal"
        if self.board.info != "bare":
            return programs.build(program, self.libc, form)
        if form == "normal":
            return programs.install_bare(program, self.libc, home)
        copy = home / program
        shutil.copy2(programs.build(program, self.libc, form), copy)
        subprocess.run(["strip", "-s", str(copy)], check=True)
        return copy

    def _started(self, command: list[str], home: Path) -> subprocess.Popen[bytes]:
        try:
            return self._spawned(command, home)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                raise Unavailable("this kernel runs no 32-bit programs") from None
            raise

    def _spawned(self, command: list[str], home: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=self._prepare,
        )

    def _prepare(self) -> None:
        gdbrun.die_with_parent()
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        if self.coredump_filter is not None:
            Path("/proc/self/coredump_filter").write_text(hex(self.coredump_filter))

    def _core(self, process: subprocess.Popen[bytes], home: Path) -> Optional[Path]:
        if self.board.target == "gcore":
            return self.gcore(process)
        if self.board.target == "core":
            return self._kernel_core(process, home)
        return None

    def gcore(self, process: subprocess.Popen[bytes], *before: str) -> Path:
        """Let gdb write the core; ``before`` are more of its arguments."""
        core = self.directory / "core"
        output = gdbrun.run_gdb(["-p", str(process.pid), *before, "-ex", f"generate-core-file {core}"])
        assert core.exists() and "Python Exception" not in output.err, f"gdb wrote no core, or not as asked\n{output}"
        # gdb writes the reserved, inaccessible part of each thread's heap as zeros: 64 MiB each.
        if core.stat().st_size > 1 << 28 and shutil.which("fallocate"):
            subprocess.run(["fallocate", "--dig-holes", str(core)], check=False)
        return core

    def _kernel_core(self, process: subprocess.Popen[bytes], home: Path) -> Path:
        process.wait(START_TIMEOUT)
        found = sorted(home.glob("core*"))
        if not found and resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
            raise Unavailable("this machine's hard limit forbids cores (ulimit -Hc is 0)")
        assert process.returncode == -signal.SIGABRT, f"the program ended with {process.returncode}"
        assert found, "the kernel wrote no core"
        return found[0].rename(self.directory / "core")


def _wait_until_ready(process: subprocess.Popen[bytes], truth: Path) -> None:
    """Wait for the line READY, which follows the truth; an abort follows it at once."""
    assert process.stdout
    said = b""
    deadline = time.monotonic() + START_TIMEOUT
    while b"READY\n" not in said:
        left = max(0.0, deadline - time.monotonic())
        ready = select.select([process.stdout], [], [], left)[0]
        assert ready, f"the program was not ready in {START_TIMEOUT} s: {said!r}"
        more = os.read(process.stdout.fileno(), 1 << 16)
        assert more, f"the program ended with {process.wait()}: {said!r}"
        said += more
    assert truth.exists(), "the program wrote no truth"


# ---- keeping the last few ----


def _never_rests(key: Any) -> bool:
    """Whether a stage's program keeps CPUs busy, so that it must not outlive its test."""
    return "spin_convoy" in key or "locks" in key


class Stages:
    """The stages that tests use, each set up once and kept while it is among the last used.

    Tests never change a target, so they may share it.

    :param keep: so many processes.
    :param room: bytes of disk that the others may take together.
    """

    def __init__(self, place: Optional[Path] = None, keep: int = 6, room: int = 1 << 30) -> None:
        self.place = place
        self._keep = keep
        self._room = room
        self._stages: dict[Any, Stage] = {}

    def get(self, board: Board, program: str, arguments: Sequence[str] = (), **how: Any) -> Stage:
        """Return the stage of this program on this board; parameters as in :func:`set_up`."""
        key = (board, program, tuple(arguments), repr(sorted(how.items())))
        return self.keep(key, lambda: set_up(board, program, arguments, place=self.place, **how))

    def keep(self, key: Any, make: Callable[[], AnyStage]) -> AnyStage:
        """Return the stage of this key, set up if it is not among those kept."""
        self.close_restless(but=key)
        stage = self._stages.pop(key, None) or make()
        self._stages[key] = stage
        self._let_go()
        return stage

    def _let_go(self) -> None:
        """Close the stages that are one process too many, or too large beside the later ones."""
        processes = [key for key, stage in self._stages.items() if stage.process]
        for key in processes[: -self._keep]:
            self._stages.pop(key).close()
        cores = [(key, stage.on_disk()) for key, stage in self._stages.items() if stage.core]
        taken = itertools.accumulate(size for _, size in reversed(cores))
        for (key, _), so_far in list(zip(reversed(cores), taken))[1:]:
            if so_far > self._room:
                self._stages.pop(key).close()

    def close_restless(self, but: Any = None) -> None:
        """Close those, but one, whose programs keep CPUs busy."""
        for key in [one for one in self._stages if one != but and _never_rests(one)]:
            self._stages.pop(key).close()

    def close(self) -> None:
        """Close them all."""
        while self._stages:
            self._stages.popitem()[1].close()
