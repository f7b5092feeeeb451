"""Where the files of a dataset are: a folder, or below a URL. A file is there whole or not at all."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from functools import cached_property
from typing import Mapping, Protocol

from gdbext.files import replacing
from gdbext.fleet.stores.objects import Store, is_url

_UNFINISHED = re.compile(r"\.gdbext-[0-9a-f]{12}\.part")  # as gdbext.files names what is not whole
_AT_WORK = 3600.0  # seconds within which another run may still complete what it has begun


class Place(Protocol):
    """Where the files of a dataset are. Names have ``/`` between their parts, whatever the place."""

    @property
    def patience(self) -> float:
        """Return for how many seconds what does not count may be what somebody is at work on."""

    def sizes(self, below: str = "") -> Mapping[str, int]:
        """Return the bytes of each file, by its name.

        :param below: a folder; "" is all.
        """

    def age(self, name: str) -> float:
        """Return the seconds since a file was written; 0.0 where that is not known."""

    def read(self, name: str) -> bytes:
        """Return what a file holds.

        :raises FileNotFoundError: there is none.
        :raises OSError: it cannot be read.
        """

    def write(self, name: str, data: bytes, lasting: bool = False) -> None:
        """Make or replace a file; when that fails, there is what was there before.

        :param lasting: whether it outlasts a loss of power once it has its name.
        :raises OSError: it cannot be written.
        """

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


def place_of(folder: str) -> Place:
    """Return the place that a path or a URL names."""
    return Objects(folder) if is_url(folder) else Files(folder)


class Files:
    """A folder, which one run at a time writes to."""

    patience = float("-inf")

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def sizes(self, below: str = "") -> Mapping[str, int]:
        """As of a place; what is not whole is none of its files."""
        found = {}
        for folder, _, names in os.walk(os.path.join(self._folder, below)):
            inside = os.path.relpath(folder, self._folder)
            for name in names:
                with suppress(FileNotFoundError):
                    size = os.path.getsize(os.path.join(folder, name))
                    found[name if inside == "." else f"{inside}/{name}"] = size
        return {name: size for name, size in found.items() if not _UNFINISHED.fullmatch(os.path.basename(name))}

    def age(self, name: str) -> float:
        """As of a place."""
        return time.time() - os.stat(self._path(name)).st_mtime

    def read(self, name: str) -> bytes:
        """As of a place."""
        with open(self._path(name), "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes, lasting: bool = False) -> None:
        """As of a place."""
        os.makedirs(os.path.dirname(self._path(name)), exist_ok=True)
        with replacing(self._path(name)) as stream:
            stream.write(data)
            if lasting:
                stream.flush()
                os.fsync(stream.fileno())

    def remove(self, name: str) -> None:
        """As of a place."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def remove_unfinished(self) -> None:
        """Remove what is not whole."""
        for folder, _, names in os.walk(self._folder):
            for name in filter(_UNFINISHED.fullmatch, names):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


class Objects:
    """What is below a URL; reached when it is first asked for, by a process that does not fork afterwards."""

    patience = _AT_WORK

    def __init__(self, url: str) -> None:
        self._url = url

    @cached_property
    def _store(self) -> Store:
        return Store(self._url)

    def sizes(self, below: str = "") -> Mapping[str, int]:
        """As of a place."""
        found = self._store.objects(below)
        return {name: one.size for name, one in found.items()}

    def age(self, name: str) -> float:
        """As of a place, by the store's clock against ours."""
        found = self._store.objects(name).get(name)
        return time.time() - found.time if found is not None and found.time else 0.0

    def read(self, name: str) -> bytes:
        """As of a place."""
        return self._store.read(name)

    def write(self, name: str, data: bytes, lasting: bool = False) -> None:
        """As of a place."""
        self._store.write(name, data)

    def remove(self, name: str) -> None:
        """As of a place."""
        self._store.remove(name)

    def copy(self, names: Mapping[str, str]) -> None:
        """Copy files; see :meth:`Store.copy`."""
        self._store.copy(names)
