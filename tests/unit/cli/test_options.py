"""The command line, word by word as a shell hands it over."""

import pytest

from gdbext.cli import options
from gdbext.errors import UsageError
from gdbext.grammar import catalogue
from gdbext.grammar.exchange import Question, read_question, write_question
from gdbext.starting.gdbjob import GdbJob


def parsed(*words):
    """What the command is given."""
    return options.parse([*words, "--core", "x"]).arguments


def test_a_condition_is_one_value():
    arguments = parsed("walklist", "env.cache", "--where", "$elem->state == 3 && 'a' < \"b\"", "-a", "--limit", "3")
    assert arguments.value("where") == "$elem->state == 3 && 'a' < \"b\""
    assert arguments.expression == "env.cache" and arguments.flag("addresses") and arguments.value("limit") == 3


def test_two_words_of_a_value():
    arguments = parsed("walklist", "--container", "struct my node", "link.next", "*(struct list *) 0x10")
    assert arguments.value("container") == ("struct my node", "link.next")
    assert arguments.expression == "*(struct list *) 0x10"
    apart = parsed("walklist", "x", "--container", "struct", "node", "link")
    assert apart.value("container") == ("struct node", "link")


def test_expressions_stay_as_they_are():
    assert parsed("walklist", "a  +  b").expression == "a  +  b"
    assert parsed("walklist", "a", "-", "b", "-1").expression == "a - b -1"
    assert parsed("walklist", "strcmp(a, 'x y')").expression == "strcmp(a, 'x y')"
    assert parsed("walklist", "-1").expression == "-1"
    assert options.parse(["walklist", "--core=x", "--", "--limit"]).arguments.expression == "--limit"


def test_arguments_that_are_words():
    arguments = parsed("listprint", "(struct x *) p", "next", "--field", "key.name", "--field", "a, b c")
    assert list(arguments.words) == ["(struct x *) p", "next"]
    assert arguments.value("field") == ("key.name", "a, b c")
    assert list(parsed("listcount", "a + b", "next->it's").words) == ["a + b", "next->it's"]


@pytest.mark.parametrize("value", ["it's", "a 'b' c", '"x"', "--json", "--core", "-a", "", "a  b", "x\\'y"])
def test_any_value_comes_through(value):
    assert parsed("walklist", "x", "--where", value).value("where") == value
    assert parsed("walklist", "x", f"--where={value}").value("where") == value


def test_an_option_that_is_a_flag_in_one_command_and_has_a_value_in_another():
    arguments = parsed("lockwait", "--heap", "--dot", "a b.svg")
    assert arguments.flag("heap") and arguments.value("dot") == "a b.svg"
    assert parsed("jemalloc", "bins", "--heap", "jemalloc je_").value("heap") == "jemalloc je_"


def test_the_programs_options_stand_anywhere():
    for line in (
        "--core x --timeout=5 glibc arenas --limit 3 --color never",
        "glibc --core x arenas --color=never --limit=3 --timeout 5",
        "gx glibc arenas --limit 3 --timeout 5 --color never -c x",
    ):
        asked = options.parse(line.split())
        assert (asked.name, asked.timeout, asked.color) == ("glibc arenas", 5, "never")
        assert asked.core.endswith("/x") and dict(asked.arguments.given) == {"limit": 3}


def test_no_option_of_a_command_is_one_of_the_programs():
    shared = {"json", "color", "help"}
    own = {option.name for option in catalogue.SHELL_OPTIONS} - shared
    shorts = {option.short for option in catalogue.SHELL_OPTIONS if option.short} - {"h"}
    for spec in catalogue.COMMANDS:
        assert not own & {option.name for option in spec.all_options}, spec.name
        assert not shorts & {option.short for option in spec.all_options}, spec.name


def test_a_question_comes_back_as_it_was(tmp_path):
    given = {"container": ("struct x", "y"), "bins": ((1, 2), (3, 4)), "limit": 3, "mangled": True, "file": None}
    question = Question("walklist", given, "a  b", ("a", "b"), core="x")
    write_question(str(tmp_path), question)
    assert read_question(str(tmp_path)) == question


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
    with pytest.raises(UsageError, match="nothing to examine"):
        options.parse(words.split())


@pytest.mark.parametrize("given", [False, True])
def test_what_is_swapped_out_is_read_only_when_asked_for(given):
    asked = options.parse(["triage", "--pid", "7", *(["--swapped"] if given else [])])
    assert asked.swapped is given and asked.name == "triage"
    line = GdbJob("gdb", settings=asked.settings).arguments("answer()")
    assert ("set gx swapped 1" in line) is given
    if given:  # the setting comes with the pack, and must hold before the question
        loaded, asks = (next(at for at, word in enumerate(line) if start in word) for start in ("source ", "answer("))
        assert loaded < line.index("set gx swapped 1") < asks


def test_a_core_has_nothing_that_is_swapped_out():
    with pytest.raises(UsageError, match="--swapped needs --pid; of what was swapped out a core has what was dumped"):
        options.parse(["triage", "--core", "x", "--swapped"])
    assert not options.parse(["triage", "--core", "x"]).swapped


@pytest.mark.parametrize(
    "words, message",
    [
        (["/no/such/core"], "there is no command and no core /no/such/core; gdbext --help"),
        (["9426"], "for a process write -p 9426"),
        (["lockwait", "--pid", "1", "--samples", "2", "--interval", "-3"], "not a number of seconds; 1, 0.5"),
        (["rss", "--timeout", "x", "--core", "x"], "not a number of seconds; 0 is for ever"),
    ],
)
def test_what_to_write_instead(words, message):
    with pytest.raises(UsageError) as caught:
        options.parse(words)
    assert message in str(caught.value)


def test_a_page_is_about_one_target_or_what_grew(tmp_path):
    cores, recording = [tmp_path / name for name in ("a", "b")], tmp_path / "recorded"
    for core in cores:
        core.write_bytes(b"")
    recording.mkdir()
    (recording / "samples.jsonl").write_bytes(b"")
    with pytest.raises(UsageError, match="nothing to examine; name a core, a recording, or a process with --pid"):
        options.parse(["report", "-o", "page.html"])
    with pytest.raises(UsageError, match="--output names the core itself"):
        options.parse(["report", str(cores[0]), "-o", str(cores[0])])
    with pytest.raises(UsageError, match="--output names the recording itself"):
        options.parse(["report", str(recording), "-o", str(recording / "samples.jsonl")])
    assert options.parse(["report", str(cores[0]), "-o", "page.html"]).arguments.value("output") == "page.html"
    assert options.parse(["report", *map(str, cores)]).moments == 2
    assert options.parse(["report", "--pid", "1", "--every", "1s", "--times", "3"]).moments == 3


def test_a_core_beside_a_process(tmp_path):
    (tmp_path / "core").write_bytes(b"")
    with pytest.raises(UsageError, match="a core and --pid exclude each other"):
        options.parse(["rss", "-p", "1", str(tmp_path / "core")])


def test_an_error_in_a_line_that_names_a_core_alone_is_triages(tmp_path):
    (tmp_path / "core").write_bytes(b"")
    assert options.outline([str(tmp_path / "core"), "--json", "--wrong"]).schema == "gdbext/triage/2"
    assert options.outline(["rss", "--json", "--wrong"]).schema == "gdbext/rss/2"


def test_a_value_attached_to_its_option():
    assert options.parse(["-p12"]).pid == 12 and options.parse(["-p12"]).name == "triage"
    assert options.parse(["-p12", "glibc", "arenas"]).name == "glibc arenas"
    assert options.parse(["rss", "-c./a=b"]).core.endswith("/a=b")
    assert options.parse(["open", "-p12"]).pid == 12
    assert parsed("walklist", "-pos").expression == "-pos"  # an expression, as before


@pytest.mark.parametrize("command", [[], ["triage"], ["open"]])
def test_two_processes(command):
    with pytest.raises(UsageError, match="one process at a time, got --pid 7 --pid 8"):
        options.parse([*command, "-p", "7", "-p", "8"])


def test_a_core_after_two_dashes(tmp_path):
    (tmp_path / "-c").write_bytes(b"")
    for line in (["--"], ["triage", "--"]):
        asked = options.parse([*line, str(tmp_path / "-c")])
        assert (asked.name, asked.core) == ("triage", str(tmp_path / "-c"))


def test_a_number_is_no_further_core(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "core").write_bytes(b"")
    with pytest.raises(UsageError, match="takes no argument, got '0x1234'"):
        options.parse(["triage", "core", "0x1234"])
    (tmp_path / "1234").write_bytes(b"")
    assert len(options.parse(["triage", "core", "1234"]).cores) == 2
