"""The command-line grammar."""

import shlex

import pytest

from gdbext.errors import UsageError
from gdbext.grammar.arguments import COMMON_OPTIONS, Option, find_json, nearest, parse, parse_int, parse_size

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

OPTIONS = (
    Option("state", "choice", "only these", choices=("used", "free"), metavar="STATE"),
    Option("min-size", "size", "at least", default=0, metavar="SIZE"),
    Option("name", "text", "a name"),
    Option("addresses", "flag", "bare addresses", short="a"),
    Option("container", "text", "what encloses a node", metavar="TYPE MEMBER", words=2),
    Option("field", "text", "a field", many=True, short="f"),
    Option("bins", "int", "pairs", words=2, many=True, metavar="FROM TO"),
    *COMMON_OPTIONS,
)


def told(text, positional="expression"):
    with pytest.raises(UsageError) as raised:
        parse(text, OPTIONS, positional)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    "text, expression, limit",
    [
        ("", "", None),
        ("&main_arena", "&main_arena", None),
        ("--limit 5 &main_arena", "&main_arena", 5),
        ("&main_arena --limit 5", "&main_arena", 5),
        ("&main_arena --limit=0x10", "&main_arena", 16),
        ("  a  +  b   --limit 5", "a  +  b", 5),
        ("--limit 0 a -  b", "a -  b", 0),
        ("a - b", "a - b", None),
        ("-1", "-1", None),
        ("-x + y", "-x + y", None),
        ("-- a --limit 5", "a --limit 5", None),
        ("--limit 5 -- --b", "--b", 5),
        ("--limit 5 --limit 6", "", 6),
        ('strcmp(p, "a  --limit 3")', 'strcmp(p, "a  --limit 3")', None),
        ("f(a, --b)", "f(a, --b)", None),
        ("table[ --i ]", "table[ --i ]", None),
        ("p == '\\'' --limit 3", "p == '\\''", 3),
        ("it's --limit 3", "it's", 3),
        ("a[ --limit 3", "a[", 3),
        ("a --limit 3 b", "a b", 3),
        ("(struct x *) 0x10->next", "(struct x *) 0x10->next", None),
    ],
)
def test_expression_is_what_remains(text, expression, limit):
    arguments = parse(text, OPTIONS)
    assert arguments.expression == expression
    assert arguments.value("limit") == limit


def test_json_takes_a_file_only_after_an_equals_sign():
    arguments = parse("--json out.json", OPTIONS)
    assert arguments.flag("json") and arguments.value("json") is None
    assert arguments.expression == "out.json"
    arguments = parse("--json=out.json", OPTIONS)
    assert arguments.value("json") == "out.json" and arguments.expression == ""
    assert parse('--json="a b.json" x', OPTIONS).value("json") == "a b.json"


@pytest.mark.parametrize("text", ["-h", "--help", "x -h", "-h x", "--limit 3 -h"])
def test_help(text):
    assert parse(text, OPTIONS).flag("help")


def test_help_wins_over_a_rest_that_is_not_taken():
    assert parse("what -h", OPTIONS, "none").flag("help")


def test_words():
    arguments = parse("head \"a b\" 'c d' --limit 2 (x + y)", OPTIONS, "words")
    assert list(arguments.words) == ["head", "a b", "c d", "(x + y)"]


def test_raw_leaves_options_to_the_command():
    arguments = parse("glibc arenas --json=x --limit 3", COMMON_OPTIONS, "raw")
    assert arguments.expression == "glibc arenas --json=x --limit 3"
    assert not arguments.flag("json")
    assert parse("-h", COMMON_OPTIONS, "raw").flag("help")


def test_defaults_and_undeclared_names():
    arguments = parse("", OPTIONS)
    assert arguments.value("min-size") == 0 and arguments.value("limit") is None
    assert not arguments.flag("bytes")
    with pytest.raises(KeyError):
        arguments.flag("colour")
    with pytest.raises(KeyError):
        arguments.value("colour")


@pytest.mark.parametrize(
    "text, message",
    [
        ("--lmit 3", "unknown option --lmit; did you mean --limit?"),
        ("--lim", "unknown option --lim; did you mean --limit?"),
        ("--zzz", "unknown option --zzz; -h lists the options"),
        ("--limit", "--limit needs a value; write --limit N"),
        ("--name", "--name needs a value; write --name TEXT"),
        ("--limit x", "--limit: 'x' is not a number; write 0 or more, or 0x…"),
        ("--limit -1", "--limit: '-1' is not a number; write 0 or more, or 0x…"),
        ("--min-size 4Q", "--min-size: '4Q' is not a size; write bytes, or a number with K, M or G"),
        ("--state=lost", "--state: 'lost' is not one of used, free"),
        ("--bytes=3", "--bytes takes no value"),
        ("-f", "--field needs a value; write --field TEXT"),
        ("--container", "--container needs 2 values; write --container TYPE MEMBER"),
        ("--container node", "--container needs 2 values; write --container TYPE MEMBER"),
        ("--container struct node", "--container needs 2 values; write --container TYPE MEMBER"),
        ("--container=node link", "--container needs 2 values; write --container TYPE MEMBER"),
        ("--bins 1 x", "--bins: 'x' is not a number; write 0 or more, or 0x…"),
        ("--json=", "--json= names no file; write --json or --json=FILE"),
    ],
)
def test_errors_are_one_line(text, message):
    assert told(text) == message


def test_a_rest_where_none_is_taken():
    assert told("foo --json", "none") == "takes no argument, got 'foo'; -h shows how it is written"


def test_a_short_option_is_an_expression_only_where_one_is_taken():
    assert parse("-x", OPTIONS).expression == "-x"
    assert told("-x", "none").startswith("unknown option -x")
    assert told("-x", "words").startswith("unknown option -x")


@pytest.mark.parametrize(
    "text, expression, given",
    [
        ("-a", "", True),
        ("head -a", "head", True),
        ("-a head", "head", True),
        ("-ab", "-ab", False),
        ("-a=3", "-a=3", False),
        ("-b", "-b", False),
        ("x -a->next", "x -a->next", False),
        ("x - a", "x - a", False),
        ("(-a)", "(-a)", False),
        ("x[ -a ]", "x[ -a ]", False),
        ("'-a'", "'-a'", False),
        ("-- -a", "-a", False),
        ("--addresses", "", True),
    ],
)
def test_declared_short_options(text, expression, given):
    arguments = parse(text, OPTIONS)
    assert (arguments.expression, arguments.flag("addresses")) == (expression, given)


@pytest.mark.parametrize(
    "text, container",
    [
        ("--container node link head", ("node", "link")),
        ("head --container node link", ("node", "link")),
        ("--container struct node link head", ("struct node", "link")),
        ("--container 'struct node' link head", ("struct node", "link")),
        ("--container 'a::b<c, d>' base.link head", ("a::b<c, d>", "base.link")),
        ("--container a b --container c d head", ("c", "d")),
    ],
)
def test_options_of_two_words(text, container):
    arguments = parse(text, OPTIONS)
    assert (arguments.value("container"), arguments.expression) == (container, "head")


def test_options_that_may_be_repeated():
    arguments = parse("--field a head -f 'b c' --field=d", OPTIONS)
    assert (arguments.value("field"), arguments.expression) == (("a", "b c", "d"), "head")
    assert parse("--bins 1 2 --bins 3 4", OPTIONS).value("bins") == ((1, 2), (3, 4))


@pytest.mark.parametrize(
    "text, size",
    [("4096", 4096), ("0x1000", 4096), ("16K", 16384), ("4M", 4 << 20), ("4MiB", 4 << 20), ("1g", 1 << 30),
     ("2 KB", 2048), ("7B", 7), ("0", 0), ("010", 10), ("1T", 1 << 40)],
)  # fmt: skip
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "K", "1.5M", "0x", "1 2", "１"])
def test_bad_sizes_and_numbers(text):
    with pytest.raises(UsageError):
        parse_size(text)
    with pytest.raises(UsageError):
        parse_int(text)


@pytest.mark.parametrize(
    "text, asked",
    [("", False), ("x --json", True), ("--json=f --lmit 3", "f"), ("-- --json", False), ("'--json'", False),
     ("--json=", True), ("--limit x --json", True)],
)  # fmt: skip
def test_json_is_found_on_a_wrong_line(text, asked):
    assert find_json(text) == asked


def test_nearest():
    assert nearest("lmit", ["limit", "bytes"]) == "limit"
    assert nearest("b", ["limit", "bytes"]) == "bytes"
    assert nearest("", ["limit"]) is None


PLAIN = st.text(alphabet="abx01 +*()[]{}'\"\\.,>&|$\t", max_size=40)


@given(PLAIN)
def test_without_options_the_text_is_the_expression(text):
    assert parse(text, OPTIONS).expression == text.strip()


@given(st.text(max_size=60), st.sampled_from(["expression", "words", "none", "raw"]))
def test_any_text_parses_or_is_told(text, positional):
    try:
        arguments = parse(text, OPTIONS, positional)
    except UsageError as error:
        assert "\n" not in error.message or "\n" in text
    else:
        assert isinstance(arguments.expression, str)
    find_json(text)


@given(PLAIN.filter(lambda text: balanced(text)), st.integers(0, 1 << 40), st.booleans())
def test_options_may_stand_on_either_side(text, limit, before):
    line = f"--limit {limit} --bytes {text}" if before else f"{text} --limit {limit} --bytes"
    arguments = parse(line, OPTIONS)
    assert arguments.value("limit") == limit and arguments.flag("bytes")
    assert arguments.expression == text.strip()


@given(st.lists(st.text(alphabet="ab 1", min_size=1, max_size=6).filter(str.strip), max_size=5))
def test_quoted_words_come_back(words):
    line = " ".join(f'"{word}"' for word in words)
    assert list(parse(line, OPTIONS, "words").words) == words


def balanced(text):
    """Whether no quote or bracket of ``text`` can pair with, or escape, what stands beside it."""
    return not any(character in text for character in "'\"\\()[]{}")


def test_shell_words_agree_on_plain_quotes():
    line = "a 'b c' \"d e\" f"
    assert list(parse(line, OPTIONS, "words").words) == shlex.split(line)
