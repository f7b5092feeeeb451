"""Cores without an answer that are tried again: their rows are taken out of a dataset right before new ones come."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from gdbext.fleet.layout import LAST, Layout
from gdbext.fleet.parts import read_table, write_table


def take_out(layout: Layout, cores: Iterable[str]) -> None:
    """Take out the rows of cores without an answer, which are of the kind ``cores`` alone.

    :raises DatasetError: it cannot be written.
    """
    asked = set(cores)
    for part in layout.parts():
        table = read_table(layout, layout.name(LAST, part))
        kept = [core not in asked or kind is None for core, kind in _errors(table)]
        if not all(kept):
            write_table(layout, layout.name(LAST, part), table.filter(kept))


def find_failed(layout: Layout) -> Sequence[str]:
    """Return the ids of cores that have a row without an answer."""
    tables = (read_table(layout, layout.name(LAST, part), ["core", "error_kind"]) for part in layout.parts())
    return [core for table in tables for core, kind in _errors(table) if kind is not None]


def _errors(table: Any) -> "zip[Any]":
    return zip(table["core"].to_pylist(), table["error_kind"].to_pylist())
