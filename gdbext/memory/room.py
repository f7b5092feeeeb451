"""How much memory our own process may still take: what the machine, its cgroups and ``ulimit -v`` leave.

Source: proc(5), ``MemAvailable`` and ``statm``; Linux ``Documentation/admin-guide/cgroup-v2.rst``, "memory.current",
"memory.max", "memory.stat", and ``cgroup-v1/memory.rst``, 2.2 and 5.2: what is cached of files is given back.
"""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

_PAGE = resource.getpagesize()
# The limit, what is taken of it, and what of that is files that were not used lately; of cgroup v2 and v1.
_UNIFIED = ("memory.max", "memory.current", "inactive_file")
_LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


class Room(NamedTuple):
    """Bytes, and what bounds them."""

    bytes: int
    why: str


def find_room(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Optional[Room]:
    """Return the least that any bound leaves; None where none is known."""
    return min([*_machine(proc), *_cgroup(proc, cgroups), *_limit(proc)], default=None)


def give_back() -> None:
    """Give the system what was freed between other memory: malloc keeps it after arrays of up to 32 MiB (mallopt(3)).

    Where the C library has no ``malloc_trim``, nothing is done.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _machine(proc: Path) -> Iterator[Room]:
    with suppress(OSError):  # no such file, or not to be read: not known
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield Room(int(line.split()[1]) << 10, "free on this machine")


def _limit(proc: Path) -> Iterator[Room]:
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY:
        with suppress(OSError):
            taken = int((proc / "self/statm").read_text().split()[0]) * _PAGE
            yield Room(max(most - taken, 0), "left by ulimit -v")


def _cgroup(proc: Path, cgroups: Path) -> Iterator[Room]:
    with suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _bounds(cgroups, path, _UNIFIED)
            elif "memory" in controllers.split(","):
                yield from _bounds(cgroups / "memory", path, _LEGACY)


def _bounds(mounted: Path, path: str, names: "tuple[str, str, str]") -> Iterator[Room]:
    """Iterate over what a cgroup and those that it is in leave; in a container the path may not be there."""
    limit, taken, files = names
    folder = Path(os.path.normpath(f"{mounted}/{path}"))
    if mounted not in folder.parents:  # one that is not visible here: what is bounds it too
        folder = mounted
    while folder == mounted or mounted in folder.parents:
        with suppress(OSError, ValueError):  # none here, or "max"
            most = int((folder / limit).read_text())
            cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            held = int((folder / taken).read_text()) - int(cached.get(files, 0))
            yield Room(max(most - held, 0), "left by its cgroup")
        folder = folder.parent
