"""Rows of many cores as one part of a dataset: Parquet files, one for each kind. Imports pyarrow."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from gdbext.fleet.kinds import KINDS, RowKind
from gdbext.fleet.layout import LAST, SCHEMA, Layout, Part, unwritable
from gdbext.render.arrow import type_of
from gdbext.starting import dependencies
from gdbext.version import __version__


def write_part(layout: Layout, part: Part, cores: Sequence[str]) -> None:
    """Make a part of what is pending of some cores; what it was made of is removed once the part counts.

    :raises DatasetError: it cannot be written; then there is no such part.
    :raises MissingDependencyError: pyarrow is not there.
    """
    if part not in layout.found(LAST):  # it is there where somebody has killed who did this before us
        _write_kinds(layout, part, [_read(layout.pending_path(core)) for core in cores])
    for core in cores:
        with suppress(FileNotFoundError):
            os.unlink(layout.pending_path(core))


def _write_kinds(layout: Layout, part: Part, documents: Sequence[Dict[str, Any]]) -> None:
    arrow = load()
    for kind in sorted(KINDS, key=lambda kind: kind.name == LAST):
        rows = [[found["core"], *row] for found in documents for row in found["rows"].get(kind.name, ())]
        if rows or kind.name == LAST:
            write_table(layout, layout.name(kind.name, part), _table(arrow, kind, rows))


def find_done(layout: Layout) -> Mapping[str, Sequence[str]]:
    """Return the ids of cores: ``done`` that are in a part, ``pending`` that are to be put in one.

    What is pending and in a part, too, or not of this version, is removed; what columns each kind has, is written.

    :raises MissingDependencyError: pyarrow is not there.
    """
    arrow = load()
    _write_empty(arrow, layout)
    done: List[str] = []
    for part in layout.parts():
        done += read_table(layout, layout.name(LAST, part), ["core"])["core"].to_pylist()
    return {"done": done, "pending": list(_pending(layout, set(done)))}


def _write_empty(arrow: Any, layout: Layout) -> None:
    there = set(layout.kinds())
    for kind in KINDS:
        if kind.name not in there:
            write_table(layout, layout.empty_name(kind.name), _table(arrow, kind, []))


def _pending(layout: Layout, done: "set[str]") -> Iterator[str]:
    for name in sorted(os.listdir(layout.pending)):
        path = os.path.join(layout.pending, name)
        core = name[: -len(".json")]
        found = {} if core in done else _read(path)
        if found.get("schema") == SCHEMA and found.get("version") == __version__:
            yield core
        else:
            os.unlink(path)


def _read(path: str) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        found: Dict[str, Any] = json.load(file)
        return found


def load() -> Any:
    """Import pyarrow, and return it; errors as :func:`write_part`."""
    dependencies.load("pyarrow", "pyarrow.parquet")
    import pyarrow

    return pyarrow


def schema_of(kind: RowKind) -> Any:
    """Return the columns of a kind, as this version writes them."""
    arrow = load()
    metadata = {"gdbext": json.dumps({"schema": SCHEMA, "kind": kind.name, "version": __version__})}
    return arrow.schema([(name, type_of(arrow, of)) for name, of in kind.columns], metadata)


def _table(arrow: Any, kind: RowKind, rows: Sequence[Sequence[Any]]) -> Any:
    schema = schema_of(kind)
    columns = list(zip(*rows)) if rows else [()] * len(kind.columns)
    arrays = [arrow.array(column, field.type) for column, field in zip(columns, schema)]
    return arrow.Table.from_arrays(arrays, schema=schema)


def read_table(layout: Layout, name: str, columns: Optional[Sequence[str]] = None) -> Any:
    """Return what a Parquet file of a dataset holds.

    :param columns: only these; None is all.
    """
    arrow = load()
    return arrow.parquet.read_table(arrow.BufferReader(layout.place.read(name)), columns=columns)


def write_table(layout: Layout, name: str, table: Any) -> None:
    """Write a Parquet file of a dataset; errors as :func:`write_part`."""
    arrow = load()
    data = arrow.BufferOutputStream()
    arrow.parquet.write_table(table, data, compression="zstd")
    try:
        layout.place.write(name, data.getvalue().to_pybytes(), lasting=table.num_rows > 0)
    except OSError as error:
        raise unwritable(os.path.join(layout.folder, name), error) from None
