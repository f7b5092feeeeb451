"""gdb's own index cache, in which it keeps what it has found in debug info by the build-ids of files.

It gets a folder for itself, with the indexes that were made of files that hold the same as all those of this core.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, Optional

from gdbext.filecache.contents import find_hash, note_use
from gdbext.filecache.store import Store, key_of
from gdbext.files import private
from gdbext.memory.elf.corefacts import CoreFacts
from gdbext.starting.executable import DEBUG_FOLDERS
from gdbext.starting.specialfiles import Places, linked_files

_NAME = re.compile(r"[0-9a-f]{4,128}\.gdb-index")
_ENDING = "gdb-index"


class IndexCache:
    """The folder, from before gdb is started until it has ended.

    :param gdb: the program.
    :param made: a folder of ours that outlives gdb.
    :ivar folder: for gdb; None where the contents of a file are not known.
    """

    def __init__(self, cache: str, gdb: str, facts: CoreFacts, places: Places, made: str) -> None:
        self._store = Store(cache)
        self._known: Dict[str, str] = {}
        self.folder: Optional[str] = None
        self._key = self._find_key(gdb, facts, places)
        if self._key is not None:
            self.folder = os.path.join(made, "index")
            os.mkdir(self.folder, 0o700)
            self._fill(self.folder, self._store.find(self._key))

    def keep(self) -> None:
        """Keep what gdb has made; it has ended."""
        if self.folder is None or self._key is None:
            return
        with suppress(OSError):
            fresh = [one.path for one in os.scandir(self.folder) if _NAME.fullmatch(one.name) and not one.is_symlink()]
            for path in fresh:
                self._keep_one(path)
            if fresh:
                self._store.keep(self._key, self._known)

    def _find_key(self, gdb: str, facts: CoreFacts, places: Places) -> Optional[str]:
        now, program = time.time_ns(), shutil.which(gdb)
        names = sorted(filter(os.path.isfile, set(_files(facts, places))))
        hashes = [find_hash(self._store, name, now) for name in names]
        if program is None or not hashes or None in hashes:
            return None
        about = os.stat(program)
        return key_of("index", os.path.realpath(program), about.st_size, about.st_mtime_ns, sorted(map(str, hashes)))

    def _fill(self, folder: str, kept: Any) -> None:
        """Link what was made before, as far as it is whole."""
        for name, digest in kept.items() if isinstance(kept, dict) else ():
            if not _NAME.fullmatch(name) or not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
                continue
            path = self._store.path(digest, _ENDING)
            if find_hash(self._store, path, time.time_ns()) == digest:
                note_use(path)
                os.symlink(path, os.path.join(folder, name))
                self._known[name] = digest

    def _keep_one(self, path: str) -> None:
        digest = find_hash(self._store, path, time.time_ns())
        if digest is None:
            return
        part = self._store.path(os.urandom(8).hex(), "part")
        with open(path, "rb") as source, open(part, "xb", opener=private) as target:
            shutil.copyfileobj(source, target)
        os.replace(part, self._store.path(digest, _ENDING))
        self._known[os.path.basename(path)] = digest


def _files(facts: CoreFacts, places: Places) -> Iterator[str]:
    """Iterate over the files that gdb may read debug info of."""
    folders = places.debug_dir.split(os.pathsep) if places.debug_dir else DEBUG_FOLDERS
    named = [os.path.join(places.sysroot or "/", path.lstrip("/")) for path in facts.files]
    for path in (*named, *([places.exe] if places.exe else ())):
        yield path
        yield from linked_files(path, folders)
    for build_id in {facts.build_id, *facts.build_ids.values()} - {None}:
        for folder in folders:
            yield f"{folder}/.build-id/{str(build_id)[:2]}/{str(build_id)[2:]}.debug"
