"""The command-line grammar: text or words and a table of options in, values out. No gdb in it.

Options are whole words that start with ``--``, or a declared short form such as ``-h``. They stand before
or after the expression; what remains is the expression, its spaces and quotes kept as typed. A word
inside quotes or brackets is never an option, and nothing after a lone ``--`` is. ``--json`` takes a file
only as ``--json=FILE``: a following word always belongs to the expression.

A line typed in gdb is text, with quotes around what holds spaces; a shell hands over words, whose quotes it has
taken off. Only the splitting differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from gdbext.errors import UsageError
from gdbext.files import is_same

_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+")
_LARGEST = (1 << 63) - 1
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|[smhd])?")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_SIZE = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)(?:\s*([KMGT])(?:i?B)?|\s*B)?", re.IGNORECASE)
_CLOSING = {")": "(", "]": "[", "}": "{"}
_TYPE_KEYWORDS = ("struct", "union", "class", "enum")


class Option(NamedTuple):
    """One option of a command.

    :param name: without the dashes.
    :param kind: ``flag``; ``int`` (also 0x…) and ``size`` (also 16K, 4M, 1G), not negative; ``duration`` (seconds, also
        500ms, 30s, 5m, 2h, 1d) and ``share`` (5%), more than nothing; ``choice``; ``text``; ``file``: a flag that may
        carry a value as ``--name=FILE``, never in the next word.
    :param help: one line, lower case, no full stop.
    :param choices: the words that a ``choice`` accepts.
    :param default: what :meth:`Arguments.value` returns when the option is not given.
    :param metavar: the value's name in the help.
    :param short: one letter: ``a`` is also ``-a``.
    :param words: how many words its value has; with more than one the value is a tuple. A word such as
        ``struct`` and the one after it count as one.
    :param many: it may be given again; the value is the tuple of all.
    :param values: the words that a text may hold, separated by commas; for completion.
    :param names: what a text names, for completion: ``file``, ``folder``, ``program``, ``process``, ``shape``,
        ``arena``, ``expression``, ``command`` (of gdb).
    """

    name: str
    kind: str
    help: str
    choices: Sequence[str] = ()
    default: Any = None
    metavar: Optional[str] = None
    short: str = ""
    words: int = 1
    many: bool = False
    values: Sequence[str] = ()
    names: str = ""

    @property
    def usage(self) -> str:
        """How it is written with its value: ``--limit N``."""
        return f"--{self.name} {self.metavar or self.kind.upper()}"


COMMON_OPTIONS: Sequence[Option] = (
    Option("json", "file", "print JSON, or write it to FILE", metavar="FILE"),
    Option("limit", "int", "show N rows at most; 0 shows all", metavar="N"),
    Option("bytes", "flag", "print exact numbers of bytes"),
    Option("color", "choice", "when to colour text", ("auto", "always", "never"), "auto", "WHEN"),
    Option("evidence", "flag", "show why the answer can be believed, check by check"),
    Option("help", "flag", "show this help", short="h"),
)


@dataclass(frozen=True)
class Arguments:
    """A parsed command line.

    :param expression: the raw text besides the options, stripped; "" when there is none.
    :param words: the same, split at spaces outside quotes and brackets, without their outer quotes.
    """

    options: Mapping[str, Option]
    given: Mapping[str, Any] = field(default_factory=dict)
    expression: str = ""
    words: Sequence[str] = ()

    def flag(self, name: str) -> bool:
        """Return whether a declared option was given."""
        return self.options[name].name in self.given

    def value(self, name: str) -> Any:
        """Return the value of a declared option, or its default; None for ``file`` without a file."""
        return self.given.get(name, self.options[name].default)


class _Word(NamedTuple):
    """A word of the line: where it starts and ends, and whether it is wholly outside brackets."""

    start: int
    end: int
    text: str
    bare: bool


def parse(text: str, options: Sequence[Option], positional: str = "expression") -> Arguments:
    """Take a command line apart.

    :param options: all that the command knows.
    :param positional: ``expression`` (raw rest), ``words``, ``none`` (a rest is an error), or ``raw``:
        nothing but a leading ``-h`` or ``--help`` is an option.
    :raises UsageError: for an unknown option, a bad value, or a rest where none is taken.
    """
    scan = _Scan(_split(text), options, positional, _unquote)
    places = [(word.start, word.end) for word in scan.rest]
    expression = text.strip() if scan.is_raw else "".join(_gather(text, places)).strip()
    return scan.finish(expression)


def parse_words(words: Sequence[str], options: Sequence[Option], positional: str = "expression") -> Arguments:
    """Take apart what a shell hands over, each word as it is; parameters and errors as :func:`parse`."""
    scan = _Scan([_Word(0, 0, word, True) for word in words], options, positional, str)
    return scan.finish(" ".join(word.text for word in scan.rest).strip())


def find_json(text: str) -> Union[bool, str]:
    """Return what a line says about JSON, however wrong the rest of it is.

    :return: False when it is not asked for, True for standard output, or the file's name.
    """
    asked: Union[bool, str] = False
    for word in _split(text):
        if word.text == "--":
            break
        if word.bare and word.text == "--json":
            asked = True
        elif word.bare and word.text.startswith("--json="):
            asked = _unquote(word.text[len("--json=") :]) or True
    return asked


def parse_size(text: str) -> int:
    """Return the bytes that "4096", "0x1000", "16K", "4MiB" or "1G" mean.

    :raises UsageError: when it is none of these.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size", "write bytes, or a number with K, M or G")
    size = int(match[1], 0 if match[1][:2].lower() == "0x" else 10) * _SUFFIXES[(match[2] or "").upper()]
    return _bounded(text, size)


def parse_duration(text: str) -> float:
    """Return the seconds that "10", "500ms", "30s", "1.5m", "2h" or "1d" mean.

    :raises UsageError: when it is none of these, or nothing.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2] or ""] if match else 0.0
    if not 0 < seconds <= _LARGEST:
        raise UsageError(f"{text!r} is not a duration", "write 500ms, 30s, 5m, 2h or 1d")
    return seconds


def parse_share(text: str) -> float:
    """Return what "5%" is of 1.

    :raises UsageError: when it is no percentage, or 0.
    """
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share <= _LARGEST:
        raise UsageError(f"{text!r} is not a percentage", "write a number above 0 with %, as 5%")
    return share


def parse_int(text: str) -> int:
    """Return the number that "10" or "0xa" means.

    :raises UsageError: when it is not a number, or negative.
    """
    if not _NUMBER.fullmatch(text.strip()):
        raise UsageError(f"{text!r} is not a number", "write 0 or more, or 0x…")
    return _bounded(text, int(text, 16 if text.strip()[:2].lower() == "0x" else 10))


def _bounded(text: str, number: int) -> int:
    if number > _LARGEST:
        raise UsageError(f"{text!r} is more than any target has", "write a smaller number")
    return number


def refuse_input(option: str, path: Optional[str], given: Optional[str], what: str) -> None:
    """Refuse a file for an answer that is made from that very file.

    :param path: the file that an option names for the answer.
    :param given: a file that is examined, "core" or "executable".
    :raises UsageError: when they are the same.
    """
    if path and given and is_same(path, given):
        raise UsageError(f"{option} names the {what} itself", "name another file")


def nearest(word: str, known: Sequence[str]) -> Optional[str]:
    """Return the known word that is most like ``word``, or None when none is near."""
    import difflib  # slow to import, and wanted only when something is wrong

    close = difflib.get_close_matches(word, known, 1, 0.5)
    starting = [name for name in known if word and name.startswith(word)]
    return next(iter(starting + close), None)


class _Scan:
    """Options and rest of a line's words.

    :param value_of: returns the value that a word is written for: without its quotes, where it has some.
    """

    def __init__(
        self, words: Sequence[_Word], options: Sequence[Option], positional: str, value_of: Callable[[str], str]
    ) -> None:
        self._known = {option.name: option for option in options}
        self._positional = positional
        self._value_of = value_of
        self._given: dict[str, Any] = {}
        self.rest: list[_Word] = []
        if positional == "raw":
            self._read_raw(words)
        else:
            self._read(words)

    @property
    def is_raw(self) -> bool:
        """Whether the whole line is the expression."""
        return self._positional == "raw" and "help" not in self._given

    def finish(self, expression: str) -> Arguments:
        """Return what was read.

        :param expression: the raw text of the rest.
        :raises UsageError: where none is taken.
        """
        if expression and self._positional == "none" and "help" not in self._given:
            raise UsageError(f"takes no argument, got {expression!r}", "-h shows how it is written")
        return Arguments(self._known, self._given, expression, [self._value_of(word.text) for word in self.rest])

    def _read_raw(self, words: Sequence[_Word]) -> None:
        if words and words[0].text in ("-h", "--help"):
            self._given["help"] = True
        else:
            self.rest = list(words)

    def _read(self, words: Sequence[_Word]) -> None:
        at = 0
        while at < len(words):
            if words[at].text == "--":
                self.rest.extend(words[at + 1 :])
                return
            if self._is_option(words[at]):
                at += self._take(words, at)
            else:
                self.rest.append(words[at])
                at += 1

    def _is_option(self, word: _Word) -> bool:
        if not word.bare:
            return False
        if re.match(r"--[A-Za-z]", word.text) or _find_short(part(word.text, self._known.values())[0], self._known):
            return True
        # Only an expression may start with a minus that is not an option's.
        return self._positional != "expression" and re.match(r"-[A-Za-z]", word.text) is not None

    def _take(self, words: Sequence[_Word], at: int) -> int:
        """Record the option at ``words[at]``; return how many words it took."""
        name, equals, inline = part(words[at].text, self._known.values())
        option = _find_option(name, self._known)
        if option.kind in ("flag", "file"):
            self._given[option.name] = self._lone_value(option, self._value_of(inline) if equals else None)
            return 1
        following = [] if equals else [word.text for word in words[at + 1 :]]
        taken, values = (0, [inline]) if equals else _values(option.words, following)
        if len(values) < option.words:
            raise UsageError(f"--{option.name} needs {_number(option.words)}", f"write {option.usage}")
        _record(option, [_convert(option, self._value_of(value)) for value in values], self._given)
        return 1 + taken

    def _lone_value(self, option: Option, inline: Optional[str]) -> Union[bool, str, None]:
        """Return the value of an option that takes no further word."""
        label = f"--{option.name}"
        if option.kind == "file":
            if inline == "":
                raise UsageError(f"{label}= names no file", f"write {label} or {label}=FILE")
            return inline
        if inline is not None:
            raise UsageError(f"{label} takes no value")
        return True


def part(word: str, options: Iterable[Option]) -> tuple[str, str, str]:
    """Return the option that a word begins with, what parts it from its value, and the value: ``-p12`` has one, too.

    An attached value begins as a number or a path does: ``-pos`` is an expression.
    """
    if re.match(r"-[A-Za-z][0-9./]", word):
        for option in options:
            if option.short == word[1] and option.kind not in ("flag", "file"):
                return word[:2], "-", word[2:]
    return word.partition("=") if word.startswith("--") else (word, "", "")


def _values(wanted: int, words: Sequence[str]) -> tuple[int, Sequence[str]]:
    """Return how many words an option takes, and its values: "struct x" is one of several."""
    values: list[str] = []
    at = 0
    while len(values) < wanted and at < len(words):
        size = 2 if wanted > 1 and words[at] in _TYPE_KEYWORDS and at + 1 < len(words) else 1
        values.append(" ".join(words[at : at + size]))
        at += size
    return at, values


def _number(words: int) -> str:
    return "a value" if words == 1 else f"{words} values"


def _record(option: Option, values: Sequence[Any], given: dict[str, Any]) -> None:
    value = values[0] if option.words == 1 else tuple(values)
    given[option.name] = (*given.get(option.name, ()), value) if option.many else value


def _find_short(name: str, known: Mapping[str, Option]) -> Optional[Option]:
    if len(name) != 2 or name[0] != "-":
        return None
    return next((option for option in known.values() if option.short == name[1]), None)


def _find_option(name: str, known: Mapping[str, Option]) -> Option:
    short = _find_short(name, known)
    if short is not None:
        return short
    if name.startswith("--") and name[2:] in known:
        return known[name[2:]]
    close = nearest(name.lstrip("-"), list(known))
    raise UsageError(
        f"unknown option {name}", f"did you mean --{close}?" if close else "-h lists the options"
    )


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "int": parse_int,
    "size": parse_size,
    "duration": parse_duration,
    "share": parse_share,
}


def _convert(option: Option, text: str) -> Any:
    try:
        if option.kind in _PARSERS:
            return _PARSERS[option.kind](text)
    except UsageError as error:
        raise UsageError(f"--{option.name}: {error.message}", error.hint) from None
    if option.kind == "choice" and text not in option.choices:
        raise UsageError(f"--{option.name}: {text!r} is not one of {', '.join(option.choices)}")
    return text


def _gather(text: str, rest: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Iterate over the raw pieces, the space between neighbours kept, a space where options stood."""
    previous = None
    for start, end in rest:
        if previous is not None:
            between = text[previous:start]
            yield between if between.isspace() else " "
        yield text[start:end]
        previous = end


def _split(text: str) -> list[_Word]:
    """Split at spaces outside quotes and brackets; unpaired ones are ordinary characters."""
    words: list[_Word] = []
    skips = _skips(text)
    at, start, bare = 0, None, True
    while at < len(text):
        if text[at].isspace():
            if start is not None:
                words.append(_Word(start, at, text[start:at], bare))
            at, start, bare = at + 1, None, True
            continue
        if start is None:
            start, bare = at, at not in skips
        at = skips.get(at, at) + 1
    if start is not None:
        words.append(_Word(start, len(text), text[start:], bare))
    return words


def _skips(text: str) -> dict[int, int]:
    """Return, for each opening quote or bracket that is closed again, where that is."""
    skips: dict[int, int] = {}
    opened: list[int] = []
    at = 0
    while at < len(text):
        character = text[at]
        end = _closing_quote(text, at) if character in "'\"" else None
        if end is not None:
            skips[at] = end
            at = end
        elif character in "([{":
            opened.append(at)
        elif character in _CLOSING and opened and text[opened[-1]] == _CLOSING[character]:
            skips[opened.pop()] = at
        at += 1
    return skips


def _closing_quote(text: str, at: int) -> Optional[int]:
    quote, end = text[at], at + 1
    while end < len(text):
        if text[end] == quote:
            return end
        end += 2 if text[end] == "\\" else 1
    return None


def _unquote(word: str) -> str:
    if len(word) >= 2 and word[0] in "'\"" and _closing_quote(word, 0) == len(word) - 1:
        return word[1:-1].replace("\\" + word[0], word[0])
    return word
