"""FIFOs, devices and the kernel's own files where gdb looks for the files of a core: it would open them, and may wait
for ever, or read without end.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections import defaultdict
from contextlib import suppress
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from gdbext.memory.elf.corefacts import CoreFacts
from gdbext.memory.elf.elffile import find_debuglink
from gdbext.memory.hostfiles import open_named, pread
from gdbext.starting.executable import DEBUG_FOLDERS

_LIBC = ctypes.CDLL(None)
_KERNELS = frozenset((
    0x9FA0, 0x62656572, 0x64626720, 0x74726163, 0x27E0EB, 0x63677270, 0x62656570, 0x73636673, 0xF97CFF8C, 0x6165676C,
    0xCAFE4A11, 0x6E736673,
))  # of statfs(2): proc, sys, debug, trace, cgroup, cgroup2, config, security, selinux, pstore, bpf, ns


class Places(NamedTuple):
    """What gdb is to open, where it is to search, and lines for the user about what it is kept from."""

    exe: Optional[str]
    sysroot: Optional[str]
    debug_dir: Optional[str]
    remarks: Sequence[str] = ()


def choose_places(
    facts: CoreFacts, exe: Optional[str], sysroot: Optional[str], debug_dir: Optional[str], make: Callable[[], str]
) -> Places:
    """Return where gdb finds the files of a core without meeting one that is not regular.

    :param exe: the executable for gdb, or None; it is left out where its debug file is not regular.
    :param debug_dir: one, or several with colons between, as gdb takes them.
    :param make: makes a folder that outlives gdb; called at most once, and only where there are such files.
    """
    folders = debug_dir.split(os.pathsep) if debug_dir else DEBUG_FOLDERS
    bad = {path: one for path in facts.files if (one := _find_special(_here(path, sysroot), folders))}
    debug = sorted(filter(_is_special, _debug_files(facts, folders)))
    bad_exe = _find_special(exe, folders) if exe else None
    made = os.path.join(make(), "sysroot") if bad or debug else ""
    if bad:
        good = [path for path in facts.files if path not in bad]
        sysroot = _make_sysroot(good, sysroot, made)
    if debug:
        debug_dir = made  # which holds no debug info
    found = sorted({*bad.values(), *([bad_exe] if bad_exe else [])})
    return Places(None if bad_exe else exe, sysroot, debug_dir, [*map(_remark, found[:3]), *map(_remark, debug[:3])])


def _remark(path: str) -> str:
    what = "a file of the kernel" if _is_kernels(path) else "no regular file"
    return f"{path} is {what}: gdb, which would open it, is kept from it"


def _here(path: str, sysroot: Optional[str]) -> str:
    return os.path.join(sysroot or "/", path.lstrip("/"))


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # it is not here, or cannot be a name
        return False
    return not stat.S_ISDIR(mode) and (not stat.S_ISREG(mode) or _is_kernels(path))


def _is_kernels(path: str) -> bool:
    """Whether a file is made by the kernel as it is read: to stat(2) it is regular."""
    facts = ctypes.create_string_buffer(1024)  # struct statfs: f_type, as wide as the machine has it, then f_bsize
    found = _LIBC.statfs(os.fsencode(path), facts) == 0
    return found and not _KERNELS.isdisjoint(struct.unpack_from("=2I", facts))


def _find_special(path: str, folders: Sequence[str]) -> Optional[str]:
    """Return the file, or where gdb would search for its debug info by name, that is not regular; None for neither."""
    return next(filter(_is_special, (path, *linked_files(path, folders))), None)


def linked_files(path: str, folders: Sequence[str]) -> Iterator[str]:
    """Iterate over the files in which gdb searches for a file's debug info by the name that is in it."""
    name = _find_debuglink(path)
    for home in {os.path.dirname(path), os.path.dirname(os.path.realpath(path))} if name else ():
        yield from (f"{home}/{name}", f"{home}/.debug/{name}", *(f"{folder}{home}/{name}" for folder in folders))


def _find_debuglink(path: str) -> Optional[str]:
    descriptor = open_named(path)
    if descriptor is None:
        return None
    try:
        return find_debuglink(lambda offset, size: pread(descriptor, offset, size))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _debug_files(facts: CoreFacts, folders: Sequence[str]) -> Iterator[str]:
    for build_id in {facts.build_id, *facts.build_ids.values()} - {None}:
        for folder in folders:
            path = f"{folder}/.build-id/{str(build_id)[:2]}/{str(build_id)[2:]}"
            yield from (path, f"{path}.debug")


def _make_sysroot(files: Sequence[str], sysroot: Optional[str], made: str) -> str:
    """Make a folder in which the regular ones of a core's files have all the names that they have here."""
    os.mkdir(made)
    link_folders(sysroot or "/", made)
    names: Dict[str, Dict[str, List[str]]] = {}
    for path in files:
        here = _here(path, sysroot)
        if os.path.normpath(path) != path or not path.startswith("/") or not os.path.isfile(here):
            continue
        folder, name = os.path.split(here)
        if folder not in names:
            names[folder] = _links_in(folder)
        for other in (name, *names[folder][os.path.realpath(here)]):
            link(here, os.path.join(made, os.path.dirname(path).lstrip("/"), other))
    return made


def link_folders(root: str, made: str) -> None:
    """Make links of a root directory, as /lib is to usr/lib: the linker knows files by names through them."""
    for name in filter(os.path.isdir, _links(root)):
        target = os.path.normpath(os.readlink(name)).lstrip("/")
        if target and not target.startswith(".."):
            os.makedirs(os.path.join(made, target), exist_ok=True)
            link(target, os.path.join(made, os.path.basename(name)))


def _links_in(folder: str) -> Dict[str, List[str]]:
    """Return the symbolic links of a directory by the file that they lead to: libx.so.1 is one, of libx.so.1.2."""
    found: Dict[str, List[str]] = defaultdict(list)
    for link in _links(folder):
        found[os.path.realpath(link)].append(os.path.basename(link))
    return found


def _links(folder: str) -> Iterator[str]:
    """Iterate over the symbolic links of a directory: none where it may not be listed."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from (entry.path for entry in entries if entry.is_symlink())


def link(target: str, path: str) -> None:
    """Make a symbolic link, with its folder, where nothing is there."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(path):
        os.symlink(target, path)
