"""What a child needs, imported before it is forked: so no core pays for it again."""

from __future__ import annotations

import gc
import importlib

_MODULES = (
    "gdbext.analysis.blocks.summary",
    "gdbext.analysis.leaks.findings",
    "gdbext.analysis.leaks.report",
    "gdbext.analysis.leaks.search",
    "gdbext.analysis.locks.python",
    "gdbext.analysis.locks.report",
    "gdbext.analysis.tables.skew",
    "gdbext.analysis.types.find",
    "gdbext.analysis.types.report",
    "gdbext.analysis.types.shaped",
    "gdbext.borrowing.borrowed",
    "gdbext.commands.leaks",
    "gdbext.commands.lockwait",
    "gdbext.commands.summary",
    "gdbext.commands.triage",
    "gdbext.commands.types",
    "gdbext.coretarget",
    "gdbext.heap.cpython.check.check",
    "gdbext.heap.cpython.heap",
    "gdbext.heap.cpython.objects.naming",
    "gdbext.heap.cpython.report.explain",
    "gdbext.heap.cpython.report.pinned",
    "gdbext.heap.cpython.threads.lines",
    "gdbext.heap.cpython.threads.read",
    "gdbext.heap.detect",
    "gdbext.memory.elf.elfcore",
    "gdbext.memory.fake",
    "gdbext.render",
    "numpy.ma",  # of numpy.unique
)


def load() -> None:
    """Import it, and read what is the same for each core."""
    for name in _MODULES:
        importlib.import_module(name)
    from gdbext.structures.shapes.library import read_shapes

    list(read_shapes().shapes)  # each is parsed once and kept
    gc.collect()
    gc.freeze()
