"""The lines of a recording as they are written: each is whole on the disk, or not there.

``DIR/samples.jsonl`` is only added to. Its writer holds a lock of flock(2) on it, which the kernel lets go of however
the writer ends. Where there is no room, what was written of a line is taken back, samples are counted as lost, events
wait, and both are tried again with the next line.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import Any, Callable, List, Optional

from gdbext.errors import UsageError
from gdbext.files import private
from gdbext.grammar.exchange import SAMPLES
from gdbext.recording import events
from gdbext.recording.events import Event, event_text
from gdbext.version import __version__

_MOST_WAITING = 1000  # events that wait for room
_HEAD = 1 << 12


class Journal:
    """A recording that is added to, by nobody else meanwhile.

    :param folder: made where it is not there; a recording that is in it goes on.
    :param now: seconds since the epoch, for events.
    :raises UsageError: somebody else adds to it, or what is there is no recording, or it cannot be written.
    :ivar lost: samples for which there was no room.
    :ivar fault: why the last line was not written; None where it was.
    """

    def __init__(self, folder: str, now: Callable[[], float] = time.time) -> None:
        self.lost = 0
        self.fault: Optional[str] = None
        self._now = now
        self._unsaid = 0  # of those that were lost
        self._waiting: List[str] = []
        self._descriptor = _open(folder)
        try:
            self._size, self._torn = _find_end(self._descriptor, folder)
            if self._size == 0:
                self._begin(folder)
        except BaseException:
            os.close(self._descriptor)
            raise

    def add_sample(self, text: str) -> bool:
        """Add a sample; return whether there was room for it.

        :param text: one line, without its end.
        """
        if not self._write([*self._waiting, *self._losses(), text]):
            self.lost += 1
            self._unsaid += 1
            return False
        self._waiting, self._unsaid = [], 0
        return True

    def add_event(self, kind: str, **details: Any) -> None:
        """Add an event, now or as soon as there is room."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(event_text(Event(kind, self._now(), details)))
        if self._write([*self._waiting, *self._losses()]):
            self._waiting, self._unsaid = [], 0

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    def _begin(self, folder: str) -> None:
        self.add_event(events.CREATED, version=__version__)
        if self.fault is not None:
            raise UsageError(f"cannot record in {folder}: {self.fault}", "name another folder with -o")

    def _losses(self) -> List[str]:
        if not self._unsaid:
            return []
        return [event_text(Event(events.LOST, self._now(), {"samples": self._unsaid, "message": self.fault}))]

    def _write(self, lines: List[str]) -> bool:
        """Write whole lines, or nothing; return which."""
        data = "".join(f"{line}\n" for line in lines).encode()
        data = b"\n" + data if self._torn else data
        try:
            _put(self._descriptor, data)
        except OSError as error:
            self.fault = error.strerror or str(error)
            self._take_back()
            return False
        self._size += len(data)
        self.fault, self._torn = None, False
        return True

    def _take_back(self) -> None:
        with suppress(OSError):  # then the next line begins with the end of what is left of this one
            os.ftruncate(self._descriptor, self._size)
        size = os.fstat(self._descriptor).st_size
        self._torn = self._torn or size != self._size
        self._size = size


def _put(descriptor: int, data: bytes) -> None:
    if os.fstat(descriptor).st_nlink == 0:
        raise FileNotFoundError(errno.ENOENT, f"{SAMPLES} was removed")
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


def _open(folder: str) -> int:
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = private(os.path.join(folder, SAMPLES), flags)
    except OSError as error:
        raise UsageError(f"cannot record in {folder}: {error.strerror}", "name another folder with -o") from None
    try:
        _check(descriptor, folder)
        _save_name(folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(descriptor: int, folder: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _foreign(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        message = f"another gdbext records in {folder}"
        raise UsageError(message, "one recorder for a folder: name another one with -o") from None
    except OSError:  # a file system without locks
        pass


def _save_name(folder: str) -> None:
    """Have the file's name on the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # not every file system can
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _find_end(descriptor: int, folder: str) -> "tuple[int, bool]":
    """Return the size of what is there, and whether its last line is torn; a first line that is, is removed.

    :raises UsageError: it is no recording, or of another version.
    """
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEAD, 0)
    opening = events.OPENING.encode()
    if not head.startswith(opening) and not opening.startswith(head):
        raise _foreign(folder)
    if b"\n" not in head and len(head) < _HEAD:  # killed at its first line
        os.ftruncate(descriptor, 0)
        return 0, False
    if events.find_event(head.partition(b"\n")[0].decode("utf-8", "replace")) is None:
        raise _foreign(folder)
    return size, os.pread(descriptor, 1, size - 1) != b"\n"


def _foreign(folder: str) -> UsageError:
    return UsageError(f"{os.path.join(folder, SAMPLES)} is no recording of this version", "name another folder with -o")
