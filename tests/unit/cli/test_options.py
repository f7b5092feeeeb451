"""Words as the shell hands them over, and what gdb's command line makes of them again."""

import pytest

from gdbext import catalogue
from gdbext.arguments import parse
from gdbext.cli import options
from gdbext.cli.gdbrun import GdbJob
from gdbext.cli.options import mark_quoted
from gdbext.cli.program import _quoted
from gdbext.errors import UsageError

SPECS = {spec.name: spec for spec in catalogue.COMMANDS}


def parsed(*words):
    """What the command makes of words that the shell program passes on."""
    line = " ".join(_quoted(word, own) for word, own in zip(words, mark_quoted(words)))
    spec = SPECS[words[0]]
    return parse(line[len(words[0]) :], spec.all_options, spec.positional)


def test_a_condition_is_one_value():
    arguments = parsed("walklist", "env.cache", "--where", "$elem->state == 3 && 'a' < \"b\"", "-a", "--limit", "3")
    assert arguments.value("where") == "$elem->state == 3 && 'a' < \"b\""
    assert arguments.expression == "env.cache" and arguments.flag("addresses") and arguments.value("limit") == 3


def test_two_words_of_a_value():
    arguments = parsed("walklist", "--container", "struct my node", "link.next", "*(struct list *) 0x10")
    assert arguments.value("container") == ("struct my node", "link.next")
    assert arguments.expression == "*(struct list *) 0x10"


def test_expressions_stay_as_they_are():
    assert parsed("walklist", "a  +  b").expression == "a  +  b"
    assert parsed("walklist", "strcmp(a, 'x y')").expression == "strcmp(a, 'x y')"


def test_arguments_that_are_words():
    arguments = parsed("listprint", "(struct x *) p", "next", "--field", "key.name", "--field", "a, b c")
    assert list(arguments.words) == ["(struct x *) p", "next"]
    assert arguments.value("field") == ("key.name", "a, b c")
    assert list(parsed("listcount", "a + b", "next->it's").words) == ["a + b", "next->it's"]


@pytest.mark.parametrize("value", ["it's", "a 'b' c", '"x"', "--json", "-a", "", "a  b", "x\\'y"])
def test_any_value_comes_through(value):
    assert parsed("walklist", "x", "--where", value).value("where") == value
    assert parsed("walklist", "x", f"--where={value}").value("where") == value


def test_the_lists_are_those_of_the_commands():
    texts = {
        f"--{option.name}": option.words
        for spec in catalogue.COMMANDS
        for option in spec.options
        if option.kind == "text"
    }
    assert texts.items() <= options._TEXTS.items()
    flags = {
        spec.name: names
        for spec in catalogue.COMMANDS
        if (names := tuple(f"--{one.name}" for one in spec.options if one.kind == "flag" and f"--{one.name}" in texts))
    }
    assert flags == options._FLAGS
    assert {spec.name for spec in catalogue.COMMANDS if spec.words is not None} == set(options._WORDY)
    assert {spec.name.split()[0] for spec in catalogue.COMMANDS if " " in spec.name} == set(options._FAMILIES)


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        ("commands", False),
        ("shapes list", False),
        ("gx shapes show std-map", False),
        ("shapes show std-map --pid 1", True),
        ("walklist -h", False),
    ],
)
def test_commands_that_need_no_target(words, needs):
    assert options.parse(words.split()).needs_target is needs


@pytest.mark.parametrize("words", ["shapes save x y.toml", "shapes guess struct x", "walklist x"])
def test_commands_that_need_a_target(words):
    with pytest.raises(UsageError, match="nothing to look at"):
        options.parse(words.split())


def test_an_option_that_is_a_flag_in_one_command_and_has_a_value_in_another():
    arguments = parsed("lockwait", "--heap", "--dot", "a b.svg")
    assert arguments.flag("heap") and arguments.value("dot") == "a b.svg"
    assert list(mark_quoted(["jemalloc", "bins", "--heap", "jemalloc je_"])) == [False, False, False, True]


@pytest.mark.parametrize("given", [False, True])
def test_what_is_swapped_out_is_read_only_when_asked_for(given):
    asked = options.parse(["triage", "--pid", "7", *(["--swapped"] if given else [])])
    assert asked.swapped is given and tuple(asked.command) == ("triage",)
    line = GdbJob("gdb", swapped=asked.swapped).arguments("folder")
    assert ("set gx swapped on" in line) is given
    if given:  # the setting comes with the pack, and must hold before the question
        loaded, asks = (next(at for at, word in enumerate(line) if start in word) for start in ("source ", "answer("))
        assert loaded < line.index("set gx swapped on") < asks
