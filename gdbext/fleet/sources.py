"""Which cores there are: files, folders, patterns, lists of names, and what is in object stores."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Dict, Iterable, Iterator, Optional, Sequence, Tuple, Union

from gdbext.errors import UsageError
from gdbext.fleet import child
from gdbext.fleet.stores import objects
from gdbext.fleet.stores.objects import Object, Store, is_url

# Extended attributes, and the folder, of systemd-coredump(8).
_HOSTNAME, _TIMESTAMP = "user.coredump.hostname", "user.coredump.timestamp"
_COREDUMPCTL = "/var/lib/systemd/coredump"


@dataclass(frozen=True)
class Source:
    """One core.

    :param core: its id: equal as long as path, size and time of change, in a store the ETag, are.
    :param path: absolute, links resolved; or a URL.
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

    :param words: files, folders, patterns, URLs; ``-`` is the list, ``coredumpctl`` what systemd-coredump keeps.
    :param listed: names of files, as they come on standard input.
    :param hosts: a regular expression whose first group is the host in a path.
    :raises UsageError: a word names nothing, or that is no regular expression.
    :raises StoreError: a store cannot be listed.
    """
    pattern = _host_pattern(hosts)
    found: Dict[Tuple[int, int], Source] = {}
    for word in words:
        for source, key in _sources_of(word, listed, pattern):
            found.setdefault(key, source)
    return list(found.values())


def _sources_of(
    word: str, listed: Iterable[str], pattern: "Optional[re.Pattern[str]]"
) -> Iterator[Tuple[Source, Tuple[int, int]]]:
    """Iterate over cores, each with what is the same of all its names."""
    for path in listed if word == "-" else [word] if is_url(word) else _paths_of(word):
        if not is_url(path):
            yield _source(path, pattern)
            continue
        objects.load(path)  # so that children need not
        for facts in child.run(partial(_list_objects, path)):
            source = _stored(Object(*facts), pattern)
            yield source, (-2, hash(source.core))


def _list_objects(url: str) -> Sequence[Object]:
    """Return what a URL names: an object, what a pattern matches, or all below a prefix, as of a folder.

    :raises UsageError: nothing.
    """
    store = Store(url)
    found = store.matching() if glob.has_magic(url) else store.objects()
    names = [name for name in sorted(found) if not any(part.startswith(".") for part in name.split("/"))]
    ours = [name[: -len("dataset.json")] for name in names if name.split("/")[-1] == "dataset.json"]
    ours = [place for place in ours if any(name.startswith(f"{place}schema/") for name in names)]
    kept = [found[name] for name in names if not name.startswith(tuple(ours))]
    if not found:
        raise UsageError(f"{url} does not exist", "an object, a pattern, or a prefix with objects below it")
    return kept


def _stored(found: Object, pattern: "Optional[re.Pattern[str]]") -> Source:
    host = pattern.search(found.url) if pattern is not None else None
    core = identify(found.url, found.size, found.tag)
    return Source(core, found.url, found.size, found.time, host and host[1])


def is_unchanged(source: Source) -> bool:
    """Whether a core's file is what it was when it was found.

    :raises FileNotFoundError: it is gone.
    """
    facts = os.stat(source.path)
    return identify(source.path, facts.st_size, facts.st_mtime_ns) == source.core


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
        return Source(identify(real, 0, 0), real, 0, 0.0, _find_host(real, pattern)), (-1, hash(real))
    core = identify(real, facts.st_size, facts.st_mtime_ns)
    time = _find_time(real) or facts.st_mtime
    source = Source(core, real, facts.st_size, time, _find_host(real, pattern))
    return source, (facts.st_dev, facts.st_ino)


def identify(path: str, size: int, changed: Union[int, str]) -> str:
    """Return the id of a core.

    :param changed: when it was changed, in nanoseconds; of an object its tag.
    """
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
