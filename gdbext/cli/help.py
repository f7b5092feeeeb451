"""The help of the program and of its commands, from the catalogue alone: no gdb is started for it."""

from __future__ import annotations

from typing import Iterator

from gdbext.cli.options import Options
from gdbext.grammar.catalogue import OWN_COMMANDS, SHELL_OPTIONS, TOPICS, commands_about
from gdbext.grammar.usage import command_lines, family_help, option_lines, shell_help

_USAGE = """\
Usage: gdbext CORE... [OPTIONS]
       gdbext COMMAND CORE... [OPTIONS]
       gdbext COMMAND CORE ARGUMENT... [OPTIONS]
       gdbext COMMAND -p PID [ARGUMENT...] [OPTIONS]

Run one command of gdbext over a core or a process, in batch mode; over a core
alone, or with -p PID alone, it is triage.

Without --core and --pid the first word after the command is the core, whatever
it is called; what follows are the command's arguments, or more cores where it
takes none. Several cores are answered one after the other, each under a line
with its name; with --json each answer is one line (JSON Lines)."""

_OPTIONS = "Options of the program, for every command:"

_STATUS = """\
Exit status: 0 all was examined, and nothing was found; 1 findings; 2 no answer:
with --json the document then has "data": null and "error"; 3 nothing was found,
but not all was examined: the page and the JSON's "problems" say what was not.
Of several cores it is that of one without an answer, else of one with findings,
else of one not wholly examined.

Examples:
  gdbext core.1234
  gdbext triage --pid 1234 --json
  gdbext blocks at core.1234 0x55555555a2a0
"""


def help_text(options: Options) -> str:
    """Return the help that is asked for: of a command, of several that begin alike, or of the program."""
    if options.spec is not None:
        return shell_help(options.spec)
    return family_help(options.name) if options.name else "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    yield _USAGE
    yield "Commands (gdbext COMMAND... -h has the options of each):"
    for topic in TOPICS:
        specs = [spec for spec in commands_about(topic) if not spec.raw]
        yield "\n".join((f"{topic}:", *command_lines(specs)))
    yield "\n".join(("In the shell alone:", *command_lines(OWN_COMMANDS)))
    yield "\n".join((_OPTIONS, *option_lines(SHELL_OPTIONS)))
    yield _STATUS
