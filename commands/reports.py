"""What the commands about the pack itself, and about breakpoints, answer: declarations that need no gdb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from gdbext.report import Kind, column, line, table


@dataclass(frozen=True)
class CommandRow:
    """One command.

    :param prefixed: its name under ``gx``.
    :param plain: its plain name; "-" when it has none, "(taken by …)" when somebody else owns it.
    :param summary: one line.
    """

    prefixed: str = column("command")
    plain: str = column("plain name")
    summary: str = column("answers")


@dataclass(frozen=True)
class CommandList:
    """All commands, and what they run on.

    :param version: of gdbext.
    :param gdb: its version; "none" where it had no part, as in the shell.
    :param python: version of the Python that has answered, gdb's or the shell's.
    :param numpy: its version.
    :param kernels: which implementation of the hot loops runs.
    """

    commands: Sequence[CommandRow] = table("Commands")
    version: str = line("gdbext")
    gdb: str = line("gdb")
    python: str = line("Python")
    numpy: str = line("numpy")
    kernels: str = line("kernels")


@dataclass(frozen=True)
class BreakpointRow:
    """One breakpoint.

    :param number: gdb's.
    :param kind: ``chain``, ``hash``, ``note`` (what a ``hash`` compares with), ``every``.
    :type kind: word
    :param location: as it was given.
    :param acts: when.
    :param events: hits with a true condition since the program started.
    :param state: ``enabled``, ``disabled``, ``pending``.
    :type state: word
    :param script: the plain commands of gdb that make it.
    """

    number: int = column("number", Kind.COUNT)
    kind: str = column("kind")
    location: str = column("location")
    acts: str = column("acts")
    events: int = column("events", Kind.COUNT)
    state: str = column("state")
    script: str = column(None)


@dataclass(frozen=True)
class BreakpointList:
    """Breakpoints that this command has set."""

    breakpoints: Sequence[BreakpointRow] = table("Breakpoints")
