"""Where types and typed globals come from: the ``Types`` port over gdb."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

import gdb

from gdbext.bridge.expressions import lookup
from gdbext.bridge.expressions.values import find_address, located
from gdbext.bridge.ports.typemaker import type_of as type_of
from gdbext.layout.types import Located, Type


class GdbTypes:
    """The types and globals of the selected inferior; for one stop, since variables change and move."""

    def __init__(self) -> None:
        self._types: "dict[str, Optional[Type]]" = {}
        self._globals: "dict[str, Optional[Located]]" = {}

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name ("struct lruhash", "GList", "lruhash"), or None."""
        if name not in self._types:
            kind = lookup.find_type(name)
            self._types[name] = None if kind is None else type_of(kind)
        return self._types[name]

    def find_global(self, name: str) -> Optional[Located]:
        """Return a global or static variable, one of the executable before those of libraries, or None.

        Without debug info the type is None and only the address is known. Thread-local ones have no one address.
        """
        if name not in self._globals:
            self._globals[name] = _find_global(name)
        return self._globals[name]


def _find_global(name: str) -> Optional[Located]:
    found = _first_located(lookup.find_own_variables(name), name) or _bare(name, lookup.find_own_bare_address)
    if found is not None:
        return found
    return _first_located(lookup.find_foreign_variables(name), name) or _bare(name, lookup.find_bare_address)


def _first_located(symbols: Sequence[gdb.Symbol], name: str) -> Optional[Located]:
    return next(filter(None, (_located(symbol, name) for symbol in symbols)), None)


def _bare(name: str, find: Callable[[str], Optional[int]]) -> Optional[Located]:
    address = find(name)
    return None if address is None else Located(name, None, address, None)


def _located(symbol: gdb.Symbol, name: str) -> Optional[Located]:
    value = symbol.value()
    try:
        return located(value, name)
    except gdb.MemoryError:  # the object is known, what it holds is not
        return Located(name, type_of(value.type), find_address(value), None)
    except gdb.error:  # declared, and nowhere defined
        return None
