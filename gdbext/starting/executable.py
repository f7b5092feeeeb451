"""Which executable belongs to a core: never one whose build-id differs from the core's."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from gdbext.errors import BadCoreError
from gdbext.memory.elf.corefacts import CoreFacts
from gdbext.memory.elf.elffile import find_file_build_id, find_header
from gdbext.memory.hostfiles import open_named, pread
from gdbext.starting.corefile import read_build_id
from gdbext.starting.failures import WrongExeError

DEBUG_FOLDERS = ("/usr/lib/debug", "/usr/local/lib/debug")  # where gdb is usually built to find files by build-id


class Choice(NamedTuple):
    """The executable to load, or None, and a line for the user about why, or None."""

    exe: Optional[str]
    remark: Optional[str] = None


def choose_exe(facts: CoreFacts, named: Optional[str], sysroot: Optional[str]) -> Choice:
    """Return the executable for a core.

    :param named: what the user named; it is taken unless it is provably another.
    :param sysroot: where the target's files are; one below it is taken unless provably another.
    :raises WrongExeError: when the named file's build-id is not the core's.
    :raises BadCoreError: when the named file cannot be read as an executable.
    """
    if named is not None:
        return _named(facts, named)
    if facts.exe is None:
        return Choice(None, "the core does not say which executable it is of: name it with --exe")
    return _found(facts, facts.exe, sysroot)


def find_running(pid: int) -> Optional[str]:
    """Return the executable of a process by a name that is the same file here, or None: it may be in a container."""
    link = f"/proc/{pid}/exe"
    try:
        path = os.readlink(link)
        return path if os.path.samefile(path, link) else None
    except OSError:
        return None


def is_unknown_here(facts: CoreFacts) -> bool:
    """Whether no file of a core is on this machine, so that no debugger knows a name in it."""
    return not any(map(_has_debug_file, facts.build_ids.values())) and not any(
        is_of(path, facts.build_ids.get(path)) for path in facts.files
    )


def _has_debug_file(build_id: str) -> bool:
    return any(os.path.exists(f"{folder}/.build-id/{build_id[:2]}/{build_id[2:]}") for folder in DEBUG_FOLDERS)


def is_of(path: str, build_id: Optional[str]) -> bool:
    """Whether an ELF file here may be the one that a core has mapped; gdb opens none of another build-id."""
    ours = _examine(path)
    return ours is not None and (build_id is None or ours in ("", build_id))


def _named(facts: CoreFacts, named: str) -> Choice:
    try:
        own = read_build_id(named)
    except BadCoreError as error:
        raise WrongExeError(f"--exe: {error.message}", "name the program that the core is of") from None
    known = {facts.build_id, *facts.build_ids.values()} - {None}
    if own is None or facts.build_id is None:
        return Choice(named, f"no build-id shows whether {named} is the core's executable: it is believed")
    if own not in known:
        raise WrongExeError(
            f"{named} is not the executable of this core: its build-id is {own}, the core's {facts.build_id}",
            f"the core is of {facts.exe}; leave --exe away to go without" if facts.exe else None,
        )
    return Choice(named)


def _found(facts: CoreFacts, path: str, sysroot: Optional[str]) -> Choice:
    inside = find_below(sysroot, path) if sysroot else None
    if inside and None in (facts.build_id, _build_id_of(inside)):
        return Choice(inside, f"no build-id shows whether {inside} is the core's executable: it is believed")
    if inside and _build_id_of(inside) == facts.build_id:
        return Choice(inside)
    if facts.build_id is None:
        return Choice(None, f"the core holds no build-id of {path}: name the executable with --exe")
    if _build_id_of(path) == facts.build_id:
        return Choice(path)
    reason = "is another build here" if os.path.exists(path) else "is not here"
    return Choice(None, f"the core's executable {path} {reason}: name it with --exe")


def find_below(sysroot: str, path: str) -> Optional[str]:
    """Return the file that the target knew as ``path``, or None; no ".." and no link leads outside."""
    inside = os.path.join(sysroot, os.path.normpath("/" + path).lstrip("/"))
    root = os.path.realpath(sysroot)
    within = os.path.commonpath((root, os.path.realpath(inside))) == root
    return inside if within and os.path.isfile(inside) else None


def _build_id_of(path: str) -> Optional[str]:
    return _examine(path) or None


def _examine(path: str) -> Optional[str]:
    """Return the build-id of an ELF file that a core names, "" where it has none; None for any other file."""
    descriptor = open_named(path)
    if descriptor is None:
        return None
    try:
        if find_header(pread(descriptor, 0, 64)) is None:
            return None
        return find_file_build_id(lambda at, size: pread(descriptor, at, size)) or ""
    except OSError:
        return None
    finally:
        os.close(descriptor)
