"""The program's command line: a command, its options and arguments, and the program's own options, in any order.

The command's name comes first among the words that are no options; the program's options may stand before it, and all
options after it. They are taken apart here, by the grammar that gdb's side has too, and handed over as values: see
``docs/design.md``, "One grammar".
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence

from gdbext.errors import UsageError
from gdbext.files import is_same
from gdbext.grammar.arguments import Arguments, Option, nearest, parse_words, part, refuse_input
from gdbext.grammar.catalogue import (
    COMMANDS,
    OWN_COMMANDS,
    SHELL_OPTIONS,
    SHELL_PREFIXES,
    CommandSpec,
    find_command,
    find_own,
)
from gdbext.grammar.exchange import SAMPLES, is_recording, schema_of
from gdbext.wording import unicode_text

DEFAULT_TIMEOUT = 600.0
_FIRST = "triage"  # of a core that stands alone
_SAMPLED = "lockwait"  # the command that may look at a process several times
_MOST_SAMPLES = 1000
_DRAWN = ("dot", "flame", "output", "svg")  # files that commands may write
_FILES = ("file", "folder", "program")  # what an option may name
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+")
_HOW = "gdbext --help shows how it is written"


@dataclass(frozen=True)
class Options:
    """A parsed command line.

    :param name: the command's, or the first word of several.
    :param spec: its row, or None where there is no such command.
    :param arguments: its options and arguments.
    :param cores: the cores to examine.
    :param json: None without ``--json``, "" for standard output, else a file's name.
    :param timeout: seconds, or None for ever.
    :param samples: how many times a process is looked at.
    :param interval: seconds between two looks.
    :param times: how many samples of a process are compared.
    :param every: seconds between two of them.
    :param color: "auto", "always" or "never".
    :param in_place: whether a process is examined itself, and no copy of it.
    :param max_pause: seconds after which nothing more of a process is copied, or None.
    :param max_unpacked: bytes, or None for what there is room for.
    :param max_memory: bytes, or None likewise.
    :param help: whether help is asked for, of the command where one is named.
    """

    name: str = ""
    spec: Optional[CommandSpec] = None
    arguments: Arguments = field(default_factory=lambda: Arguments({}))
    cores: Sequence[str] = ()
    exe: Optional[str] = None
    pid: Optional[int] = None
    sysroot: Optional[str] = None
    debug_dir: Optional[str] = None
    cache: Optional[str] = None
    debuginfod: Optional[str] = None
    gdb: str = "gdb"
    timeout: Optional[float] = DEFAULT_TIMEOUT
    json: Optional[str] = None
    samples: Optional[int] = None
    interval: Optional[float] = None
    times: Optional[int] = None
    every: Optional[float] = None
    color: str = "auto"
    swapped: bool = False
    in_place: bool = False
    max_pause: Optional[float] = None
    max_unpacked: Optional[int] = None
    max_memory: Optional[int] = None
    help: bool = False
    version: bool = False

    @property
    def core(self) -> Optional[str]:
        """The core to examine, or None; the first of several."""
        return self.cores[0] if self.cores else None

    @property
    def moments(self) -> int:
        """How many targets, or moments of a process, are named; a recording is one."""
        return len(self.cores) + (self.times or 1 if self.pid is not None else 0)

    @property
    def settings(self) -> Mapping[str, int]:
        """The settings that the line changes."""
        given = {"swapped": int(self.swapped), "max-memory": self.max_memory or 0}
        return {name: value for name, value in given.items() if value}

    @property
    def needs_target(self) -> bool:
        """Whether the command looks at a process or a core."""
        if self.help or self.spec is None or self.spec.target == "none":
            return False
        return self.spec.target == "needed" or self.core is not None or self.pid is not None

    @property
    def schema(self) -> str:
        """Name and version of the JSON when gdb did not say."""
        return schema_of(self.name)


def outline(words: Sequence[str]) -> Options:
    """Return the command's name and what the line says about JSON, however wrong the rest of it is."""
    asked = [word for word in words if word == "--json" or word.startswith("--json=")]
    found = _find_name(words)
    name = _FIRST if find_command(found.name) is None and _names_target(found) else found.name
    json = asked[-1].partition("=")[2] if asked else None
    others = [word for word in words if word not in asked]
    if json and any(is_same(json, path) for word in others for path in _possible_names(word)):
        json = None  # an error does not replace what the line names
    return Options(name=name, json=json)


def _possible_names(word: str) -> Sequence[str]:
    return word, word.partition("=")[2], word[2:]


def parse(words: Sequence[str]) -> Options:
    """Take the command line apart.

    :raises UsageError: for what is wrong with it.
    """
    found = _find_name(words)
    spec = find_command(found.name) or find_own(found.name)
    if spec is None and _names_target(found):
        found, spec = _Found(_FIRST, [*filter(None, [found.name]), *found.rest]), find_command(_FIRST)
    if spec is None:
        return _parse_without_command(found)
    if spec.own:
        return _options(spec.name, spec, parse_words(found.rest, spec.all_options, spec.positional))
    known = {option.name: option for option in (*SHELL_OPTIONS, *spec.all_options)}
    wants_help = bool({"-h", "--help"} & set(found.rest))
    if spec.raw and not wants_help:
        raise UsageError(f"{spec.name} is for gdb alone")
    positional = "expression" if spec.raw else spec.positional
    # Words that no command takes may be cores.
    parsed = parse_words(found.rest, list(known.values()), "words" if positional == "none" else positional)
    return _checked(_with_cores(_options(spec.name, spec, parsed)))


def leave_deleted_directory(options: Options) -> None:
    """Have a current directory that exists: gdb starts in no other.

    :raises UsageError: when the user names a file in one that does not.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        if any(name and not os.path.isabs(name) for name in _find_named(options)):
            raise _without_directory() from None
        os.chdir(os.sep)


def _find_named(options: Options) -> Iterator[str]:
    """Iterate over the files that a line names and that are opened by these names."""
    yield from filter(None, [options.json, options.gdb if os.sep in options.gdb else None])
    arguments = options.arguments
    yield from _texts([value for name, value in arguments.given.items() if arguments.options[name].names in _FILES])
    if options.spec is not None and options.spec.own and options.spec.names == "file":
        yield from (word for word in arguments.words if not word.isdigit())


def _names_target(found: _Found) -> bool:
    """Whether a line names a core or a process, and no command."""
    options = {part(word, SHELL_OPTIONS)[0] for word in found.rest}
    if not found.name and options & {"-h", "--help", "--version"}:
        return False
    # What is no file is said to be none, as of a core.
    if os.path.exists(found.name) and found.name not in SHELL_PREFIXES:
        return True
    return os.path.isfile(found.name) or not found.name and bool(options & {"-c", "--core", "-p", "--pid", "--"})


def _with_cores(options: Options) -> Options:
    """Take the cores from the words that follow the command.

    It is their place that makes them cores, and not their looks: without ``--core`` and ``--pid`` the first word is
    one, and so are all words of a command that takes no arguments; all that follows is the command's.

    :raises UsageError: for words that a command has no use for.
    """
    spec, words = options.spec, options.arguments.words
    if spec is None or options.help or not words:
        return options
    if spec.several:
        return _with_words(options, [*options.cores, *words], ())
    named = bool(options.cores) or options.pid is not None or spec.target != "needed"
    if options.pid is not None and spec.positional == "none" and os.path.isfile(words[0]):
        raise UsageError("a core and --pid exclude each other")
    if spec.positional == "none":
        if named:
            raise _no_argument(words)
        others = [word for word in words[1:] if _NUMBER.fullmatch(word) and not os.path.exists(word)]
        if others and os.path.isfile(words[0]):
            raise _no_argument(others)
        return _with_words(options, words, ())
    if named or not os.path.isfile(words[0]):
        return options
    return _with_words(options, words[:1], words[1:])


def _no_argument(words: Sequence[str]) -> UsageError:
    return UsageError(f"takes no argument, got {' '.join(words)!r}", "-h shows how it is written")


def _with_words(options: Options, cores: Sequence[str], words: Sequence[str]) -> Options:
    arguments = replace(options.arguments, words=words, expression=" ".join(words))
    return replace(options, cores=_paths("CORE", cores), arguments=arguments)


class _Found(NamedTuple):
    """A command's name, and all other words."""

    name: str
    rest: Sequence[str]


def _find_name(words: Sequence[str]) -> _Found:
    name: list[str] = []
    rest: list[str] = []
    at = 0
    while at < len(words) and not _is_whole(name):
        if not words[at].startswith("-"):
            name = [] if [*name, words[at]] == ["gx"] else [*name, words[at]]
            at += 1
            continue
        size = _size_of(words[at])
        if not size:
            break
        rest += words[at : at + size]
        at += size
    return _Found(" ".join(name), [*rest, *words[at:]])


def _is_whole(name: Sequence[str]) -> bool:
    return bool(name) and (name[0] not in SHELL_PREFIXES or len(name) == 2)


def _size_of(word: str) -> int:
    """Return how many words an option of the program takes, 0 for any other."""
    name, equals, _ = part(word, SHELL_OPTIONS)
    for option in SHELL_OPTIONS:
        if name == f"--{option.name}" or (option.short and name == f"-{option.short}"):
            return 1 if equals or option.kind in ("flag", "file") else 1 + option.words
    return 0


def _parse_without_command(found: _Found) -> Options:
    """Return the options of a line that asks for help or the version.

    :raises UsageError: when it does not.
    """
    named_well = not found.name or found.name in SHELL_PREFIXES
    foreign = list(_without_own(found.rest))
    if not foreign and named_well:
        options = _options(found.name, None, parse_words(found.rest, SHELL_OPTIONS, "none"))
        if options.help or options.version:
            return options
    if not found.name and foreign:
        raise UsageError(f"{foreign[0]}: options stand after the command and its core", _HOW)
    if not found.name:
        raise UsageError("no command is named", _HOW)
    if not named_well:
        raise unknown_command(found.name)
    if foreign:
        line = " ".join((found.name, *foreign))
        raise UsageError(f"{line!r}: options stand after the command's name")
    raise UsageError(f"{found.name} is several commands", f"gdbext {found.name} -h lists them")


def _without_own(words: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        size = _size_of(words[at])
        if not size:
            yield words[at]
        at += size or 1


def unknown_command(name: str) -> UsageError:
    """Return the error, with the command that was probably meant."""
    is_core = name.startswith("core")  # no command does
    close = None if is_core or os.sep in name else nearest(name, [spec.name for spec in (*COMMANDS, *OWN_COMMANDS)])
    what = "command" if re.fullmatch(r"[a-z -]+", name) and not is_core else "command and no core"
    hint = f"did you mean gdbext {close}?" if close else "gdbext --help lists the commands"
    if name.isdigit():
        hint = f"for a process write -p {name}"
    return UsageError(f"there is no {what} {name}", hint)


def _options(name: str, spec: Optional[CommandSpec], parsed: Arguments) -> Options:
    """Tell the program's options from the command's."""
    own = {option.name for option in SHELL_OPTIONS}
    given = {name: value for name, value in parsed.given.items() if name not in own}
    known: Mapping[str, Option] = {} if spec is None else {option.name: option for option in spec.all_options}
    values = {
        _FIELDS.get(name, name.replace("-", "_")): _VALUES[name](f"--{name}", value) if name in _VALUES else value
        for name, value in parsed.given.items()
        if name in own
    }
    if "json" in values:
        values["json"] = values["json"] or ""
    return Options(name, spec, Arguments(known, given, parsed.expression, parsed.words), **values)


def _checked(options: Options) -> Options:
    if options.help or options.version:
        return options
    several = options.spec is not None and options.spec.several > 0
    if options.cores and options.pid is not None and not several:
        raise UsageError("--core and --pid exclude each other")
    if options.needs_target and not options.cores and options.pid is None:
        raise UsageError("nothing to examine", "name a core, or a process with --pid")
    if options.spec is not None:
        _check_text(options.arguments)
        _check_outputs(options)
        options.spec.check(options.arguments)
    _check_samples(options)
    _check_several(options)
    if options.swapped and options.cores and options.pid is None:
        raise UsageError("--swapped needs --pid", "of what was swapped out a core has what was dumped")
    _check_copying(options)
    if options.debuginfod is not None and options.pid is not None:
        raise UsageError("--debuginfod and --pid exclude each other", "the files of a process are here")
    return options


def _check_copying(options: Options) -> None:
    if options.pid is None and (options.in_place or options.max_pause is not None):
        raise UsageError("--in-place and --max-pause need --pid", "a core stands still by itself")
    if options.in_place and options.max_pause is not None:
        raise UsageError("--in-place and --max-pause exclude each other", "--timeout bounds an answer")


def _check_outputs(options: Options) -> None:
    given = options.arguments.given
    drawn = {name: os.path.expanduser(given.get(name) or "") for name in _DRAWN}
    for name, path in {"json": options.json, **drawn}.items():
        for core in options.cores:
            refuse_input(f"--{name}", path, core, "core")
            refuse_input(f"--{name}", path, os.path.join(core, SAMPLES), "recording")
        refuse_input(f"--{name}", path, options.exe, "executable")


def _check_text(arguments: Arguments) -> None:
    """Check what may become part of a line of gdb's. Files may be called anything: they are opened as they are."""
    given = [value for name, value in arguments.given.items() if arguments.options[name].names not in _FILES]
    for text in (*arguments.words, *_texts(given)):
        if "\n" in text:
            raise UsageError("a command is one line")
        if unicode_text(text) != text:
            raise UsageError(f"{text}: not text in UTF-8")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _check_samples(options: Options) -> None:
    if options.samples is None and options.interval is None:
        return
    if options.name != _SAMPLED:
        raise UsageError("--samples and --interval are for lockwait")
    if options.samples is None:
        raise UsageError("--interval needs --samples", "--samples 3 --interval 2 looks three times")
    if options.pid is None:
        raise UsageError("--samples needs --pid", "a core does not move; --compare compares two of them")
    if options.arguments.flag("stacks"):
        raise UsageError("--samples and --stacks exclude each other")


def _check_several(options: Options) -> None:
    least = options.spec.several if options.spec is not None else 0
    if not least:
        if options.every is not None or options.times is not None:
            raise UsageError("--every and --times are for compare and report")
        return
    if options.pid is None and (options.every is not None or options.times is not None):
        raise UsageError("--every and --times need --pid", "a core does not move; name several")
    if options.every is not None and options.times is None:
        raise UsageError("--every needs --times", "--every 30s --times 10 takes ten samples")
    for name in filter(os.path.isdir, options.cores):
        if not is_recording(name):
            raise UsageError(f"{name} is no recording: it has no {SAMPLES}", "gdbext record writes recordings")
    if options.moments < least and not any(map(is_recording, options.cores)):
        raise _too_few(least)


def _too_few(least: int) -> UsageError:
    if least == 1:
        return UsageError("nothing to examine", "name a core, a recording, or a process with --pid")
    return UsageError("two targets or more are needed", "OLD NEW, or --pid PID --every 30s --times 3")


def _text(name: str, value: str) -> str:
    if not value:
        raise UsageError(f"{name}: {value!r} is not a name")
    return value


def _without_directory() -> UsageError:
    return UsageError("the current directory no longer exists", "cd elsewhere")


def _path(name: str, value: str) -> str:
    try:
        return os.path.abspath(_text(name, value))
    except FileNotFoundError:
        raise _without_directory() from None


def _paths(name: str, values: Sequence[str]) -> Sequence[str]:
    return [_path(name, value) for value in values]


def _folder(name: str, value: str) -> str:
    path = _path(name, value)
    if not os.path.isdir(value):
        raise UsageError(f"{name}: {value} is not a directory")
    return path


def _server(name: str, value: str) -> str:
    from gdbext.filecache.debuginfod import check_url

    return check_url(name, value)


def _pid(name: str, values: Sequence[str]) -> int:
    if len(values) > 1:
        raise UsageError(f"one process at a time, got {name} {f' {name} '.join(values)}")
    value = values[0]
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise UsageError(f"{name}: {value!r} is not a process id")
    return int(value)


def _samples(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 2 <= int(value) <= _MOST_SAMPLES):
        raise UsageError(f"{name}: {value!r} is not a number of samples", f"2 to {_MOST_SAMPLES}")
    return int(value)


def _interval(name: str, value: str) -> float:
    return _seconds(name, value, "1, 0.5 …") or 0.0


def _seconds(name: str, value: str, hint: str = "0 is for ever") -> Optional[float]:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{name}: {value!r} is not a number of seconds", hint)
    return seconds or None


def _pause(name: str, value: str) -> float:
    seconds = _seconds(name, value, "0.1, 1 …")
    if seconds is None:
        raise UsageError(f"{name}: {value!r} is not a number of seconds", "0.1, 1 …")
    return seconds


_FIELDS = {"core": "cores"}
_VALUES: Mapping[str, Callable[[str, Any], Any]] = {
    "core": _paths,
    "exe": _path,
    "pid": _pid,
    "sysroot": _folder,
    "debug-dir": _folder,
    "cache": _path,
    "debuginfod": _server,
    "gdb": _text,
    "timeout": _seconds,
    "samples": _samples,
    "interval": _interval,
    "times": _samples,
    "max-pause": _pause,
}
