"""Where a dataset's files are, and which of them count. Nothing here imports what reads or writes rows.

::

    DIR/dataset.json                       name and version of the schema
    DIR/KIND/run=RUN/part-NNNN.parquet     rows of one kind
    DIR/schema/KIND.parquet                no rows: what columns a kind has
    DIR/replaced/run=RUN/part-NNNN.json    which parts a part is made of: they do not count once it does
    DIR/pending/CORE.json                  rows of one core that are in no part yet
    DIR/lock                               held by whoever writes

A part counts once its file of kind ``cores`` is there, which is written last. DIR may be a URL: then what is pending is
in a folder of the run's, and there is no lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from contextlib import contextmanager
from typing import Dict, Iterator, Mapping, NamedTuple, Sequence, Set

from gdbext.errors import GdbextError, UsageError
from gdbext.fleet.stores.objects import is_url
from gdbext.fleet.stores.places import Files, Objects, place_of
from gdbext.starting.lockedfolder import LockedFolder
from gdbext.wording import size_text

SCHEMA = "gdbext/fleet/1"
LAST = "cores"  # the kind whose file makes a part count
_FACTS = "dataset.json"
_REPLACED = "replaced"
_SCHEMA = "schema"
_PATIENCE, _PAUSE = 2.0, 0.05  # seconds that a lock is waited for; between two tries
_PART = re.compile(r"[a-z_]+/run=([^/]+)/part-([0-9]{4,})\.[a-z]+")


class DatasetError(GdbextError):
    """A folder is no dataset, or not one that can be read or written."""

    kind = "dataset"


def unwritable(path: str, error: OSError) -> DatasetError:
    """Return what it is to the user that a file cannot be written."""
    reason = error.strerror or str(error)
    return DatasetError(f"cannot write {path}: {reason}", "running again goes on from here")


class Part(NamedTuple):
    """One part of a dataset."""

    run: str
    number: int

    @property
    def name(self) -> str:
        """Where its file is, below the folder of a kind."""
        return f"run={self.run}/part-{self.number:04d}.parquet"


class Layout:
    """Where the files of a dataset are.

    :param folder: its path, or a URL.
    :ivar place: its files, by the names that :meth:`name` gives.
    :ivar pending: the folder of rows that are in no part yet.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.place = place_of(folder)
        self.pending = os.path.join(folder, "pending")

    @property
    def stored(self) -> bool:
        """Whether it is in an object store: then whoever forks has a child do what reads or writes it."""
        return is_url(self.folder)

    def name(self, kind: str, part: Part) -> str:
        """Return the name of the file with the rows of a kind."""
        return f"{kind}/{part.name}"

    def path(self, kind: str, part: Part) -> str:
        """Return where the rows of a kind are."""
        return os.path.join(self.folder, self.name(kind, part))

    def empty_name(self, kind: str) -> str:
        """Return the name of the file with a kind's columns, without rows."""
        return f"{_SCHEMA}/{kind}.parquet"

    def empty_path(self, kind: str) -> str:
        """Return where a kind's columns are, without rows."""
        return os.path.join(self.folder, self.empty_name(kind))

    def pending_path(self, core: str) -> str:
        """Return where rows of a core are that are in no part yet."""
        return os.path.join(self.pending, f"{core}.json")

    def kinds(self) -> Sequence[str]:
        """Return the kinds that have columns, those of later versions too."""
        names = (name.rpartition("/")[2] for name in self.place.sizes(_SCHEMA))
        return sorted(name[: -len(".parquet")] for name in names if name.endswith(".parquet"))

    def make(self) -> None:
        """Make the folder, or check the one that is there.

        :raises DatasetError: it is something else, of a version that is not known, or cannot be made.
        """
        try:
            self._make()
        except OSError as error:
            raise unwritable(self.folder, error) from None
        self.check()

    def _make(self) -> None:
        if self._is_empty():
            self.place.write(_FACTS, json.dumps({"schema": SCHEMA}).encode() + b"\n")
        if not self.stored and os.path.exists(os.path.join(self.folder, _FACTS)):
            os.makedirs(self.pending, exist_ok=True)

    def _is_empty(self) -> bool:
        if self.stored:
            return not self.place.sizes()
        return not os.path.isdir(self.folder) or not os.listdir(self.folder)

    def check(self) -> None:
        """Check that it is a dataset that can be read.

        :raises DatasetError: it is not.
        """
        try:
            facts: Mapping[str, str] = json.loads(self.place.read(_FACTS))
        except (OSError, ValueError):
            hint = "gdbext fleet run SOURCE… -o DIR makes one"
            raise DatasetError(f"{self.folder} is no dataset of gdbext fleet", hint) from None
        if facts.get("schema") != SCHEMA:
            raise DatasetError(f"{self.folder} has the schema {facts.get('schema')}, and this gdbext knows {SCHEMA}")

    @contextmanager
    def written(self) -> Iterator[None]:
        """Be the only one who writes.

        :raises UsageError: somebody else does.
        """
        if self.stored:
            yield from self._scratch()
            return
        lock = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(lock, self.folder)
            yield
        finally:
            os.close(lock)

    def _scratch(self) -> Iterator[None]:
        """Have what is pending in a folder that is removed afterwards: a store takes whole parts."""
        folder = LockedFolder()
        self.pending = os.path.join(folder.path, "pending")
        os.mkdir(self.pending, 0o700)
        try:
            yield
        finally:
            folder.remove()

    def parts(self) -> Sequence[Part]:
        """Return the parts that count, in order."""
        there = self.found(LAST)
        return sorted(there - self._replaced(there))

    def replace(self, part: Part, those: Sequence[Part]) -> None:
        """Note which parts another one is made of: from the moment that it counts, they do not.

        :param part: that is not written yet.
        :raises OSError: it cannot be written.
        """
        self.place.write(_json_name(part), json.dumps(those).encode())

    def clean(self, kinds: Sequence[str]) -> None:
        """Remove what a run has left that was killed: parts that do not count, and files that are not whole.

        What another run may be at work on in a store stays, since nothing there says whose it is.
        """
        there = self.found(LAST)
        replaced = self._replaced(there)
        for kind in sorted(kinds, key=lambda kind: kind != LAST):
            for part in self.found(kind) - (there - replaced):
                if part in replaced or self._is_left(self.name(kind, part)):
                    self.place.remove(self.name(kind, part))
        for part in self.found(_REPLACED):
            if part in there or self._is_left(_json_name(part)):
                self.place.remove(_json_name(part))
        if isinstance(self.place, Files):
            self.place.remove_unfinished()

    def _is_left(self, name: str) -> bool:
        return self.place.age(name) >= self.place.patience

    def _replaced(self, there: Set[Part]) -> Set[Part]:
        """Return the parts that do not count because others are made of them, which are there."""
        made = sorted(self.found(_REPLACED) & there)
        return {Part(*each) for part in made for each in json.loads(self.place.read(_json_name(part)))}

    def found(self, kind: str) -> Set[Part]:
        """Return the parts that have a file of a kind, whether they count or not."""
        matches = map(_PART.fullmatch, self.place.sizes(kind))
        return {Part(match[1], int(match[2])) for match in matches if match}


def copied(layout: Layout, folder: str) -> Layout:
    """Return a copy, in a folder, of what a dataset in a store has to be asked: files of parts that count.

    :raises DatasetError: there is no room for it.
    :raises StoreError: it cannot be read.
    """
    parts = set(layout.parts())
    wanted: Dict[str, int] = {}
    for name, size in layout.place.sizes().items():
        match = _PART.fullmatch(name)
        if name.count("/") < 2 or (match and Part(match[1], int(match[2])) in parts):
            wanted[name] = size
    room = shutil.disk_usage(folder).free
    if sum(wanted.values()) > room:
        what = f"{layout.folder} has {size_text(sum(wanted.values()))}, and {folder} has room for {size_text(room)}"
        raise DatasetError(what, "TMPDIR names another place")
    assert isinstance(layout.place, Objects)
    layout.place.copy({name: os.path.join(folder, name) for name in wanted})
    return Layout(folder)


def _json_name(part: Part) -> str:
    return f"{_REPLACED}/{part.name[: -len('parquet')]}json"


def _lock(lock: int, folder: str) -> None:
    """Take the lock; children of a run that was killed have it until they are dead, too."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                hint = "wait for its end, or name another folder"
                raise UsageError(f"another run writes to {folder}", hint) from None
        time.sleep(_PAUSE)
