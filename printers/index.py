"""Which types are ours to print, by name.

Shape files are scanned with two patterns, once: reading them as what they are takes packages and time. Only where
the program has a type that one of them names are they read.
"""

from __future__ import annotations

import glob
import importlib
import os
import re
from typing import Iterator, Optional

import gdb
from gdbext.printers.tags import bare_name

from gdbext.bridge.expressions import language
from gdbext.bridge.stops import settings
from gdbext.bridge.stops.changes import call_when_objfiles_change
from gdbext.errors import GdbextError
from gdbext.starting import dependencies

_KIND = re.compile(r'^kind\s*=\s*"(\w+)"', re.MULTILINE)
_TYPES = re.compile(r"^types\s*=\s*\[(.*?)\]", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r'"([^"]+)"')
_TABLES = ("bins", "group", "probe")

_scanned: "Optional[dict[str, frozenset[str]]]" = None
_tables: "Optional[frozenset[str]]" = None


def list_tags() -> "frozenset[str]":
    """Return the names of types of lists."""
    return _scan().get("list", frozenset())


def table_tags(others: "frozenset[str]") -> "frozenset[str]":
    """Return the names of types of tables and groups; where the program has one, of bins and entries too.

    :param others: names that another family prints.
    """
    global _tables
    if _tables is None:
        tags = frozenset(tag for kind in _TABLES for tag in _scan().get(kind, ())) - others
        if not gdb.selected_inferior().pid:
            return tags
        call_when_objfiles_change(_forget)
        _tables = tags  # printing goes on while types are looked up
        with language.like_c():
            if any(map(_is_known, tags)):
                _tables = tags | (_part_tags() - others - list_tags())
    return _tables


def _part_tags() -> "frozenset[str]":
    try:
        dependencies.load()
        from gdbext.printers import tables

        return frozenset(tables.find_tables())
    except GdbextError:  # no numpy, or the process is gone: only tables are known
        return frozenset()


def _is_known(tag: str) -> bool:
    for name in (f"struct {tag}", tag):
        try:
            gdb.lookup_type(name)
        except gdb.error:
            continue
        return True
    return False


def _forget() -> None:
    global _tables
    _tables = None


def _scan() -> "dict[str, frozenset[str]]":
    """Return the exact names of types in all shape files, by kind of shape."""
    global _scanned
    if _scanned is None:
        found: "dict[str, set[str]]" = {}
        for text in _texts():
            kind, types = _KIND.search(text), _TYPES.search(text)
            named = _QUOTED.findall(types[1]) if types else []
            exact = (bare_name(name) for name in named if not any(mark in name for mark in "*?["))
            found.setdefault(kind[1] if kind else "", set()).update(exact)
        _scanned = {kind: frozenset(names) for kind, names in found.items()}
    return _scanned


def _texts() -> Iterator[str]:
    own = os.path.expanduser(settings.current_text("shapes-folder").strip())
    for folder in (*importlib.import_module("gdbext.shapes").__path__, *([own] if own else [])):
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.toml"))):
            with open(path, encoding="utf-8", errors="replace") as stream:
                yield stream.read()
