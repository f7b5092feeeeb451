"""The commands under every language that gdb knows: the same answer as under C, and the language as it was.

What is asked is C's, as the examples in the help are; only a command of the user's own has the user's language.
"""

from __future__ import annotations

import re

import pytest

from tests.gdb.bridged import need_gdb
from tests.support.boards import Board
from tests.support.glibcs import Unavailable

LANGUAGES = (
    "ada", "asm", "c++", "d", "fortran", "go", "minimal", "modula-2", "objective-c", "opencl", "pascal", "rust",
)  # fmt: skip
ASKED = [
    "walklist stale_cache",
    "walklist stale_cache->array[0] --where '$elem->hash != 0' --limit 2",
    "slabskew stale_cache",
    "listprint stale_cache->array[0]->lru_start lru_next --field hash --field '/x key' --limit 2",
    "listcount stale_cache->array[0]->lru_start lru_next",
    "gx shapes guess struct slabhash",
    "lockwait",
]


@pytest.fixture(scope="module")
def core(stages):
    need_gdb()
    try:
        return stages.get(Board("core", "debug", "system"), "hash_tables", ("--entries", "2000"))
    except Unavailable as reason:
        pytest.skip(str(reason))


def answers(here, language):
    """Return what each command answers, and the language as gdb tells it afterwards."""
    steps = [step for one in (*ASKED, "show language") for step in (one, "echo \\n>>>\\n")]
    output = here.text(f"set language {language}", "echo >>>", *steps)
    assert "Traceback" not in output.err and "gdbext:" not in output.err, output
    _, *found, shown, _ = [text.strip() for text in output.out.split(">>>")]
    return found, re.search(r'"(.*)"', shown)[1]


@pytest.fixture(scope="module")
def in_c(core):
    return answers(core, "c")[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_same_answer_under_every_language(core, in_c, language):
    found, shown = answers(core, language)
    assert shown == language
    for command, text, wanted in zip(ASKED, found, in_c):
        assert text == wanted and text, command


@pytest.mark.parametrize("language", ["pascal", "fortran", "rust"])
def test_a_command_of_the_user_has_the_users_language(core, language):
    steps = ["walklist stale_cache->array[0] --limit 1 --each 'show language'", "gx safe show language"]
    output = core.text(f"set language {language}", *steps)
    assert output.out.count(f'language is "{language}"') >= 2, output
    refused = core.text(f"set language {language}", "gx safe print ((((", "gx safe walklist stale_cache->array[0]")
    assert "lruhash" in refused.out, refused


@pytest.mark.parametrize("language", ["ada", "fortran", "pascal", "rust"])
def test_printers_and_functions(core, language):
    before = ["print *stale_cache->array[0]", "set $group = stale_cache"]
    asked = ("python gdb.write(gdb.history(1).format_string())", "output $gx_maxbin($group)", "show language")
    after = [step for one in asked for step in ("echo >>>", one)]
    _, table, number, _ = core.text(*before, *after).out.split(">>>")
    _, its_table, its_number, shown = core.text(*before, f"set language {language}", *after).out.split(">>>")
    line = table.partition("=")[0].strip()
    assert "entries in" in line and its_table.startswith(line)
    assert its_table.count("entries") == table.count("entries")
    assert its_number == number and int(number) > 100 and f'"{language}"' in shown


def test_a_mistake_is_one_clear_line(core):
    output = core.text("set language pascal", "walklist nosuch", "show language")
    assert output.err.count("gdbext: walklist: cannot evaluate 'nosuch'") == 1 and '"pascal"' in output.out, output
