"""A core of an object store as a file, for as long as it is examined; its rows say where it is from."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Callable, Dict, Iterator

from gdbext.errors import BadCoreError, TooLargeError
from gdbext.files import private
from gdbext.fleet import child
from gdbext.fleet.kinds import find_kind
from gdbext.fleet.sources import Source, identify
from gdbext.fleet.stores.objects import Store, StoreError, is_url
from gdbext.report import Kind
from gdbext.starting.failures import find_limit
from gdbext.starting.lockedfolder import LockedFolder
from gdbext.wording import size_text

_STEP = 4 << 20
_PAGE = 4096  # of which a hole is made, as cp --sparse=always makes them
_ZEROS = bytes(_PAGE)


def examine_there(examine: Callable[..., Dict[str, Any]], source: Source, how: Any) -> Dict[str, Any]:
    """Return the rows of a core, wherever it is: what is in a store is fetched first.

    :raises GdbextError: it cannot be fetched.
    """
    if not is_url(source.path):
        return examine(source, how)
    with _fetched(source) as path:
        found = examine(replace(source, path=path), how)
    return _renamed(found, path, source.path)


def _renamed(found: Dict[str, Any], path: str, url: str) -> Dict[str, Any]:
    """Return rows that name the core where it is, not where it was examined."""
    plain, escaped = (path, url), (json.dumps(path)[1:-1], json.dumps(url)[1:-1])
    for name, rows in found["rows"].items():
        pairs = [escaped if kind is Kind.OBJECT else plain for _, kind in find_kind(name).columns[1:]]
        for row in rows:
            row[:] = [cell.replace(*pair) if isinstance(cell, str) else cell for cell, pair in zip(row, pairs)]
    return found


@contextmanager
def _fetched(source: Source) -> Iterator[str]:
    folder = LockedFolder()
    try:
        path = os.path.join(folder.path, "core")
        child.run(partial(_fetch, source, path))
        os.utime(path, (source.time, source.time))
        yield path
    finally:
        folder.remove()


def _fetch(source: Source, path: str) -> None:
    """Write a core into a file, zeros as holes.

    :raises TooLargeError: there is no room for it.
    :raises BadCoreError: it is gone, or another one by now.
    :raises StoreError: the store cannot be reached.
    """
    store = Store(source.path)
    _check_same(store, source)
    place = os.path.dirname(os.path.dirname(path))
    room = _find_room(place)
    if source.size > room:
        what = f"{source.path} has {size_text(source.size)}, and {place} has room for {size_text(room)}"
        raise TooLargeError(what, "TMPDIR names another place")
    try:
        with open(path, "wb", opener=private) as out:
            for piece in store.pieces(_STEP):
                _write_sparse(out, piece)
            out.truncate()
    except OSError as error:
        raise find_limit(error) or StoreError(f"{source.path} cannot be put into {place}: {error.strerror}") from None
    _check_same(store, source)


def _find_room(place: str) -> int:
    return shutil.disk_usage(place).free


def _check_same(store: Store, source: Source) -> None:
    there = store.find()
    if there is None or identify(there.url, there.size, there.tag) != source.core:
        gone = "is no longer there" if there is None else "is another one than was listed"
        raise BadCoreError(f"{source.path} {gone}", "running again lists it anew")


def _write_sparse(out: BinaryIO, piece: bytes) -> None:
    for at in range(0, len(piece), _PAGE):
        page = piece[at : at + _PAGE]
        if page == _ZEROS:
            out.seek(_PAGE, os.SEEK_CUR)
        else:
            out.write(page)
