"""One gdb that has loaded the pack, and a copy of it for each question.

To start gdb, numpy and the pack takes longer than most questions. Tests whose subject is not the start ask a copy. What
a copy could not do alike starts a gdb for each, and so do tests marked ``fresh`` with ``--boards=full``.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Optional, Sequence, Union

from tests.support import gdbrun
from tests.support.cache import cache_dir

SERVER = Path(__file__).with_name("forkserver.py")
CHANNEL = "GDBEXT_FORKSERVER"
LOADING = 60.0  # seconds
INDEXED = ("set index-cache enabled on",)
FOREIGN = set(" \t'\"\\")  # what a path in a command must not hold
enabled = True


def run_gdb(
    arguments: Sequence[str], timeout: float = gdbrun.TIMEOUT, cwd: Optional[Path] = None, indexed: bool = False
) -> gdbrun.Output:
    """Do as :func:`tests.support.gdbrun.run_gdb` with arguments that load the pack, by a copy where one can do it.

    :param indexed: whether a copy may use the indices of symbols that gdb has kept: libc's debug info opens in half
        the time, but of two statics of one name gdb says less.
    :raises AssertionError: it did not end in time, with what it wrote.
    """
    commands = as_commands(arguments)
    if not enabled or commands is None or _environment() != _first_environment():
        return gdbrun.run_gdb(arguments, timeout, cwd)
    late, output = _preloaded().run([*(INDEXED if indexed else ()), *commands], timeout, cwd)
    if late:
        _preloaded().close()  # it still waits for the copy
        _preloaded.cache_clear()
    assert not late, f"gdb did not end in {timeout} s\n{output}"
    return output


def as_commands(arguments: Sequence[Union[str, Path]]) -> Optional[Sequence[str]]:
    """Return the commands that do what these arguments of gdb do; None where that is not known."""
    first: list[str] = []
    files: list[str] = []
    rest: list[str] = []
    words = map(str, arguments)
    for word in words:
        if word in ("-iex", "-ex"):
            (first if word == "-iex" else rest).append(next(words))
        elif word in ("-p", "-core"):
            files.append(f"{'attach' if word == '-p' else 'core-file'} {next(words)}")
        elif word.startswith("-") or FOREIGN & set(word) or len(files) > 1:
            return None
        else:
            files.append(f"{'core-file' if files else 'file'} {word}")
    commands = [*first, *files, *rest]
    # gdb takes white space off the end of what Python has it run, which means something to `complete`.
    return None if any(command != command.rstrip() for command in commands) else commands


class Preloaded:
    """A gdb that copies itself."""

    def __init__(self) -> None:
        before = ("maint set worker-threads 0", f"set index-cache directory {cache_dir('gdb-index')}")
        words = [word for command in before for word in ("-iex", command)]
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [gdbrun.gdb_program(), "-nx", "-batch", *words, *gdbrun.load_pack(), "-ex", f"source {SERVER}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**_environment(), CHANNEL: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                preexec_fn=gdbrun.die_with_parent,
            )
        self._lines = self._channel.makefile()

    def run(self, commands: Sequence[str], timeout: float, cwd: Optional[Path]) -> tuple[bool, gdbrun.Output]:
        """Run commands in a copy, as ``-batch -ex`` does; return whether it had to be killed, and what it wrote."""
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            question = {"commands": commands, "cwd": str(cwd or Path.cwd()), "out": out.name, "err": err.name}
            self._channel.settimeout(LOADING)
            self._channel.sendall(json.dumps(question).encode() + b"\n")
            late = self._outlasts(int(self._lines.readline()), timeout)
            return late, gdbrun.Output(gdbrun.content(out), gdbrun.content(err))

    def close(self) -> None:
        """End this gdb."""
        gdbrun.kill_group(self._process)
        self._lines.close()
        self._channel.close()

    def _outlasts(self, pid: int, timeout: float) -> bool:
        self._channel.settimeout(timeout)
        try:
            return not self._lines.readline()
        except TimeoutError:
            return True
        finally:
            gdbrun.kill_group_of(pid)


@lru_cache(maxsize=None)
def _preloaded() -> Preloaded:
    return Preloaded()


def _environment() -> dict[str, str]:
    """Return the environment of gdb, without what changes with each test and nobody reads."""
    return {name: value for name, value in gdbrun.environment().items() if name != "PYTEST_CURRENT_TEST"}


@lru_cache(maxsize=None)
def _first_environment() -> dict[str, str]:
    """Return the environment of the first question: that of the copies."""
    return _environment()
