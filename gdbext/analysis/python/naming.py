"""What a word in a block of CPython's is called: an attribute of a class, a key of a dict, a place in a list.

Read one by one, for what is shown.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from gdbext.analysis.python.objects import Objects
from gdbext.analysis.python.owned import NOBODY, PARTS, Owned
from gdbext.analysis.python.strong import strong_reach
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.blockwords import Words
from gdbext.heap.cpython.objects.layouts import (
    BASE_EXC_SUBCLASS,
    DICT_KEYS,
    DICT_SUBCLASS,
    DICT_VALUES,
    GC_HEAD,
    INLINE,
    INLINE_VALUES,
    LIST_ITEMS,
    LIST_SUBCLASS,
    MANAGED_DICT,
    OB_TYPE,
    TP_BASE,
    TP_MEMBERS,
    TUPLE_SUBCLASS,
    TYPE_SUBCLASS,
    UNICODE_SUBCLASS,
    VALUES_OR_DICT,
)
from gdbext.heap.cpython.objects.objects import TypeInfo
from gdbext.wording import printable

if TYPE_CHECKING:
    from gdbext.analysis.python.running import Running

_MOST_MEMBERS = 256
_MEMBER_DEF = 5  # words of a PyMemberDef: name, type, offset, flags, doc
_MOST_BASES = 32
_LONGEST = 40  # characters of a key
_FRAMED = ("frame", "generator", "coroutine", "async_generator")
_UNNAMED = "type_at_"  # its name is read-only in the interpreter's file, and the core is all there is
_TB_FRAME = 3
_WORDS: Mapping[str, Mapping[int, str]] = {
    "traceback": {2: "tb_next", _TB_FRAME: "tb_frame"},
    "cell": {2: "cell_contents"},
}
_COLLECTORS = ("next in the collector's list", "previous in the collector's list")


class PythonRuntime:
    """Names words by the row of their block, and knows which are references.

    :param objects: of a search, with what they own.
    """

    def __init__(self, words: Words, objects: Objects, owned: Owned) -> None:
        self._words = words
        self._address = words.index.address
        self._word = words.size
        self._objects, self._owned = objects, owned
        self._reader = objects.reader
        self._members: Dict[int, Dict[int, str]] = {}

    def name_outside(self, address: int) -> str:
        """Return the local variable whose word lies at an address in a thread's data stack; "" where there is none."""
        return self._running.find_text(address)

    def frames(self) -> Sequence[Tuple[int, int]]:
        """Return start and end of the frames of functions that run, in no order."""
        return list(self._running.for_each_piece())

    @cached_property
    def _running(self) -> "Running":
        from gdbext.analysis.python.running import Running

        return Running(self._words.target, self._reader)

    def name(self, row: int, offset: int) -> str:
        """Return what the word at an offset of a block is called, "" where that is not known."""
        info = self._info(row)
        if info is not None and not self._objects.kept[row]:
            return self._of_object(row, info, offset // self._word - int(self._objects.before[row]))
        part, owner = PARTS[int(self._owned.part[row])], int(self._owned.owner[row])
        place = int(self._address[row]) + offset
        if owner == NOBODY:
            return ""
        if part == "list items":
            return self._index(owner, LIST_ITEMS, place)
        if part == "dict keys":
            return self._entry(owner, place)
        return self._value(owner, place) if part == "dict values" else ""

    def strong(self, reach: Reach) -> Reach:
        """Return what is reachable by references alone; errors as :func:`strong_reach`."""
        return strong_reach(reach, self._words, self._objects, self._owned)

    def _info(self, row: int) -> Optional[TypeInfo]:
        return self._objects.types[int(self._objects.code[row])]

    def _start(self, row: int) -> int:
        """Return where an object begins in its block."""
        return int(self._address[row]) + int(self._objects.before[row]) * self._word

    def _id(self, row: int) -> int:
        """Return an object's address as references have it."""
        return int(self._address[row]) + self._objects.place_of(row)

    # ---- objects ----

    def _of_object(self, row: int, info: TypeInfo, at: int) -> str:
        """Name a word by its number from the beginning of the object."""
        if at < 0:
            return self._before(info, at)
        if at == OB_TYPE:
            return "its type"
        if info.flags & TUPLE_SUBCLASS and self._reader.layout is not None:
            first = self._reader.layout.tuple_items // self._word
            return f"[{at - first}]" if at >= first else ""
        if info.flags & LIST_SUBCLASS and at == LIST_ITEMS:
            return "its items"
        if info.flags & DICT_SUBCLASS and at in (DICT_KEYS, DICT_VALUES):
            return "its keys" if at == DICT_KEYS else "its values"
        if at * self._word == info.dictoffset:
            return f"{info.name}.__dict__"
        member = self._members_of(info).get(at * self._word) or self._inline(info, at) or self._known(row, info, at)
        return f"{info.name}.{member}" if member else self._in_frame(row, info, at)

    def _known(self, row: int, info: TypeInfo, at: int) -> str:
        """Return a member that types of C do not declare."""
        layout = self._reader.layout
        if info.flags & BASE_EXC_SUBCLASS and layout is not None:
            return layout.exception_words.get(at, "")
        name = "traceback" if info.name.startswith(_UNNAMED) and self._leads_to_frame(row) else info.name
        return _WORDS.get(name, {}).get(at, "")

    def _leads_to_frame(self, row: int) -> bool:
        """Whether an object has a frame object where a traceback has it."""
        frame = self._reader.find_word(self._start(row), _TB_FRAME)
        return bool(frame and self._running.names is not None and self._running.names.is_frame_object(frame))

    def _in_frame(self, row: int, info: TypeInfo, at: int) -> str:
        """Name a word of a frame that lies in an object; where the type has no name, the object itself must show it."""
        if not (info.name in _FRAMED or info.name.startswith(_UNNAMED)) or self._running.names is None:
            return ""
        start = self._start(row)
        return self._running.names.find_in_object(start, start + at * self._word)

    def _before(self, info: TypeInfo, at: int) -> str:
        if at >= -GC_HEAD:
            return _COLLECTORS[at + GC_HEAD]
        layout = self._reader.layout
        values = layout is not None and layout.attributes == VALUES_OR_DICT and at == -4
        if info.flags & MANAGED_DICT and (at == -3 or values):
            return f"{info.name}.__dict__"
        return "its weak references" if at == -4 else ""

    def _members_of(self, info: TypeInfo) -> Dict[int, str]:
        """Return the members that a type and its bases declare, by offset: those of C, and of ``__slots__``."""
        if info.address not in self._members:
            found: Dict[int, str] = {}
            for base in self._bases(info.address):
                for offset, name in self._declared(base):
                    found.setdefault(offset, name)
            self._members[info.address] = found
        return self._members[info.address]

    def _bases(self, address: int) -> Iterator[int]:
        for _ in range(_MOST_BASES):
            yield address
            above = self._reader.find_of(address, TP_BASE)
            if not above:
                return
            address = above

    def _declared(self, address: int) -> Iterator[Tuple[int, str]]:
        table = self._reader.find_of(address, TP_MEMBERS) or 0
        for at in range(
            table, table + _MOST_MEMBERS * _MEMBER_DEF * self._word if table else 0, _MEMBER_DEF * self._word
        ):
            name, offset = self._reader.find_word(at), self._reader.find_word(at, 2)
            text = self._reader.reader.find_string(name, 256) if name else None
            if not text or offset is None:
                return
            yield offset - self._reader.head * self._word, printable(text)

    def _inline(self, info: TypeInfo, at: int) -> str:
        """Return the attribute whose value lies in the object itself, behind its members."""
        layout = self._reader.layout
        if layout is None or layout.attributes != INLINE or not info.flags & INLINE_VALUES:
            return ""
        return self._attribute(info, at - info.size // self._word - 1)

    def _attribute(self, info: TypeInfo, number: int) -> str:
        """Return the name of an attribute by its number among those that instances of a class have."""
        layout = self._reader.layout
        keys = None if layout is None else self._reader.find_word(info.address + layout.cached_keys, self._reader.head)
        for at, (key, _) in enumerate(self._reader.for_each_key(keys or 0)):
            if at == number:
                return printable(self._reader.find_text(key) or "")
        return ""

    # ---- what they own ----

    def _index(self, owner: int, word: int, place: int) -> str:
        first = self._reader.find_word(self._start(owner), word)
        return f"[{(place - first) // self._word}]" if first and first <= place else ""

    def _entry(self, owner: int, place: int) -> str:
        """Name an entry of a dict's own table by its key; keys of a class by the class."""
        info, start = self._info(owner), self._start(owner)
        keys = self._reader.find_word(start, DICT_KEYS) if info and info.flags & DICT_SUBCLASS else None
        for key, _, entry, words in self._reader.for_each_place(keys or 0):
            if entry <= place < entry + words * self._word:
                text = self._key(key)
                if place < entry + (words - 1) * self._word:
                    return f"key {text}"
                return self._of_dict(owner, start, key) or text
        return ""

    def _of_dict(self, owner: int, start: int, key: int) -> str:
        """Return "module.name" of a module's dict, "module.Class.name" of an instance's; "" of others."""
        name = self._reader.find_text(key)
        above = int(self._owned.owner[owner])
        if name is None or not name.isidentifier():
            return ""
        info = None if above == NOBODY else self._info(above)
        if info is not None and info.name != "module":
            return f"{self._holder(above, info)}.{name}"
        module = self._reader.find_in_dict(self._id(owner), "__name__")
        spec = self._reader.find_in_dict(self._id(owner), "__spec__")
        text = self._reader.find_text(module) if module is not None and spec is not None else None
        return f"{printable(text)}.{name}" if text else ""

    def _holder(self, row: int, info: TypeInfo) -> str:
        """Return whose attributes a dict has: of a class's its own name, of an instance's that of its class."""
        own = self._reader.find_type(self._id(row)) if info.flags & TYPE_SUBCLASS else None
        return info.name if own is None else own.name

    def _key(self, key: int) -> str:
        kind = self._reader.find_of(key, OB_TYPE)
        known = self._reader.find_type(kind) if kind else None
        text = self._reader.find_text(key) if known is None or known.flags & UNICODE_SUBCLASS else None
        if text is not None:
            return f"[{printable(text[:_LONGEST])!r}]"
        return f"[{known.name} at {key:#x}]" if known is not None else f"[{key:#x}]"

    def _value(self, owner: int, place: int) -> str:
        """Name one of the values that an instance, or its dict, has apart from the keys of its class."""
        info, start = self._info(owner), self._start(owner)
        if info is None:
            return ""
        if info.flags & DICT_SUBCLASS:
            first = self._reader.find_word(start, DICT_VALUES)
            keys = self._reader.find_word(start, DICT_KEYS) or 0
            number = (place - first) // self._word if first else -1
            found = next((key for at, (key, _) in enumerate(self._reader.for_each_key(keys)) if at == number), None)
            return "" if found is None else self._of_dict(owner, start, found) or self._key(found)
        layout = self._reader.layout
        plain = layout is not None and layout.attributes == VALUES_OR_DICT
        first = self._reader.find_word(start, -4 if plain else -3)
        if not first:
            return ""
        name = self._attribute(info, (place - (first if plain else first + 1)) // self._word)
        return f"{info.name}.{name}" if name else ""
