"""Object stores, by URL, as fsspec reaches them: what is there, whole objects read and written. Imports fsspec.

Clients have threads: whoever forks calls nothing here but what says that it may, and has a child call the rest.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple, Type

from gdbext.errors import GdbextError, MissingDependencyError, UsageError
from gdbext.starting import dependencies

_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")  # as file systems of fsspec call it
_TAGS = ("ETag", "etag", "md5Hash")


class StoreError(GdbextError):
    """An object store cannot be reached, or refuses."""

    kind = "store"


class Object(NamedTuple):
    """One object.

    :param url: with its protocol.
    :param size: bytes.
    :param time: of its last change, in seconds since the epoch; 0.0: the store does not say.
    :param tag: changes with its contents, as far as the store knows; its ETag, else its time.
    """

    url: str
    size: int
    time: float
    tag: str


def is_url(text: str) -> bool:
    """Whether a word names something in an object store. May be called by whoever forks."""
    return "://" in text


def load(url: str) -> None:
    """Import what reaches a store, which starts no thread. May be called by whoever forks.

    :raises MissingDependencyError: fsspec, or its part for this protocol, is not there.
    :raises UsageError: no such protocol is known.
    """
    protocol = url.partition("://")[0]
    dependencies.load("fsspec", "fsspec.core", *(["s3fs"] if protocol in ("s3", "s3a") else []))
    try:
        importlib.import_module("fsspec").get_filesystem_class(protocol)
    except ImportError as error:
        raise MissingDependencyError(f"{url}: {error}") from None
    except ValueError:
        raise UsageError(f"{url}: no protocol {protocol} is known", "s3://bucket/prefix is one") from None


class Store:
    """What lies below a URL.

    :param url: a prefix, or an object.
    :raises GdbextError: as :func:`load`.
    """

    def __init__(self, url: str) -> None:
        load(url)
        self.url = url.rstrip("/")
        with self._reached(url):
            made: Tuple[Any, str] = importlib.import_module("fsspec.core").url_to_fs(
                self.url, use_listings_cache=False, skip_instance_cache=True
            )
        self._files, self._root = made

    def objects(self, below: str = "") -> Mapping[str, Object]:
        """Return what is below the URL, by the names that follow it; the name of the URL's own object is "".

        :param below: a prefix of these names, without the ``/`` after it.
        :raises StoreError: it cannot be listed.
        """
        return self._found(self._files.find, self._path(below) if below else self._root, self._root)

    def matching(self) -> Mapping[str, Object]:
        """Return the objects whose names the URL's pattern matches, by these; errors as :meth:`objects`."""
        return self._found(self._files.glob, self._root, "")

    def _found(self, search: Any, what: str, above: str) -> Mapping[str, Object]:
        with self._reached(self.url):
            try:
                found: Dict[str, Dict[str, Any]] = search(what, detail=True)
            except FileNotFoundError:
                return {}
        files = {name: facts for name, facts in found.items() if facts["type"] == "file"}
        return {name[len(above) :].lstrip("/"): self._object(name, facts) for name, facts in files.items()}

    def _object(self, name: str, facts: Mapping[str, Any]) -> Object:
        time = next((facts[key] for key in _TIMES if facts.get(key)), 0.0)
        seconds = time.timestamp() if isinstance(time, datetime) else float(time)
        tag = next((str(facts[key]) for key in _TAGS if facts.get(key)), str(time))
        return Object(self._files.unstrip_protocol(name), int(facts["size"] or 0), seconds, tag)

    def find(self) -> Optional[Object]:
        """Return the object that the URL is of, or None where there is none.

        :raises StoreError: the store cannot be reached.
        """
        with self._reached(self.url):
            try:
                facts = self._files.info(self._root)
            except FileNotFoundError:
                return None
        return self._object(self._root, facts) if facts["type"] == "file" else None

    def pieces(self, size: int) -> Iterator[bytes]:
        """Iterate over what the object of the URL holds, so many bytes at a time.

        :raises StoreError: it cannot be read, or has changed meanwhile.
        """
        with self._reached(self.url), self._files.open(self._root, "rb", block_size=size) as stream:
            while piece := stream.read(size):
                yield piece

    def read(self, name: str) -> bytes:
        """Return an object below the URL.

        :raises FileNotFoundError: there is none.
        :raises StoreError: it cannot be read.
        """
        with self._reached(f"{self.url}/{name}"):
            data: bytes = self._files.cat_file(self._path(name))
        return data

    def write(self, name: str, data: bytes) -> None:
        """Put an object below the URL, whole or not at all.

        :raises StoreError: it cannot be written.
        """
        with self._reached(f"{self.url}/{name}", "written"):
            self._files.pipe_file(self._path(name), data)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there; errors as :meth:`write`."""
        with self._reached(f"{self.url}/{name}", "removed"), suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def copy(self, names: Mapping[str, str]) -> None:
        """Copy objects into files, several at once.

        :param names: of files, whose folders are made, by those of objects.
        :raises StoreError: they cannot be read.
        """
        for path in names.values():
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with self._reached(self.url):
            self._files.get([self._path(name) for name in names], list(names.values()))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _reached(self, url: str, what: str = "read") -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except _faults() as error:
            reason = " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())
            full = getattr(error, "errno", None) == errno.ENOSPC
            hint = "TMPDIR names another place" if full else "running again goes on from here"
            raise StoreError(f"{url} cannot be {what}: {reason}", hint) from None


def _faults() -> "Tuple[Type[BaseException], ...]":
    """Return what clients of stores raise: S3's has errors of its own for a store that it does not reach."""
    amazon = sys.modules.get("botocore.exceptions")
    return (OSError,) if amazon is None else (OSError, amazon.BotoCoreError)
