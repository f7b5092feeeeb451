"""Runs gdb in batch over a core or a process, and collects what came of it.

A core is untrusted: no init files, no auto-loaded scripts, no debuginfod (its switch is unknown to gdb
10, so the variable that turns it on is removed), libthread_db from the system's own place only. gdb runs
in a session of its own, so that all of it can be ended; its exit status says nothing and is not used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, Mapping, Optional, Sequence

from gdbext.pipeline.failures import GdbFailedError

LOADER = Path(__file__).resolve().parent.parent / "load.py"
_PROGRESS = "GDBEXT_PROGRESS_FD"
_PACKAGES = "GDBEXT_PACKAGES"
_GRACE = 5.0  # seconds that gdb has for a partial answer after an interrupt

_NOISE = re.compile(
    "|".join(
        (
            r"warning: (Unexpected size of section|Section) .\.reg-",
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
    """What gdb is to do.

    :param commands: run one after the other; gdb goes on after a failed one.
    """

    gdb: str
    commands: Sequence[str]
    core: Optional[str] = None
    exe: Optional[str] = None
    pid: Optional[int] = None
    sysroot: Optional[str] = None
    debug_dir: Optional[str] = None
    mark: str = field(default_factory=lambda: f"gdbext-{secrets.token_hex(8)}")

    def arguments(self) -> list[str]:
        """Return gdb's command line, the executable before the core."""
        line = [self.gdb, "-nx", "-batch", "-iex", "set auto-load off"]
        for setting in self._settings():
            line += ["-iex", setting]
        line += [f"-se={self.exe}"] if self.exe else []
        line += [f"-core={self.core}"] if self.core else []
        line += [f"-pid={self.pid}"] if self.pid is not None else []
        line += ["-ex", f"source {LOADER}", "-ex", self._echo()]
        for command in self.commands:
            line += ["-ex", command, "-ex", self._echo()]
        return line

    def _settings(self) -> list[str]:
        settings = [
            "set auto-load libthread-db on",
            "set libthread-db-search-path $sdir",
            "set confirm off",
            "set width 0",
            "set style enabled off",
            "set python print-stack full",
        ]
        settings += [f"set sysroot {self.sysroot}"] if self.sysroot else []
        settings += [f"set debug-file-directory {self.debug_dir}"] if self.debug_dir else []
        return settings

    def _echo(self) -> str:
        return f"echo \\n{self.mark}\\n"


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
    """Run gdb; its standard output is then in ``folder/stdout``.

    :param deadline: in seconds of ``time.monotonic``, or None.
    :raises GdbFailedError: when there is no such program.
    """
    with open(os.path.join(folder, "stdout"), "wb") as out, open(os.path.join(folder, "stderr"), "wb") as err:
        with _terminal() as terminal:
            process = _start(job, out, err, terminal)
        stopped = _wait(process, deadline, lambda: _has_begun(folder, job.mark))
    return GdbOutcome(process.returncode, _diagnostics(os.path.join(folder, "stderr")), stopped)


def _start(
    job: GdbJob, out: BinaryIO, err: BinaryIO, terminal: Sequence[int]
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            job.arguments(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(os.environ, terminal),
            pass_fds=terminal,
            start_new_session=True,
        )
    except OSError as error:
        hint = "install gdb, or name one with --gdb"
        raise GdbFailedError(f"cannot run {job.gdb}: {error.strerror}", hint) from None


def outputs(path: str, mark: str) -> list[tuple[int, int]]:
    """Return where in gdb's standard output each command's text starts and ends, in bytes.

    :return: one pair for each command that was reached; the last one may have been cut short.
    """
    line = f"\n{mark}\n".encode()
    spans: list[tuple[int, int]] = []
    start, at, carried = 0, 0, b""
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            carried += chunk
            while (found := carried.find(line)) >= 0:
                spans.append((start, at + found))
                at += found + len(line)
                start, carried = at, carried[found + len(line) :]
            keep = len(line) - 1
            at += max(len(carried) - keep, 0)
            carried = carried[-keep:]
    return [*spans[1:], (start, os.path.getsize(path))] if spans else []


def _environment(environment: Mapping[str, str], terminal: Sequence[int] = ()) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in ("DEBUGINFOD_URLS", _PROGRESS)}
    kept[_PACKAGES] = os.pathsep.join(_own_packages())
    return {**kept, _PROGRESS: str(terminal[0])} if terminal else kept


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


def _has_begun(folder: str, mark: str) -> bool:
    """Whether gdb has loaded gdbext and come to the command."""
    with open(os.path.join(folder, "stdout"), "rb") as file:
        return mark.encode() in file.read(1 << 20)


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
