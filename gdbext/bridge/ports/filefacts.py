"""What gdb has found in the files that it has loaded, kept for later targets of the same files.

The key is what all of these hold, in gdb's order: of a type that one only declares gdb takes the definition in another.
"""

from __future__ import annotations

import os
import re
from typing import Any, List, Optional, Sequence

import gdb

from gdbext.bridge.decoded import name_of
from gdbext.bridge.stops.changes import call_when_objfiles_change

CACHE = "GDBEXT_CACHE"  # as in starting.gdbjob
_OF_THE_KERNEL = re.compile(r"system-supplied DSO|linux-(vdso|gate)")  # in memory, without debug info


class FileFacts:
    """It, of the object files of now.

    :param files: what each holds, and what it is among them.
    """

    def __init__(self, store: Any, files: Sequence[Any]) -> None:
        self._store = store
        self._files = files

    def find(self, *question: Any) -> Any:
        """Return what was kept, or None."""
        return self._store.find(self._key(question))

    def keep(self, value: Any, *question: Any) -> None:
        """Keep what JSON can hold."""
        self._store.keep(self._key(question), value)

    def _key(self, question: Sequence[Any]) -> str:
        from gdbext.filecache.store import key_of

        return key_of("gdb", gdb.VERSION, gdb.HOST_CONFIG, self._files, question)


_known: "List[Optional[FileFacts]]" = []


def find_file_facts() -> Optional[FileFacts]:
    """Return what is kept of the files that are loaded; None: nothing may be, or it is not known what a file holds."""
    if CACHE not in os.environ:
        return None
    if not _known:
        call_when_objfiles_change(_known.clear)
        _known.append(_read_file_facts())
    return _known[0]


def _read_file_facts() -> Optional[FileFacts]:
    from gdbext.filecache.contents import find_hash
    from gdbext.filecache.store import Store

    since, _, folder = os.environ[CACHE].partition(":")
    if not since.isdigit() or not os.path.isabs(folder):
        return None
    store, files = Store(folder), []
    loaded = [one for one in gdb.objfiles() if not _OF_THE_KERNEL.match(str(name_of(one)))]
    for objfile in loaded:
        found = find_hash(store, str(name_of(objfile)), int(since))
        if found is None:
            return None
        files.append((found, os.path.basename(str(name_of(objfile))), _place_of(objfile.owner, loaded)))
    program = gdb.current_progspace()
    return FileFacts(store, [*files, None if program is None else os.path.basename(str(program.filename))])


def _place_of(owner: Optional[gdb.Objfile], loaded: Sequence[gdb.Objfile]) -> Optional[int]:
    return None if owner is None or owner not in loaded else loaded.index(owner)
