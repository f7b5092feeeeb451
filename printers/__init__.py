"""Pretty-printers, one file a family, registered together under the name ``gdbext``.

gdb asks at each value that it prints. So nothing but the type's name is looked at until it is one of ours: the
families and what they need are imported then.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Optional, Sequence

import gdb
from gdbext.printers.tags import bare_name

from gdbext.bridge.expressions import language
from gdbext.errors import MissingDependencyError
from gdbext.starting import dependencies

NAME = "gdbext"

_RECORDS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
_REFERENCES = (gdb.TYPE_CODE_REF, getattr(gdb, "TYPE_CODE_RVALUE_REF", gdb.TYPE_CODE_REF))


class Family:
    """Printers of one file; a name that ``disable pretty-printer global gdbext;NAME`` takes.

    :param name: of the file in this folder, which has ``find_printer(value, tag)``.
    :param tags: returns the names of its types, without "struct".
    :param by_shape: it needs the packages that shapes are read with.
    """

    def __init__(self, name: str, tags: "Callable[[], frozenset[str]]", by_shape: bool = True) -> None:
        self.name = name
        self.by_shape = by_shape
        self.enabled = True
        self.tags = tags

    def find_printer(self, value: gdb.Value, tag: str) -> Optional[Any]:
        """Return the printer for a value of one of its types, or None."""
        if self.by_shape and not gdb.selected_inferior().pid:
            return None  # an object in a file, before the program runs
        try:
            if self.by_shape:
                dependencies.load()
            with language.like_c():
                return importlib.import_module(f"{__name__}.{self.name}").find_printer(value, tag)
        except MissingDependencyError:  # what is missing was told at start-up; gdb prints the value itself
            return None


class Collection:
    """What gdb keeps in its list of printers; ``info pretty-printer`` shows name and families."""

    def __init__(self) -> None:
        self.name = NAME
        self.enabled = True
        self.subprinters = [
            Family("glibc", lambda: _GLIBC, by_shape=False),
            Family("tables", _table_tags),
            Family("lists", _list_tags),
        ]

    def __call__(self, value: gdb.Value) -> Optional[Any]:
        """Return the printer of a value, or None where it is no business of ours."""
        kind = value.type
        if kind.code in _REFERENCES:
            kind = kind.target()
        if kind.code == gdb.TYPE_CODE_TYPEDEF or kind.code in _RECORDS:
            return self._find(value, kind)
        return None

    def _find(self, value: gdb.Value, kind: gdb.Type) -> Optional[Any]:
        basic = kind.strip_typedefs()
        if basic.code not in _RECORDS:
            return None
        names = {bare_name(name) for name in (kind.name, basic.tag) if name}
        for family in self.subprinters:
            if family.enabled:
                for tag in names & family.tags():
                    printer = family.find_printer(value, tag)
                    if printer is not None:
                        return printer
        return None


_GLIBC = frozenset(
    ("malloc_chunk", "malloc_state", "_heap_info", "heap_info", "tcache_perthread_struct", "tcache_entry")
)


def _table_tags() -> "frozenset[str]":
    from gdbext.printers import index

    return index.table_tags(_GLIBC)


def _list_tags() -> "frozenset[str]":
    from gdbext.printers import index

    return index.list_tags()


# Each makes one collection, when it is registered.
COLLECTIONS: Sequence[Callable[[], Any]] = (Collection,)
