"""``gdbext open``: gdb for a person, with the pack, the core or process, and the right executable."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from typing import Iterator, Mapping, Sequence

from gdbext.cli.children import await_end, started
from gdbext.cli.job import make_job
from gdbext.cli.options import Options
from gdbext.cli.workfolder import work_folder
from gdbext.errors import UsageError
from gdbext.starting.failures import not_run
from gdbext.starting.gdbjob import with_packages

_GRACE = 2.0  # seconds that gdb has to end


def open_target(options: Options) -> int:
    """Become gdb, or wait for it where an unpacked core, or a sysroot, is to be removed; return its exit status.

    :raises UsageError: when not exactly one core or process is named.
    :raises GdbextError: when it cannot be opened, or there is no gdb.
    """
    options = _with_target(options)
    with work_folder() as folder:
        job = make_job(options, folder, None)
        line, environment = job.interactive_arguments(options.pid), with_packages(os.environ)
        if any(path and folder in path for path in (job.core, job.sysroot, job.debug_dir)):
            return _wait_for(line, environment)
    return _become(line, environment)


def _with_target(options: Options) -> Options:
    words = options.arguments.words
    named = len(words) + len(options.cores) + (options.pid is not None)
    if named != 1:
        raise UsageError(
            "one core or process is opened" if named else "nothing to open", "gdbext open CORE, or gdbext open PID"
        )
    if not words:
        return options
    if words[0].isascii() and words[0].isdigit():
        return replace(options, pid=int(words[0]))
    return replace(options, cores=[os.path.abspath(words[0])])


def _become(line: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        os.execvpe(line[0], list(line), dict(environment))
    except OSError as error:
        raise not_run(line[0], error) from None


def _wait_for(line: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        with started(line, _end, signal.SIGTERM, env=environment) as gdb, _keys_ignored():
            return gdb.wait()
    except OSError as error:
        raise not_run(line[0], error) from None


@contextmanager
def _keys_ignored() -> Iterator[None]:
    """Have what a terminal sends be gdb's alone."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGQUIT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _end(gdb: "subprocess.Popen[bytes]") -> None:
    """Have gdb let go of whatever it has attached to, and end; one that does not heed that is killed.

    It was started for a core: there is no process that we have had it stop.
    """
    gdb.terminate()
    gdb.send_signal(signal.SIGCONT)
    if not await_end(gdb, _GRACE):
        gdb.kill()
        await_end(gdb)
