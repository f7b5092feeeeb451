"""What bounds a process's memory, and how much of that is left: the machine, its cgroups, and ``ulimit -v``.

Source: proc(5), ``MemAvailable`` and ``statm``; Linux ``Documentation/admin-guide/cgroup-v2.rst``, "memory.current",
"memory.max", "memory.stat", and ``cgroup-v1/memory.rst``, 2.2 and 5.2: what is cached of files is given back.
"""

from __future__ import annotations

import ctypes
import os
import re
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


class Bound(NamedTuple):
    """A limit, what is taken of it, both in bytes, and what it is: ``cgroup`` or ``RLIMIT_AS``."""

    most: int
    taken: int
    what: str


_LEFT = {"cgroup": "left by its cgroup", "RLIMIT_AS": "left by ulimit -v"}
_UNLIMITED = 1 << 62  # cgroup v1 has no word for it: the largest number of pages there is
_ADDRESS_SPACE = re.compile(r"Max address space +(\d+) ")


def find_room(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Optional[Room]:
    """Return the least that any bound leaves to us; None where none is known."""
    bounds = for_each_bound("self", proc, cgroups)
    rooms = [Room(max(bound.most - bound.taken, 0), _LEFT[bound.what]) for bound in bounds]
    return min([*_machine(proc), *rooms], default=None)


def for_each_bound(process: str, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Iterator[Bound]:
    """Iterate over what bounds a process, besides the machine.

    :param process: its number as text, or ``self``.
    """
    yield from _cgroup(process, proc, cgroups)
    yield from _limit(process, proc)


def resident_of_files(proc: Path = Path("/proc")) -> int:
    """Return how many bytes of files are mapped and in this process's memory; 0 where that cannot be known."""
    with suppress(OSError):
        return int((proc / "self/statm").read_text().split()[2]) * _PAGE
    return 0


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


def _limit(process: str, proc: Path) -> Iterator[Bound]:
    with suppress(OSError):
        most = _find_most(process, proc)
        if most is not None:
            yield Bound(most, int((proc / process / "statm").read_text().split()[0]) * _PAGE, "RLIMIT_AS")


def _find_most(process: str, proc: Path) -> Optional[int]:
    if process == "self":
        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        return None if most == resource.RLIM_INFINITY else most
    match = _ADDRESS_SPACE.search((proc / process / "limits").read_text())
    return int(match[1]) if match else None


def _cgroup(process: str, proc: Path, cgroups: Path) -> Iterator[Bound]:
    with suppress(OSError):
        for line in (proc / process / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _bounds(cgroups, path, _UNIFIED)
            elif "memory" in controllers.split(","):
                yield from _bounds(cgroups / "memory", path, _LEGACY)


def _bounds(mounted: Path, path: str, names: "tuple[str, str, str]") -> Iterator[Bound]:
    """Iterate over the limits of a cgroup and those that it is in; in a container the path may not be there."""
    limit, taken, files = names
    folder = Path(os.path.normpath(f"{mounted}/{path}"))
    if mounted not in folder.parents:  # one that is not visible here: what is bounds it too
        folder = mounted
    while folder == mounted or mounted in folder.parents:
        with suppress(OSError, ValueError):  # none here, or "max"
            most = int((folder / limit).read_text())
            cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            held = int((folder / taken).read_text()) - int(cached.get(files, 0))
            if most < _UNLIMITED:
                yield Bound(most, max(held, 0), "cgroup")
        folder = folder.parent
