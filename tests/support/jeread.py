"""Reads the jemallocs of a stage: without gdb from its core, or in gdb; and holds them to what the program told."""

from __future__ import annotations

import json
from typing import Any, Optional

from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.model import Jemalloc
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.progress import SILENT
from tests.support.jecompare import differences
from tests.support.jestages import JeStage
from tests.support.nmsymbols import target_of

_IN_GDB = """
import json, sys
sys.path.insert(0, {root!r})
from gdbext.starting import dependencies
dependencies.load()
from gdbext.bridge.ports.target import read_target
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.progress import SILENT
from tests.support.jecompare import differences, figures
from tests.support.jetruth import JeTruth
target = read_target()
found = find_jemallocs(target, SILENT)
truth = JeTruth(json.load(open({truth!r})))
heaps = [read_jemalloc(target, one, SILENT) for one in found.locations]
told = dict(
    heaps=[
        dict(
            differences=differences(heap, truth),
            figures=sum(1 for _ in figures(heap, truth)),
            evidence=[one.message for one in heap.location.evidence],
            found_by=heap.location.found_by,
            version=heap.location.version,
            problems=[one.message for one in heap.problems],
            threads={{ref.lwp: arena.index for arena in heap.arenas for ref in arena.threads or ()}},
        )
        for heap in heaps
    ],
    problems=[one.message for one in found.problems],
)
json.dump(told, open({answer!r}, "w"))
"""


def read(here: JeStage, part: Optional[str] = "jemalloc") -> Jemalloc:
    """Return the only jemalloc of a core, read without gdb; ``part`` as for :func:`target_of`."""
    target = target_of(here.core, part)
    (location,) = find_jemallocs(target, SILENT).locations
    return read_jemalloc(target, location, SILENT)


def read_in_gdb(here: JeStage) -> Any:
    """Return what gdb's Python found: ``heaps``, each held to the program's figures, and ``problems``."""
    truth, answer, script = (here.directory / f"in-gdb.{kind}" for kind in ("truth", "answer", "py"))
    answer.unlink(missing_ok=True)
    truth.write_text(json.dumps(here.truth.raw))
    root = __file__.rpartition("/tests/")[0]
    script.write_text(_IN_GDB.format(root=root, truth=str(truth), answer=str(answer)))
    output = here.text(f"source {script}")
    assert answer.exists(), output
    return json.loads(answer.read_text())


def told_arenas(here: JeStage) -> dict[int, int]:
    """Return the arena of each living thread, by tid, where the program knows it."""
    alive = [thread for thread in here.je.threads if thread["alive"]]
    return {one["tid"]: one["arena"] for one in alive if one.get("arena") is not None}


def check_equal(heap: Jemalloc, here: JeStage) -> None:
    """Hold a heap to every figure that the program told of it, and to the arenas of its threads."""
    assert differences(heap, here.je) == []
    assert [one.message for one in heap.problems] == []
    assert heap.complete
    bound = {ref.lwp: arena.index for arena in heap.arenas for ref in arena.threads or ()}
    told = told_arenas(here)
    assert {tid: bound.get(tid) for tid in told} == told
