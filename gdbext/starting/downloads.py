"""The files of a core that are not where it names them: in folders of debug info, or at a debuginfod server that the
user names.
"""

from __future__ import annotations

import os
import tempfile
from typing import Callable, Dict, Mapping, Optional, Sequence

from gdbext.errors import UsageError
from gdbext.filecache.debuginfod import DEBUGINFO, EXECUTABLE, Debuginfod
from gdbext.filecache.store import Store, default_folder
from gdbext.memory.elf.corefacts import CoreFacts
from gdbext.memory.elf.elffile import find_header, find_soname, read_section_names
from gdbext.memory.hostfiles import open_named, open_regular, pread
from gdbext.starting.executable import DEBUG_FOLDERS, choose_exe, find_below, is_of
from gdbext.starting.gdbjob import Had
from gdbext.starting.specialfiles import link, link_folders


def open_server(url: str, folder: Optional[str], again: bool = True) -> Debuginfod:
    """Return a server.

    :param folder: of the cache; None is the usual one.
    :param again: whether it is asked again for what it has failed to give.
    :raises UsageError: there is no place for what comes.
    """
    place = folder or default_folder()
    if place is None:
        raise UsageError("--debuginfod: there is no place for what comes", "--cache names one")
    Store(place).make()
    server = Debuginfod(url, place)
    if again:
        server.forget_failures()
    return server


def find_files(
    server: Optional[Debuginfod], facts: CoreFacts, had: Had, make: Callable[[], str], tell: Callable[[str], None]
) -> Had:
    """Return where gdb is to search, once what is in no folder of debug info was asked for.

    :param server: None: nobody is asked.
    :param had: where it would search otherwise.
    :param make: makes a folder that outlives gdb; called at most once, and only where a file is to be in a sysroot.
    :param tell: is called with each line for the user.
    """
    sysroot, debug_dir = had.sysroot, had.debug_dir
    folders = debug_dir.split(os.pathsep) if debug_dir else DEBUG_FOLDERS
    known = {path: build_id for path, build_id in facts.build_ids.items() if build_id}
    files: Dict[str, str] = {}
    for path, build_id in known.items():
        here = had.exe if path == facts.exe and had.exe else _find_here(path, build_id, sysroot)
        found = here or _find_in(folders, build_id)
        if found is None and server is not None:
            found = server.find(build_id, EXECUTABLE)
        if found is not None and not here:
            files[path] = found
        if server is not None and not _has_debug_info(found) and not _is_in(folders, build_id):
            server.find(build_id, DEBUGINFO)
    for line in server.said if server else ():
        tell(line)
    exe = had.exe or (choose_exe(facts, files[facts.exe], None).exe if facts.exe in files else None)
    libraries = {path: file for path, file in files.items() if path != facts.exe}
    if libraries:
        sysroot = _make_sysroot(facts.files, libraries, sysroot, make())
    return Had(exe, sysroot, os.pathsep.join([*folders, server.place]) if server else debug_dir)


def _find_here(path: str, build_id: str, sysroot: Optional[str]) -> Optional[str]:
    inside = find_below(sysroot, path) if sysroot else None
    return next((one for one in (inside, path) if one and is_of(one, build_id)), None)


def _find_in(folders: Sequence[str], build_id: str) -> Optional[str]:
    """Return the program or library of a build-id in folders of debug info, or None."""
    places = (os.path.realpath(f"{folder}/.build-id/{build_id[:2]}/{build_id[2:]}") for folder in folders)
    return next((place for place in places if is_of(place, build_id) and not is_of(place, "")), None)


def _is_in(folders: Sequence[str], build_id: str) -> bool:
    return any(os.path.exists(f"{folder}/.build-id/{build_id[:2]}/{build_id[2:]}.debug") for folder in folders)


def _has_debug_info(path: Optional[str]) -> bool:
    """Whether an ELF file has debug info in itself."""
    descriptor = open_named(path) if path else None
    if descriptor is None:
        return False
    try:
        header = find_header(pread(descriptor, 0, 64))
        names = read_section_names(lambda at, size: pread(descriptor, at, size), header) if header else ()
        return not {".debug_info", ".zdebug_info"}.isdisjoint(names)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _make_sysroot(files: Sequence[str], had: Mapping[str, str], sysroot: Optional[str], folder: str) -> str:
    """Make a folder in which a core's files have their names, and those that were downloaded the linker's too."""
    made = tempfile.mkdtemp(prefix="downloads-", dir=folder)
    link_folders(sysroot or "/", made)
    for path in files:
        if os.path.normpath(path) != path or not path.startswith("/"):
            continue
        here = had.get(path) or os.path.join(sysroot or "/", path.lstrip("/"))
        if not os.path.isfile(here):
            continue
        folder, name = os.path.split(path)
        for each in {name, _find_soname(here) or name}:
            link(here, os.path.join(made, folder.lstrip("/"), each))
    return made


def _find_soname(path: str) -> Optional[str]:
    descriptor = open_regular(path)
    if descriptor is None:
        return None
    try:
        found = find_soname(lambda at, size: pread(descriptor, at, size))
        return found if found and os.path.basename(found) == found else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
