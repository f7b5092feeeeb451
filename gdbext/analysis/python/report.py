"""``python types``: objects by type, with what they own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence

import numpy as np

from gdbext.analysis.python.objects import I64, Objects, find_objects
from gdbext.analysis.python.owned import NOBODY, find_owned
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.analysis.types.blockwords import Words
from gdbext.errors import NoHeapError
from gdbext.progress import Progress
from gdbext.report import Kind, Report, column, line, table


@dataclass(frozen=True)
class PythonTypeRow:
    """The objects of one type.

    :param name: "module.Class"; of builtins without the module.
    :param objects: that live; those of the interpreter's own static memory are not among them.
    :param bytes: of the blocks that they lie in; of dicts those that are no part of an instance.
    :param owned_bytes: of blocks that each has for itself: items of lists, tables of dicts and sets, values of
        instances, and an instance's dict with its table where nothing else refers to it.
    :param total_bytes: of both.
    :param share: of ``total_bytes`` of all.
    :param sample: address of the first object, as Python's ``id`` has it.
    """

    name: str = column("type")
    objects: int = column("objects", Kind.COUNT)
    total_bytes: int = column("with what they own", Kind.BYTES)
    bytes: int = column("bytes", Kind.BYTES)
    owned_bytes: int = column("owned", Kind.BYTES)
    share: float = column("share", Kind.SHARE)
    sample: int = column("sample", Kind.ADDRESS)


@dataclass(frozen=True)
class PythonTypes:
    """What ``python types`` answers, the type with most bytes first.

    :param objects: live ones in blocks of all heaps.
    :param total_bytes: of their blocks, and of what they own.
    :param kept_objects: freed ones, which the interpreter keeps for the next of their type.
    :param kept_bytes: of their blocks.
    :param other_bytes: of all other blocks in use.
    """

    objects: int = line("objects", Kind.COUNT)
    total_bytes: int = line("bytes with what they own", Kind.BYTES)
    kept_objects: int = line("freed and kept", Kind.COUNT)
    kept_bytes: int = line("bytes of these", Kind.BYTES)
    other_bytes: int = line("bytes of other blocks", Kind.BYTES)
    types: Sequence[PythonTypeRow] = table("Types")


def types_report(reach: Reach, progress: Progress) -> Report:
    """Return the objects of CPython by type.

    :raises NoHeapError: there are none.
    """
    words = Words(reach)
    objects = find_objects(words, np.ones(len(reach), np.bool_), progress)
    if len(objects.types) == 1:
        raise NoHeapError("no objects of CPython in this target", "of builds without the global lock only 3.13 is read")
    size = reach.size.astype(np.int64)
    code = np.where(objects.kept, 0, objects.code)
    owned = find_owned(words, objects, progress)
    lone = owned.owner == NOBODY
    own = np.bincount(code[lone], size[lone], len(objects.types)).astype(np.int64)
    total = np.bincount(code[owned.roots()], size, len(objects.types)).astype(np.int64)
    rows = sorted(_rows(reach, objects, own, total), key=lambda row: (-row.total_bytes, row.name))
    data = PythonTypes(
        int(np.count_nonzero(code)),
        int(total[1:].sum()),
        int(np.count_nonzero(objects.kept)),
        int(size[objects.kept].sum()),
        int(total[0]) - int(size[objects.kept].sum()),
        rows,
    )
    return report_on_reach(reach, data)


def _rows(reach: Reach, objects: Objects, own: I64, total: I64) -> Iterator[PythonTypeRow]:
    codes = np.where(objects.kept, 0, objects.code)
    count = np.bincount(codes, minlength=len(objects.types))
    first = np.zeros(len(objects.types), np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of several the last that is written stays
    whole = max(int(total[1:].sum()), 1)
    for code, one in enumerate(objects.types):
        if one is None or not count[code]:
            continue
        row = int(first[code])
        sample = int(reach.address[row]) + objects.place_of(row)
        bytes_, all_ = int(own[code]), int(total[code])
        yield PythonTypeRow(one.name, int(count[code]), all_, bytes_, all_ - bytes_, all_ / whole, sample)
