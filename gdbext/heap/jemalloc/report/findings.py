"""What jemalloc's own view recognises: decay that has stalled, slabs that are mostly empty."""

from __future__ import annotations

from typing import Sequence

from gdbext.heap.jemalloc.decay.stall import find_stalled
from gdbext.heap.jemalloc.decay.state import read_decay
from gdbext.heap.jemalloc.model import Jemalloc
from gdbext.heap.jemalloc.report.emptiness import find_empty_slabs
from gdbext.report import Finding


def find_findings(heap: Jemalloc) -> Sequence[Finding]:
    """Return what is wrong with this heap; thresholds of bytes are the caller's."""
    found = (find_stalled(heap, read_decay(heap)), find_empty_slabs(heap))
    return [finding for finding in found if finding is not None]
