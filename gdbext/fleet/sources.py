"""Which cores there are: files, folders, patterns and lists of names."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, Optional, Sequence, Tuple

from gdbext.errors import UsageError

# Extended attributes, and the folder, of systemd-coredump(8).
_HOSTNAME, _TIMESTAMP = "user.coredump.hostname", "user.coredump.timestamp"
_COREDUMPCTL = "/var/lib/systemd/coredump"


@dataclass(frozen=True)
class Source:
    """One core.

    :param core: its id: equal as long as path, size and time of change are.
    :param path: absolute, links resolved.
    :param size: bytes.
    :param time: of the crash where systemd-coredump has noted it, else of its last change; seconds since the epoch.
    :param host: it is from, or None.
    """

    core: str
    path: str
    size: int
    time: float
    host: Optional[str] = None


def find_sources(words: Sequence[str], listed: Iterable[str], hosts: Optional[str] = None) -> Sequence[Source]:
    """Return the cores that words name, each once, in the order of words and names.

    :param words: files, folders, patterns; ``-`` is the list, ``coredumpctl`` what systemd-coredump keeps.
    :param listed: names of files, as they come on standard input.
    :param hosts: a regular expression whose first group is the host in a path.
    :raises UsageError: a word names nothing, or that is no regular expression.
    """
    pattern = _host_pattern(hosts)
    found: Dict[Tuple[int, int], Source] = {}
    for word in words:
        paths = listed if word == "-" else _paths_of(word)
        for path in paths:
            source, key = _source(path, pattern)
            found.setdefault(key, source)
    return list(found.values())


def is_unchanged(source: Source) -> bool:
    """Whether a core's file is what it was when it was found.

    :raises FileNotFoundError: it is gone.
    """
    facts = os.stat(source.path)
    return _identify(source.path, facts.st_size, facts.st_mtime_ns) == source.core


def _host_pattern(hosts: Optional[str]) -> "Optional[re.Pattern[str]]":
    try:
        pattern = None if hosts is None else re.compile(hosts)
    except re.error as error:
        raise UsageError(f"--host: {hosts!r} is no regular expression: {error}") from None
    if pattern is not None and not pattern.groups:
        raise UsageError(f"--host: {hosts!r} has no group", "'cores/([^/]+)/' takes the host from a path")
    return pattern


def _paths_of(word: str) -> Sequence[str]:
    if os.path.isdir(word):
        return list(_files_below(word))
    if os.path.lexists(word):
        return [word]
    if word == "coredumpctl":
        return list(_files_below(_COREDUMPCTL))
    matching = sorted(glob.glob(word, recursive=True))
    if not matching:
        raise UsageError(f"{word} does not exist", "a file, a folder, a pattern, or - for a list on standard input")
    return [path for name in matching for path in (_files_below(name) if os.path.isdir(name) else [name])]


def _files_below(folder: str) -> Iterator[str]:
    """Iterate over the files in a folder and those below, without hidden ones and datasets of ours."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "dataset.json" in names and "lock" in names:
            folders.clear()
            continue
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(".") and not _is_special(path):
                yield path


def _is_special(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # a link that leads nowhere: said to be none
        return False


def _source(path: str, pattern: "Optional[re.Pattern[str]]") -> Tuple[Source, Tuple[int, int]]:
    """Return a core, and what is the same of each of its names; one that is gone has its row too."""
    real = os.path.realpath(path)
    try:
        facts = os.stat(real)
    except OSError:
        return Source(_identify(real, 0, 0), real, 0, 0.0, _find_host(real, pattern)), (-1, hash(real))
    core = _identify(real, facts.st_size, facts.st_mtime_ns)
    time = _find_time(real) or facts.st_mtime
    source = Source(core, real, facts.st_size, time, _find_host(real, pattern))
    return source, (facts.st_dev, facts.st_ino)


def _identify(path: str, size: int, changed: int) -> str:
    text = f"{path}\0{size}\0{changed}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _find_host(path: str, pattern: "Optional[re.Pattern[str]]") -> Optional[str]:
    if pattern is not None and (match := pattern.search(path)):
        return match[1]
    return _find_note(path, _HOSTNAME)


def _find_time(path: str) -> Optional[float]:
    """Return when systemd-coredump says that a process died, in seconds since the epoch."""
    noted = _find_note(path, _TIMESTAMP)  # microseconds
    return int(noted) / 1e6 if noted is not None and noted.isascii() and noted.isdigit() else None


def _find_note(path: str, name: str) -> Optional[str]:
    with suppress(OSError):  # there is none, or the file system has no such attributes
        return os.getxattr(path, name).decode("utf-8", "replace")
    return None
