"""Where a dataset's files are, and which of them count. Nothing here imports what reads or writes rows.

::

    DIR/dataset.json                       name and version of the schema
    DIR/KIND/run=RUN/part-NNNN.parquet     rows of one kind
    DIR/schema/KIND.parquet                no rows: what columns a kind has
    DIR/pending/CORE.json                  rows of one core that are in no part yet
    DIR/lock                               held by whoever writes

A part counts once its file of kind ``cores`` is there, which is written last.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from contextlib import contextmanager, suppress
from typing import Iterator, Mapping, NamedTuple, Sequence

from gdbext.errors import GdbextError, UsageError
from gdbext.files import replacing

SCHEMA = "gdbext/fleet/1"
LAST = "cores"  # the kind whose file makes a part count
_FACTS = "dataset.json"
_PATIENCE, _PAUSE = 2.0, 0.05  # seconds that a lock is waited for; between two tries
_PART = re.compile(r"run=([^/]+)/part-([0-9]{4,})\.parquet")
_UNFINISHED = re.compile(r"\.gdbext-[0-9a-f]{12}\.part")  # as gdbext.files names what is not whole


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
    """A dataset's folder.

    :ivar folder: its path.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pending = os.path.join(folder, "pending")

    def path(self, kind: str, part: Part) -> str:
        """Return where the rows of a kind are."""
        return os.path.join(self.folder, kind, part.name)

    def empty_path(self, kind: str) -> str:
        """Return where a kind's columns are, without rows."""
        return os.path.join(self.folder, "schema", f"{kind}.parquet")

    def pending_path(self, core: str) -> str:
        """Return where rows of a core are that are in no part yet."""
        return os.path.join(self.pending, f"{core}.json")

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
        if not os.path.isdir(self.folder) or not os.listdir(self.folder):
            os.makedirs(self.pending, exist_ok=True)
            with replacing(os.path.join(self.folder, _FACTS)) as stream:
                stream.write(json.dumps({"schema": SCHEMA}).encode() + b"\n")
        if os.path.exists(os.path.join(self.folder, _FACTS)):
            os.makedirs(self.pending, exist_ok=True)

    def check(self) -> None:
        """Check that it is a dataset that can be read.

        :raises DatasetError: it is not.
        """
        try:
            with open(os.path.join(self.folder, _FACTS), encoding="utf-8") as file:
                facts: Mapping[str, str] = json.load(file)
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
        lock = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(lock, self.folder)
            yield
        finally:
            os.close(lock)

    def parts(self) -> Sequence[Part]:
        """Return the parts that count, in order."""
        return sorted(self._found(LAST))

    def clean(self, kinds: Sequence[str]) -> None:
        """Remove what a run has left that was killed: parts that do not count, and files that are not whole."""
        counted = set(self.parts())
        for kind in kinds:
            for part in set(self._found(kind)) - counted:
                os.unlink(self.path(kind, part))
        for folder, _, names in os.walk(self.folder):
            for name in filter(_UNFINISHED.fullmatch, names):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))

    def _found(self, kind: str) -> Iterator[Part]:
        place = os.path.join(self.folder, kind)
        for folder, _, names in os.walk(place):
            for name in names:
                if match := _PART.fullmatch(os.path.relpath(os.path.join(folder, name), place)):
                    yield Part(match[1], int(match[2]))


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
