"""The shapes that the pack and the user have, read once and again when a file changes."""

from __future__ import annotations

import importlib
import os
from typing import Optional, Sequence, Tuple

from gdbext.bridge import dependencies
from gdbext.bridge.stops import settings
from gdbext.structures.shapes.library import Library, read_library

_Stamp = Tuple[Tuple[str, int, int], ...]

_kept: "Optional[tuple[_Stamp, Library]]" = None


def read_shapes() -> Library:
    """Return the pack's shapes and those in the folder of ``set gx shapes-folder``, which rule."""
    global _kept
    folders = find_folders()
    stamp = _stamp(folders)
    if _kept is None or _kept[0] != stamp:
        dependencies.load("tomli")
        _kept = stamp, read_library(folders)
    return _kept[1]


def find_folders() -> Sequence[str]:
    """Return the folders of shapes, the user's last; it need not exist."""
    own = settings.current_text("shapes-folder").strip()
    packs = list(importlib.import_module("gdbext.shapes").__path__)
    return [*packs, os.path.expanduser(own)] if own else packs


def _stamp(folders: Sequence[str]) -> _Stamp:
    """Return what changes when any file does."""
    return tuple(entry for folder in folders for entry in sorted(_entries(folder)))


def _entries(folder: str) -> Sequence[Tuple[str, int, int]]:
    try:
        with os.scandir(folder) as listed:
            stats = [(one.path, one.stat()) for one in listed if one.name.endswith(".toml")]
    except OSError:  # no such folder, or a file that has just gone
        return []
    return [(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats]
