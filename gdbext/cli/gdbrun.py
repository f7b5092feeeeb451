"""Runs gdb in batch over a core or a process, and collects what came of it.

gdb runs in a session of its own, so that all of it can be ended; its exit status says nothing and is not used.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Iterator, Optional, Sequence

from gdbext.cli.children import await_end, end_group, started
from gdbext.cli.streams import tell
from gdbext.files import private
from gdbext.grammar.exchange import answer_path
from gdbext.starting import process as target
from gdbext.starting.failures import not_run
from gdbext.starting.gdbjob import LOADER, GdbJob, diagnostics, guarded_environment

_ANSWERING = "__import__('gdbext.bridge.commands.shell').bridge.commands.shell"
# As load.py does it: nothing of the checkout enters sys.path.
_ALONE = """
import sys, importlib.util as util
spec = util.spec_from_file_location("gdbext", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["gdbext"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["gdbext"])
from gdbext.starting.descriptors import leave
__import__(sys.argv.pop(2), fromlist=["answer"]).answer(*sys.argv[1:])
leave(0)
"""
_GRACE = 5.0  # seconds that gdb has for a partial answer after an interrupt


@dataclass(frozen=True)
class GdbOutcome:
    """What came of a run of gdb.

    :param status: its exit status, negative for the signal that ended it.
    :param diagnostics: lines of its standard error, without what is normal, each once.
    :param stopped: "timeout" or "interrupted" when it was ended by us.
    :param shrank: whether the core's file became shorter meanwhile: what is mapped of it ends whoever reads it there.
    """

    status: int
    diagnostics: Sequence[str]
    stopped: Optional[str] = None
    shrank: bool = False


def run_gdb(job: GdbJob, folder: str, deadline: Optional[float], pid: Optional[int] = None) -> GdbOutcome:
    """Run gdb with the question of a folder; what it prints stays in the folder and is no answer.

    :param deadline: in seconds of ``time.monotonic``, or None.
    :param pid: of the process that it is to hold, or None.
    :raises GdbextError: when it cannot be started.
    """
    size = _find_size(job.core)
    with ExitStack() as stack:
        paths = (os.path.join(folder, name) for name in ("stdout", "stderr"))
        out, err = (stack.enter_context(open(path, "wb", opener=private)) for path in paths)
        process = stack.enter_context(_started(job, folder, out, err))
        stopped = _wait(process, deadline, pid, answer_path(folder))
    process.wait()
    # A name in it may hold any byte: a carriage return ends no line.
    with open(os.path.join(folder, "stderr"), encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        return GdbOutcome(process.returncode, diagnostics(file), stopped, _find_size(job.core, size) < size)


def _find_size(core: Optional[str], unknown: int = 0) -> int:
    try:
        return os.stat(core).st_size if core else unknown
    except OSError:
        return unknown


def command_line(job: GdbJob, folder: str) -> Sequence[str]:
    """Return what answers the question of a folder: gdb, or Python by itself."""
    if job.alone:  # in a process of its own, too: it may be ended at any moment
        opened = (folder, job.core or "", json.dumps(job.settings))
        return python_line("gdbext.cli.alone", *opened)
    return job.arguments(f"{_ANSWERING}.answer({folder!r})")


def python_line(module: str, *arguments: str) -> Sequence[str]:
    """Return what runs ``answer`` of a module of ours, with the package's folder before the arguments."""
    return [sys.executable, "-I", "-S", "-c", _ALONE, str(LOADER.parent), module, *arguments]


@contextmanager
def _started(job: GdbJob, folder: str, out: BinaryIO, err: BinaryIO) -> "Iterator[subprocess.Popen[bytes]]":
    line = command_line(job, folder)
    with ExitStack() as stack:
        terminal = stack.enter_context(_terminal())
        how: dict[str, Any] = {
            "env": guarded_environment(os.environ, terminal, job.cache),
            "pass_fds": (*terminal, *job.descriptors),
        }
        how.update(stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        try:
            process = stack.enter_context(started(line, end_group, **how))
        except OSError as error:
            raise not_run(line[0], error) from None
        yield process


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


def _left(deadline: Optional[float]) -> float:
    return math.inf if deadline is None else max(deadline - time.monotonic(), 0)


def _tell_waiting(pid: int, answer: str) -> None:
    """Say what gdb waits for, unless it has come to write the answer: then the process goes on already."""
    answered = os.path.exists(answer) and os.path.getsize(answer)
    remark = None if answered else target.find_waiting(pid)
    if remark is not None:
        tell(f"gdbext: {remark}")


def _wait(
    process: "subprocess.Popen[bytes]", deadline: Optional[float], pid: Optional[int], answer: str
) -> Optional[str]:
    """Wait for gdb's end, not for its status: until that is taken, its group is ours; at the deadline or on Ctrl-C ask
    it to stop.

    One that has not come to the command has no partial answer, and an interrupt would only break its start.
    """
    stopped = None
    try:
        if pid is not None and not await_end(process, min(target.UNSAID, _left(deadline))):
            _tell_waiting(pid, answer)
        if not await_end(process, None if deadline is None else _left(deadline)):
            stopped = "timeout"
    except KeyboardInterrupt:
        stopped = "interrupted"
    if stopped is not None and os.path.exists(answer):
        with suppress(ProcessLookupError, KeyboardInterrupt):  # it has ended; the user has waited enough
            os.kill(process.pid, signal.SIGINT)  # Popen's own takes the status of one that has ended
            await_end(process, _GRACE)
    return stopped
