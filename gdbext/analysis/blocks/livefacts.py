"""What is known of live blocks beyond their heaps: reachability, types, references."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Sequence

import numpy as np

from gdbext.analysis.blocks.summary import report_on
from gdbext.analysis.leaks.doubts import doubts_text, find_doubts
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.model import BlockTypes
from gdbext.heap.model import U32, Heap
from gdbext.report import Problem, Report


@dataclass(frozen=True)
class Live:
    """What is known, by row of ``reach``.

    :param types: None where they were not asked for.
    :param refs: other live blocks and words of roots that point at each row; None as ``types``.
    """

    reach: Reach
    types: Optional[BlockTypes] = None
    refs: Optional[U32] = None


def count_references(reach: Reach) -> U32:
    """Return for each row how many other live blocks, and how many words of roots, point at or into it."""
    rows = len(reach)
    counts = np.bincount(reach.edges.to, minlength=rows).astype(np.uint32)
    counts += np.bincount(reach.marked.hits.memory.row, minlength=rows).astype(np.uint32)
    words = np.array([row for _, row, _ in reach.marked.hits.words], np.int64)
    counts += np.bincount(words, minlength=rows).astype(np.uint32)
    return counts


def report_on_live(heaps: Sequence[Heap], data: object, live: Optional[Live], notes: Sequence[str] = ()) -> Report:
    """Return a report with all that is to be said about how the heaps, and live blocks in them, were read.

    Where roots are missing, blocks may look leaked that are not, so the answer is not complete. Damage is told, and
    leaves it complete.
    """
    report = replace(report_on(heaps, data), notes=notes)
    if live is None:
        return report
    problems: List[Problem] = [*report.problems, *live.reach.marked.problems]
    problems += live.types.problems if live.types else ()
    doubts = find_doubts(live.reach)
    if doubts:
        what = f"{doubts_text(doubts)} could not be examined"
        notes = [*notes, f"{what}, so blocks may look leaked that are not: see `blocks leaks`"]
    complete = report.complete and live.reach.marked.complete and live.reach.marked.roots.complete
    return replace(report, problems=problems, notes=notes, complete=complete)
