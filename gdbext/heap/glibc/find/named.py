"""``main_arena``, ``mp_`` and their types by name, as far as the names can be believed.

A debugger answers from whatever libc its sysroot holds. A symbol or a type counts only when the file
that it is from has the build-id of the module that the target has mapped there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from gdbext.debuginfo import Symbol
from gdbext.heap.glibc.layouts import CANONICAL, TcacheLayout, tcache_from_debug
from gdbext.heap.symbolcheck import find_disbelief
from gdbext.layout import StructLayout
from gdbext.report import Problem
from gdbext.target import Target

_TAGS = {"heap_info": "_heap_info"}
_NEEDED = {
    "malloc_state": ("mutex", "flags", "top", "bins", "next", "system_mem", "max_system_mem"),
    "heap_info": ("ar_ptr", "prev", "size", "mprotect_size"),
    "malloc_par": ("n_mmaps", "mmapped_mem", "sbrk_base"),
    "tcache_perthread_struct": ("entries",),
    "tcache_entry": ("next",),
}


@dataclass(frozen=True)
class Named:
    """One libc's heap as its symbols name it.

    :param structs: believed layouts by name; missing where there are no types.
    """

    main_arena: int
    malloc_par: Optional[int]
    build_id: str
    structs: dict[str, StructLayout] = field(default_factory=dict)

    @property
    def tcache(self) -> Optional[TcacheLayout]:
        """The thread cache's layout, where there are types for it."""
        struct, entry = self.structs.get("tcache_perthread_struct"), self.structs.get("tcache_entry")
        return tcache_from_debug(struct, entry) if struct and entry else None


def find_named(target: Target) -> tuple[list[Named], list[Problem]]:
    """Return every ``main_arena`` that can be believed, and why others cannot."""
    problems: list[Problem] = []
    arenas = _believed(target, "main_arena", problems)
    pars = {symbol.build_id: symbol.address for symbol in _believed(target, "mp_", [])}
    named = [
        Named(symbol.address, pars.get(build_id), build_id, find_structs(target, build_id))
        for symbol in arenas
        for build_id in filter(None, (symbol.build_id,))
    ]
    return named, problems


def _believed(target: Target, name: str, problems: list[Problem]) -> list[Symbol]:
    """Return the symbols whose file is the one that is mapped around them."""
    believed: dict[int, Symbol] = {}
    for symbol in target.symbols.find_symbols(name):
        wrong = find_disbelief(target, symbol)
        if wrong is None:
            believed[symbol.address] = symbol
        else:
            problems.append(wrong)
    return list(believed.values())


def find_structs(target: Target, build_id: str) -> dict[str, StructLayout]:
    """Return the layouts that debug info of the file with ``build_id`` gives, in our member names."""
    found: dict[str, StructLayout] = {}
    for name, needed in _NEEDED.items():
        for known_as in (name, _TAGS.get(name, name)):
            for struct in target.symbols.find_structs(known_as):
                layout = struct.layout
                if struct.build_id == build_id and all(member in layout for member in needed):
                    found.setdefault(name, layout)
    return {
        name: layout if name == "tcache_perthread_struct" else layout.renamed(CANONICAL)
        for name, layout in found.items()
    }
