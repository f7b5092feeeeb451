"""The program's own options; everything else is the command, passed through to gdb as typed."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Callable, Mapping, Optional, Sequence

from gdbext.errors import UsageError
from gdbext.exchange import schema_of

DEFAULT_TIMEOUT = 600.0
_SAMPLED = "lockwait"  # the command that may look at a process several times
_MOST_SAMPLES = 1000
_FAMILIES = ("glibc", "jemalloc", "blocks", "shapes")  # first words of commands with two
_WITHOUT_TARGET = ("commands", "shapes list")
_WITH_OR_WITHOUT = ("shapes show",)  # says more where there is a target
# Commands whose arguments are words, not one expression.
_WORDY = ("listcount", "listprint", "breakpoints", "shapes save")
# Options of commands whose value is text, in one word or more: a shell has taken its quotes off.
_TEXTS = {
    "--container": 2,
    **dict.fromkeys(
        ("--arena", "--bins", "--clear", "--columns", "--compare", "--computed", "--computed-at", "--counted", "--dot",
         "--each", "--end", "--field", "--flame", "--hash", "--head", "--heap", "--in", "--key", "--list", "--mask",
         "--next", "--noted", "--prev", "--run", "--shape", "--sort", "--state", "--stored", "--stride", "--where"),
        1,
    ),
}  # fmt: skip
# Options with the name of one of these that have no value there.
_FLAGS = {"lockwait": ("--heap",), "blocks leaks": ("--list",)}


@dataclass(frozen=True)
class Options:
    """A parsed command line.

    :param command: the command's words, options and arguments, as they came.
    :param json: None without ``--json``, "" for standard output, else a file's name.
    :param timeout: seconds, or None for ever.
    :param samples: how many times a process is looked at.
    :param interval: seconds between two looks.
    :param color: "auto", "always" or "never".
    """

    command: Sequence[str] = field(default=())
    core: Optional[str] = None
    exe: Optional[str] = None
    pid: Optional[int] = None
    sysroot: Optional[str] = None
    debug_dir: Optional[str] = None
    gdb: str = "gdb"
    timeout: Optional[float] = DEFAULT_TIMEOUT
    json: Optional[str] = None
    samples: Optional[int] = None
    interval: Optional[float] = None
    color: str = "auto"
    swapped: bool = False
    help: bool = False
    version: bool = False

    @property
    def wants_help(self) -> bool:
        """Whether the command's own help is asked for."""
        return any(word in ("-h", "--help") for word in _before_dashes(self.command))

    @property
    def needs_target(self) -> bool:
        """Whether the command looks at a process or a core."""
        if self.wants_help or self.name in _WITHOUT_TARGET:
            return False
        return self.name not in _WITH_OR_WITHOUT or self.core is not None or self.pid is not None

    @property
    def name(self) -> str:
        """The command's name as far as the words before any option tell: those of a family have two."""
        return _name_of(self.command)

    @property
    def schema(self) -> str:
        """Name and version of the JSON when gdb did not say."""
        return schema_of(self.name)


def _name_of(command: Sequence[str]) -> str:
    words = list(takewhile(lambda word: not word.startswith("-"), command))
    return " ".join(words[: 2 if words[:1] and words[0] in _FAMILIES else 1])


def mark_quoted(command: Sequence[str]) -> Sequence[bool]:
    """Return for each word of a command whether it is one for itself, and not a part of an expression.

    Only these are given back the quotes that a shell has taken off; an expression stands as it came.
    """
    name = _name_of(command)
    wordy, flags, marked, left = name in _WORDY, _FLAGS.get(name, ()), [], 0
    for word in command:
        option = word.startswith("--") and not left
        marked.append(bool(left) or (wordy and not option))
        left = _words_after(word, flags) if option else max(left - 1, 0)
    return marked


def _words_after(option: str, flags: Sequence[str]) -> int:
    return 0 if option in flags else _TEXTS.get(option, 0)


def parse(arguments: Sequence[str]) -> Options:
    """Take the command line apart; options of ours may stand anywhere before ``--``.

    :raises UsageError: for an option of ours without its value or with a bad one, or no command.
    """
    given: dict[str, Any] = {}
    command: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            command += [word, *words]
            break
        if name == "--json":
            given["json"] = value
        elif name in _VALUES:
            key, convert = _VALUES[name]
            given[key] = convert(name, value if equals else _next(name, words))
        elif word == "--swapped":
            given["swapped"] = True
        elif word in _ABOUT and not command:
            given[_ABOUT[word]] = True
        else:
            command.append(word)
    return _checked(Options(command=tuple(command), **given))


def _checked(options: Options) -> Options:
    if options.help or options.version:
        return options
    if options.command[:1] == ("gx",):
        options = replace(options, command=options.command[1:])
    if not options.command or options.command[0].startswith("-"):
        raise UsageError("no command is named", "gdbext --help shows how it is written")
    if options.name in _FAMILIES and not options.wants_help:
        raise _unfinished(options)
    if any("\n" in word or "\0" in word for word in options.command):
        raise UsageError("a command is one line")
    _check_samples(options)
    if options.core and options.pid is not None:
        raise UsageError("--core and --pid exclude each other")
    if options.needs_target and not options.core and options.pid is None:
        raise UsageError("nothing to look at", "name a core with --core or a process with --pid")
    return options


def _check_samples(options: Options) -> None:
    if options.samples is None and options.interval is None:
        return
    if options.name != _SAMPLED:
        raise UsageError("--samples and --interval are for lockwait")
    if options.samples is None:
        raise UsageError("--interval needs --samples", "--samples 3 --interval 2 looks three times")
    if options.pid is None:
        raise UsageError("--samples needs --pid", "a core does not move; --compare compares two of them")
    if "--stacks" in options.command:
        raise UsageError("--samples and --stacks exclude each other")


def _unfinished(options: Options) -> UsageError:
    if len(options.command) > 1:
        return UsageError(f"{' '.join(options.command)!r}: options stand after the command's name")
    return UsageError(f"{options.name} is several commands", f"gdbext {options.name} -h lists them")


def _next(name: str, words: list[str]) -> str:
    if not words:
        raise UsageError(f"{name} needs a value", "gdbext --help shows how it is written")
    return words.pop(0)


def _text(name: str, value: str) -> str:
    if not value or "\n" in value or "\0" in value:
        raise UsageError(f"{name}: {value!r} is not a name")
    return value


def _path(name: str, value: str) -> str:
    return os.path.abspath(_text(name, value))


def _folder(name: str, value: str) -> str:
    if not os.path.isdir(value):
        raise UsageError(f"{name}: {value} is not a directory")
    return _path(name, value)


def _pid(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise UsageError(f"{name}: {value!r} is not a process id")
    return int(value)


def _samples(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 2 <= int(value) <= _MOST_SAMPLES):
        raise UsageError(f"{name}: {value!r} is not a number of looks", f"2 to {_MOST_SAMPLES}")
    return int(value)


def _interval(name: str, value: str) -> float:
    return _seconds(name, value) or 0.0


def _seconds(name: str, value: str) -> Optional[float]:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{name}: {value!r} is not a number of seconds", "0 is for ever")
    return seconds or None


def _color(name: str, value: str) -> str:
    if value not in _COLORS:
        raise UsageError(f"{name}: {value!r} is not one of {', '.join(_COLORS)}")
    return value


_COLORS = ("auto", "always", "never")
_ABOUT = {"-h": "help", "--help": "help", "--version": "version"}
_VALUES: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "--core": ("core", _path),
    "--exe": ("exe", _path),
    "--pid": ("pid", _pid),
    "--sysroot": ("sysroot", _folder),
    "--debug-dir": ("debug_dir", _folder),
    "--gdb": ("gdb", _text),
    "--timeout": ("timeout", _seconds),
    "--samples": ("samples", _samples),
    "--interval": ("interval", _interval),
    "--color": ("color", _color),
}


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words
