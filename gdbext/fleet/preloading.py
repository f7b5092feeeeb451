"""What a child needs, imported before it is forked: so no core pays for it again."""

from __future__ import annotations

import gc
import importlib

_MODULES = (
    "gdbext.analysis.blocks.summary",
    "gdbext.analysis.leaks.findings",
    "gdbext.analysis.leaks.report",
    "gdbext.analysis.leaks.search",
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
    "gdbext.heap.detect",
    "gdbext.memory.elf.elfcore",
    "gdbext.render",
)


def load() -> None:
    """Import it."""
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
