"""Rows of many cores as one part of a dataset: Parquet files, one for each kind. Imports pyarrow."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from gdbext.files import replacing
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
    if not os.path.exists(layout.path(LAST, part)):  # it is there where somebody has killed who did this before us
        _write_kinds(layout, part, [_read(layout.pending_path(core)) for core in cores])
    for core in cores:
        with suppress(FileNotFoundError):
            os.unlink(layout.pending_path(core))


def _write_kinds(layout: Layout, part: Part, documents: Sequence[Dict[str, Any]]) -> None:
    arrow = _load()
    for kind in sorted(KINDS, key=lambda kind: kind.name == LAST):
        rows = [[found["core"], *row] for found in documents for row in found["rows"].get(kind.name, ())]
        if rows or kind.name == LAST:
            _write(arrow, layout.path(kind.name, part), _table(arrow, kind, rows))


def find_done(layout: Layout) -> Mapping[str, Sequence[str]]:
    """Return the ids of cores: ``done`` that are in a part, ``pending`` that are to be put in one.

    What is pending and in a part, too, or not of this version, is removed; what columns each kind has, is written.

    :raises MissingDependencyError: pyarrow is not there.
    """
    arrow = _load()
    _write_empty(arrow, layout)
    done: List[str] = []
    for part in layout.parts():
        cores = arrow.parquet.read_table(layout.path(LAST, part), columns=["core"], partitioning=None)
        done += cores["core"].to_pylist()
    return {"done": done, "pending": list(_pending(layout, set(done)))}


def _write_empty(arrow: Any, layout: Layout) -> None:
    for kind in KINDS:
        if not os.path.exists(layout.empty_path(kind.name)):
            _write(arrow, layout.empty_path(kind.name), _table(arrow, kind, []))


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


def _load() -> Any:
    dependencies.load("pyarrow", "pyarrow.parquet")
    import pyarrow

    return pyarrow


def _table(arrow: Any, kind: RowKind, rows: Sequence[Sequence[Any]]) -> Any:
    metadata = {"gdbext": json.dumps({"schema": SCHEMA, "kind": kind.name, "version": __version__})}
    schema = arrow.schema([(name, type_of(arrow, of)) for name, of in kind.columns], metadata)
    columns = list(zip(*rows)) if rows else [()] * len(kind.columns)
    arrays = [arrow.array(column, field.type) for column, field in zip(columns, schema)]
    return arrow.Table.from_arrays(arrays, schema=schema)


def _write(arrow: Any, path: str, table: Any) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with replacing(path) as stream:
            arrow.parquet.write_table(table, stream, compression="zstd")
            stream.flush()
            if table.num_rows:
                os.fsync(stream.fileno())
    except OSError as error:
        raise unwritable(path, error) from None
