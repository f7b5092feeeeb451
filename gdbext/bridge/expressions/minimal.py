"""The variables in an object file's symbol table, with and without debug info.

gdb's Python has no list of them; ``maint print msymbols`` is one, and costs no reading of debug info.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import gdb

from gdbext.bridge.decoded import ask, name_of
from gdbext.bridge.stops.changes import call_when_objfiles_change

_LINE = re.compile(
    r"^\[ *\d+\] (?P<kind>[DdBb]) (?P<address>0x[0-9a-f]+) (?P<name>\S+)"
    r" section (?P<section>\S+)(?:  (?P<first>\S.*?))?(?:  (?P<second>\S.*?))? *$",
    re.MULTILINE,
)
# Neither the program's variables nor at one address (thread-local).
_OTHER_SECTIONS = re.compile(
    r"\.(tdata|tbss|rodata|eh_frame|gcc_except|note|init_array|fini_array|ctors|dtors|dynamic|got|plt|interp)"
)
_ABI_TAG = re.compile(r"\[abi:\w+\]")  # as in ``words[abi:cxx11]``: no expression has it
# Virtual tables, type information, guards of local statics.
_COMPILERS = re.compile(r"_ZT[VTIS]|_ZGV|DW\.ref\.")


class DataSymbol(NamedTuple):
    """A variable of the symbol table.

    :param name: as the program's source has it, C++ names demangled.
    """

    name: str
    address: int


def data_symbols(objfile: gdb.Objfile) -> Sequence[DataSymbol]:
    """Return the variables that an object file's symbol table names, in the order of addresses."""
    return _cached(objfile)[0]


def find_data(objfile: gdb.Objfile, name: str) -> Sequence[DataSymbol]:
    """Return those of one name."""
    return _cached(objfile)[1].get(name, ())


_Table = Tuple[Sequence[DataSymbol], Mapping[str, Sequence[DataSymbol]]]
_known: Dict[Tuple[int, str], _Table] = {}  # by inferior: it is mapped elsewhere in each


def _cached(objfile: gdb.Objfile) -> _Table:
    key = gdb.selected_inferior().num, str(name_of(objfile))
    if key not in _known:
        call_when_objfiles_change(_known.clear)
        symbols = sorted(set(_read(objfile)), key=lambda symbol: (symbol.address, symbol.name))
        named: Dict[str, List[DataSymbol]] = {}
        for symbol in symbols:
            named.setdefault(symbol.name, []).append(symbol)
        _known[key] = symbols, named
    return _known[key]


def _read(objfile: gdb.Objfile) -> Iterator[DataSymbol]:
    # Debug info in a file of its own has the symbol table that the executable was stripped of.
    for one in (objfile, *(other for other in gdb.objfiles() if other.owner == objfile)):
        try:
            text = ask(f"maint print msymbols -objfile {_quoted(str(name_of(one)))}")
        except gdb.error:
            continue
        yield from _parse(text)


def _parse(text: str) -> Iterator[DataSymbol]:
    for match in _LINE.finditer(text):
        if not _OTHER_SECTIONS.match(match["section"]) and not _COMPILERS.match(match["name"]):
            mangled = match["name"].startswith("_Z") and match["first"]
            name = _ABI_TAG.sub("", match["first"]) if mangled else match["name"]
            yield DataSymbol(name, int(match["address"], 16))


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
