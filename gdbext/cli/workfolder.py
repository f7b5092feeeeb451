"""The temporary folder of a run."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Iterator

from gdbext.cli.ending import owned
from gdbext.starting.lockedfolder import LockedFolder, remove_left

_FILE = 1 << 16  # bytes that a small file may take, with what a file system puts around it


@contextmanager
def work_folder() -> Iterator[str]:
    """Have a folder that nobody else may enter; what killed runs of this user have left beside it is removed.

    :raises OSError: there is no place for it.
    """
    remove_left()
    with owned(LockedFolder, LockedFolder.remove) as folder:
        yield folder.path


def is_full(folder: str) -> bool:
    """Whether there is no room for a file more."""
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize < _FILE
