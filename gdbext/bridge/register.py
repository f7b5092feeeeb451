"""Registers everything with gdb, once.

Every command is registered below ``gx``; plainly too where nobody owns its first word. What users
have in their fingers stays: each abbreviation of a builtin that our names would take away is
restored with an alias.
"""

from __future__ import annotations

import gc
import os
from typing import Any, Iterable, Mapping, Sequence

import gdb

from gdbext import _mount
from gdbext.bridge.commands import names
from gdbext.bridge.commands.charset import warn
from gdbext.bridge.commands.command import PrefixCommand, SpecCommand
from gdbext.bridge.functions import functions, lockfunctions
from gdbext.bridge.stops import session, settings
from gdbext.starting import dependencies
from gdbext.starting.descriptors import fill_standard

PREFIX = "gx"

_registered = False


def register(package_folder: str) -> None:
    """Register commands, settings, functions and printers; a second call does nothing.

    :param package_folder: where ``gdbext/__init__.py`` is.
    """
    global _registered
    if _registered:
        return
    _registered = True
    fill_standard()
    _mount.mount(package_folder)
    dependencies.locate(package_folder)
    from gdbext import printers
    from gdbext.grammar import catalogue

    settings.register(catalogue.SETTINGS)
    _register_prefixed(catalogue.COMMANDS, catalogue.PREFIXES)
    names.plain_owners.update(_find_owners(catalogue.COMMANDS, catalogue.FOREIGN_NAMES))
    _register_plain(catalogue.COMMANDS, catalogue.PREFIXES)
    _register_printers(printers.COLLECTIONS)
    functions.register()
    lockfunctions.register()
    if hasattr(gdb, "register_window_type"):  # where this gdb has a text interface
        gdb.register_window_type("gxheap", _open_heap_window)
    session.listen()
    if hasattr(gdb.events, "gdb_exiting"):  # since gdb 12
        gdb.events.gdb_exiting.connect(_on_exit)
    for line in dependencies.find_missing():
        warn(f"gdbext: {line}")


def _open_heap_window(window: Any) -> Any:
    dependencies.load()
    from gdbext.bridge.heapwindow import HeapWindow

    return HeapWindow(window)


def _on_exit(event: object) -> None:
    gc.freeze()  # Python would go through all that it is about to drop


def greet() -> None:
    """Say to a person what to type. gdb has no word for batch, in which its screen has no bounds."""
    bounded = gdb.parameter("height") or gdb.parameter("width")
    try:
        person = bool(bounded) and os.isatty(0) and os.isatty(1)
    except OSError:  # closed
        person = False
    if person and not dependencies.find_missing():
        lead = f"{PREFIX} " if "triage" in names.plain_owners else ""
        gdb.write(f"gdbext: {lead}triage says what is wrong and where the memory is; gx commands lists the rest\n")


def _register_prefixed(specs: Sequence[Any], prefixes: Mapping[str, str]) -> None:
    top = PrefixCommand(PREFIX, "Heap and data-structure forensics (gdbext).")
    top.words.update(_roots(specs))
    _register_family(specs, prefixes, f"{PREFIX} ")


def _register_family(specs: Sequence[Any], prefixes: Mapping[str, str], lead: str) -> None:
    """Register commands and the prefixes above them, all names led by ``lead``."""
    made = {root: PrefixCommand(lead + root, prefixes[root]) for root in _roots(specs) if root in prefixes}
    for spec in specs:
        SpecCommand(spec, lead + spec.name)
        if _root(spec) in made:
            made[_root(spec)].words.add(spec.name.split()[1])


def _find_owners(specs: Sequence[Any], foreign: Mapping[str, str]) -> dict[str, str]:
    """Return who owns each first word that is not ours to take."""
    roots = [root for root in _roots(specs) if not _prefixed_only(specs, root)]
    owners = {root: foreign.get(root) or names.find_owner(root) for root in roots}
    return {root: owner for root, owner in owners.items() if owner}


def _register_plain(specs: Sequence[Any], prefixes: Mapping[str, str]) -> None:
    free = [
        root for root in _roots(specs) if root not in names.plain_owners and not _prefixed_only(specs, root)
    ]
    taken = [spec for spec in specs if _root(spec) in free]
    abbreviations = names.Abbreviations([PREFIX, *free])
    _register_family(taken, prefixes, "")
    names.plain_names.update(spec.name for spec in taken)
    abbreviations.restore()


def _register_printers(collections: Iterable[Any]) -> None:
    """Add our printers behind all others: what somebody else prints stays theirs, also if they come later."""
    for make in collections:
        printer = make()
        others = [one for one in gdb.pretty_printers if getattr(one, "name", None) != printer.name]
        gdb.pretty_printers[:] = [*others, printer]


def _root(spec: Any) -> str:
    return str(spec.name).split()[0]


def _roots(specs: Sequence[Any]) -> Sequence[str]:
    return list(dict.fromkeys(_root(spec) for spec in specs))


def _prefixed_only(specs: Sequence[Any], root: str) -> bool:
    return any(spec.prefixed_only for spec in specs if _root(spec) == root)
