"""glibc's own view of its heap: what the builder fills and glibc's reports read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.find.underway import Underway
from gdbext.heap.glibc.read.lists import FreeList
from gdbext.heap.glibc.read.mmapped import Mmapped
from gdbext.heap.glibc.read.segments import ArenaHead, HeapInfo
from gdbext.heap.glibc.read.tcache import Cache
from gdbext.heap.glibc.read.walk import Walked
from gdbext.heap.glibc.sizes import Sizes
from gdbext.heap.model import Blocks
from gdbext.report import Problem, ThreadRef
from gdbext.target import Target


@dataclass
class ArenaView:
    """One arena with all that was found of it.

    :param threads: attached threads, or None when thread_arena could not be read.
    :param lists: its free lists that are not empty.
    :param listed: False where the heads of its lists are not in the core.
    """

    head: ArenaHead
    heaps: List[HeapInfo] = field(default_factory=list)
    walked: List[Walked] = field(default_factory=list)
    lists: List[FreeList] = field(default_factory=list)
    listed: bool = True
    problems: List[Problem] = field(default_factory=list)
    threads: Optional[Tuple[ThreadRef, ...]] = None

    @property
    def walked_bytes(self) -> int:
        """All bytes met, piece by piece."""
        return sum(walked.walked_bytes for walked in self.walked)

    @property
    def skipped_bytes(self) -> int:
        """Bytes of damaged or absent stretches."""
        return sum(walked.skipped_bytes for walked in self.walked)

    @property
    def met_bytes(self) -> int:
        """What was walked, and what was passed over."""
        return self.walked_bytes + self.skipped_bytes

    @property
    def top(self) -> Optional[Tuple[int, int]]:
        """Address and size of the top chunk, or None."""
        found = [(w.top, w.top_size) for w in self.walked if w.top is not None and w.top_size]
        return found[-1] if found else None


@dataclass
class GlibcHeap:
    """glibc's own view, for its own commands.

    :param thread_arenas: arena address by thread number, or None when it could not be read.
    :param blocks: of all arenas and the mmapped ones.
    :param complete: False when the walk was interrupted.
    :param underway: what threads were doing inside malloc.
    """

    target: Target
    location: Location
    sizes: Sizes
    arenas: List[ArenaView] = field(default_factory=list)
    caches: List[Cache] = field(default_factory=list)
    mmapped: Mmapped = Mmapped((), None, None)
    thread_arenas: Optional[Dict[int, int]] = None
    safe_linking: Optional[bool] = None
    blocks: Blocks = field(default_factory=Blocks.empty)
    problems: List[Problem] = field(default_factory=list)
    complete: bool = True
    underway: Underway = Underway()

    @property
    def whole(self) -> bool:
        """Whether all of it was read and all that malloc counts was met; what an arena in flux counts says nothing."""
        counted = self.mmapped.expected_blocks or 0
        return (
            self.complete
            and len(self.mmapped.chunks) >= counted
            and all(view.head.in_flux or view.met_bytes >= view.head.system_mem for view in self.arenas)
        )
