"""The temporary folder of a run, and those that killed runs have left.

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
from contextlib import contextmanager, suppress
from typing import Iterator, NamedTuple

from gdbext.cli.ending import owned
from gdbext.files import private

_NAME = re.compile(r"gdbext-[a-z0-9_]{8}")  # as mkdtemp makes it
_LOCK = "lock"
_FILE = 1 << 16  # bytes that a small file may take, with what a file system puts around it


class _Folder(NamedTuple):
    path: str
    lock: int


@contextmanager
def work_folder() -> Iterator[str]:
    """Have a folder that nobody else may enter; what killed runs of this user have left beside it is removed.

    :raises OSError: there is no place for it.
    """
    _remove_left(tempfile.gettempdir())
    with owned(_make, _remove) as folder:
        yield folder.path


def is_full(folder: str) -> bool:
    """Whether there is no room for a file more."""
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize < _FILE


def _make() -> _Folder:
    path = tempfile.mkdtemp(prefix="gdbext-")
    try:
        os.chmod(path, 0o700)  # whatever the umask
        return _Folder(path, _lock(path))
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _lock(path: str) -> int:
    """Lock a folder; the lock's file has its name once it is locked, so that nobody finds it without."""
    part = os.path.join(path, f"{_LOCK}.part")
    lock = private(part, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    with suppress(OSError):  # a file system without locks: then the folder is nobody's to remove but ours
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(part, os.path.join(path, _LOCK))
    return lock


def _remove(folder: _Folder) -> None:
    os.close(folder.lock)  # first: NFS keeps a name for what is open
    shutil.rmtree(folder.path, ignore_errors=True)


def _remove_left(place: str) -> None:
    with suppress(OSError):  # a folder that may not be listed
        for name in filter(_NAME.fullmatch, os.listdir(place)):
            path = os.path.join(place, name)
            if _is_ours(path):
                _remove_unowned(path)


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
