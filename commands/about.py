"""``gx commands``: the pack about itself."""

from __future__ import annotations

import platform
from typing import Any

from gdbext.commands.reports import CommandList, CommandRow

from gdbext.grammar import catalogue
from gdbext.report import Report
from gdbext.version import __version__


def list_commands(session: Any, arguments: Any) -> Report:
    """Return every command with its names."""
    import numpy

    from gdbext import kernels

    return Report(
        CommandList(
            commands=[
                CommandRow(f"gx {spec.name}", session.plain_name(spec.name), spec.summary)
                for spec in catalogue.COMMANDS
            ],
            version=__version__,
            gdb=session.gdb_version,
            python=platform.python_version(),
            numpy=numpy.__version__,
            kernels=kernels.IN_USE if kernels.NATIVE else f"{kernels.IN_USE} (native: {kernels.WHY})",
        )
    )
