"""What gdb knows about types and typed places, for telling what blocks are: the ``Clues`` port over gdb.

All within one number of variables and frames: variables of the executable first, then of the libraries that are the
program's own, then locals of all threads' frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Sequence

import gdb

from gdbext.bridge.decoded import ask
from gdbext.bridge.expressions import language, lookup, minimal, selection, values, wordsize
from gdbext.bridge.expressions.frames import Bound, frames_of, selected_first
from gdbext.bridge.ports import discover
from gdbext.bridge.ports.filefacts import FileFacts, find_file_facts
from gdbext.bridge.ports.locals import Locals
from gdbext.bridge.ports.stacks import GdbStacks, find_counters
from gdbext.bridge.ports.typemaker import REFERENCES, type_of
from gdbext.bridge.ports.types import GdbTypes
from gdbext.bridge.stops import settings
from gdbext.debuginfo import TypedPlace
from gdbext.layout.types import Code, Type
from gdbext.report import Problem
from gdbext.target import Target

if TYPE_CHECKING:
    from gdbext.bridge.ports.keptplaces import KeptPlaces

_LOCALS = 0.3  # share of what may be examined that is kept for them
_FRAMES = 32  # of one thread
_DEPTH = 16
# Statics of functions that are asked for in a file before the first has a type. gdb cannot say that a file has no debug
# info, and each such question costs it milliseconds, of which a large stripped file would have tens of thousands.
_UNKNOWN = 64

_TOO_LONG = "types-cut-short"
_NO_DEBUG_INFO = "types-without-debug-info"


class GdbClues:
    """The types of the selected inferior; for one stop."""

    def __init__(self, target: Target, types: GdbTypes, stacks: GdbStacks, most: int) -> None:
        self._target = target
        self._stacks = stacks
        self._most = most
        self._worth: Dict[Type, bool] = {}
        self._types = types
        self._problems: List[Problem] = []

    @property
    def problems(self) -> Sequence[Problem]:
        """What could not be examined."""
        return tuple(self._problems)

    def places(self) -> Iterator[TypedPlace]:
        """Iterate over variables that hold pointers."""
        self._problems = []
        with selection.kept(), language.like_c():
            bound = Bound(int(self._most * (1 - _LOCALS)))
            yield from self._globals(bound)
            yield from self._locals(Bound(self._most - int(self._most * (1 - _LOCALS)) + max(bound.left, 0)))

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name, or None."""
        with language.like_c():
            return self._types.find_type(name)

    def demangle(self, name: str) -> Optional[str]:
        """Return what a name of type information says, or None."""
        try:
            text = ask(f"demangle -l c++ -- {name}").strip()
        except gdb.error:
            return None
        begin = "typeinfo for "
        return text[len(begin) :] if text.startswith(begin) else None

    # ---- variables ----

    def _globals(self, bound: Bound) -> Iterator[TypedPlace]:
        seen: "set[int]" = set()
        facts = find_file_facts()
        found = self._search(seen, bound, None) if facts is None else self._known(seen, bound, facts)
        for place in found:
            if place.address not in seen:
                seen.add(place.address)
                yield place

    def _known(self, seen: "set[int]", bound: Bound, facts: FileFacts) -> Iterator[TypedPlace]:
        """Iterate over variables as kept, where that is all of what may be examined now."""
        from gdbext.bridge.ports.keptplaces import KeptPlaces

        kept = KeptPlaces.find(facts)
        if kept is None or kept.passed > bound.left:
            yield from self._search(seen, bound, KeptPlaces(facts))
            return
        bound.take(kept.passed)
        self._problems += kept.problems
        yield from kept.places(self._of_symbol)

    def _search(self, seen: "set[int]", bound: Bound, kept: "Optional[KeptPlaces]") -> Iterator[TypedPlace]:
        """Iterate over variables.

        :param seen: addresses that have come.
        :param kept: takes what is found of them, to keep it.
        """
        left, none = bound.left, True
        for objfile in discover.own_files():
            for name, symbol in discover.variables_of(objfile):
                none = False
                if not bound.take():
                    self._cut("variables")
                    return
                places = list(self._of_symbol(symbol))
                if kept is not None:
                    kept.add_variable(objfile, name, symbol, places)
                yield from places
        for objfile, place in self._in_functions(seen, bound):
            if kept is not None:
                kept.add(objfile, place)
            yield place
        problems = self._without_debug_info() if none else []
        self._problems += problems
        if kept is not None and not bound.spent:
            kept.keep(left - bound.left, problems)

    def _without_debug_info(self) -> List[Problem]:
        if _has_debug_info():
            return []
        message = "no variable of the program has debug info: what its pointers lead to is not known"
        return [Problem(_NO_DEBUG_INFO, None, message)]

    def _in_functions(self, seen: "set[int]", bound: Bound) -> "Iterator[tuple[gdb.Objfile, TypedPlace]]":
        """Iterate over static variables of functions of C++, which gdb finds by both names only."""
        for objfile in discover.own_files():
            known, unknown = False, 0
            for one in minimal.data_symbols(objfile):
                if not bound.take():
                    self._cut("variables")
                    return
                function, _, name = one.name.rpartition("::")
                if not function or one.address in seen or unknown > _UNKNOWN and not known:
                    continue
                kind = _find_static(function, name, one.address)
                known, unknown = known or kind is not None, unknown + 1
                if kind is not None and self._is_worth(kind):
                    yield objfile, TypedPlace(one.address, type_of(kind))

    def _of_symbol(self, symbol: gdb.Symbol) -> Iterator[TypedPlace]:
        if symbol.type is None or not self._is_worth(symbol.type):
            return
        try:
            yield from self._of_value(symbol.value())
        except gdb.error:  # declared, and nowhere defined
            return

    def _of_value(self, value: gdb.Value) -> Iterator[TypedPlace]:
        kind = value.type.strip_typedefs()
        if kind.code in REFERENCES:
            address = values.find_address(value.referenced_value())
            if address is not None:
                yield TypedPlace(address, type_of(kind.target()), True)
            return
        address = values.find_address(value)
        if address is not None:
            yield TypedPlace(address, type_of(value.type))
        elif kind.code == gdb.TYPE_CODE_PTR and not value.is_optimized_out:
            yield TypedPlace(int(value) & wordsize.word_mask(), type_of(kind.target()), True)

    def _is_worth(self, kind: gdb.Type) -> bool:
        type = type_of(kind)
        if type not in self._worth:
            self._worth[type] = has_pointers(type)
        return self._worth[type]

    def _locals(self, bound: Bound) -> Iterator[TypedPlace]:
        found = Locals(self._is_worth, self._of_value, wordsize.word_mask())
        for thread in selected_first(self._stacks.listed):
            stack = list(frames_of(thread, bound, _FRAMES))
            counters = find_counters([place.frame for place in stack])
            if counters is not None and len(stack) < _FRAMES and not bound.spent:
                self._stacks.note(thread.num, counters)
            yield from found.of_thread(stack, counters)
        if bound.spent:
            self._cut("locals of frames")

    def _cut(self, what: str) -> None:
        message = f"not all {what} were examined (set gx type-search-variables {self._most}): types may be missing"
        self._problems.append(Problem(_TOO_LONG, None, message))


def _find_static(function: str, name: str, address: int) -> Optional[gdb.Type]:
    """Return the type of a function's static variable, or None: no debug info, no function, another variable."""
    try:
        pointer = gdb.parse_and_eval(f"&'{function}'::{name}")
    except gdb.error:
        return None
    kind = pointer.type.strip_typedefs()
    return kind.target() if kind.code == gdb.TYPE_CODE_PTR and int(pointer) == address else None


def _has_debug_info() -> bool:
    """Return whether the executable's main function has debug info."""
    return any(one.lookup_global_symbol("main") is not None for one in lookup.executables())


def has_pointers(type: Type, depth: int = 0) -> bool:
    """Return whether objects of a type hold pointers to what has a type."""
    if type.code is Code.POINTER:
        return type.target is not None and type.target.code not in (Code.FUNCTION, Code.OTHER)
    if type.code is Code.ARRAY:
        return type.target is not None and depth < _DEPTH and has_pointers(type.target, depth + 1)
    return depth < _DEPTH and any(has_pointers(field.type, depth + 1) for field in type.fields)


def read_clues(target: Target, types: GdbTypes, stacks: GdbStacks, most: Optional[int] = None) -> GdbClues:
    """Return what gdb knows about the types of the selected inferior.

    :param stacks: get to know the program counters of the threads that are unwound.
    :param most: variables and frames that are examined, where the user's setting allows more.
    """
    allowed = settings.current_value("type-search-variables")
    return GdbClues(target, types, stacks, allowed if most is None else min(allowed, most))

