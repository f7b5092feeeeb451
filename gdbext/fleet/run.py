"""A run over many cores: what is not in the dataset yet is examined, and put there."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Sequence, Union

from gdbext.cli.workfolder import is_full
from gdbext.errors import GdbextError
from gdbext.files import replacing
from gdbext.fleet import child
from gdbext.fleet.cluster import ClusterPool
from gdbext.fleet.examine import Document, How, examine, failed, measured
from gdbext.fleet.kinds import NAMES
from gdbext.fleet.layout import LAST, DatasetError, Layout, Part, unwritable
from gdbext.fleet.merging import merge_small
from gdbext.fleet.parts import find_done, write_part
from gdbext.fleet.pool import Limits, Outcome, Pool, Watcher
from gdbext.fleet.retrying import find_failed, take_out
from gdbext.fleet.sources import Source, is_unchanged
from gdbext.fleet.stores.fetching import examine_there
from gdbext.starting.lockedfolder import remove_left
from gdbext.wording import size_text

_CORES, _BYTES, _SECONDS = 500, 32 << 20, 300.0  # of a part at most: cores, what is pending of them, since the last


class Summary(NamedTuple):
    """What a run came to.

    :param examined: cores that have rows now.
    :param failed: of them without an answer.
    :param before: that had rows before.
    """

    examined: int
    failed: int
    before: int


@dataclass(frozen=True)
class Wishes:
    """What is to be done besides.

    :param discard: whether cores are removed once all have their rows in the dataset.
    :param retry: whether cores that have no answer are examined again.
    :param scheduler: of a Dask cluster, whose workers examine; "" where our own children do.
    """

    discard: bool = False
    retry: bool = False
    scheduler: str = ""


class Run:
    """One run. The dataset is its own while it lasts.

    :param folder: of the dataset, or its URL.
    """

    def __init__(self, folder: str, how: How, limits: Limits, watcher: Watcher, wishes: Wishes = Wishes()) -> None:
        self._layout = Layout(folder)
        self._how = how
        self._limits = limits
        self._watcher = watcher
        self._wishes = wishes
        self._again: FrozenSet[str] = frozenset()  # cores whose rows are to be replaced
        self._name = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ-") + os.urandom(2).hex()
        self._parts = 0
        self._pending: Dict[str, int] = {}  # bytes, by core
        self._gathered = time.monotonic()

    def run(self, sources: Sequence[Source]) -> Summary:
        """Examine what has no rows yet.

        :raises DatasetError: there is no room, or it cannot be written. What was finished before is kept.
        :raises MissingDependencyError: pyarrow is not there.
        """
        remove_left()
        self._do(self._layout.make)
        with self._layout.written():
            self._do(partial(self._layout.clean, NAMES))
            known = child.run(partial(find_done, self._layout))
            if self._wishes.retry:
                failed_before = child.run(partial(find_failed, self._layout))
                self._again = frozenset(failed_before) & {source.core for source in sources}
            self._pending = {core: os.path.getsize(self._layout.pending_path(core)) for core in known["pending"]}
            before = {*known["done"], *known["pending"]} - self._again
            todo = [source for source in sources if source.core not in before]
            try:
                failures = self._examine(todo)
            except KeyboardInterrupt:
                if self._layout.stored:  # where what is pending goes away
                    self._gather()
                raise
            self._gather()
            self._merge()
            remove_left()  # of cores whose time was over: theirs are dead by now
            if self._wishes.discard:
                _remove(sources)
        return Summary(len(todo), failures, len(sources) - len(todo))

    def _do(self, work: Callable[[], None]) -> None:
        """Do what reads or writes the dataset; a client of a store has threads, and who forks has one."""
        if self._layout.stored:
            child.run(work)
        else:
            work()

    def _examine(self, todo: Sequence[Source]) -> int:
        pool = self._pool()
        failures = 0
        try:
            for outcome in pool.run(todo):
                found = measured(self._document(outcome), outcome.ended.seconds, outcome.ended.cpu, outcome.ended.peak)
                failures += "answers" not in found["rows"]
                self._keep(found)
                self._gather_if_due()
        finally:
            pool.stop()
        return failures

    def _pool(self) -> Union[Pool, ClusterPool]:
        if self._wishes.scheduler:
            return ClusterPool(self._wishes.scheduler, self._how, self._limits, self._watcher)
        return Pool(self._work, self._limits, self._watcher)

    def _work(self, source: Source) -> "partial[Document]":
        return partial(examine_there, examine, source, self._how)

    def _document(self, outcome: Outcome) -> Document:
        """Return the rows of a core, those of its failure where its child did not return any."""
        source, ended = outcome.source, outcome.ended
        if outcome.late or ended.code < 0:
            remove_left()  # its temporary files
        if outcome.late:
            return failed(source, "timeout", f"there was no answer after {self._limits.seconds:g} s")
        if ended.code < 0:
            return failed(source, "killed", f"its process was ended by signal {-ended.code}, three times")
        try:
            found: Document = ended.result()
        except GdbextError as error:
            within = f"; it may take {size_text(outcome.memory)}" if error.kind == "too-large" else ""
            found = failed(source, error.kind, f"{error.message}{within}")
        if "answers" not in found["rows"] and is_full(tempfile.gettempdir()):  # not the core's fault
            raise DatasetError(f"no room to work in: {tempfile.gettempdir()} is full", "TMPDIR names the place for it")
        return found

    def _keep(self, found: Document) -> None:
        text, path = json.dumps(found).encode(), self._layout.pending_path(found["core"])
        try:
            with replacing(path) as stream:
                stream.write(text)
        except OSError as error:
            raise unwritable(path, error) from None
        self._pending[found["core"]] = len(text)

    # ---- parts ----

    def _gather_if_due(self) -> None:
        late = time.monotonic() - self._gathered > _SECONDS
        if late or len(self._pending) >= _CORES or sum(self._pending.values()) >= _BYTES:
            self._gather()

    def _gather(self) -> None:
        """Put what is pending into parts."""
        while self._pending:
            self._parts += 1
            cores = self._next_part()
            child.run(partial(self._write, Part(self._name, self._parts), cores))
            for core in cores:
                del self._pending[core]
        self._gathered = time.monotonic()

    def _write(self, part: Part, cores: Sequence[str]) -> None:
        again = self._again.intersection(cores)
        if again and part not in self._layout.found(LAST):
            take_out(self._layout, again)
        write_part(self._layout, part, cores)

    def _merge(self) -> None:
        if self._parts:
            child.run(partial(merge_small, self._layout, Part(self._name, self._parts + 1)))

    def _next_part(self) -> Sequence[str]:
        cores: List[str] = []
        size = 0
        for core, bytes_ in self._pending.items():
            if cores and (len(cores) == _CORES or size + bytes_ > _BYTES):
                break
            cores.append(core)
            size += bytes_
        return cores


def _remove(sources: Sequence[Source]) -> None:
    """Remove cores, unless one has changed since: then it is another, without rows."""
    for source in sources:
        with suppress(FileNotFoundError):
            if is_unchanged(source):
                os.unlink(source.path)
