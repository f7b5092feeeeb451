"""What an expression of the user means, wherever in the program its names are found.

In this order: the selected frame; the executable's globals and statics; the other frames of the selected
thread, then of the others. The selection is the same afterwards.
"""

from __future__ import annotations

import os
import re
from typing import Mapping, Optional, Sequence

import gdb

from gdbext.bridge.decoded import name_of
from gdbext.bridge.expressions import lookup, selection, values, wordsize
from gdbext.bridge.expressions.frames import Bound, Place, for_each_frame
from gdbext.bridge.expressions.harmless import check_harmless, one_line, without_calls
from gdbext.bridge.expressions.identifiers import find_names, replace_names
from gdbext.bridge.ports.typemaker import REFERENCES
from gdbext.errors import UsageError
from gdbext.layout.types import Located
from gdbext.wording import count_text

FRAMES = 20_000  # that are searched, of all threads

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[1-9][0-9]*|0")
# The expression was understood: no other frame is asked.
_FINAL = ("There is no member named", "may-call-functions is off")

_Meant = Mapping[str, gdb.Symbol]


def locate(expression: str, bound: Optional[Bound] = None) -> Located:
    """Return what an expression means.

    :param bound: of the other frames that are searched; None is :data:`FRAMES`.
    :raises UsageError: when it is empty, has no value anywhere, or would change or run the target.
    """
    text = _unquoted(expression.strip())
    if not text:
        raise UsageError("an expression is missing", "-h shows how it is written")
    if _NUMBER.fullmatch(text):
        return Located(text, None, None, _literal(text))
    check_harmless(text)
    with without_calls(), selection.kept(), _Pointers() as pointers:
        return _Search(text, pointers, bound or Bound(FRAMES)).run()


def _unquoted(text: str) -> str:
    """Return an expression without quotes around all of it, as a shell or another of our commands would want them."""
    inner = text[1:-1]
    whole = len(inner) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in inner
    return inner.strip() if whole and "\\" not in inner else text


def _literal(text: str) -> int:
    number, mask = int(text, 0), wordsize.word_mask()
    if number > mask:
        raise UsageError(f"{text} is beyond any address", f"the target's end at {mask:#x}")
    return number


class _Pointers:
    """Convenience variables that point to variables, so that an expression can name those that gdb would not find."""

    def __init__(self) -> None:
        self._names: "dict[str, str]" = {}

    def __enter__(self) -> "_Pointers":
        return self

    def __exit__(self, *error: object) -> None:
        for name in self._names.values():
            gdb.set_convenience_variable(name, None)

    def text_of(self, symbol: gdb.Symbol) -> Optional[str]:
        """Return what stands for a variable in an expression, or None when it is in no memory."""
        value = symbol.value()
        if value.type.strip_typedefs().code in REFERENCES:
            value = value.referenced_value()
        if value.address is None:
            return None
        name = self._names.setdefault(f"{int(value.address):x} {value.type}", f"gx_{len(self._names) + 1}")
        gdb.set_convenience_variable(name, value.address)
        return f"(*${name})"


class _Search:
    """One expression, looked for."""

    def __init__(self, text: str, pointers: _Pointers, bound: Bound) -> None:
        self.text = text
        self._bound = bound
        self._names = list(dict.fromkeys(name.text for name in find_names(text)))
        self._pointers = pointers
        self._own = {name: lookup.find_own_variables(name) for name in self._names}
        self._error = ""
        self._named: Optional[Located] = None  # a function, or a variable of unknown type
        self._tried: "list[str]" = []

    def run(self) -> Located:
        """Return what the expression means; errors as :func:`locate`."""
        found = self._in_selected() or self._in_executable() or self._without_type() or self._in_frames()
        found = found or self._named
        if found is None:
            hint = f"tried {' and '.join(self._tried)}" if len(self._tried) > 1 else None
            raise UsageError(f"cannot evaluate {self.text!r}: {self._error}", hint)
        return found

    def _in_selected(self) -> Optional[Located]:
        frame = selection.find_frame()
        self._tried.append("the globals" if frame is None else "the selected frame")
        meant = self._meant_elsewhere(frame)
        return self._evaluate(meant, _tell(meant) if meant else None, last=True)

    def _in_executable(self) -> Optional[Located]:
        meant = {name: own[0] for name, own in self._own.items() if own}
        if not meant:
            return None
        self._tried.append("the variables of the executable")
        return self._evaluate(meant, _tell(meant), last=True)

    def _without_type(self) -> Optional[Located]:
        """Return the executable's variable of that name, whose type is unknown."""
        address = lookup.find_own_bare_address(self.text) if self._names == [self.text] else None
        if address is None or self._own[self.text]:
            return None
        told = f"{self.text} of the executable, whose type is unknown" if self._named else None
        return Located(self.text, None, address, None, told)

    def _in_frames(self) -> Optional[Located]:
        if not self._names:
            return None
        seen, threads = 0, set()
        for place in for_each_frame(self._bound):
            seen += 1
            threads.add(place.thread)
            found = self._evaluate(self._meant_elsewhere(place.frame), self._locals(place), last=False)
            if found is not None:
                return found
        if seen:
            stopped = ", as many as are searched" if self._bound.spent else ""
            self._tried.append(
                f"{count_text(seen, 'frame')} of {count_text(len(threads), 'thread')}{stopped}"
            )
        return None

    def _evaluate(self, meant: _Meant, told: Optional[str], last: bool) -> Optional[Located]:
        """Evaluate with some names replaced.

        :param last: whether memory that cannot be read ends the search.
        """
        try:
            texts = {name: self._pointers.text_of(symbol) for name, symbol in meant.items()}
            value = gdb.parse_and_eval(replace_names(self.text, texts.get))
            if values.is_missing(value):
                raise gdb.error("it has been optimised out")
            found = values.located(value, self.text, told)
        except gdb.error as error:
            self._error = self._error or one_line(error)
            if last and (isinstance(error, gdb.MemoryError) or any(text in str(error) for text in _FINAL)):
                raise UsageError(f"cannot evaluate {self.text!r}: {one_line(error)}") from None
            return None
        if values.is_named_only(value):
            self._named = self._named or found
            return None
        return found

    def _meant_elsewhere(self, frame: Optional[gdb.Frame]) -> _Meant:
        """Return the variables of the executable that gdb would not find by their names in the selected frame."""
        meant = {}
        for name, own in self._own.items():
            symbol = _find_here(name, frame)
            if own and _is_foreign(symbol, frame, own):
                found = (one for one in own if symbol is not None and lookup.is_same(one, symbol))
                meant[name] = next(found, own[0])
        return meant

    def _locals(self, place: Place) -> str:
        found = (name for name in self._names if _is_local(_find_here(name, place.frame)))
        return f"{' and '.join(found) or self.text} of {place}"


def _find_here(name: str, frame: Optional[gdb.Frame]) -> Optional[gdb.Symbol]:
    """Return the symbol that gdb finds by a name in the selected frame."""
    try:
        return gdb.lookup_symbol(name)[0]
    except gdb.error:  # there is no frame
        return gdb.lookup_global_symbol(name) or next(iter(gdb.lookup_static_symbols(name)), None)


def _is_local(symbol: Optional[gdb.Symbol]) -> bool:
    return symbol is not None and (symbol.is_argument or (symbol.is_variable and symbol.needs_frame))


def _is_foreign(symbol: Optional[gdb.Symbol], frame: Optional[gdb.Frame], own: Sequence[gdb.Symbol]) -> bool:
    """Return whether this is not surely the variable that is meant, where the executable has some of the name."""
    if symbol is None or symbol.is_function or symbol.addr_class == gdb.SYMBOL_LOC_UNRESOLVED:
        return True
    if not symbol.is_variable or _is_local(symbol) or _is_in_file_of(symbol, frame):
        return False
    if lookup.is_executables(symbol.symtab.objfile):
        return len(own) > 1 and not lookup.is_global(own[0])  # several files have a static one
    return True


def _is_in_file_of(symbol: gdb.Symbol, frame: Optional[gdb.Frame]) -> bool:
    function = None if frame is None else frame.function()
    return function is not None and name_of(function.symtab) == name_of(symbol.symtab)


def _tell(meant: _Meant) -> str:
    return " and ".join(_told(name, symbol) for name, symbol in meant.items())


def _told(name: str, symbol: gdb.Symbol) -> str:
    if lookup.is_global(symbol):
        return f"global {name} of {os.path.basename(str(name_of(symbol.symtab.objfile)))}"
    return f"static {name} of {os.path.basename(name_of(symbol.symtab))}"
