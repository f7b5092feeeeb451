"""What analyses are given that need more than a target and its heaps. A session is one."""

from __future__ import annotations

from typing import Optional, Protocol, Sequence

from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import Reading
from gdbext.analysis.types.model import BlockTypes
from gdbext.debuginfo import DebugInfo
from gdbext.heap.model import Heap
from gdbext.progress import Progress
from gdbext.report import Settings
from gdbext.structures.shapes.library import Library
from gdbext.target import Target


class Sources(Protocol):
    """One target at one stop, with what was made of it before.

    :ivar settings: as ``set gx`` has them.
    :ivar progress: of what runs now.
    """

    settings: Settings
    progress: Progress

    @property
    def target(self) -> Target:
        """What is examined."""

    @property
    def debug(self) -> DebugInfo:
        """What a debugger knows of it."""

    @property
    def shapes(self) -> Library:
        """The containers that are known."""

    @property
    def known_heaps(self) -> Sequence[Heap]:
        """The heaps as far as somebody has asked for them before, for what is not worth a walk."""

    def heaps(self) -> Sequence[Heap]:
        """Return every heap; it may be none."""

    def reach(
        self, reading: Reading, progress: Optional[Progress] = None, most_copied: Optional[int] = None
    ) -> Reach:
        """Return what can be reached from the roots.

        :param reading: what counts as a pointer.
        :param most_copied: bytes of a process that may be copied; 0 is any number, None what the settings allow.
        :raises NoHeapError: when there is no heap.
        :raises TooLargeError: when more would have to be copied.
        """

    def leaked_types(self, reach: Reach, progress: Optional[Progress] = None, alike: bool = False) -> BlockTypes:
        """Return what the leaked blocks are; others may be unknown.

        :param alike: whether to say also what they are similar to, where blocks are few.
        """

    def block_types(self, reach: Reach) -> BlockTypes:
        """Return what all blocks are."""
