"""The help of a command."""

from __future__ import annotations

from types import SimpleNamespace

from gdbext.grammar.arguments import COMMON_OPTIONS, Option
from gdbext.grammar.catalogue import find_command
from gdbext.grammar.usage import command_help, shell_help

SHOWN = ("json", "limit", "bytes", "color", "evidence", "help")
SPEC = SimpleNamespace(
    name="glibc chunks",
    summary="list every chunk with its state",
    description="One line.\n\n"
    "Another paragraph that is long enough to be wrapped, because it goes on and on.",
    options=[
        Option("state", "choice", "only chunks of STATE", choices=("in use", "top"), metavar="STATE"),
        Option("min-usable-size-of-a-chunk", "size", "only chunks of SIZE and more", default=16),
        *(option for option in COMMON_OPTIONS if option.name in SHOWN),
    ],
    expression="[ARENA|RANGE]",
    example="glibc chunks --limit 10",
)

EXPECTED = """\
Usage: glibc chunks [OPTIONS] [ARENA|RANGE]

List every chunk with its state.

One line.

Another paragraph that is long enough to be wrapped, because it goes on and on.

Options:
  --state STATE             only chunks of STATE: in use, top
  --min-usable-size-of-a-chunk SIZE
                            only chunks of SIZE and more (default 16)
  --json[=FILE]             print JSON, or write it to FILE
  --limit N                 show N rows at most; 0 shows all
  --bytes                   print exact numbers of bytes
  --color WHEN              when to colour text: auto, always, never (default
                            auto)
  --evidence                show why the answer can be believed, check by check
  -h, --help                show this help

Example:
  glibc chunks --limit 10
"""


def test_help():
    assert command_help(SPEC) == EXPECTED


def test_help_of_next_to_nothing():
    spec = SimpleNamespace(
        name="x", summary="Do it", description="", options=(), expression=None, example="", prefixed_only=True
    )
    assert command_help(spec) == "Usage: gx x\n\nDo it.\n"


def test_short_forms_and_values_of_two_words():
    options = [
        Option("addresses", "flag", "print bare addresses", short="a"),
        Option("container", "text", "what encloses a node", metavar="TYPE MEMBER", words=2),
    ]
    spec = SimpleNamespace(
        name="x", summary="Do it", description="", options=options, expression="EXPR", example=""
    )
    lines = command_help(spec).splitlines()
    assert "  -a, --addresses          print bare addresses" in lines
    assert "  --container TYPE MEMBER  what encloses a node" in lines

def test_the_shell_names_a_target():
    assert usage("glibc chunks") == "gdbext glibc chunks CORE|-p PID [ARENA|START-END] [OPTIONS]"
    assert usage("shapes list") == "gdbext shapes list [OPTIONS]"
    assert usage("shapes show") == "gdbext shapes show [-c CORE|-p PID] NAME [OPTIONS]"
    assert usage("safe") == "gx safe COMMAND"  # for gdb alone


def usage(name):
    text = shell_help(find_command(name))
    assert "\nExample" in text
    return text.partition("\n")[0].removeprefix("Usage: ")
