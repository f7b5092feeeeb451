"""``gdbext snapshot``: a process is copied into memory, goes on, and then the copy is written to a file."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import subprocess
import time
from functools import partial
from operator import methodcaller
from typing import Any, Callable, Mapping, Optional, Tuple

from gdbext.cli.children import await_end, started
from gdbext.cli.copying import copy_process, room
from gdbext.cli.ending import owned
from gdbext.cli.options import Options
from gdbext.cli.streams import put, tell
from gdbext.cli.workfolder import work_folder
from gdbext.errors import UsageError
from gdbext.files import PrivateFile
from gdbext.grammar.exchange import Copy
from gdbext.report import Status
from gdbext.starting.failures import GdbFailedError, TimeOutError, find_limit
from gdbext.starting.process import check_process
from gdbext.wording import printable, size_text

_Write = Callable[[int, int, Optional[float]], None]

_STEP = 64 << 20  # bytes at a time
_ROOM = "-o FILE names another place, --compress takes less"


def take(options: Options) -> int:
    """Write a snapshot; return the exit status.

    :raises UsageError: no process is named, or the file cannot be made.
    :raises GdbextError: there is no snapshot.
    """
    given, deadline = options.arguments.given, _find_deadline(options)
    if options.pid is None:
        raise UsageError("no process is named", "gdbext snapshot --pid PID")
    check_process(options.pid)
    pack = _find_packer() if given.get("compress") else None
    path = given.get("output") or f"snapshot.{options.pid}{'' if pack is None else pack[0]}"
    wishes = {"swapped": options.swapped, "max_pause": options.max_pause, "packed": pack is not None}
    copy = write_snapshot(options.pid, path, wishes, deadline, write_sparse if pack is None else pack[1])
    who = f"process {options.pid} ({printable(copy.name)})"
    put(f"{printable(path)}: {size_text(copy.bytes)} of {who}, which was stopped for {copy.held_seconds:.3f} s\n")
    for line in copy.missing:
        tell(f"gdbext: snapshot: {line}")
    return int(Status.PARTIAL if copy.missing else Status.CLEAN)


def write_snapshot(pid: int, path: str, wishes: Mapping[str, Any], deadline: Optional[float], write: _Write) -> Copy:
    """Copy a process, which goes on then, and write the copy to a file that is there whole or not at all.

    :param wishes: as ``gdbext.snapshot.taking.Wishes`` has them, by name.
    :param deadline: in seconds of ``time.monotonic``, or None.
    :raises GdbextError: there is no snapshot.
    """
    with work_folder() as folder, room() as memory, owned(partial(_make, path), methodcaller("discard")) as file:
        copy = copy_process(pid, folder, memory, {**wishes, "disk": file.descriptor}, deadline)
        try:
            write(memory, file.descriptor, deadline)
            file.commit()
        except OSError as error:
            raise find_limit(error) or GdbFailedError(f"cannot write {path}: {error.strerror}", _ROOM) from None
    return copy


def _find_deadline(options: Options) -> Optional[float]:
    return time.monotonic() + options.timeout if options.timeout else None


def _make(path: str) -> PrivateFile:
    try:
        return PrivateFile(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "-o names another file") from None


def _check_time(deadline: Optional[float]) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise TimeOutError("the time was up before the snapshot was written", "--timeout gives more")


def write_sparse(memory: int, file: int, deadline: Optional[float]) -> None:
    """Write what the copy has, with its holes."""
    size, at = os.fstat(memory).st_size, 0
    while at < size:
        try:
            start = os.lseek(memory, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # behind the last data
                raise
            break
        at = os.lseek(memory, start, os.SEEK_HOLE)
        os.lseek(file, start, os.SEEK_SET)
        while start < at:
            _check_time(deadline)
            start += os.sendfile(file, memory, start, min(at - start, _STEP))
    os.ftruncate(file, size)


def _find_packer() -> Tuple[str, _Write]:
    """Return the ending of a packed file's name, and what packs."""
    program = shutil.which("zstd")
    return (".gz", _write_gzip) if program is None else (".zst", partial(_write_zstd, program))


def _write_zstd(program: str, memory: int, file: int, deadline: Optional[float]) -> None:
    os.lseek(memory, 0, os.SEEK_SET)
    how: Mapping[str, Any] = {"stdin": memory, "stdout": file, "stderr": subprocess.DEVNULL}
    with started([program, "-q", "-c", "-T0"], _kill, **how) as child:
        if not await_end(child, None if deadline is None else max(deadline - time.monotonic(), 0.0)):
            _check_time(deadline)
        if child.wait():
            raise OSError(errno.EIO, "zstd failed: there may be no room")


def _kill(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    await_end(child)


def _write_gzip(memory: int, file: int, deadline: Optional[float]) -> None:
    os.lseek(memory, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), "wb") as out, gzip.GzipFile("", "wb", 1, out, 0) as packed:
        while data := os.read(memory, 1 << 20):
            _check_time(deadline)
            packed.write(data)
