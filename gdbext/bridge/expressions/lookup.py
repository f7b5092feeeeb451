"""Types and variables by name: the executable's before those of libraries.

gdb looks into the selected frame's own file first and then anywhere: stopped in libc, ``daemon`` is a
function of libc. A user who asks for a variable means the program's.
"""

from __future__ import annotations

import os
from typing import Callable, Iterator, Optional, Sequence

import gdb

from gdbext.bridge.decoded import name_of
from gdbext.bridge.expressions import minimal

_RECORDS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
_WORDS = ("struct ", "union ", "class ", "enum ")
# An unresolved one is declared here and defined where there is no debug info.
_IN_MEMORY = (gdb.SYMBOL_LOC_STATIC, gdb.SYMBOL_LOC_UNRESOLVED)

_Lookup = Callable[..., Optional[gdb.Symbol]]


def executables() -> Sequence[gdb.Objfile]:
    """Return the executable's object file; none where gdb was not given it."""
    space = gdb.current_progspace()
    filename = None if space is None else name_of(space)
    if filename is None:
        return []
    names = (filename, os.path.realpath(filename))
    return [one for one in gdb.objfiles() if one.owner is None and name_of(one) in names]


def is_executables(objfile: Optional[gdb.Objfile]) -> bool:
    """Return whether symbols of an object file (it may hold only debug info) are the executable's."""
    return objfile is not None and root_of(objfile) in executables()


def root_of(objfile: gdb.Objfile) -> gdb.Objfile:
    """Return the file that is mapped, of one that holds only its debug info."""
    while objfile.owner is not None:
        objfile = objfile.owner
    return objfile


def find_foreign_variables(name: str) -> Sequence[gdb.Symbol]:
    """Return the variables of that name that libraries' debug info has; no thread-local ones."""
    found = [gdb.lookup_global_symbol(name), *gdb.lookup_static_symbols(name)]
    return [one for one in found if one is not None and is_in_memory(one) and not _is_own(one)]


def find_own_variables(name: str) -> Sequence[gdb.Symbol]:
    """Return the variables of that name that debug info of the executable has: a global one, then statics.

    Those that are only declared there come last; thread-local ones are left out.
    """
    globals_ = [one.lookup_global_symbol(name) for one in executables()]
    statics = [symbol for symbol in gdb.lookup_static_symbols(name) if _is_own(symbol)]
    found = [symbol for symbol in (*globals_, *statics) if symbol is not None and is_in_memory(symbol)]
    return sorted(found, key=lambda symbol: symbol.addr_class == gdb.SYMBOL_LOC_UNRESOLVED)


def find_bare_address(name: str) -> Optional[int]:
    """Return the address of a variable that has no debug info anywhere, or None."""
    try:
        pointer = gdb.parse_and_eval(f"&'{name}'")
        # What debug info has under this name is thread-local or no variable; else it would have been found.
        known = gdb.lookup_symbol(name)[0]
    except gdb.error:
        return None
    kind = pointer.type.target()
    declared = known is not None and known.addr_class != gdb.SYMBOL_LOC_UNRESOLVED
    if declared or kind.code == gdb.TYPE_CODE_FUNC or "thread local" in str(kind):
        return None
    return int(pointer)


def find_own_bare_address(name: str) -> Optional[int]:
    """Return the address of a variable that the executable's symbol table names, or None."""
    found = (symbol for one in executables() for symbol in minimal.find_data(one, name))
    return next((symbol.address for symbol in found), None)


def is_global(symbol: gdb.Symbol) -> bool:
    """Return whether other files see a variable by its name."""
    found = [one.lookup_global_symbol(symbol.name) for one in gdb.objfiles() if one.owner is None]
    return any(one is not None and is_same(one, symbol) for one in found)


def is_same(one: gdb.Symbol, other: gdb.Symbol) -> bool:
    """Return whether two of gdb's objects are the same symbol, which it does not tell by itself."""
    return (one.name, one.line, str(one.symtab)) == (other.name, other.line, str(other.symtab))


def find_type(name: str) -> Optional[gdb.Type]:
    """Return gdb's complete type of that name, or None.

    :param name: as C or C++ write it; ``struct`` may be left out; ``*`` at the end make pointers.
    """
    base = " ".join(name.split()).rstrip("* ")
    found = _find_complete(base) if base else None
    for _ in range(name.count("*", len(name.rstrip("* ")))):
        found = found if found is None else found.pointer()
    return found


def _find_complete(name: str) -> Optional[gdb.Type]:
    bare = next((name[len(word) :] for word in _WORDS if name.startswith(word)), name)
    for kind in _candidates(name, bare):
        behind = kind.strip_typedefs()
        if behind.code not in _RECORDS or behind.sizeof or behind.fields():
            return kind
    return None


def _candidates(name: str, bare: str) -> Iterator[gdb.Type]:
    domains = [gdb.SYMBOL_STRUCT_DOMAIN]
    if name == bare:
        domains.insert(0, gdb.SYMBOL_VAR_DOMAIN)
    for objfile in executables():
        for domain in domains:
            for lookup in (objfile.lookup_static_symbol, objfile.lookup_global_symbol):
                yield from _types(lookup(bare, domain))
    for tried in (name, f"struct {bare}", f"union {bare}"):
        yield from _ask(tried)


def _types(symbol: Optional[gdb.Symbol]) -> Iterator[gdb.Type]:
    if symbol is not None and symbol.addr_class == gdb.SYMBOL_LOC_TYPEDEF and symbol.type is not None:
        yield symbol.type


def _ask(name: str) -> Iterator[gdb.Type]:
    try:
        yield gdb.lookup_type(name)
    except gdb.error:
        return


def is_in_memory(symbol: gdb.Symbol) -> bool:
    """Return whether it is a variable at one address."""
    return symbol.addr_class in _IN_MEMORY and not symbol.is_function


def _is_own(symbol: gdb.Symbol) -> bool:
    return symbol.symtab is not None and is_executables(symbol.symtab.objfile)
