"""What an address is in tcmalloc's own terms: object and span, large block, free span."""

from __future__ import annotations

import os
from typing import Optional

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.tcmalloc.layouts import IN_USE, ON_NORMAL, SAMPLED
from gdbext.heap.tcmalloc.model import HOLDERS, Tcmalloc
from gdbext.wording import size_text

_MOST_CALLERS, _SHOWN = 31, 4  # kMaxStackDepth; of them on a line


def explain(heap: Tcmalloc, address: int) -> Optional[str]:
    """Return one line on an address, or None when it is in no span."""
    spans = heap.spans
    at = int(np.searchsorted(spans.start, np.uint64(address), side="right")) - 1
    if at < 0 or address - int(spans.start[at]) >= int(spans.size[at]):
        return None
    where = f"span {int(spans.start[at]):#x} of {size_text(int(spans.size[at]))}"
    if spans.location[at] != IN_USE:
        return f"{where}, free" if spans.location[at] == ON_NORMAL else f"{where}, free and returned to the system"
    number = int(spans.sizeclass[at])
    if not number:
        return f"large block, {where}{_sampled(heap, at)}"
    each, count = heap.location.classes[number], int(heap.objects.count[at])
    nth = (address - int(spans.start[at])) // each
    if nth >= count:
        return f"behind the last object in {where}"
    holder = HOLDERS[heap.objects.held[heap.objects.first[at] + nth]]
    return f"object {nth} of {count} ({each} bytes each) in {where}, {holder}"


def _sampled(heap: Tcmalloc, at: int) -> str:
    """Return what tcmalloc kept of a block that it sampled (``StackTrace``): bytes asked for, and who called."""
    if not int(heap.spans.flags[at]) & SAMPLED:
        return ""
    try:
        size, depth, *callers = heap.target.reader.words(int(heap.spans.objects[at]), 2 + _MOST_CALLERS)
    except FaultError:
        return ", sampled"
    stack = " < ".join(_place(heap, caller) for caller in callers[: min(depth, _SHOWN)])
    return f", sampled: {size} bytes asked for by {stack}" if 0 < depth <= _MOST_CALLERS else ", sampled"


def _place(heap: Tcmalloc, address: int) -> str:
    module = heap.target.find_module(address)
    return f"{address:#x}" if module is None else f"{os.path.basename(module.path)}+{address - module.base:#x}"
