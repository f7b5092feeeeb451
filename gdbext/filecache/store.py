"""Entries in a folder of the user's own: small JSON documents, each whole or not there, and files beside them.

An entry says by a hash that it is whole, and of what it is. One that is not, or is not the user's own, is not there.
Several processes may read and write at once: an entry takes its place by a rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from contextlib import suppress
from typing import Any, Iterator, NamedTuple, Optional

from gdbext.errors import UsageError
from gdbext.files import private
from gdbext.version import __version__

FORMAT = 1
MOST = 2 << 30  # bytes of all entries
_ENTRY = 64 << 20  # bytes of one
_HASH = 64  # hex digits
_SHARE = 0.8  # of MOST that is left once there was more
_LEFT = 3600  # seconds after which nobody is writing what is not whole


def default_folder() -> Optional[str]:
    """Return where the user's caches are, by the XDG base directories; None: there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "gdbext") if os.path.isabs(base) else None


def key_of(*parts: Any) -> str:
    """Return the key of what is known of parts that JSON can hold, by this version of gdbext."""
    text = json.dumps([FORMAT, __version__, *parts])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Store:
    """A cache.

    :ivar folder: its path.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def make(self) -> None:
        """Make the folder.

        :raises UsageError: it cannot be made, or others may write to it.
        """
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            facts = os.stat(self.folder)
        except OSError as error:
            raise UsageError(f"--cache: {self.folder}: {error.strerror}", "--no-cache does without") from None
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            hint = "name a folder of your own that nobody else may write to, or --no-cache"
            raise UsageError(f"--cache: others may write to {self.folder}", hint)

    def path(self, key: str, ending: str = "json") -> str:
        """Return where an entry is."""
        return os.path.join(self.folder, f"{key}.{ending}")

    def find(self, key: str) -> Any:
        """Return what is kept under a key, or None."""
        data = self._read(self.path(key))
        if data is None or len(data) <= _HASH:
            return None
        text = data[_HASH:]
        if _digest(key, text) != data[:_HASH]:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None

    def keep(self, key: str, value: Any) -> None:
        """Keep what JSON can hold; where there is no room for it, it is not kept."""
        text = json.dumps(value, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if len(text) >= _ENTRY:
            return
        part = self.path(os.urandom(8).hex(), "part")
        with suppress(OSError):
            with open(part, "xb", opener=private) as file:
                file.write(_digest(key, text) + text)
            os.replace(part, self.path(key))
        with suppress(OSError):
            os.unlink(part)

    def prune(self, most: int = MOST) -> None:
        """Remove what was not used for longest, where there is more than may be, and what is not whole."""
        entries = sorted(self._entries(), key=lambda entry: entry.used)
        old = time.time() - _LEFT
        for entry in (one for one in entries if one.path.endswith(".part") and one.used < old):
            with suppress(OSError):
                os.unlink(entry.path)
        size = sum(entry.size for entry in entries)
        left = size if size <= most else int(most * _SHARE)
        for entry in entries:
            if size <= left:
                return
            with suppress(OSError):
                os.unlink(entry.path)
            size -= entry.size

    def _entries(self) -> "Iterator[_Entry]":
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):
                    facts = os.lstat(path)
                    yield _Entry(max(facts.st_mtime, facts.st_atime), path, facts.st_blocks * 512)

    def _read(self, path: str) -> Optional[bytes]:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with suppress(OSError), open(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and facts.st_size <= _ENTRY + _HASH:
                with suppress(OSError):  # a file system that is not written to
                    os.utime(descriptor)
                return file.read(facts.st_size)  # which is what it takes room for
        return None


class _Entry(NamedTuple):
    used: float
    path: str
    size: int


def _digest(key: str, text: bytes) -> bytes:
    return hashlib.sha256(key.encode() + text).hexdigest().encode()
