"""Made-up cores and rows: what a file says decides what becomes of its core."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial

from gdbext.errors import BadCoreError
from gdbext.fleet import child
from gdbext.fleet.examine import document, failed
from gdbext.fleet.kinds import KINDS, MEASURED
from gdbext.fleet.layout import SCHEMA, Layout
from gdbext.fleet.pool import Limits
from gdbext.fleet.run import Run
from gdbext.version import __version__

UNLIMITED = Limits(jobs=2, memory=4 << 30, seconds=None)


class Unwatched:
    def at(self, running, waiting):
        pass


def core_cells(source, **values):
    """Return the cells of a row of kind ``cores``: null where nothing is given."""
    known = {"path": source.path, "size": source.size, "host": source.host, "time": source.time, "status": 0,
             "debugger": False, "version": __version__, **values}  # fmt: skip
    return [known.get(name) for name in columns_of("cores")]


def examine(source, how):
    """Do as the file says, and return two rows for each of the first letters in it."""
    with open(source.path, encoding="utf-8") as file:
        text = file.read()
    word, _, rest = text.partition(" ")
    if word == "hang":
        time.sleep(3600)
    if word == "kill" or (word == "kill-once" and not os.path.exists(rest)):
        if rest:
            open(rest, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "eat":
        bytearray(1 << 40)
    if word == "defect":
        raise ValueError("made up")
    if word == "no-core":
        return failed(source, BadCoreError.kind, "made up")
    problems = [[f"made-{letter}", 1 << 63, text[:40], bool(at), "triage"] for letter in text[:8] for at in (0, 1)]
    return document(source, {"cores": [core_cells(source)], "answers": [["triage", 0, True, None, None]],
                             "problems": problems})  # fmt: skip


def query(text):
    """Return what DuckDB answers, in a process of its own."""
    return child.run(partial(_query, text))


def _query(text):
    import duckdb

    return duckdb.sql(text).fetchall()


def write_cores(folder, texts):
    """Make files with these texts; return the folder."""
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"core.{number:03d}").write_text(text, encoding="utf-8")
    return folder


def rows_of(dataset):
    """Return all rows of a dataset by kind, as DuckDB itself reads the parts that count; no core is there twice.

    In a process of its own: engines have threads, and who forks has one.
    """
    return child.run(partial(read_rows, dataset))


def read_rows(dataset):
    """As :func:`rows_of`, in this process."""
    import duckdb

    layout = Layout(str(dataset))
    found = {}
    for kind in KINDS:
        files = [layout.path(kind.name, part) for part in layout.parts()]
        files = [path for path in files if os.path.exists(path)]
        names = ", ".join(f'"{name}"' for name, _ in kind.columns if name not in MEASURED)
        query = f"SELECT {names} FROM read_parquet({files!r}, hive_partitioning = false)"
        rows = duckdb.sql(query).fetchall() if files else []
        found[kind.name] = sorted(map(repr, rows))
    assert len(set(found["cores"])) == len(found["cores"])
    return found


def put(dataset, cores):
    """Make a dataset of rows that are given.

    :param cores: for each its id, its row, and the rows of other kinds, by column; what is not named is null.
    """
    layout = Layout(str(dataset))
    layout.make()
    for core, row, others in cores:
        kinds = {"cores": [{"path": f"/{core}", "size": 1, "status": 0, "debugger": False, **row}], **others}
        rows = {name: [[each.get(column) for column in columns_of(name)] for each in of] for name, of in kinds.items()}
        found = {"schema": SCHEMA, "version": __version__, "core": core, "rows": rows}
        with open(layout.pending_path(core), "w", encoding="utf-8") as file:
            json.dump(found, file)
    Run(str(dataset), None, UNLIMITED, Unwatched()).run([])


def columns_of(name):
    return [column for column, _ in next(kind for kind in KINDS if kind.name == name).columns[1:]]
