"""Objects of CPython in malloc's blocks, by the type object that they point to; works without symbols.

CPython 3.9 to 3.13, Include/object.h (PyObject: reference count, type) and Include/cpython/object.h (PyTypeObject: a
PyVarObject, then ``tp_name``); Include/internal/pycore_gc.h (PyGC_Head: two words before objects with links). Builds
without the global lock, and those that trace references, lay objects out otherwise and are not recognised.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.model import HIGH, MEDIUM, PYTHON
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import slices
from gdbext.progress import Progress

I64 = npt.NDArray[np.int64]

_SAMPLE = 1 << 17  # rows that are looked at first
_MOST_TYPES = 1 << 16
_MOST_KINDS = 64  # that are their own type: there is one in an interpreter
_MOST_REFERENCES = 1 << 32  # immortal objects of 3.12 have 2**32 - 1, those of 3.14 a few bits more
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-<>]*$")
# Words before an object: none; PyGC_Head; before that the pointers to attributes (3.11 on, Objects/typeobject.c,
# _PyType_PreHeaderSize).
_BEFORE = (0, 2, 4)
# Memory that objects own: of which type, at which word the pointer to it stands, and what it is (Include/cpython/
# dictobject.h, listobject.h).
_OWNED = (("dict", 4, "dict keys"), ("list", 3, "list items"))

Found = Tuple[I64, U64]  # rows, and the addresses of their types


def put_python(words: Words, sheet: Sheet, progress: Progress) -> None:
    """Type the rows that are objects of CPython and nothing surer."""
    names: Dict[int, Optional[str]] = {}
    step = len(sheet.code) // _SAMPLE
    if step > 1 and not _put_rows(words, sheet, np.arange(0, len(sheet.code), step), names):
        return  # no interpreter is behind millions of blocks of which none in a hundred thousand is its object
    for part in slices(len(sheet.code)):
        progress.at("recognising Python's objects", part.start, len(sheet.code))
        _put_rows(words, sheet, np.arange(part.start, part.stop), names)


def _put_rows(words: Words, sheet: Sheet, rows: I64, names: "dict[int, Optional[str]]") -> bool:
    """Type rows of which nothing is known yet; return whether any type object was found so far."""
    for before in _BEFORE:
        unknown = rows[sheet.confidence[rows] == 0]
        _put_part(words, sheet, _with_types(words, unknown, before), before, names)
    return bool(names)


def _put_part(words: Words, sheet: Sheet, found: Found, before: int, names: "dict[int, Optional[str]]") -> None:
    rows, types = found
    distinct, inverse = np.unique(types, return_inverse=True)
    codes = np.zeros(len(distinct), np.uint32)
    for at in np.flatnonzero(_are_types(words, distinct)).tolist():
        name = _name_of_type(words, int(distinct[at]), names)
        if name is not None:
            codes[at] = sheet.code_of(name, PYTHON)
    own = codes[inverse.ravel()]
    sheet.code[rows[own > 0]] = own[own > 0]
    sheet.confidence[rows[own > 0]] = HIGH
    for name, at, what in _OWNED:
        if name in names.values():
            _put_owned(words, sheet, rows[own == sheet.code_of(name, PYTHON)], before + at, what)


def _put_owned(words: Words, sheet: Sheet, owners: I64, at: int, what: str) -> None:
    """Type the blocks that objects point to with a certain word."""
    offset = np.uint64(at * words.size)
    owners = owners[words.index.size[owners] >= offset + np.uint64(words.size)]
    values, known = words.in_blocks(words.index.address[owners] + offset)
    rows = words.rows_at(values[known])
    sheet.claim(np.unique(rows[rows >= 0]), sheet.code_of(what, PYTHON), MEDIUM)


def _with_types(words: Words, rows: I64, before: int) -> Found:
    """Return the rows with a count of references, and what stands where the type's address would."""
    at = np.uint64(before * words.size)
    rows = rows[words.index.size[rows] >= at + np.uint64(2 * words.size)]
    counts, known = words.in_blocks(words.index.address[rows] + at)
    held: Mask = known & (counts > 0) & (counts <= np.uint64(_MOST_REFERENCES))
    rows = rows[held]
    types, known = words.in_blocks(words.index.address[rows] + at + np.uint64(words.size))
    held = known & (types % np.uint64(words.size) == 0)
    held[held] = words.mapped(types[held])
    return rows[held], types[held]


def _name_of_type(words: Words, address: int, names: "dict[int, Optional[str]]") -> Optional[str]:
    if address not in names and len(names) < _MOST_TYPES:
        at, known = words.read(np.array([address + 3 * words.size], np.uint64))
        names[address] = _read_name(words, int(at[0])) if known[0] else None
    return names.get(address)


def _are_types(words: Words, types: U64) -> Mask:
    """Return which are objects whose type is ``type``, or a metaclass whose type is."""
    left = np.arange(len(types))
    above: List[U64] = [types]
    for _ in range(3):
        values, known = words.read(above[-1] + np.uint64(words.size))
        known &= words.mapped(values)
        left, above = left[known], [*(one[known] for one in above), values[known]]
    held: Mask = above[2] == above[3]  # ``type`` is the only one that is its own type
    kinds = np.unique(above[2][held])[:_MOST_KINDS]
    named = np.array([kind for kind in kinds.tolist() if _is_type(words, kind)], np.uint64)
    good = np.zeros(len(types), np.bool_)
    good[left[held & np.isin(above[2], named)]] = True
    return good


def _is_type(words: Words, address: int) -> bool:
    names, known = words.read(np.array([address + 3 * words.size], np.uint64))
    return bool(known[0]) and _read_name(words, int(names[0])) == "type"


def _read_name(words: Words, address: int) -> Optional[str]:
    if not words.mapped(np.array([address], np.uint64))[0]:
        return None
    text = words.target.reader.find_string(address, 256)
    return text if text and _NAME.match(text) else None
