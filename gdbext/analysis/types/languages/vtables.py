"""Objects of C++ classes, by the pointer to a virtual table that they begin with.

Itanium C++ ABI, 2.5 (virtual tables) and 2.9.4 (type information), as GCC and Clang lay them out: before the address
that objects hold stand the offset to the top of the object and the address of the type information, whose second word
points to the mangled name of the class; at the address itself stand the functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.languages.names import find_plain_name, readable
from gdbext.errors import FaultError
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import Coverage, columns, for_each_chosen
from gdbext.progress import Progress
from gdbext.target import Target

I64 = npt.NDArray[np.int64]

_MOST_TABLES = 1 << 16  # different first words that are looked at
_LONGEST_NAME = 8192
_KINDS = re.compile(r"N10__cxxabiv1\d+__(?:class|si_class|vmi_class)_type_infoE$")
_MANGLED = re.compile(r"\*?(?:N|St|S[sabiod]|\d|Z)[A-Za-z0-9_.$]*$")
_SYMBOL = re.compile(r"^(?:vtable for (?P<plain>.+?)|(?P<mangled>_ZTV\w+))\+(?P<offset>\d+)$")
_SHARED = re.compile(r"^std::_Sp_counted_ptr_inplace<(.+)>$")

Demangle = Callable[[str], Optional[str]]


@dataclass(frozen=True)
class Table:
    """A virtual table.

    :param address: as objects hold it.
    :param name: of the class, as the debugger writes it, for looking it up.
    :param certain: whether the type information is one that the C++ runtime made, or a symbol says so.
    """

    address: int
    name: str
    certain: bool

    @property
    def shown(self) -> str:
        """The class as reports print it."""
        name = readable(self.name)
        shared = _SHARED.match(name)
        return f"std::make_shared<{shared[1]}> object" if shared else name


class TableReader:
    """Tells virtual tables from other data of modules.

    :param demangle: what a name of type information ("_ZTI7Session") says, or None.
    """

    def __init__(self, target: Target, words: Words, demangle: Demangle) -> None:
        self._target = target
        self._words = words
        self._demangle = demangle
        self._word = words.size
        self._kinds: Dict[int, Optional[bool]] = {}

    def find(self, address: int) -> Optional[Table]:
        """Return the virtual table at an address that objects would hold, or None when there is none."""
        try:
            top, info, first = self._target.reader.words(address - 2 * self._word, 3)
        except FaultError:
            return self._by_symbol(address)
        if top != 0:
            return None
        code = self._words.executable(first) and self._target.find_module(first) is not None
        named = self._by_information(address, info, code) if info else None
        if named is not None or not code:
            return named
        return self._by_symbol(address)

    def _by_information(self, address: int, info: int, code: bool) -> Optional[Table]:
        mangled = self._mangled_name(info)
        certain = mangled is not None and self._is_class(info)
        if mangled is None or certain is False or not (code or certain):
            return None
        bare = mangled.lstrip("*")
        name = self._demangle("_ZTI" + bare) or find_plain_name(bare)
        if name is None and certain is None:  # neither proved nor readable
            return None
        return Table(address, name or bare, bool(certain))

    def _mangled_name(self, info: int) -> Optional[str]:
        if info % self._word or self._target.find_module(info) is None:
            return None
        try:
            at = self._target.reader.word(info + self._word)
        except FaultError:
            return None
        mapped = self._words.mapped(np.array([at], np.uint64))[0]
        text = self._target.reader.find_string(at, _LONGEST_NAME) if mapped else None
        return text if text and _MANGLED.match(text) else None

    def _is_class(self, info: int) -> Optional[bool]:
        """Return whether type information is a class's, by the name of its own type; None when that is not there."""
        try:
            table = self._target.reader.word(info)
        except FaultError:
            return None
        if table not in self._kinds:
            self._kinds[table] = self._is_class_table(table)
        return self._kinds[table]

    def _is_class_table(self, table: int) -> Optional[bool]:
        try:
            info = self._target.reader.word(table - self._word)
        except (FaultError, OverflowError):
            lacks = table > self._word and self._target.lacks(table - self._word, self._word)
            return None if lacks else False
        name = self._mangled_name(info)
        if name is None and self._target.lacks(info):
            return None
        return bool(name and _KINDS.search(name))

    def _by_symbol(self, address: int) -> Optional[Table]:
        match = _SYMBOL.match(self._target.symbols.find_name(address) or "")
        if match is None or int(match["offset"]) != 2 * self._word:
            return None
        name = match["plain"] or find_plain_name(match["mangled"][4:])
        return Table(address, name, True) if name else None


def first_words(words: Words, rows: Mask, offset: int, progress: Progress) -> Iterator[Tuple[I64, U64]]:
    """Iterate over rows and the words that stand there, part by part; rows too short for it are left out.

    :param rows: which are wanted.
    :param offset: bytes from the beginning of a block.
    """
    total = int(np.count_nonzero(rows))
    for before, chosen in for_each_chosen(rows):
        progress.at("recognising blocks", before, total)
        chosen = chosen[words.index.size[chosen] >= np.uint64(offset + words.size)]
        values, known = words.in_blocks(words.index.address[chosen] + np.uint64(offset))
        yield chosen[known], values[known]


def candidates(target: Target, words: Words, rows: Mask, progress: Progress) -> Tuple[I64, U64]:
    """Return the rows whose first word points into a module's data, and these words."""
    found_rows: List[I64] = []
    found_words: List[U64] = []
    modules = _modules(target)
    for chosen, values in first_words(words, rows, 0, progress):
        likely = np.flatnonzero(_likely(modules, values, words.size))
        found_rows.append(chosen[likely])
        found_words.append(values[likely])
    none = np.empty(0, np.int64), np.empty(0, np.uint64)
    return np.concatenate([none[0], *found_rows]), np.concatenate([none[1], *found_words])


def _modules(target: Target) -> Coverage:
    pairs = sorted((module.base, module.end) for module in target.modules)
    disjoint: List[Tuple[int, int]] = []
    for start, end in pairs:
        start = max(start, disjoint[-1][1]) if disjoint else start
        if start < end:
            disjoint.append((start, end))
    return Coverage(*columns(disjoint))


def _likely(modules: Coverage, values: U64, word: int) -> Mask:
    likely: Mask = values % np.uint64(word) == 0
    if not len(modules.starts):
        return np.zeros(len(values), np.bool_)
    likely &= (values >= modules.starts[0]) & (values < modules.ends[-1])
    likely[likely] = modules.holds(values[likely])
    return likely


def find_tables(reader: TableReader, values: U64) -> Sequence[Table]:
    """Return the virtual tables among words, those that most blocks hold first."""
    distinct, counts = np.unique(values, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_TABLES]
    found = (reader.find(value) for value in distinct[order].tolist())
    return [table for table in found if table is not None]
