"""Runs gdb in batch over a core or a process, and collects what came of it.

A core is untrusted: no init files, no auto-loaded scripts, no debuginfod (its switch is unknown to gdb
10, so the variable that turns it on is removed), libthread_db from the system's own place only. gdb runs
in a session of its own, so that all of it can be ended; its exit status says nothing and is not used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, Mapping, Optional, Sequence

from gdbext.cli.failures import GdbFailedError
from gdbext.exchange import answer_path

LOADER = Path(__file__).resolve().parent.parent / "load.py"
_ANSWERING = "__import__('gdbext.bridge.commands.shell').bridge.commands.shell"
_PROGRESS = "GDBEXT_PROGRESS_FD"
_PACKAGES = "GDBEXT_PACKAGES"
_GRACE = 5.0  # seconds that gdb has for a partial answer after an interrupt

_NOISE = re.compile(
    "|".join(
        (
            # the kernel's and gcore's extended registers, where gdb or the CPU is older or newer than the core
            r"warning: Unexpected size of section .\.reg[-2]",
            r"warning: Section .\.reg[-2].* in core file too small",
            r"warning: Couldn't find .* registers in core file",
            r"warning: Could not load vsyscall page",
            r"warning: Memory read failed for corefile section",
            r"warning: Can't open file .* during file-backed mapping note processing",
            r"warning: Can't open file .* which was expanded to",
            r"warning: Unable to find libthread_db matching",
            r"warning: could not find '\.gnu_debugaltlink' file",
            r"warning: \.dynamic section for .* is not at the expected address",
            r"warning: [Ll]oadable section .* outside of ELF segments",
            r"warning: Unable to open .*libthread_db",
            r"warning: File .* auto-loading has been declined",
            r"(warning: )?\d+\t.*: No such file or directory",
            r"Failed to read a valid object file image from memory",
            r"BFD: warning: .* has a segment extending past end of file",
            r"warning: Error reading shared library list entry",
            r"Cannot access memory at address 0x",
            r"To enable execution of this file add",
            r"Missing separate debuginfo",
            r"Use `info auto-load",
            r"\[New LWP",
            r"\s*$",
        )
    )
)


@dataclass(frozen=True)
class GdbJob:
    """What gdb opens before it reads the question; to a process it attaches afterwards.

    :param swapped: whether pages of a process that are swapped out are read.
    """

    gdb: str
    core: Optional[str] = None
    exe: Optional[str] = None
    sysroot: Optional[str] = None
    debug_dir: Optional[str] = None
    swapped: bool = False

    def arguments(self, folder: str) -> list[str]:
        """Return gdb's command line, the executable before the core.

        :param folder: where the question is.
        """
        line = [self.gdb, "-nx", "-batch", "-iex", "set auto-load off"]
        for setting in self._settings():
            line += ["-iex", setting]
        line += [f"-se={self.exe}"] if self.exe else []
        line += [f"-core={self.core}"] if self.core else []
        return [*line, *self._loading(), "-ex", f"python {_ANSWERING}.answer({folder!r})"]

    def interactive_arguments(self, pid: Optional[int]) -> list[str]:
        """Return the command line of a gdb for a person, whose own settings and init files hold.

        :param pid: a process to attach to, or None.
        """
        line = [self.gdb]
        for setting in self._places():
            line += ["-iex", setting]
        line += [f"-se={self.exe}"] if self.exe else []
        line += [f"-core={self.core}"] if self.core else []
        line += ["-p", str(pid)] if pid is not None else []
        return [*line, *self._loading()]

    def _loading(self) -> list[str]:
        return ["-ex", f"source {LOADER}", *(["-ex", "set gx swapped on"] if self.swapped else [])]

    def _settings(self) -> list[str]:
        return [
            "set auto-load libthread-db on",
            "set libthread-db-search-path $sdir",
            "set confirm off",
            "set width 0",
            "set style enabled off",
            "set python print-stack full",
            *self._places(),
        ]

    def _places(self) -> list[str]:
        settings = [f"set sysroot {self.sysroot}"] if self.sysroot else []
        settings += [f"set debug-file-directory {self.debug_dir}"] if self.debug_dir else []
        return settings


@dataclass(frozen=True)
class GdbOutcome:
    """What came of a run of gdb.

    :param status: its exit status, negative for the signal that ended it.
    :param diagnostics: lines of its standard error, without what is normal, each once.
    :param stopped: "timeout" or "interrupted" when it was ended by us.
    """

    status: int
    diagnostics: Sequence[str]
    stopped: Optional[str] = None


def run_gdb(job: GdbJob, folder: str, deadline: Optional[float]) -> GdbOutcome:
    """Run gdb with the question of a folder; what it prints stays in the folder and is no answer.

    :param deadline: in seconds of ``time.monotonic``, or None.
    :raises GdbFailedError: when there is no such program.
    """
    with open(os.path.join(folder, "stdout"), "wb") as out, open(os.path.join(folder, "stderr"), "wb") as err:
        with _terminal() as terminal:
            process = _start(job.arguments(folder), out, err, terminal)
        stopped = _wait(process, deadline, lambda: os.path.exists(answer_path(folder)))
    return GdbOutcome(process.returncode, _diagnostics(os.path.join(folder, "stderr")), stopped)


def _start(
    line: Sequence[str], out: BinaryIO, err: BinaryIO, terminal: Sequence[int]
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(os.environ, terminal),
            pass_fds=terminal,
            start_new_session=True,
        )
    except OSError as error:
        hint = "install gdb, or name one with --gdb"
        raise GdbFailedError(f"cannot run {line[0]}: {error.strerror}", hint) from None


def _environment(environment: Mapping[str, str], terminal: Sequence[int] = ()) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in ("DEBUGINFOD_URLS", _PROGRESS)}
    progress = {_PROGRESS: str(terminal[0])} if terminal else {}
    return {**with_packages(kept), **progress}


def with_packages(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which gdb's Python finds this one's packages."""
    return {**environment, _PACKAGES: os.pathsep.join(_own_packages())}


def _own_packages() -> Iterator[str]:
    """Iterate over the directories where this Python has what gdb's needs: gdb's does not look into a venv."""
    for name in ("numpy", "tabulate", "tomli"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            path = Path(spec.origin)
            yield str(path.parent.parent if spec.submodule_search_locations else path.parent)


@contextmanager
def _terminal() -> Iterator[tuple[int, ...]]:
    """Give a copy of standard error's descriptor when it is a terminal: gdb's own goes to a file, progress does not."""
    try:
        copy = os.dup(2) if os.isatty(2) else None
    except OSError:  # standard error is closed
        copy = None
    try:
        yield () if copy is None else (copy,)
    finally:
        if copy is not None:
            os.close(copy)


def _wait(
    process: "subprocess.Popen[bytes]", deadline: Optional[float], has_begun: Callable[[], bool]
) -> Optional[str]:
    """Wait for gdb's end; at the deadline or on Ctrl-C ask it to stop, then end it with its group.

    One that has not come to the command has no partial answer, and an interrupt would only break its start.
    """
    stopped = None
    try:
        process.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        stopped = "timeout"
    except KeyboardInterrupt:
        stopped = "interrupted"
    finally:
        _end(process, stopped is not None and has_begun())
    return stopped


def _end(process: "subprocess.Popen[bytes]", ask: bool) -> None:
    try:
        if ask:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(_GRACE)
    finally:
        with suppress(ProcessLookupError, PermissionError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _diagnostics(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip("\n") for line in file.readlines(1 << 20)]
    return list(dict.fromkeys(line for line in lines if not _NOISE.match(line)))
