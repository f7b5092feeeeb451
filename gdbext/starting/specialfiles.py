"""FIFOs and devices where gdb looks for the files of a core: it would open them, and wait for ever."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from gdbext.memory.elf.corefacts import CoreFacts
from gdbext.starting.executable import DEBUG_FOLDERS


class Places(NamedTuple):
    """Where gdb is to look, and lines for the user about what it is kept from."""

    sysroot: Optional[str]
    debug_dir: Optional[str]
    remarks: Sequence[str] = ()


def choose_places(facts: CoreFacts, sysroot: Optional[str], debug_dir: Optional[str], folder: str) -> Places:
    """Return where gdb finds the files of a core without meeting one that is not regular.

    :param folder: where a sysroot of links is made if one is needed; it must outlive gdb.
    """
    mapped = sorted(path for path in (_here(path, sysroot) for path in facts.files) if _is_special(path))
    debug = sorted(filter(_is_special, _debug_files(facts, debug_dir)))
    if mapped:
        sysroot = _make_sysroot(facts.files, sysroot, os.path.join(folder, "sysroot"))
    if debug:
        debug_dir = os.path.join(folder, "sysroot")  # which holds no debug info
    return Places(sysroot, debug_dir, [*map(_remark, mapped[:3]), *map(_remark, debug[:3])])


def _remark(path: str) -> str:
    return f"{path} is no regular file: gdb, which would open it, is kept from it"


def _here(path: str, sysroot: Optional[str]) -> str:
    return os.path.join(sysroot or "/", path.lstrip("/"))


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # it is not here, or cannot be a name
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _debug_files(facts: CoreFacts, debug_dir: Optional[str]) -> Iterator[str]:
    for build_id in {facts.build_id, *facts.build_ids.values()} - {None}:
        for folder in (debug_dir,) if debug_dir else DEBUG_FOLDERS:
            path = f"{folder}/.build-id/{str(build_id)[:2]}/{str(build_id)[2:]}"
            yield from (path, f"{path}.debug")


def _make_sysroot(files: Sequence[str], sysroot: Optional[str], made: str) -> str:
    """Make a folder in which the regular ones of a core's files have all the names that they have here."""
    os.mkdir(made)
    _link_folders(sysroot or "/", made)
    names: Dict[str, Dict[str, List[str]]] = {}
    for path in files:
        here = _here(path, sysroot)
        if os.path.normpath(path) != path or not path.startswith("/") or not os.path.isfile(here):
            continue
        folder, name = os.path.split(here)
        if folder not in names:
            names[folder] = _links_in(folder)
        for other in (name, *names[folder][os.path.realpath(here)]):
            _link(here, os.path.join(made, os.path.dirname(path).lstrip("/"), other))
    return made


def _link_folders(root: str, made: str) -> None:
    """Make links of a root directory, as /lib is to usr/lib: the linker knows files by names through them."""
    for entry in os.scandir(root):
        target = os.path.normpath(os.readlink(entry.path)).lstrip("/") if entry.is_symlink() else ""
        if target and entry.is_dir() and not target.startswith(".."):
            os.makedirs(os.path.join(made, target), exist_ok=True)
            _link(target, os.path.join(made, entry.name))


def _links_in(folder: str) -> Dict[str, List[str]]:
    """Return the symbolic links of a directory by the file that they lead to: libx.so.1 is one, of libx.so.1.2."""
    found: Dict[str, List[str]] = defaultdict(list)
    for entry in os.scandir(folder):
        if entry.is_symlink():
            found[os.path.realpath(entry.path)].append(entry.name)
    return found


def _link(target: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(path):
        os.symlink(target, path)
