"""Reads the jemalloc of a process or a core that is no stage: as plain data, in gdb and without it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.model import Jemalloc
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.progress import SILENT
from gdbext.target import Target
from tests.support import gdbrun

_LOOK = """
import json, sys
sys.path.insert(0, {root!r})
from gdbext.starting import dependencies
dependencies.load()
from gdbext.bridge.ports.target import read_target
from tests.support.jelook import plain, read_only
json.dump(plain(read_only(read_target())), open({answer!r}, "w"))
"""


def read_only(target: Target) -> Jemalloc:
    """Return the only jemalloc of a target."""
    found = find_jemallocs(target, SILENT)
    assert not found.problems
    (location,) = found.locations
    return read_jemalloc(target, location, SILENT)


def plain(heap: Jemalloc) -> Any:
    """Return what was read as plain data; threads' names are left out, which a core does not have."""
    arenas: Any = [asdict(arena) for arena in heap.arenas]
    for row in arenas:
        row["threads"] = [ref["lwp"] for ref in row["threads"]]
    extents = {name: getattr(heap.extents, name).tolist() for name in heap.extents.__dataclass_fields__}
    problems = [one.message for one in heap.problems]
    return json.loads(json.dumps({"arenas": arenas, "extents": extents, "problems": problems}))


def look(pid: int, folder: Path) -> tuple[Any, Path]:
    """Return what gdb's Python reads of a process, and a core of the same moment."""
    answer, script, core = folder / "live.json", folder / "look.py", folder / "core"
    root = __file__.rpartition("/tests/")[0]
    script.write_text(_LOOK.format(root=root, answer=str(answer)))
    for old in (answer, core):
        old.unlink(missing_ok=True)
    output = gdbrun.run_gdb(
        ["-p", str(pid), *gdbrun.load_pack(), "-x", str(script), "-ex", f"gcore {core}"], cwd=folder
    )
    assert answer.exists() and core.exists(), output
    return json.loads(answer.read_text()), core
