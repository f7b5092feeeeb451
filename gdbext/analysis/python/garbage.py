"""``python garbage``: objects that only the collector still knows: cycles that nothing else leads to.

The collector's lists link all containers, so that everything is reached through them. Here their links do not count,
nor do those of weak references: what is unreachable then, the next full collection frees, unless it is switched off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Sequence

import numpy as np

from gdbext.analysis.python.objects import Objects, find_objects
from gdbext.analysis.python.owned import I32, find_owned
from gdbext.analysis.python.strong import find_tracked, strong_reach
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.analysis.types.blockwords import Words
from gdbext.errors import NoHeapError
from gdbext.heap.model import Mask
from gdbext.kernels import NOT_REACHED
from gdbext.progress import Progress
from gdbext.report import Kind, Report, column, line, table


@dataclass(frozen=True)
class GarbageRow:
    """The unreachable objects of one type.

    :param name: "module.Class"; of builtins without the module.
    :param objects: that the collector tracks.
    :param bytes: of their blocks and of what each has for itself, as ``total_bytes`` of ``python types``.
    :param sample: address of the first object, as Python's ``id`` has it.
    """

    name: str = column("type")
    objects: int = column("objects", Kind.COUNT)
    bytes: int = column("with what they own", Kind.BYTES)
    sample: int = column("sample", Kind.ADDRESS)


@dataclass(frozen=True)
class PythonGarbage:
    """What ``python garbage`` answers, the type with most bytes first.

    :param tracked: objects in the collector's lists.
    :param objects: of them, those that nothing else leads to.
    :param kept_bytes: of all blocks that are reached through these alone.
    """

    tracked: int = line("tracked by the collector", Kind.COUNT)
    objects: int = line("unreachable", Kind.COUNT)
    kept_bytes: int = line("bytes that only they keep", Kind.BYTES)
    types: Sequence[GarbageRow] = table("Types")


def garbage_report(reach: Reach, most_taken: int, progress: Progress) -> Report:
    """Return the objects that only the collector's lists lead to, by type.

    :param most_taken: bytes of our own memory that may be taken; 0 is nine tenths of what is free.
    :raises NoHeapError: there are no objects of CPython.
    :raises TooLargeError: there is not enough memory for a copy.
    """
    words = Words(reach)
    objects = find_objects(words, np.ones(len(reach), np.bool_), progress)
    if len(objects.types) == 1:
        raise NoHeapError("no objects of CPython in this target", "of builds without the global lock only 3.13 is read")
    owned = find_owned(words, objects, progress)
    progress.at("following pointers", 0, None)
    tracked = find_tracked(words, objects)[0]
    lost = strong_reach(reach, words, objects, owned, most_taken).states == NOT_REACHED
    if not objects.reader.head:  # there no list of the collector leads to them
        lost &= reach.states != NOT_REACHED
    found = np.zeros(len(reach), np.bool_)
    found[tracked] = lost[tracked]
    rows = sorted(_rows(reach, objects, found, owned.roots()), key=lambda row: (-row.bytes, row.name))
    kept = int(reach.size[lost].sum()) if found.any() else 0
    return report_on_reach(reach, PythonGarbage(len(tracked), int(np.count_nonzero(found)), kept, rows))


def _rows(reach: Reach, objects: Objects, found: Mask, roots: I32) -> Iterator[GarbageRow]:
    rows = np.flatnonzero(found)
    size = reach.size.astype(np.int64)
    code = np.where(found, objects.code, 0)
    count = np.bincount(code, minlength=len(objects.types))
    bytes_ = np.bincount(code[roots], size, len(objects.types)).astype(np.int64)
    first: List[int] = [0] * len(objects.types)
    for row in rows[::-1].tolist():
        first[int(objects.code[row])] = row
    for number, one in enumerate(objects.types):
        if one is not None and count[number]:
            row = first[number]
            sample = int(reach.address[row]) + objects.place_of(row)
            yield GarbageRow(one.name, int(count[number]), int(bytes_[number]), sample)
