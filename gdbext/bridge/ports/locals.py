"""The variables of frames as typed places: what threads that wait in the same functions share is asked of gdb once.

Where a variable is follows from the program counters of its frame and of those around it. Of the third thread with
the same ones on, one at a fixed distance from its frame's base, or in a register, is had without gdb's evaluation of
DWARF expressions, which takes longer than the unwinding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import gdb

from gdbext.bridge.decoded import ask
from gdbext.bridge.expressions import values
from gdbext.bridge.expressions.frames import Place, blocks_of
from gdbext.bridge.ports.stacks import Counters, find_stack_pointer
from gdbext.bridge.ports.typemaker import REFERENCES, type_of
from gdbext.debuginfo import TypedPlace
from gdbext.layout.types import Type

# What `info address` says: one place, or one for each range of program counters.
_PLACE = re.compile(r'Symbol "[^"]*" is (.*)\.\s*', re.DOTALL)
_LIST = "multi-location:"
_CALLS = (gdb.NORMAL_FRAME, gdb.TAILCALL_FRAME)
_NOWHERE = "optimized out"
_RANGE = re.compile(r"Range (0x[0-9a-f]+)-(0x[0-9a-f]+): (.*?)\s*(?=\n\s+(?:Range|Base address) |\Z)", re.DOTALL)
_AT_BASE = re.compile(
    r"a complex DWARF expression:\s+0: DW_OP_fbreg -?\d+|a variable at frame base reg \$\w+ offset \S+"
)
_IN_REGISTER = re.compile(r"a variable in \$(\w+)")


@dataclass(frozen=True)
class _Variable:
    """A variable of frames with the same program counters.

    :param level: of its frame.
    :param type: of the object, or of what the pointer points to; None: gdb is asked each time.
    :param distance: bytes from the stack pointer of the caller to the object.
    :param register: that holds the pointer; "" for an object in memory.
    """

    level: int
    block: gdb.Block
    name: str
    type: Optional[Type] = None
    distance: int = 0
    register: str = ""


class Locals:
    """The variables of frames; for one stop.

    :param is_worth: whether a variable of a type is wanted.
    :param places_of: what a value is.
    :param word_mask: addresses are taken modulo the target's word.
    """

    def __init__(
        self,
        is_worth: Callable[[gdb.Type], bool],
        places_of: Callable[[gdb.Value], Iterator[TypedPlace]],
        word_mask: int,
    ) -> None:
        self._is_worth = is_worth
        self._places_of = places_of
        self._mask = word_mask
        self._names: "Dict[Tuple[int, int], List[str]]" = {}
        self._met: "Set[Counters]" = set()
        self._shared: "Dict[Counters, Sequence[_Variable]]" = {}

    def of_thread(self, stack: Sequence[Place], counters: Optional[Counters]) -> Iterator[TypedPlace]:
        """Iterate over the wanted variables of a thread's frames, which is selected.

        :param stack: its frames, newest first.
        :param counters: of these; None where one of them has none.
        """
        variables = self._shared.get(counters) if counters is not None else None
        if variables is None:
            variables = list(self._variables(stack))
            if counters is not None and counters in self._met:  # the next ones are worth what it takes to know more
                variables = self._shared[counters] = [one for each in variables for one in self._known(stack, each)]
            elif counters is not None:
                self._met.add(counters)
        for one in variables:
            yield from self._read(stack, one)

    def _variables(self, stack: Sequence[Place]) -> Iterator[_Variable]:
        for level, place in enumerate(stack):
            for block in blocks_of(place):
                for name in self._names_in(place, block):
                    yield _Variable(level, block, name)

    def _names_in(self, place: Place, block: gdb.Block) -> Sequence[str]:
        key = block.start, block.end
        if key not in self._names:
            with place.selected():
                self._names[key] = [one.name for one in block if self._is_wanted(one)]
        return self._names[key]

    def _is_wanted(self, symbol: gdb.Symbol) -> bool:
        if symbol.type is None or not (symbol.is_variable or symbol.is_argument):
            return False
        return self._is_worth(symbol.type)

    # ---- one thread's ----

    def _read(self, stack: Sequence[Place], one: _Variable) -> Iterator[TypedPlace]:
        base = self._find_base(stack, one) if one.type is not None else None
        if base is None or one.type is None:
            yield from self._ask(stack[one.level], one)
        else:
            yield TypedPlace((base + one.distance) & self._mask, one.type, bool(one.register))

    def _find_base(self, stack: Sequence[Place], one: _Variable) -> Optional[int]:
        if one.register:
            return _find_register(stack[one.level].frame, one.register)
        return _find_callers_pointer(stack, one.level)

    def _ask(self, place: Place, one: _Variable) -> Iterator[TypedPlace]:
        with place.selected():
            try:
                value = place.frame.read_var(one.name, one.block)
                if not values.is_missing(value):
                    yield from self._places_of(value)
            except (gdb.error, ValueError):  # its place cannot be read, or it is not in this block after all
                return

    # ---- what threads share ----

    def _known(self, stack: Sequence[Place], one: _Variable) -> Iterator[_Variable]:
        """Return a variable with what is known of its place; nothing where none of the threads can have it."""
        place, counter = stack[one.level], _counter_of(stack, one.level)
        with place.selected():
            try:
                value = place.frame.read_var(one.name, one.block)
                where = "" if _is_ambiguous(place, one.block, one.name) else _find_place(one.name, counter)
                if not values.is_missing(value):
                    yield self._placed(stack, one, value, where)
                elif where != _NOWHERE and _find_callers_pointer(stack, one.level) is None:
                    yield one  # its caller may know the value that it was called with
            except (gdb.error, ValueError):
                yield one

    def _placed(self, stack: Sequence[Place], one: _Variable, value: gdb.Value, where: str) -> _Variable:
        kind, address = value.type.strip_typedefs(), values.find_address(value)
        if kind.code in REFERENCES or getattr(value.type, "dynamic", True):
            return one
        register, base = _IN_REGISTER.fullmatch(where), _find_callers_pointer(stack, one.level)
        if address is not None and base is not None and _AT_BASE.fullmatch(where):
            return replace(one, type=type_of(value.type), distance=address - base)
        if address is None and kind.code == gdb.TYPE_CODE_PTR and register is not None:
            return replace(one, type=type_of(kind.target()), register=register[1])
        return one


def _is_ambiguous(place: Place, block: gdb.Block, name: str) -> bool:
    """Whether a block of a frame within this one has a variable of that name too, which is then what gdb describes."""
    blocks = list(blocks_of(place))
    own = max(at for at, one in enumerate(blocks) if (one.start, one.end) == (block.start, block.end))
    return sum(any(symbol.name == name for symbol in one) for one in blocks[: own + 1]) != 1


def _find_place(name: str, pc: int) -> str:
    """Return what gdb says of the place of a variable of the selected frame; "" where it says nothing.

    :param pc: at which it is asked for: see :func:`_counter_of`.
    """
    described = _PLACE.fullmatch(ask(f"info address {name}"))
    if described is None or not described[1].startswith(_LIST):
        return described[1].strip() if described is not None else ""
    ranges = _RANGE.findall(described[1])
    return next((text for low, high, text in ranges if int(low, 16) <= pc < int(high, 16)), _NOWHERE if ranges else "")


def _counter_of(stack: Sequence[Place], level: int) -> int:
    """Return the program counter at which gdb asks for a frame's variables: in a caller, the one before (frame.c)."""
    newer = (place.frame.type() for place in reversed(stack[:level]))
    called = next((kind for kind in newer if kind != gdb.INLINE_FRAME), None) in _CALLS
    frame = stack[level].frame
    return int(frame.pc()) - (called and frame.type() in (*_CALLS, gdb.INLINE_FRAME))


def _find_callers_pointer(stack: Sequence[Place], level: int) -> Optional[int]:
    """Return the stack pointer of a frame's caller, from which compilers count; None where no caller is known."""
    while level < len(stack) and stack[level].frame.type() == gdb.INLINE_FRAME:
        level += 1
    return find_stack_pointer(stack[level + 1].frame) if level + 1 < len(stack) else None


def _find_register(frame: gdb.Frame, name: str) -> Optional[int]:
    try:
        return int(frame.read_register(name))
    except (gdb.error, ValueError):  # not known in this frame
        return None
