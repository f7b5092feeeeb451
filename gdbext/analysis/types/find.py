"""Finds what every live block is: what is surest first, what is left by its contents."""

from __future__ import annotations

from typing import Dict, Iterable, List, Sequence, Tuple

import numpy as np

from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.fits import Fits
from gdbext.analysis.types.flattened import Layout, Layouts
from gdbext.analysis.types.hints import put_contents
from gdbext.analysis.types.languages.classes import arrays_of, put_classes, type_classes
from gdbext.analysis.types.languages.python import put_python
from gdbext.analysis.types.languages.vtables import Table, TableReader, first_words
from gdbext.analysis.types.model import HIGH, MEDIUM, VTABLE, BlockTypes
from gdbext.analysis.types.propagate import Propagation
from gdbext.analysis.types.shaped import ShapedTable, put_shaped
from gdbext.analysis.types.similarity import put_similarity
from gdbext.debuginfo import Clues, TypedPlace
from gdbext.kernels import NOT_REACHED
from gdbext.layout.types import Code, Type
from gdbext.memory.intervals import slices
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target
from gdbext.wording import grouped

_OBJECTS = 1 << 28  # whose pointers are followed
_OFTEN = 4  # one in so many


def find_types(
    reach: Reach,
    clues: Clues,
    progress: Progress,
    leaked: bool = False,
    objects: int = _OBJECTS,
    tables: Iterable[ShapedTable] = (),
) -> BlockTypes:
    """Return what each live block is, as far as it can be known.

    :param leaked: whether only leaked blocks matter, which takes far less time: pointers of variables lead to none.
        What these are like is not known then.
    :param objects: whose pointers are followed at most.
    :param tables: what walks along tables of known shapes have found.

    In order of trust: a class by its virtual table, CPython's objects, types of pointers from typed places on with
    containers among them, elements of tables, contents, similarity. What was stopped on the way is kept, and a problem
    says so.
    """
    sheet = Sheet(len(reach), reach.states == NOT_REACHED if leaked else None)
    problems: List[Problem] = []
    try:
        words = Words(reach)
        problems += _find(words, clues, sheet, progress, () if leaked else clues.places(), objects)
        put_shaped(words, sheet, tables)
        put_contents(words, sheet, progress)
        if not leaked:
            put_similarity(words, sheet, reach.states == NOT_REACHED, progress)
    except KeyboardInterrupt:
        problems.append(Problem("interrupted", None, "types of blocks: stopped, so the rest is unknown"))
    return sheet.result([*clues.problems, *problems])


def _find(
    words: Words, clues: Clues, sheet: Sheet, progress: Progress, places: Iterable[TypedPlace], objects: int
) -> Sequence[Problem]:
    fits, target = Fits(words.reach), words.target
    reader = TableReader(target, words, clues.demangle)
    classes = put_classes(target, words, sheet, reader, progress)
    tagged = not (classes[2] or _has_cplusplus(target))
    layouts = Layouts(clues.find_type, words.size, tagged)
    work = Propagation(words, sheet, layouts, fits, objects, progress)
    for one in type_classes(sheet, words, fits, layouts, classes):
        work.add(one.layout, words.index.address[one.rows], one.count, one.confidence)
    put_python(words, sheet, progress)
    _start_at(work, layouts, places)
    work.run()
    sheet.settle()
    _doubt_with_more(words, sheet)
    _put_arrays(words, sheet, classes[2], progress)
    late = Problem("types-cut-short", None, f"following typed pointers ended after {grouped(objects)} objects")
    return [] if work.complete else [late]


def _doubt_with_more(words: Words, sheet: Sheet) -> None:
    """Lower types whose blocks often hold something behind the object, where the allocator rounds up by a word.

    It may be of the block's last owner; or these are larger objects that only begin with one.
    """
    ends = ((sheet.sizes() + words.size - 1) // words.size * words.size).astype(np.uint64)
    rows = np.flatnonzero((sheet.confidence == HIGH) & (ends > 0)[sheet.code])
    room, more = np.zeros(len(ends), np.int64), np.zeros(len(ends), np.int64)
    for part in slices(len(rows)):
        some = rows[part]
        some = some[words.index.size[some] >= ends[sheet.code[some]] + np.uint64(words.size)]
        values, _ = words.in_blocks(words.index.address[some] + ends[sheet.code[some]])
        room += np.bincount(sheet.code[some], minlength=len(ends))
        more += np.bincount(sheet.code[some[values != 0]], minlength=len(ends))
    sheet.lower((room > 0) & (_OFTEN * more >= room))


def _has_cplusplus(target: Target) -> bool:
    names = (module.path.rsplit("/", 1)[-1] for module in target.modules)
    return any(name.startswith(("libstdc++", "libc++")) for name in names)


def _start_at(work: Propagation, layouts: Layouts, places: Iterable[TypedPlace]) -> None:
    """Hand the places over, those of one type together."""
    found: Dict[Tuple[Layout, bool], List[Tuple[int, int]]] = {}
    for place in places:
        type, count = _unwrapped(place.type)
        layout = layouts.of(type)
        if layout is not None and count:
            found.setdefault((layout, place.pointed), []).append((place.address, count))
    for (layout, pointed), objects in found.items():
        address = np.array([one[0] for one in objects], np.uint64)
        if pointed:
            work.add_pointed(layout, address, HIGH)
        else:
            work.add(layout, address, np.array([one[1] for one in objects], np.int64), HIGH)


def _unwrapped(type: Type) -> Tuple[Type, int]:
    """Return an array's elements and their number; 1 of what is no array."""
    count = 1
    while type.code is Code.ARRAY and type.target is not None:
        count *= type.length or 0
        type = type.target
    return type, count


def _put_arrays(words: Words, sheet: Sheet, tables: List[Table], progress: Progress) -> None:
    """Type what ``new X[n]`` made, of which no pointer's type has told yet."""
    shown = {table.address: table.shown for table in tables}
    if not shown:
        return
    for rows, values in first_words(words, sheet.unknown(), 0, progress):
        held, seconds = arrays_of(words, rows, values, tables)
        for value in np.unique(seconds).tolist():
            code = sheet.code_of(f"{shown[value]}[]", VTABLE)
            sheet.claim(held[seconds == np.uint64(value)], code, MEDIUM)
