"""Cores packed as .zst, .lz4, .xz or .gz, recognised by their first bytes.

xz and gzip are Python's own; zstd and lz4 need the programs of that name. Pages of zeros become holes,
so that the unpacked core takes no more disk than its contents; and those are bounded.
"""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import select
import shutil
import subprocess
import time
import zlib
from contextlib import contextmanager
from typing import IO, Iterator, NamedTuple, Optional, cast

from gdbext.cli.children import await_end, started
from gdbext.errors import BadCoreError, GdbextError, TooLargeError
from gdbext.files import private
from gdbext.starting.corefile import open_binary
from gdbext.starting.failures import GdbFailedError, TimeOutError, find_limit
from gdbext.wording import size_text

_STEP = 1 << 20
_HOLE = 4096
_HEEDING = 200  # milliseconds between two times that a signal may have been missed
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ZEROS = bytes(_HOLE)


class Packing(NamedTuple):
    """A way of packing, with the program that undoes it, or None where Python does."""

    name: str
    magic: bytes
    program: Optional[str]


PACKINGS = (
    Packing("zstd", b"\x28\xb5\x2f\xfd", "zstd"),
    Packing("lz4", b"\x04\x22\x4d\x18", "lz4"),
    Packing("xz", b"\xfd7zXZ\x00", None),
    Packing("gzip", b"\x1f\x8b", None),
)


def find_packing(path: str) -> Optional[Packing]:
    """Return how the file is packed, or None when it is not.

    :raises BadCoreError: when there is no such file.
    """
    with open_binary(path) as file:
        start = file.read(8)
    return next((packing for packing in PACKINGS if start.startswith(packing.magic)), None)


def unpack(
    path: str, packing: Packing, target: str, deadline: Optional[float], most: Optional[int] = None
) -> None:
    """Unpack a core into the file ``target``, which gets its modification time.

    :param deadline: in seconds of ``time.monotonic``, or None.
    :param most: bytes besides zeros that it may unpack to; None: nine tenths of what is free there.
    :raises BadCoreError: when the packed data are damaged or end early.
    :raises TooLargeError: when it unpacks to more.
    :raises GdbFailedError: when the program for it is missing or the disk is full.
    :raises TimeOutError: at the deadline.
    """
    place = os.path.dirname(os.path.dirname(target))
    try:
        with _opened(path, packing) as source, open(target, "wb", opener=private) as out:
            _copy_sparse(source, out, deadline, _find_room(target) if most is None else most)
    except _Full as full:
        whose = f"that are nine tenths of what is free in {place}" if most is None else "allowed"
        what = f"{path} unpacks to more than the {size_text(full.most)} {whose}"
        raise TooLargeError(what, "--max-unpacked SIZE allows more, TMPDIR names another place") from None
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise BadCoreError(f"{path} cannot be unpacked: {error}", "was it copied whole?") from None
    except OSError as error:
        raise _not_unpacked(path, place, error) from None
    facts = os.stat(path)
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _not_unpacked(path: str, place: str, error: OSError) -> GdbextError:
    if (limit := find_limit(error)) is not None:
        return limit
    reason = error.strerror or str(error)
    if error.errno not in _FULL:
        return GdbFailedError(f"cannot unpack {path}: {reason}")
    hint = "TMPDIR=FOLDER names a folder with room for the unpacked core"
    return GdbFailedError(f"cannot unpack {path} in {place}: {reason}", hint)


@contextmanager
def _opened(path: str, packing: Packing) -> Iterator[IO[bytes]]:
    if packing.program is None:
        opener = lzma.LZMAFile if packing.name == "xz" else gzip.GzipFile
        with opener(path) as stream:
            yield cast("IO[bytes]", stream)
        return
    with _run_unpacker(path, packing, packing.program) as stream:
        yield stream


@contextmanager
def _run_unpacker(path: str, packing: Packing, name: str) -> Iterator[IO[bytes]]:
    program = shutil.which(name)
    if program is None:
        raise GdbFailedError(
            f"{path} is packed with {packing.name}, and there is no program {name}",
            f"install {name}, or unpack the core first",
        )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with open(path, "rb") as source, started([program, "-dc"], _kill, stdin=source, **pipes) as child, child:
        assert child.stdout and child.stderr
        try:
            yield cast("IO[bytes]", _Pipe(child.stdout))
            told = child.stderr.read(4096).decode("utf-8", "replace").strip()
            if child.wait():
                reason = told.splitlines()[-1] if told else f"{name} failed"
                raise BadCoreError(f"{path} cannot be unpacked: {reason}", "was it copied whole?")
        finally:
            child.kill()


class _Pipe:
    """What a program writes; a signal that comes right before a read is heeded all the same."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._poll = cast(io.BufferedReader, pipe), select.poll()
        self._poll.register(pipe, select.POLLIN)

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end."""
        parts, wanted = [], size
        while wanted:
            while not self._poll.poll(_HEEDING):
                pass
            part = self._pipe.read1(wanted)
            if not part:
                break
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)


def _kill(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    await_end(child)


class _Full(Exception):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most


def _find_room(target: str) -> int:
    facts = os.statvfs(os.path.dirname(target))
    return facts.f_bavail * facts.f_frsize // 10 * 9


def _copy_sparse(source: IO[bytes], out: IO[bytes], deadline: Optional[float], most: int) -> None:
    written = 0
    while True:
        data = source.read(_STEP)
        if not data:
            break
        if deadline is not None and time.monotonic() > deadline:
            raise TimeOutError("the time was up before the core was unpacked", "--timeout gives more")
        for at in range(0, len(data), _HOLE):
            page = data[at : at + _HOLE]
            if page == _ZEROS:
                out.seek(_HOLE, os.SEEK_CUR)
                continue
            written += len(page)
            if written > most:
                raise _Full(most)
            out.write(page)
    out.truncate(out.tell())
