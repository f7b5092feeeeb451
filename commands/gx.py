"""``gx commands`` and ``gx safe``: the pack about itself."""

from __future__ import annotations

import platform
from typing import Any, Optional

import gdb
from gdbext.commands.reports import CommandList, CommandRow

from gdbext.bridge.commands import names
from gdbext.bridge.commands.charset import warn
from gdbext.bridge.commands.command import note_error
from gdbext.errors import UsageError
from gdbext.grammar import catalogue
from gdbext.report import Report
from gdbext.version import __version__


def list_commands(session: Any, arguments: Any) -> Report:
    """Return every command with its names."""
    import numpy

    from gdbext import kernels

    return Report(
        CommandList(
            commands=[_row(spec) for spec in catalogue.COMMANDS],
            version=__version__,
            gdb=gdb.VERSION,
            python=platform.python_version(),
            numpy=numpy.__version__,
            kernels=kernels.IN_USE if kernels.NATIVE else f"{kernels.IN_USE} (native: {kernels.WHY})",
        )
    )


def run_safely(session: Any, arguments: Any) -> Optional[Report]:
    """Run a command; print its error and keep it in ``$gx_error`` instead of raising it."""
    if not arguments.expression:
        raise UsageError("a command is missing", "gx safe COMMAND")
    try:
        gdb.execute(arguments.expression)
    except gdb.error as error:
        _note(" ".join(str(error).split()))
    except KeyboardInterrupt:
        _note("interrupted")
    else:
        note_error(None)
    return None


def _note(message: str) -> None:
    warn(message)
    note_error(message)


def _row(spec: Any) -> CommandRow:
    return CommandRow(f"gx {spec.name}", _plain(spec), spec.summary)


def _plain(spec: Any) -> str:
    if spec.name in names.plain_names:
        return str(spec.name)
    owner = names.plain_owners.get(spec.name.split()[0])
    return f"(taken by {owner})" if owner else "-"
