"""Objects of CPython and what they own, as types of blocks."""

from __future__ import annotations

import numpy as np

from gdbext.analysis.python.naming import PythonRuntime
from gdbext.analysis.python.objects import find_objects
from gdbext.analysis.python.owned import DICT_OF_INSTANCE, PARTS, find_owned
from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.model import HIGH, MEDIUM, PYTHON
from gdbext.progress import Progress


def put_python(words: Words, sheet: Sheet, progress: Progress) -> None:
    """Type the rows that are objects of CPython, or what these own, and nothing surer."""
    objects = find_objects(words, sheet.confidence == 0, progress)
    if len(objects.types) == 1:
        return
    owned = find_owned(words, objects, progress)
    codes = np.array([0, *(sheet.code_of(one.name, PYTHON) for one in objects.types if one)], np.uint32)
    rows = np.flatnonzero((objects.code > 0) & ~objects.kept)
    sheet.code[rows], sheet.confidence[rows] = codes[objects.code[rows]], HIGH
    for row in np.flatnonzero(objects.kept).tolist():
        one = objects.types[int(objects.code[row])]
        if one is not None:
            sheet.put(np.array([row]), sheet.code_of(f"{one.name}, freed and kept", PYTHON), MEDIUM)
    sheet.runtime = PythonRuntime(words, objects, owned)
    for number, name in enumerate(PARTS):
        if name != DICT_OF_INSTANCE:
            sheet.claim(np.flatnonzero(owned.part == number), sheet.code_of(name, PYTHON), MEDIUM)
