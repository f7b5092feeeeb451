"""Layouts of CPython's objects, as data; those of builds without the global lock are the same behind two words more.

Include/object.h, Include/cpython/{object,dictobject,listobject,setobject,bytearrayobject,unicodeobject}.h and
Include/internal/pycore_dict.h of the tags v3.8.18, v3.9.18, v3.10.13, v3.11.7, v3.12.1, v3.13.0 and v3.14.0. What is
the same in all of them is in words; the rest is a row for each version, known by what ``type`` says of its own size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

# PyObject, PyVarObject, PyTypeObject: in words.
OB_TYPE, OB_SIZE = 1, 2
TP_NAME, TP_BASICSIZE, TP_ITEMSIZE, TP_FLAGS = 3, 4, 5, 21
TP_MEMBERS, TP_BASE, TP_DICT, TP_DICTOFFSET = 30, 32, 33, 36

INLINE_VALUES, MANAGED_WEAKREF, MANAGED_DICT, HEAPTYPE, READY, HAVE_GC = (
    1 << 2,
    1 << 3,
    1 << 4,
    1 << 9,
    1 << 12,
    1 << 14,
)
LONG_SUBCLASS, LIST_SUBCLASS, TUPLE_SUBCLASS, BYTES_SUBCLASS = 1 << 24, 1 << 25, 1 << 26, 1 << 27
UNICODE_SUBCLASS, DICT_SUBCLASS, BASE_EXC_SUBCLASS, TYPE_SUBCLASS = 1 << 28, 1 << 29, 1 << 30, 1 << 31

# Words before an object: PyGC_Head; before that, since 3.11, attributes and weak references that the interpreter keeps
# (Objects/typeobject.c, _PyType_PreHeaderSize); before all, in debug mode, the allocator's fence.
GC_HEAD, MANAGED, FENCE = 2, 2, 2

# In words, in all versions.
LIST_ITEMS = 3
DICT_USED, DICT_KEYS, DICT_VALUES = 2, 4, 5
SET_TABLE, SET_SMALLTABLE = 5, 8
BYTEARRAY_BUFFER = 4
WEAKREF_OBJECT = 2

# struct _dictkeysobject: bytes. Before 3.11 dk_size and a function pointer; since then logarithms.
OLD_KEYS, NEW_KEYS = "dk_size", "dk_log2_size"

# Where a plain instance has its attributes. A dict at tp_dictoffset; since 3.11 before the object: values at -4 words
# and the dict at -3, then (3.12) one of both at -3, values with bit 0, then (3.13) values behind the object itself.
IN_DICT, VALUES_OR_DICT, TAGGED, INLINE = "dict", "values or dict", "tagged", "inline"


_OLD_EXCEPTION = {3: "args", 4: "__traceback__", 5: "__context__", 6: "__cause__"}
_EXCEPTION = {3: "args", 4: "__notes__", 5: "__traceback__", 6: "__context__", 7: "__cause__"}


@dataclass(frozen=True)
class ObjectLayout:
    """What differs between versions, in bytes; for 64 bits.

    :param origin: the version.
    :param heap_type: sizeof(PyHeapTypeObject).
    :param qualname: of ``ht_qualname`` in it.
    :param cached_keys: of ``ht_cached_keys``.
    :param ascii: sizeof(PyASCIIObject), behind which the characters of ASCII text are.
    :param compact: sizeof(PyCompactUnicodeObject), behind which those of other text are.
    :param keys: which form keys of dicts have.
    :param attributes: where plain instances have theirs.
    :param tuple_items: of ``ob_item`` in a tuple.
    :param instructions: of ``co_code_adaptive`` in a code object, up to its end; 0: they are in an object of their own.
    """

    origin: str
    heap_type: int
    qualname: int
    cached_keys: int
    ascii: int
    compact: int
    keys: str
    attributes: str
    tuple_items: int = 24
    instructions: int = 0

    @property
    def exception_words(self) -> Mapping[int, str]:
        """What the words of an exception are, by number; ``notes`` came with 3.11."""
        return _OLD_EXCEPTION if self.keys == OLD_KEYS else _EXCEPTION


LAYOUTS: Sequence[ObjectLayout] = (
    ObjectLayout("3.14", 936, 872, 880, 40, 56, NEW_KEYS, INLINE, 32, instructions=208),
    ObjectLayout("3.13", 928, 872, 880, 40, 56, NEW_KEYS, INLINE, instructions=200),
    ObjectLayout("3.12", 920, 872, 880, 40, 56, NEW_KEYS, TAGGED, instructions=192),
    ObjectLayout("3.11", 904, 864, 872, 48, 72, NEW_KEYS, VALUES_OR_DICT, instructions=184),
    ObjectLayout("3.10", 888, 864, 872, 48, 72, OLD_KEYS, IN_DICT),
    ObjectLayout("3.9", 880, 856, 864, 48, 72, OLD_KEYS, IN_DICT),
    ObjectLayout("3.8", 880, 864, 872, 48, 72, OLD_KEYS, IN_DICT),
)

# Without the global lock an object begins with the id of its thread, a mutex, bits of the collector and two counts of
# references, the second of which stands where others have theirs (Include/object.h, struct _object).
FREE_HEAD = 2
FREE_LOCAL, FREE_BITS = -4, -5  # bytes from there: ob_ref_local (four), ob_gc_bits (one)
FREE_TRACKED = 1  # of these bits
FREE_SHIFT = 2  # of ob_ref_shared: below are flags
FREE_THREADED = ("3.13",)  # whose objects are the same otherwise
