"""The typed variables of a program's files, kept for later targets of the same files: where, and of which types.

Where the loader put a file a variable of its own says: the others are as far from it as before.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import gdb

from gdbext.bridge.expressions import minimal, values, wordsize
from gdbext.bridge.ports import discover
from gdbext.bridge.ports.filefacts import FileFacts
from gdbext.bridge.ports.kepttypes import TypeTable, read_types
from gdbext.bridge.ports.typemaker import REFERENCES
from gdbext.debuginfo import TypedPlace
from gdbext.layout.types import Type
from gdbext.report import Problem

_QUESTION = "places"
_MOST = 1_000_000  # variables

# A place: the position of its file, how far it is from the file's anchor, its type's position. Or a variable that is to
# be asked for again, since memory or another file says where it is: the file, its name, where in the source it is.
_Row = Tuple[int, Any, Any]


class KeptPlaces:
    """What is found of variables, to be kept.

    :param facts: of the files; None: nothing is kept.
    :ivar passed: variables that were examined.
    """

    def __init__(self, facts: Optional[FileFacts]) -> None:
        self.passed = 0
        self.problems: List[Problem] = []
        self._facts = facts
        self._files = list(discover.own_files())
        self._rows: List[_Row] = []
        self._types = TypeTable()
        self._anchors: Dict[int, Optional[_Anchor]] = {}
        self._read: Sequence[Type] = ()

    def add_variable(self, objfile: gdb.Objfile, name: str, symbol: gdb.Symbol, places: Sequence[TypedPlace]) -> None:
        """Note a variable with its places; where it has none it may have some in another target."""
        kind = symbol.type
        fixed = symbol.addr_class == gdb.SYMBOL_LOC_STATIC
        if kind is None or fixed and kind.strip_typedefs().code not in REFERENCES:
            for place in places:
                self.add(objfile, place)
        else:
            self._rows.append((self._files.index(objfile), name, discover.place_of(symbol)))

    def add(self, objfile: gdb.Objfile, place: TypedPlace) -> None:
        """Note a place in a file."""
        if self._facts is None:
            return
        number = self._files.index(objfile)
        if number not in self._anchors:
            self._anchors[number] = _find_anchor(objfile)
        anchor = self._anchors[number]
        if anchor is None or place.pointed or len(self._rows) >= _MOST:
            self._facts = None
        else:
            self._rows.append((number, place.address - anchor.address, self._types.add(place.type)))

    def keep(self, passed: int, problems: Sequence[Problem]) -> None:
        """Keep all of it, once so many variables were examined, with these problems."""
        types = self._types.rows() if self._facts is not None else None
        if self._facts is None or types is None:
            return
        anchors = [(number, anchor.name) for number, anchor in self._anchors.items() if anchor is not None]
        said = [(one.kind, one.message) for one in problems]
        self._facts.keep({"passed": passed, "problems": said, "anchors": anchors, "types": types,
                          "rows": self._rows}, _QUESTION)  # fmt: skip

    @classmethod
    def find(cls, facts: FileFacts) -> "Optional[KeptPlaces]":
        """Return what was kept, or None: nothing, or something else."""
        value = facts.find(_QUESTION)
        try:
            return None if value is None else cls._of(value)
        except (KeyError, IndexError, TypeError, ValueError):
            return None

    @classmethod
    def _of(cls, value: Any) -> "KeptPlaces":
        kept = cls(None)
        files = kept._files
        kept.passed = _whole(value["passed"])
        kept.problems = [Problem(str(kind), None, str(message)) for kind, message in value["problems"]]
        for number, name in value["anchors"]:
            kept._anchors[_whole(number)] = _read_anchor(files[number], str(name))
        kept._read = read_types(value["types"])
        for number, at, which in value["rows"]:
            files[_whole(number)]
            if not (isinstance(at, str) and isinstance(which, str)):
                kept._anchors[number], kept._read[_whole(which)], at + 0
            kept._rows.append((number, at, which))
        return kept

    def places(self, ask: Callable[[gdb.Symbol], Iterator[TypedPlace]]) -> Iterator[TypedPlace]:
        """Iterate over the places.

        :param ask: gives those of a variable that is asked for again.
        """
        files, mask = self._files, wordsize.word_mask()
        for number, at, which in self._rows:
            if isinstance(at, str):
                symbol = discover.find_variable(files[number], at, which)
                if symbol is not None:
                    yield from ask(symbol)
            else:
                anchor = self._anchors[number]
                assert anchor is not None  # they were all read
                yield TypedPlace((anchor.address + at) & mask, self._read[which])


def _whole(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(number)
    return number


class _Anchor(NamedTuple):
    """A variable by which a file is found again."""

    name: str
    address: int


def _find_anchor(objfile: gdb.Objfile) -> Optional[_Anchor]:
    """Return the first variable whose name is of no other one in its file, or None."""
    for name, symbol in discover.variables_of(objfile):
        if len(minimal.find_data(objfile, name)) == 1 and symbol.addr_class == gdb.SYMBOL_LOC_STATIC:
            return _read_anchor(objfile, name)
    return None


def _read_anchor(objfile: gdb.Objfile, name: str) -> _Anchor:
    symbol = objfile.lookup_global_symbol(name) or objfile.lookup_static_symbol(name)
    if symbol is None:
        raise ValueError(name)
    address = values.find_address(symbol.value())
    if address is None:
        raise ValueError(name)
    return _Anchor(name, address)
