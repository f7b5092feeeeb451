"""``gdbext completion``: scripts for shells, made from the catalogue, so that pressing Tab starts nothing.

Tables and the reading of a line are functions that bash and zsh have in common; fish has its own language.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
from typing import Iterator, Sequence

import gdbext
from gdbext import _mount
from gdbext.cli.options import Options
from gdbext.cli.streams import put
from gdbext.errors import UsageError
from gdbext.grammar.arguments import Option
from gdbext.grammar.catalogue import COMMANDS, OWN_COMMANDS, SHELL_OPTIONS, SHELL_PREFIXES, CommandSpec

_OWN_SHAPES = "~/.config/gdbext/shapes"
_NOTHING = "@nothing"  # a value that cannot be completed
_SPECS = tuple(spec for spec in (*COMMANDS, *OWN_COMMANDS) if not spec.raw)


def print_script(options: Options) -> int:
    """Print the script for a shell; return the exit status.

    :raises UsageError: for another shell.
    """
    shell = " ".join(options.arguments.words)
    if shell not in _SCRIPTS:
        raise UsageError(f"no completion for {shell!r}" if shell else "a shell is missing", "bash, zsh or fish")
    put("\n".join(_SCRIPTS[shell]()) + "\n")
    return 0


def options_of(spec: CommandSpec) -> Sequence[Option]:
    """Return all options that a shell may give a command, each once."""
    own = [] if spec.own else SHELL_OPTIONS
    known = {option.name: option for option in (*spec.all_options, *own) if option.name != "version"}
    return list(known.values())


def _first_words() -> dict[str, str]:
    """Return the words that a command may begin with, and what they mean."""
    words = {}
    for spec in _SPECS:
        first = spec.name.split()[0]
        words[first] = SHELL_PREFIXES.get(first, spec.summary)
    return words


def _second_words(first: str) -> dict[str, str]:
    return {spec.name.split()[1]: spec.summary for spec in _SPECS if spec.name.startswith(f"{first} ")}


def _forms(option: Option) -> Sequence[str]:
    return (f"--{option.name}", f"-{option.short}") if option.short else (f"--{option.name}",)


def _value_of(option: Option) -> str:
    """Return what a value is completed from: words, words after commas, or a kind; nothing where there is none."""
    if option.kind in ("flag", "file"):
        return ""
    return _offer(option.names, option.choices, option.values)


def _argument_of(spec: CommandSpec) -> str:
    """Return what the words after a command are completed from."""
    offer = _offer(spec.names, spec.values, ())
    return "@file" if offer in ("", _NOTHING) and not spec.own and spec.target == "needed" else offer


def _offer(names: str, choices: Sequence[str], values: Sequence[str]) -> str:
    if choices:
        return " ".join(choices)
    if values:
        return "," + " ".join(values)
    if names == "shape":
        return " ".join(_shape_names()) or _NOTHING
    return f"@{names}" if names in ("file", "folder", "program", "process") else _NOTHING


def _shape_names() -> Sequence[str]:
    _mount.mount(os.path.dirname(os.path.abspath(gdbext.__file__)))
    spec = importlib.util.find_spec("gdbext.shapes")
    folders = [*(spec.submodule_search_locations or [] if spec else []), os.path.expanduser(_OWN_SHAPES)]
    return sorted({name[: -len(".toml")] for folder in folders for name in _files_in(folder) if name.endswith(".toml")})


def _files_in(folder: str) -> Sequence[str]:
    try:
        return os.listdir(folder)
    except OSError:  # nobody has to have shapes of their own
        return []


def _bash() -> Iterator[str]:
    yield "# Completion of gdbext for bash, made by: gdbext completion bash"
    yield from _tables()
    yield _BASH


def _zsh() -> Iterator[str]:
    yield "#compdef gdbext"
    yield "# Completion of gdbext for zsh, made by: gdbext completion zsh"
    yield from _tables()
    yield _ZSH


def _tables() -> Iterator[str]:
    """Iterate over the functions that know the catalogue."""
    names = {"": _first_words(), **{first: _second_words(first) for first in SHELL_PREFIXES}}
    yield from _table("names", "$1", {first: " ".join(words) for first, words in names.items()})
    options = {spec.name: " ".join(f"--{option.name}" for option in options_of(spec)) for spec in _SPECS}
    common = " ".join(f"--{option.name}" for option in SHELL_OPTIONS)
    yield from _table("options", "$1", options, default=f"'{options['triage']}'", nameless=common)
    yield from _table("argument", "$1", {spec.name: _argument_of(spec) for spec in _SPECS}, default="@file")
    yield from _table("value", "$1 $2", _values())
    yield _READ


def _values() -> dict[str, str]:
    """Return what values are completed from, by command and option; the program's options have no command."""
    values = {f" {form}": _value_of(option) for option in SHELL_OPTIONS for form in _forms(option)}
    for spec in _SPECS:
        for option in options_of(spec):
            words = "@two" if option.words > 1 else _value_of(option)
            values.update({f"{spec.name} {form}": words for form in _forms(option) if words != values.get(f" {form}")})
    return {name: words for name, words in values.items() if words}


def _table(name: str, key: str, rows: dict[str, str], default: str = "", nameless: str = "") -> Iterator[str]:
    yield f"_gdbext_{name}() {{\n    case \"{key}\" in"
    if nameless:
        yield f"    '') echo '{nameless}' ;;"
    for row, words in rows.items():
        # An option of the program is one whatever the command is: these rows have no command.
        pattern = f"*{shlex.quote(row)}" if row.startswith(" ") else shlex.quote(row)
        yield f"    {pattern}) echo {shlex.quote(words)} ;;"
    if default:
        yield f"    *) echo {default} ;;"
    yield "    esac\n}"


# Reads the words before the one that is completed: name is the command's, as far as it stands there; option the one
# whose value comes next, or nothing.
_READ = """\
_gdbext_read() {
    local word left=0
    name= option=
    for word in "$@"; do
        if [ "$left" -gt 0 ]; then
            left=$((left - 1))
            continue
        fi
        case $word in
        --*=*) ;;
        -*)
            option=$word
            case $(_gdbext_value "$name" "$word") in
            '') ;;
            @two) left=2 ;;
            *) left=1 ;;
            esac
            ;;
        gx) ;;
        *)
            if [ -z "$name" ] || [ -n "$(_gdbext_names "$name")" ]; then
                name="${name:+$name }$word"
            fi
            ;;
        esac
    done
    if [ "$left" = 0 ]; then option=; fi
}"""

_BASH = r"""_gdbext() {
    local name option last offer words=() word glued=
    # bash breaks words at "=": put them together again.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ ${#words[@]} -gt 0 && ( $word == "=" || $glued ) ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        if [[ $word == "=" ]]; then glued=yes; else glued=; fi
    done
    last=${words[${#words[@]}-1]}
    unset 'words[${#words[@]}-1]'
    _gdbext_read "${words[@]}"
    if [[ $option ]]; then
        offer=$(_gdbext_value "$name" "$option")
    elif [[ $last == --*=* ]]; then
        offer=$(_gdbext_value "$name" "${last%%=*}")
        [[ ${last%%=*} == --json ]] && offer=@file
        last=${last#*=}
    elif [[ $last == -* ]]; then
        offer=$(_gdbext_options "$name")
    else
        offer=$(_gdbext_names "$name")
        if [[ -z $name ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$last"; compgen -f -- "$last")
            compopt -o filenames 2>/dev/null
            return
        fi
        [[ $offer ]] || offer=$(_gdbext_argument "$name")
    fi
    COMPREPLY=()
    case $offer in
    @file) mapfile -t COMPREPLY < <(compgen -f -- "$last"); compopt -o filenames 2>/dev/null ;;
    @folder) mapfile -t COMPREPLY < <(compgen -d -- "$last"); compopt -o filenames 2>/dev/null ;;
    @program) mapfile -t COMPREPLY < <(compgen -c -- "$last") ;;
    @process) mapfile -t COMPREPLY < <(compgen -W "$(ps -eo pid= 2>/dev/null)" -- "$last") ;;
    @*) ;;
    ,*)
        local before=
        [[ $last == *,* ]] && before=${last%,*},
        [[ $last == "$before"-* ]] && before+=-
        mapfile -t COMPREPLY < <(compgen -P "$before" -W "${offer#,}" -- "${last#"$before"}")
        compopt -o nospace 2>/dev/null
        ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$last") ;;
    esac
}
complete -F _gdbext gdbext"""

_ZSH = r"""_gdbext() {
    local name option last offer before=
    last=${words[CURRENT]}
    _gdbext_read "${(@)words[2,CURRENT-1]}"
    if [[ -n $option ]]; then
        offer=$(_gdbext_value "$name" "$option")
    elif [[ $last == --*=* ]]; then
        option=${last%%=*}
        offer=$(_gdbext_value "$name" "$option")
        [[ $option == --json ]] && offer=@file
        last=${last#*=}
        compset -P '*='
    elif [[ $last == -* ]]; then
        offer=$(_gdbext_options "$name")
    else
        offer=$(_gdbext_names "$name")
        [[ -z $name ]] && _files
        [[ -n $offer ]] || offer=$(_gdbext_argument "$name")
    fi
    case $offer in
    @file) _files ;;
    @folder) _files -/ ;;
    @program) _command_names -e ;;
    @process) compadd -- $(ps -eo pid= 2>/dev/null) ;;
    @*) ;;
    ,*)
        [[ $last == *,* ]] && before=${last%,*},
        [[ $last == "$before"-* ]] && before+=-
        compset -P "${(b)before}"
        compadd -S '' -- ${(s: :)offer#,}
        ;;
    *) compadd -- ${(s: :)offer} ;;
    esac
}
if [[ ${funcstack[1]} == _gdbext ]]; then
    _gdbext "$@"
else
    compdef _gdbext gdbext
fi"""


def _fish() -> Iterator[str]:
    valued = [form for option in SHELL_OPTIONS if _value_of(option) for form in _forms(option)]
    yield "# Completion of gdbext for fish, made by: gdbext completion fish"
    yield _FISH.replace("VALUED", " ".join(valued)).replace("FAMILIES", " ".join(SHELL_PREFIXES)).replace(
        "COMMANDS", " ".join(_first_words())
    )
    for word, meaning in _first_words().items():
        yield f"complete -c gdbext -n '__gdbext_at \"\"' -a {word} -d {_fish_quoted(meaning)}"
    for option in SHELL_OPTIONS:
        yield _fish_option("complete -c gdbext", option)
    for first in SHELL_PREFIXES:
        yield f"complete -c gdbext -n '__gdbext_at {first}' -f"
        for word, meaning in _second_words(first).items():
            yield f"complete -c gdbext -n '__gdbext_at {first}' -f -a {word} -d {_fish_quoted(meaning)}"
    for spec in _SPECS:
        yield from _fish_command(spec)


def _fish_command(spec: CommandSpec) -> Iterator[str]:
    argument = _argument_of(spec)
    if argument != "@file":
        words = "" if argument.startswith("@") else f" -a {_fish_quoted(argument.lstrip(','))}"
        yield f"complete -c gdbext -n '__gdbext_at \"{spec.name}\"' -f{words}"
    common = {option.name for option in SHELL_OPTIONS}
    for option in spec.all_options:
        if option.name not in common:
            yield _fish_option(f"complete -c gdbext -n '__gdbext_at \"{spec.name}\"'", option)


def _fish_option(lead: str, option: Option) -> str:
    short = f" -s {option.short}" if option.short else ""
    value = _fish_value(_value_of(option))
    return f"{lead}{short} -l {option.name}{value} -d {_fish_quoted(option.help)}"


def _fish_value(value: str) -> str:
    if not value:
        return ""
    if value == "@file":
        return " -r -F"
    special = {"@folder": "(__fish_complete_directories)", "@program": "(__fish_complete_command)",
               "@process": "(__fish_complete_pids)", _NOTHING: ""}  # fmt: skip
    words = special.get(value)
    if words is None:
        words = f"(__gdbext_list {value[1:]})" if value.startswith(",") else value
    return f" -x -a {_fish_quoted(words)}" if words else " -x"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_FISH = r"""function __gdbext_at
    set -l name
    set -l skip no
    for word in (commandline -opc)[2..-1]
        if test $skip = yes
            set skip no
            continue
        end
        switch $word
            case gx '--*=*'
            case '-*'
                contains -- $word VALUED; and set skip yes
            case '*'
                if test -z "$name"
                    # A core alone is triaged.
                    contains -- $word COMMANDS; and set name $word; or set name triage
                else if contains -- $name FAMILIES
                    set name "$name $word"
                end
        end
    end
    test "$name" = "$argv[1]"
end
function __gdbext_list
    set -l before (string match -r '^(?:--[^=]*=)?(.*,)?' -- (commandline -ct))[2]
    printf "$before%s\n" $argv
end"""

_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
