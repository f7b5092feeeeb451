"""The shapes that the pack and the user have, read once and again when a file changes."""

from __future__ import annotations

import importlib
import os
from typing import Optional, Sequence, Tuple

from gdbext.structures.shapes.library import Library, read_library

_Stamp = Tuple[Tuple[str, int, int], ...]

_kept: "Optional[tuple[_Stamp, Library]]" = None


def read_shapes(own: str = "") -> Library:
    """Return the pack's shapes and those in a folder of the user's, which rule.

    :param own: it need not exist; "" for none.
    """
    global _kept
    folders = find_folders(own)
    stamp = _stamp(folders)
    if _kept is None or _kept[0] != stamp:
        _kept = stamp, read_library(folders)
    return _kept[1]


def find_folders(own: str) -> Sequence[str]:
    """Return the folders of shapes, the user's last."""
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
