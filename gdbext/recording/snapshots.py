"""The snapshots that lie beside the samples of a recording: how many there may be, and whether one more has room."""

from __future__ import annotations

import os
import re

from gdbext.errors import GdbextError
from gdbext.memory.live.mappings import read_status
from gdbext.wording import count_text, size_text

_NAME = re.compile(r"snapshot-(\d{4,9})\.core")
_PART = re.compile(r"\.gdbext-[0-9a-f]{12}\.part")  # as gdbext.files names what is not whole yet
_SPARED = 64 << 20  # bytes that a snapshot leaves to the samples
_HELD = ("VmRSS", "VmSwap")


class Snapshots:
    """The snapshots of a folder.

    :param most: that may lie there, those of earlier runs among them.
    """

    def __init__(self, folder: str, most: int) -> None:
        self._folder, self._most = folder, most

    def remove_left(self) -> None:
        """Remove what a recorder that was killed has left of a snapshot; whoever records here is alone."""
        for name in filter(_PART.fullmatch, os.listdir(self._folder)):
            os.unlink(os.path.join(self._folder, name))

    def find_path(self, pid: int) -> str:
        """Return the file for the next snapshot, which is of a process.

        :raises GdbextError: there are as many as there may be, or there is no room for it.
        """
        numbers = [int(match[1]) for match in map(_NAME.fullmatch, os.listdir(self._folder)) if match]
        if len(numbers) >= self._most:
            what = count_text(self._most, "snapshot")
            raise GdbextError(f"there may be {what} in {self._folder}", "--most-snapshots allows more")
        facts = os.statvfs(self._folder)
        room, needed = facts.f_bavail * facts.f_frsize - _SPARED, find_size(pid)
        if needed > room:
            found = f"a snapshot takes up to {size_text(needed)}, and {size_text(max(room, 0))} may be taken"
            raise GdbextError(f"no room for a snapshot: {found}", f"make room in {self._folder}")
        return os.path.join(self._folder, f"snapshot-{max(numbers, default=0) + 1:04}.core")


def find_size(pid: int) -> int:
    """Return the bytes that a process has in memory or swapped out: as much as a snapshot takes at most."""
    status = read_status(pid)
    return sum(int(status.get(name, "0 kB").split()[0]) << 10 for name in _HELD)
