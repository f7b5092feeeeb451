"""What may follow on a line of a command."""

import pytest

from gdbext.grammar.arguments import COMMON_OPTIONS
from gdbext.grammar.catalogue import BLOCK_STATES, find_command
from gdbext.grammar.completion import offer

OPTIONS = [f"--{option.name}" for option in COMMON_OPTIONS]


@pytest.mark.parametrize(
    ("command", "text", "typed", "words", "names"),
    [
        ("glibc arenas", "", "", OPTIONS, ""),
        ("glibc arenas", "--li", "--li", OPTIONS, ""),
        ("glibc arenas", "--limit ", "", (), ""),
        ("glibc arenas", "--limit 3 --color ", "", ("auto", "always", "never"), ""),
        ("glibc arenas", "--json=/tmp/x", "/tmp/x", (), "file"),
        ("glibc chunks", "0x10 --state used,to", "to", BLOCK_STATES, ""),
        ("glibc chunks", "--state=to", "to", BLOCK_STATES, ""),
        ("glibc chunks", "--nosuch=to", "to", (), ""),
        ("glibc chunks", "mai", "mai", (), "arena"),
        ("blocks at", "--words 3 a", "a", (), "expression"),
        ("blocks at", "-- --wo", "--wo", (), "expression"),
        ("walklist", "-a x", "x", (), "expression"),
        ("walklist", "--container struct x", "x", (), ""),
        ("walklist", "--container=a x", "x", (), "expression"),
        ("lockwait", "--shape ", "", (), "shape"),
        ("breakpoints", "", "", ("chain", "hash", "every", "list", "delete", "event"), ""),
        ("breakpoints", "chain ma", "ma", (), "expression"),
        ("safe", "glibc --", "--", (), "command"),
    ],
)
def test_offers(command, text, typed, words, names):
    offered = offer(find_command(command), text)
    assert (offered.typed, list(offered.words), offered.names) == (typed, list(words), names)
