"""What a snapshot knows of its process's pages, over the bytes that its file really has."""

from __future__ import annotations

from functools import cached_property
from typing import Sequence

from gdbext.memory import Region
from gdbext.memory.elf.snapshotnotes import SnapshotFacts
from gdbext.memory.intervals import Coverage, joined, shared, subtract, unite
from gdbext.memory.live.procmem import region_of, without
from gdbext.report import Problem


class SnapshotPages:
    """Pages as they were at the stop.

    :param facts: from the notes.
    :param held: what the file has bytes for, holes among them; the notes are not believed beyond it.
    """

    def __init__(self, facts: SnapshotFacts, held: Coverage) -> None:
        self.facts = facts
        self.presence = facts.presence()
        self._held = Coverage(*joined((held.starts, held.ends)))
        self._lost = facts.lost()

    @cached_property
    def written(self) -> Coverage:
        """What the process may have written, and is in the file."""
        kept = Coverage(*subtract(self.presence.written, self._lost)[:2])
        return Coverage(*joined(shared(kept, self._held)[:2]))

    @cached_property
    def untouched(self) -> Coverage:
        """Memory that is zeros since nothing ever was there."""
        kept = Coverage(*subtract(self.presence.untouched, self._lost)[:2])
        return Coverage(*joined(shared(kept, self._held)[:2]))

    def regions(self) -> Sequence[Region]:
        """Return the mappings, sorted by address; devices, and parts that are not in the file, are absent."""
        gone = unite([(one.starts, one.ends) for one in (self._lost, self.presence.swapped)]).covered
        return [part for one in self.facts.mappings for part in without(region_of(one), gone)]

    def check(self) -> Sequence[Problem]:
        """Return a problem for each reason for which memory is missing."""
        return self.facts.check(self.presence)
