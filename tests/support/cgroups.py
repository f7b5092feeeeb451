"""A memory cgroup of a test's own, below the one that it runs in, which bounds it all the same."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Iterator, Sequence

import pytest

MOUNTED = Path("/sys/fs/cgroup")
# The limit and the file that counts processes killed for it: of cgroup v1 and v2.
_LEGACY, _UNIFIED = ("memory.limit_in_bytes", "memory.oom_control"), ("memory.max", "memory.events")
_ENTER = 'echo $$ > "$0" && exec "$@"'


class MemoryCgroup:
    """A cgroup that bounds memory.

    :param folder: of the cgroup.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._limit, self._events = _LEGACY if (folder / _LEGACY[0]).exists() else _UNIFIED

    def bound(self, size: int) -> None:
        """Let its processes have so many bytes together."""
        (self.folder / self._limit).write_text(str(size))

    def command(self, *words: object) -> Sequence[str]:
        """Return the command that runs another in it."""
        return ["sh", "-c", _ENTER, str(self.folder / "cgroup.procs"), *map(str, words)]

    @property
    def killed(self) -> int:
        """How many of its processes the kernel has killed for lack of memory."""
        rows = dict(line.split() for line in (self.folder / self._events).read_text().splitlines())
        return int(rows["oom_kill"])


@contextlib.contextmanager
def memory_cgroup() -> Iterator[MemoryCgroup]:
    """Have a cgroup; the test is skipped where none can be made."""
    folder = _own() / f"gdbext-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        if not any((folder / name).exists() for name in (_LEGACY[0], _UNIFIED[0])):
            pytest.skip("the memory controller is not given to cgroups below ours")
        yield MemoryCgroup(folder)
    finally:
        _remove(folder)


def _own() -> Path:
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            return MOUNTED / "memory" / path.lstrip("/")
    return MOUNTED / next((path for _, controllers, path in rows if not controllers), "/").lstrip("/")


def _remove(folder: Path) -> None:
    """Take it away once what was in it is gone."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            return folder.rmdir()
        time.sleep(0.01)
    raise AssertionError(f"{folder} has processes left: {(folder / 'cgroup.procs').read_text()}")
