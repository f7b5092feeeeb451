"""Finds the variables that may be tables, with no name given: for ``triage``.

Globals come from symbol tables, locals from the frames of all threads; members of these are followed, nearest
first, those of the executable's globals before any local. What cannot lead to a wanted type within the depth is
left out by its type alone, without reading memory. Everything is bounded by one number of variables and frames.
"""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, Sequence, Tuple

import gdb

from gdbext.bridge.decoded import name_of
from gdbext.bridge.expressions import lookup, minimal, selection, values, wordsize
from gdbext.bridge.expressions.frames import Bound, Place, blocks_of, frames_of, selected_first
from gdbext.bridge.expressions.locate import locate
from gdbext.bridge.ports.filefacts import find_file_facts
from gdbext.bridge.ports.stacks import Counters, GdbStacks
from gdbext.bridge.ports.typemaker import REFERENCES, type_of
from gdbext.bridge.stops.changes import call_when_objfiles_change
from gdbext.errors import FaultError, UsageError
from gdbext.layout.types import Code, Located, Type
from gdbext.memory import Memory, Reader

DEPTH = 3  # members from a variable on
_ELEMENTS = 16  # of an array
_SHARE = 0.6  # of what may be examined yet, for one source of variables; the rest is for members and other sources
_NAMING = 20_000  # frames that are searched for names of what was found

# Libraries of the system itself, whose variables are none of the program's.
_RUNTIME = re.compile(
    r"ld[-.]|linux-vdso|system-supplied|lib(c|m|mvec|pthread|dl|rt|util|resolv|stdc\+\+|gcc_s|nss_\w+|thread_db|anl)[.-]"
)

Matches = Callable[[Type], bool]
_Named = Tuple[str, gdb.Symbol]
# How many variables there are, and of those that lead to what is wanted: how many have been passed, with itself, the
# position of its file, its name, and where in the source it is.
_Worth = Tuple[int, Sequence[Tuple[int, int, str, str]]]


@dataclass(frozen=True)
class _Object:
    """Something in memory, and how a user may write it.

    :param texts: expressions for it, best first.
    :param depth: members passed.
    :param place: the frame of a local variable.
    """

    texts: Sequence[str]
    type: Type
    address: int
    depth: int = 0
    place: Optional[Place] = None


_Source = Callable[[Bound], Iterator[_Object]]


@dataclass(frozen=True)
class _Step:
    """A member that leads on.

    :param text: what is appended to the expression: ``.env`` (``->`` where that is a pointer).
    """

    text: str
    offset: int
    type: Type


class Discovery:
    """An iterator over variables; made by :func:`find_variables`.

    :ivar complete: whether all was examined; False when one of the numbers was reached.
    """

    def __init__(
        self, reader: Reader, matches: Matches, limit: int, most: int, stacks: Optional[GdbStacks], wanted: str
    ) -> None:
        self._reader = reader
        self._stacks = stacks
        self._kinds = _Kinds(matches, wanted)
        self._limit = limit
        self._bound = Bound(most)
        self._naming = Bound(_NAMING)
        self._seen: "set[tuple[int, Type]]" = set()
        self._told: "set[int]" = set()
        self._found = self._search()
        self.complete = True

    def __iter__(self) -> Iterator[Located]:
        return self

    def __next__(self) -> Located:
        return next(self._found)

    def _search(self) -> Iterator[Located]:
        told = 0
        for find in self._sources():
            queue: Deque[_Object] = deque(self._within(find))
            while queue:
                if told >= self._limit or not self._bound.take():
                    self.complete = False
                    return
                located = self._take(queue.popleft(), queue)
                if located is not None:
                    told += 1
                    yield located

    def _sources(self) -> Sequence[_Source]:
        """Return where variables come from.

        Globals that are tables themselves first: they are had at once. Then what other globals lead to: a path from
        one says more than the name of a local that points to the same.
        """
        own = _Globals(lookup.executables(), self._kinds)
        others = [one for one in gdb.objfiles() if one.owner is None and _is_private(one)]
        libraries = _Globals([one for one in others if one not in lookup.executables()], self._kinds)
        return [
            lambda bound: own.find(0, bound),
            lambda bound: own.find(DEPTH, bound),
            lambda bound: _Locals(self._kinds, self._stacks).find(bound),
            lambda bound: libraries.find(DEPTH, bound),
        ]

    def _within(self, find: _Source) -> Sequence[_Object]:
        share = max(int(_SHARE * self._bound.left), 0)
        bound = Bound(share)
        with selection.kept():
            found = list(find(bound))
        self._bound.left -= share - max(bound.left, 0)
        self.complete = self.complete and not bound.spent
        return found

    def _take(self, one: _Object, queue: "Deque[_Object]") -> Optional[Located]:
        """Return an object when it is wanted; else queue what it leads to."""
        target = _follow(one, self._reader)
        if target is None or (target.address, target.type) in self._seen:
            return None
        self._seen.add((target.address, target.type))
        if self._kinds.wanted(target.type):
            fresh = target.address not in self._told
            self._told.add(target.address)
            return _name(one, target, self._naming) if fresh else None
        queue.extend(_members(one, target, self._kinds))
        return None


def find_variables(
    reader: Reader, matches: Matches, limit: int, most: int, stacks: Optional[GdbStacks] = None, wanted: str = ""
) -> Discovery:
    """Find variables, and members of variables, whose type is wanted.

    :param matches: whether a structure is of a wanted type. One that is wanted is not looked into.
    :param limit: variables that are returned at most.
    :param most: variables, members and frames that are examined.
    :param stacks: what has been unwound before: of the same stacks one is enough where nothing is in it.
    :param wanted: what ``matches`` goes by, or "".
    :return: an iterator of :class:`Located`, each with a text that ``locate`` takes; each object once.
    """
    return Discovery(reader, matches, limit, most, stacks, wanted)


class _Kinds:
    """What types are worth: computed once each, from the types alone.

    :ivar asked: what of that is asked for; "" where it is not known.
    """

    def __init__(self, matches: Matches, asked: str) -> None:
        self._matches = matches
        self.asked = asked
        self._wanted: "dict[Type, bool]" = {}
        self._leads: "dict[tuple[Type, int], bool]" = {}
        self._steps: "dict[Type, Sequence[_Step]]" = {}

    def wanted(self, type: Type) -> bool:
        """Return whether the caller asked for it."""
        if type not in self._wanted:
            self._wanted[type] = type.is_record and self._matches(type)
        return self._wanted[type]

    def leads(self, type: Type, depth: int) -> bool:
        """Return whether it is wanted, points to what is, or has such members within ``depth`` steps."""
        record = _record_behind(type)
        if record is None:
            return False
        if (record, depth) not in self._leads:
            self._leads[record, depth] = self.wanted(record) or (
                depth > 0 and any(self.leads(step.type, depth - 1) for step in self.steps(record))
            )
        return self._leads[record, depth]

    def steps(self, record: Type) -> Sequence[_Step]:
        """Return the members of a structure that are structures, pointers to such, or arrays of either."""
        if record not in self._steps:
            self._steps[record] = list(_steps_of(record, 0))
        return self._steps[record]


def _record_behind(type: Type) -> Optional[Type]:
    """Return a structure: the type itself, what it points to, or the elements of an array of either."""
    if type.code is Code.ARRAY:
        return None if type.target is None else _record_behind(type.target)
    target = type.target if type.code is Code.POINTER else type
    return target if target is not None and target.code is Code.STRUCT else None


def _steps_of(record: Type, base: int) -> Iterator[_Step]:
    # Members of unions are left out: nothing here tells which of them is the one in use.
    for field in record.fields:
        if field.bits is not None:
            continue
        if field.is_base or (not field.name and field.type.code is Code.STRUCT):
            yield from _steps_of(field.type, base + field.offset)
        elif field.name and _record_behind(field.type) is not None:
            yield _Step(f".{field.name}", base + field.offset, field.type)


def _as_worth(value: Any, files: int) -> Optional[_Worth]:
    """Return what was kept of so many files, or None where it is something else."""
    if not isinstance(value, list) or [type(one) for one in value] != [int, list]:
        return None
    fits = all(
        isinstance(row, list)
        and [type(one) for one in row] == [int, int, str, str]
        and row[0] <= value[0]
        and 0 <= row[1] < files
        for row in value[1]
    )
    return (value[0], value[1]) if fits else None


class _Globals:
    """The globals and statics of some object files that have debug info."""

    def __init__(self, files: Sequence[gdb.Objfile], kinds: _Kinds) -> None:
        self._kinds = kinds
        self._files = files
        self._leads: "dict[tuple[str, str, int], bool]" = {}

    def find(self, depth: int, bound: Bound) -> Iterator[_Object]:
        """Iterate over those that lead to a wanted structure within so many members."""
        facts = find_file_facts() if self._kinds.asked else None
        question = ("variables", self._kinds.asked, depth, [os.path.basename(str(name_of(one))) for one in self._files])
        kept = None if facts is None else _as_worth(facts.find(*question), len(self._files))
        if kept is not None:
            found = self._again(kept, bound)
        else:
            found = self._search(depth, bound, lambda worth: None if facts is None else facts.keep(worth, *question))
        for name, symbol in found:
            yield from _object_of(symbol.value(), _texts_of(name, symbol))

    def _search(self, depth: int, bound: Bound, keep: Callable[[_Worth], None]) -> Iterator[_Named]:
        passed = 0
        places: List[Tuple[int, int, str, str]] = []
        for number, objfile in enumerate(self._files):
            for name, symbol in variables_of(objfile):
                if not bound.take():
                    return
                passed += 1
                if self._is_worth(symbol, depth):
                    places.append((passed, number, name, place_of(symbol)))
                    yield name, symbol
        keep((passed, places))

    def _again(self, worth: _Worth, bound: Bound) -> Iterator[_Named]:
        """Iterate over the same as before; nothing else is looked up."""
        passed = 0
        for at, number, name, place in worth[1]:
            if not bound.take(at - passed):
                return
            passed = at
            symbol = find_variable(self._files[number], name, place)
            if symbol is not None:
                yield name, symbol
        bound.take(worth[0] - passed)

    def _is_worth(self, symbol: gdb.Symbol, depth: int) -> bool:
        if symbol.type is None:
            return False
        # Within a file a name is one type; asking gdb for it anew each time is slow.
        key = str(symbol.symtab), str(symbol.type), depth
        if key not in self._leads:
            self._leads[key] = self._kinds.leads(type_of(symbol.type), depth)
        return self._leads[key]


class _Variables:
    """The variables of an object file, as :func:`variables_of`.

    Each is looked up once, when it is asked for: gdb reads the debug info of a whole source file for the first of it.
    """

    def __init__(self, objfile: gdb.Objfile) -> None:
        self._objfile = objfile
        self._names = list(dict.fromkeys(symbol.name for symbol in minimal.data_symbols(objfile)))
        self._found: List[Sequence[gdb.Symbol]] = []  # by name: an interrupt loses none

    def __iter__(self) -> Iterator[_Named]:
        for at, name in enumerate(self._names):
            if at == len(self._found):
                self._found.append(lookup_variables(self._objfile, name))
            for symbol in self._found[at]:
                yield name, symbol


_known: "dict[gdb.Objfile, _Variables]" = {}


def variables_of(objfile: gdb.Objfile) -> Iterable[_Named]:
    """Return the variables of an object file that debug info knows, in the order of its symbol table."""
    if objfile not in _known:
        call_when_objfiles_change(_known.clear)
        _known[objfile] = _Variables(objfile)
    return _known[objfile]


def own_files() -> Sequence[gdb.Objfile]:
    """Return the executable and the libraries that are not the system's."""
    own = lookup.executables()
    return [*own, *(one for one in gdb.objfiles() if one.owner is None and one not in own and _is_private(one))]


def _is_private(objfile: gdb.Objfile) -> bool:
    return _RUNTIME.match(os.path.basename(str(name_of(objfile)))) is None


def lookup_variables(objfile: gdb.Objfile, name: str) -> Sequence[gdb.Symbol]:
    """Return the variables of a name that debug info has; statics of several files may share one."""
    found: List[gdb.Symbol] = []
    for one in (objfile.lookup_global_symbol(name), objfile.lookup_static_symbol(name)):
        if one is not None:
            found.append(one)
    if found and len(minimal.find_data(objfile, name)) > len(found):  # a look into all files is slow
        found += [
            one for one in gdb.lookup_static_symbols(name) if lookup.root_of(one.symtab.objfile) == objfile
        ]
    return [one for one in found if lookup.is_in_memory(one)]


def place_of(symbol: gdb.Symbol) -> str:
    """Return where in the source a variable is: of several of one name gdb's order is that in which it read files."""
    return f"{symbol.symtab.filename}:{symbol.line}"


def find_variable(objfile: gdb.Objfile, name: str, place: str) -> Optional[gdb.Symbol]:
    """Return the variable of a name and a place, or None."""
    return next((one for one in lookup_variables(objfile, name) if place_of(one) == place), None)


def _texts_of(name: str, symbol: gdb.Symbol) -> Sequence[str]:
    return [name, f"'{name_of(symbol.symtab)}'::{name}"]


def _object_of(value: gdb.Value, texts: Sequence[str]) -> Iterator[_Object]:
    if value.type.strip_typedefs().code in REFERENCES:
        value = value.referenced_value()
    address = values.find_address(value)
    if address is not None:
        yield from _elements(_Object(texts, type_of(value.type), address))


def _elements(one: _Object) -> Iterator[_Object]:
    """Return the object, or the first elements where it is an array."""
    if one.type.code is not Code.ARRAY:
        yield one
    elif one.type.target is not None and one.type.length:
        for at in range(min(one.type.length, _ELEMENTS)):
            texts = [f"{text}[{at}]" for text in one.texts]
            yield from _elements(
                replace(
                    one, texts=texts, type=one.type.target, address=one.address + at * one.type.target.size
                )
            )


class _Locals:
    """The variables of frames. Thousands of threads may wait in the same functions."""

    def __init__(self, kinds: _Kinds, stacks: Optional[GdbStacks]) -> None:
        self._kinds = kinds
        self._stacks = stacks
        self._names: "dict[tuple[int, int], Sequence[str]]" = {}
        self._without: "set[Counters]" = set()

    def find(self, bound: Bound) -> Iterator[_Object]:
        """Iterate over those that lead to a wanted structure."""
        for thread in selected_first(self._stacks.listed if self._stacks is not None else None):
            counters = self._stacks.find_counters(thread.num) if self._stacks is not None else None
            if counters is not None and counters in self._without:
                bound.take(len(counters))
                continue
            named = False
            for place in frames_of(thread, bound):
                for block, names in self._named(place):
                    named = True
                    with place.selected():
                        yield from (one for name in names for one in _local(place, block, name))
            if counters and not named and not bound.spent:
                self._without.add(counters)

    def _named(self, place: Place) -> "Iterator[tuple[gdb.Block, Sequence[str]]]":
        for block in blocks_of(place):
            key = block.start, block.end
            if key not in self._names:
                with place.selected():
                    self._names[key] = [one.name for one in block if _is_interesting(one, self._kinds)]
            if self._names[key]:
                yield block, self._names[key]


def _is_interesting(symbol: gdb.Symbol, kinds: _Kinds) -> bool:
    if symbol.type is None or not (symbol.is_variable or symbol.is_argument):
        return False
    return kinds.leads(type_of(symbol.type), DEPTH)


def _local(place: Place, block: gdb.Block, name: str) -> Iterator[_Object]:
    try:
        value = place.frame.read_var(name, block)
        if not values.is_missing(value):
            yield from (replace(one, place=place) for one in _held(value, name))
    except (gdb.error, ValueError):  # its place cannot be read, or it is not in this block after all
        return


def _held(value: gdb.Value, name: str) -> Iterator[_Object]:
    """Return a local; of a pointer in a register, what it points to."""
    kind = value.type.strip_typedefs()
    if value.address is None and kind.code == gdb.TYPE_CODE_PTR:
        target = kind.target()
        yield _Object([f"*{name}"], type_of(target), int(value) & wordsize.word_mask())
    else:
        yield from _object_of(value, [name])


def _follow(one: _Object, reader: Reader) -> Optional[_Object]:
    """Return the structure that an object is or points to, or None when it points nowhere."""
    if one.type.code is not Code.POINTER:
        return one if _is_readable(reader.memory, one.address, one.type.size) else None
    target = one.type.target
    try:
        address = reader.word(one.address)
    except FaultError:
        return None
    if target is None or not address or not _is_readable(reader.memory, address, target.size):
        return None
    return replace(one, type=target, address=address)


def _is_readable(memory: Memory, address: int, size: int) -> bool:
    try:
        memory.read(address, 1)
        memory.read(address + max(size, 1) - 1, 1)
    except FaultError:
        return False
    return True


def _members(one: _Object, target: _Object, kinds: _Kinds) -> Iterator[_Object]:
    left = DEPTH - one.depth
    if left <= 0:
        return
    mark = "->" if one.type.code is Code.POINTER else "."
    for step in kinds.steps(target.type):
        if kinds.leads(step.type, left - 1):
            texts = [_member_text(text, mark, step.text[1:]) for text in one.texts]
            yield from _elements(
                _Object(texts, step.type, target.address + step.offset, one.depth + 1, one.place)
            )


def _member_text(text: str, mark: str, name: str) -> str:
    if text.startswith("*"):
        return f"{text[1:]}->{name}"
    return f"{text}{mark}{name}"


def _name(one: _Object, target: _Object, bound: Bound) -> Optional[Located]:
    """Return the object by the first expression that leads to it; None when none does.

    A name means what ``locate`` finds first, which may be another variable.
    """
    for text in one.texts:
        located = _locate(text.lstrip("*"), bound)
        if located is not None and target.address in (located.value, located.address):
            return located
    located = _locate(f"*({target.type.name} *) {target.address:#x}", bound)
    if located is None or one.place is None:
        return located
    return located._replace(found=f"{one.texts[0]} in {one.place}")


def _locate(text: str, bound: Bound) -> Optional[Located]:
    try:
        return locate(text, bound)
    except UsageError:
        return None
