"""Files that we make: of our own, which nobody else may read, and the user's, which are whole or as before.

The user's devices, links, and files that a new one would not be like are written in place.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedWriter
from typing import BinaryIO, Iterator, Mapping, Optional, Union


def private(path: str, flags: int) -> int:
    """Open a file of our own; an ``opener`` of ``open``. Its mode is 0600, whatever the umask."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)
    return descriptor


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Write the user's file; when that fails, there is what was there before.

    :raises OSError: it cannot be written.
    """
    new = Replacement(path)
    try:
        yield new.stream
        new.commit()
    finally:
        new.discard()


def is_same(path: str, other: str) -> bool:
    """Whether two names, links among them, are of one file that exists."""
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):  # a name with a zero byte
        return False


class Replacement:
    """A new file under another name beside the one that it replaces.

    What cannot be replaced without a change of what it is (a device, a pipe, a link, a file of somebody else, or with
    a group or an access list that a new one does not get) is written in place.

    :param path: of the user's file, with the mode that it has, or that the umask gives to a new one.
    :ivar stream: to write to.
    :raises OSError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = self._part = path
        if _can_be_replaced(path):
            self._part = os.path.join(os.path.dirname(path), f".gdbext-{os.urandom(6).hex()}.part")
            mode = _find_mode(path)
            opener = partial(os.open, mode=0o666 if mode is None else mode)
            self.stream: BufferedWriter = open(self._part, "xb", opener=opener)  # noqa: SIM115  closed by its owner
            if mode is None or _make_like(self.stream.fileno(), path, mode):
                return
            self.discard()
            self._part = path
        self.stream = open(path, "wb", opener=_without_waiting)  # noqa: SIM115

    def commit(self) -> None:
        """Have it take its place.

        :raises OSError: it could not be written to its end.
        """
        self.stream.close()
        if self._part != self._path:
            os.replace(self._part, self._path)

    def discard(self) -> None:
        """Remove it, unless it has taken its place."""
        self._close()
        if self._part != self._path:
            with suppress(FileNotFoundError):
                os.unlink(self._part)

    def _close(self) -> None:
        """Close it without what is still to be written, for which a pipe may have no room, ever."""
        with suppress(OSError):
            self.stream.raw.close()


class Addition(Replacement):
    """What is added to the end of a user's file, which is as it was before until :meth:`commit`.

    :raises OSError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.stream = open(path, "ab", opener=_without_waiting)  # noqa: SIM115  closed by its owner
        facts = os.fstat(self.stream.fileno())
        self._size = facts.st_size if stat.S_ISREG(facts.st_mode) else None

    def commit(self) -> None:
        """Have it stay.

        :raises OSError: it could not be written to its end.
        """
        self.stream.close()
        self._size = None

    def discard(self) -> None:
        """Take it away again, unless it stays."""
        self._close()
        if self._size is not None:
            os.truncate(self._path, self._size)


class PrivateFile:
    """A new file that only the user may read, under another name beside the one whose place it takes.

    :param path: of the user's file; what is there is another regular file of the user's own, or nothing.
    :ivar descriptor: to write to.
    :raises OSError: it cannot be made, or what is there is something else.
    """

    def __init__(self, path: str) -> None:
        if not _can_be_replaced(path):
            raise FileExistsError(errno.EEXIST, "what is there is no file that may be replaced")
        self._path = path
        self._part = os.path.join(os.path.dirname(path), f".gdbext-{os.urandom(6).hex()}.part")
        self.descriptor = private(self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def commit(self) -> None:
        """Have it take its place."""
        os.replace(self._part, self._path)

    def discard(self) -> None:
        """Close it, and remove it unless it has taken its place."""
        with suppress(OSError):
            os.close(self.descriptor)
        with suppress(FileNotFoundError):
            os.unlink(self._part)


class NoReaderError(OSError):
    """A FIFO that nobody reads."""


def find_open(path: str) -> Optional[int]:
    """Open the user's file to see whether it can be written, which changes nothing of it; None: it is still to be made.

    :raises NoReaderError: it is a FIFO that nobody reads. One that somebody does is at its end when this is closed.
    :raises OSError: it cannot be written, or not be made.
    """
    try:
        return _without_waiting(path, os.O_WRONLY)
    except FileNotFoundError:
        folder = os.path.dirname(os.path.realpath(path))
        if not os.path.isdir(folder):
            raise
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
    return None


def _without_waiting(path: str, flags: int) -> int:
    """Open what may be a pipe or a device, which would wait for its other end; an ``opener`` of ``open``."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(path).st_mode):
            raise NoReaderError(error.errno, "it is a FIFO that nobody reads") from None
        raise
    os.set_blocking(descriptor, True)
    return descriptor


def _can_be_replaced(path: str) -> bool:
    folder = os.path.dirname(path) or "."
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return True
    plain = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1 and facts.st_uid == os.geteuid()
    return plain and os.access(folder, os.W_OK)


def _find_mode(path: str) -> Optional[int]:
    """Return the mode of a file; None when there is none."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return None


def _make_like(new: int, path: str, mode: int) -> bool:
    """Give an open file the mode of another; return whether all else that the other has beside its data is the same."""
    try:
        os.fchmod(new, mode)  # the umask has had its part in it
        return _read_marks(new) == _read_marks(path)
    except OSError:  # vfat and CIFS have modes of their own
        return False


def _read_marks(file: Union[int, str]) -> "tuple[int, int, int, Mapping[str, bytes]]":
    """Return mode, owner, group and extended attributes, of which access lists are some."""
    facts = os.stat(file)
    try:
        names = os.listxattr(file)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        names = []
    return facts.st_mode, facts.st_uid, facts.st_gid, {name: os.getxattr(file, name) for name in names}
