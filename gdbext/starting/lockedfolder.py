"""Temporary folders under a lock, and those that killed runs have left.

A folder's owner holds a lock of flock(2) on a file in it, which the kernel lets go of however the owner ends, and which
is seen from other containers, where process ids mean nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress

from gdbext.files import private

_NAME = re.compile(r"gdbext-[a-z0-9_]{8}")  # as mkdtemp makes it
_LOCK = "lock"


class LockedFolder:
    """A temporary folder that nobody else may enter, until it is removed or collected, or we end.

    :ivar path: its name.
    :raises OSError: there is no place for it.
    """

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="gdbext-")
        try:
            os.chmod(self.path, 0o700)  # whatever the umask
            lock = _lock(self.path)
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self._removing = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Remove it with what is in it; a fork of its owner lets it be."""
        self._removing()


def remove_left() -> None:
    """Remove what killed runs of this user have left where temporary folders are."""
    place = tempfile.gettempdir()
    with suppress(OSError):  # a folder that may not be listed
        for name in filter(_NAME.fullmatch, os.listdir(place)):
            path = os.path.join(place, name)
            if _is_ours(path):
                _remove_unowned(path)


def _lock(path: str) -> int:
    """Lock a folder; the lock's file has its name once it is locked, so that nobody finds it without."""
    part = os.path.join(path, f"{_LOCK}.part")
    lock = private(part, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    with suppress(OSError):  # a file system without locks: then the folder is nobody's to remove but ours
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(part, os.path.join(path, _LOCK))
    return lock


def _remove(path: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:
        os.close(lock)  # first: NFS keeps a name for what is open
        shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: str) -> bool:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) == 0o700


def _remove_unowned(path: str) -> None:
    try:
        lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # none yet, or no longer
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:  # its owner lives
        pass
    finally:
        os.close(lock)
