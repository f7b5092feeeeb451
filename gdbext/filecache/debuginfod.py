"""Files from a server by build-id, as debuginfod(8) gives them: GET URL/buildid/ID/debuginfo, or /executable.

Nobody is asked unless the user names a server. What comes counts when it is an ELF file with that build-id, and is
kept; what a server does not have, or fails to give, is not asked for again for a while, by any process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Iterator, NamedTuple, Optional
from urllib.parse import urlsplit

from gdbext.errors import GdbextError, UsageError
from gdbext.filecache.contents import note_use
from gdbext.files import private
from gdbext.memory.elf.elffile import find_file_build_id, find_header, find_section_build_id
from gdbext.memory.hostfiles import pread
from gdbext.version import __version__
from gdbext.wording import printable, size_text

if TYPE_CHECKING:  # who asks nobody does not pay for it
    import http.client
    import socket

DEBUGINFO, EXECUTABLE = "debuginfo", "executable"
_ENDINGS = {DEBUGINFO: ".debug", EXECUTABLE: ""}
_BUILD_ID = re.compile(r"[0-9a-f]{4,128}")
_STEP = 1 << 20
_PATIENCE = 600.0  # seconds for which a failure is remembered


class Limits(NamedTuple):
    """What a download may take.

    :param size: bytes.
    :param seconds: for all of it.
    :param silence: seconds without a byte.
    """

    size: int = 2 << 30
    seconds: float = 120.0
    silence: float = 20.0


USUAL = Limits()


class _FailedError(GdbextError):
    """A file could not be had.

    :param server: whether no other one could be had from there either.
    """

    def __init__(self, message: str, server: bool = False) -> None:
        super().__init__(message)
        self.server = server


class Debuginfod:
    """A server, and what was had from it.

    :param url: as :func:`check_url` returns it.
    :param folder: of the cache; the files are in one below it that gdb takes as a ``debug-file-directory``.
    :ivar said: what went wrong, a line each, which nobody has said yet.
    """

    def __init__(self, url: str, folder: str, limits: Limits = USUAL) -> None:
        self.url = url
        self.place = os.path.join(folder, "debuginfod-" + hashlib.sha256(url.encode()).hexdigest()[:16])
        self.said: "list[str]" = []
        self._limits = limits

    def find(self, build_id: str, kind: str) -> Optional[str]:
        """Return the file of a build-id, or None.

        :param kind: :data:`DEBUGINFO` or :data:`EXECUTABLE`.
        """
        if not _BUILD_ID.fullmatch(build_id):
            return None
        path = os.path.join(self.place, ".build-id", build_id[:2], build_id[2:] + _ENDINGS[kind])
        try:
            if not os.path.exists(path) and not self._had(path, build_id, kind):
                return None
            note_use(path)
            return path
        except OSError as error:
            self._say("room", f"{self.place} cannot be written: {error.strerror}")
            return None

    def forget_failures(self) -> None:
        """Have the server be asked again, and what it fails in be said again."""
        with suppress(OSError):
            for name in os.listdir(self.place):
                if name.endswith(".failed"):
                    os.unlink(os.path.join(self.place, name))

    def _had(self, path: str, build_id: str, kind: str) -> bool:
        """Have a file, unless another process has it meanwhile; return whether it is there."""
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with _alone(path + ".part", self._limits.seconds) as part:
            if os.path.exists(path) or part is None:
                return os.path.exists(path)
            if self._is_failed(f"{build_id}.{kind}") or self._is_failed("server"):
                return False
            try:
                self._download(part, f"buildid/{build_id}/{kind}")
                _check(part, build_id)
            except _FailedError as error:
                self._note_failure(f"{build_id}.{kind}", error)
                return False
            os.utime(part.name, (time.time(), 0))  # gdb warns of a program that is newer than its core
            os.rename(part.name, path)
            return True

    # ---- failures ----

    def _failed_path(self, name: str) -> str:
        return os.path.join(self.place, f"{name}.failed")

    def _is_failed(self, name: str) -> bool:
        path = self._failed_path(name)
        try:
            if time.time() - os.stat(path).st_mtime < _PATIENCE:
                return True
            os.unlink(path)
        except FileNotFoundError:
            pass
        return False

    def _note_failure(self, name: str, error: _FailedError) -> None:
        """Note a failure, and have it be said by one process, once for each reason."""
        with suppress(OSError):
            os.close(os.open(self._failed_path("server" if error.server else name), os.O_CREAT | os.O_WRONLY, 0o600))
        if error.message:
            reason = hashlib.sha256(error.message.encode()).hexdigest()[:16]
            self._say(reason, f"{error.message} (buildid/{name.replace('.', '/')})")

    def _say(self, reason: str, message: str) -> None:
        if self._is_failed(f"said-{reason}"):
            return
        try:
            os.close(os.open(self._failed_path(f"said-{reason}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
        except OSError:
            pass
        self.said.append(f"debuginfod {self.url}: {message}")

    # ---- the wire ----

    def _download(self, part: BinaryIO, name: str) -> None:
        """Write what the server has into a file.

        :raises _FailedError: it has none, or fails; without a message where that is no failure.
        """
        import http.client

        connection, late, end = self._connect(), threading.Event(), None
        try:
            connection.connect()
            end = threading.Timer(self._limits.seconds, _end, (connection.sock, late))
            end.daemon = True
            end.start()
            self._read(connection, part, name)
            if late.is_set():  # an end that looks like that of an answer without a length
                raise TimeoutError
        except (_FailedError, OSError, http.client.HTTPException) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise _FailedError("no answer in time: it is not asked again for now", server=True) from None
            if isinstance(error, _FailedError):
                raise
            reason = printable(getattr(error, "strerror", None) or type(error).__name__)
            raise _FailedError(f"{reason}: it is not asked again for now", server=True) from None
        finally:
            if end is not None:
                end.cancel()
            connection.close()

    def _connect(self) -> "http.client.HTTPConnection":
        import http.client

        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        made = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return made(parts.hostname or "", parts.port, timeout=min(self._limits.silence, self._limits.seconds))

    def _read(self, connection: "http.client.HTTPConnection", part: BinaryIO, name: str) -> None:
        path = f"{urlsplit(self.url).path}/{name}"
        connection.request("GET", path, headers={"User-Agent": f"gdbext/{__version__}"})
        response = connection.getresponse()
        if response.status == 404:
            raise _FailedError("")
        if response.status != 200:
            raise _FailedError(f"it answers {response.status}", server=response.status >= 500)
        part.seek(0)
        part.truncate()
        size, announced = 0, response.length
        while data := response.read(_STEP):
            size += len(data)
            if size > self._limits.size:
                raise _FailedError(f"a file has more than {size_text(self._limits.size)}")
            part.write(data)
        part.flush()
        if announced is not None and size != announced:
            raise _FailedError("an answer was cut short")


def check_url(name: str, url: str) -> str:
    """Return a server's URL without a slash at its end.

    :raises UsageError: it is none of HTTP.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username is not None or not url.isprintable() or " " in url:
        raise UsageError(f"{name}: {url!r} is no address of a server", "https://debuginfod.debian.net")
    return url.rstrip("/")


def _end(connection: "socket.socket", late: threading.Event) -> None:
    """Have whoever reads from a connection find its end. TLS has no part in it: it would wait for the other side."""
    import socket

    late.set()
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


@contextmanager
def _alone(path: str, seconds: float) -> Iterator[Optional[BinaryIO]]:
    """Be the only process that writes to a file, which is removed unless it has got another name.

    None where another process was at it for so long.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with open(path, "r+b", opener=_made) as part:
            if _lock(part) and _is_at(part, path):
                try:
                    yield part
                finally:
                    if _is_at(part, path):  # nobody else has it: we have the lock
                        os.unlink(path)
                return
        time.sleep(0.05)
    yield None


def _made(path: str, flags: int) -> int:
    return private(path, flags | os.O_CREAT)


def _is_at(file: BinaryIO, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _check(part: BinaryIO, build_id: str) -> None:
    """Check that it is the file that was asked for.

    :raises _FailedError: it is not.
    """

    def read(offset: int, size: int) -> bytes:
        return pread(part.fileno(), offset, size)

    header = find_header(read(0, 64))
    if header is None:
        raise _FailedError("it gave what is no ELF file")
    if header.shoff + header.shnum * header.shentsize > os.fstat(part.fileno()).st_size:  # they come last
        raise _FailedError("an answer was cut short")
    if build_id not in (find_section_build_id(read), find_file_build_id(read)):
        raise _FailedError("it gave a file of another build-id")
