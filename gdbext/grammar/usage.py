"""The help of a command, and lists of commands and options, from the command table."""

from __future__ import annotations

import textwrap
from typing import Any, Iterator, Sequence

from gdbext.grammar.catalogue import COMMANDS, OWN_COMMANDS, SHELL_PREFIXES, CommandSpec

_WIDTH = 80
_NAMES = 20  # where the summary of a command starts
_COLUMN = 28  # where the help of an option starts at most


def command_help(spec: Any) -> str:
    """Return what ``-h`` prints in gdb.

    :param spec: a command's declaration: ``name``, ``summary``, ``description``, ``expression``,
        ``example`` and ``options`` (each with ``name``, ``kind``, ``metavar``, ``help``, ``default``); also
        ``words``, ``all_options`` and ``prefixed_only`` where it has them.
    """
    lead = "gx " if getattr(spec, "prefixed_only", False) else ""
    rest = getattr(spec, "words", None) or spec.expression
    options = getattr(spec, "all_options", spec.options)
    return _help(spec, [lead + spec.name, "[OPTIONS]" if options else "", rest or ""], "Example:")


def shell_help(spec: CommandSpec) -> str:
    """Return what ``-h`` prints for the program, where the target comes first and is named by a file or a number."""
    rest = spec.words or spec.expression or ""
    if spec.own or spec.raw:
        words = [spec.name, "[OPTIONS]", rest] if spec.own else [spec.name, rest]
        return _help(spec, ["gdbext" if spec.own else "gx", *words], "Example:")
    if spec.several:
        return _help(spec, ["gdbext", spec.name, "CORE|RECORD… [-p PID]", "[OPTIONS]"], "Example, in gdb:")
    target = {"needed": "CORE|-p PID", "optional": "[-c CORE|-p PID]", "none": ""}[spec.target]
    return _help(spec, ["gdbext", spec.name, target, rest, "[OPTIONS]"], "Example, in gdb:")


def _help(spec: Any, usage: Sequence[str], example: str) -> str:
    options = getattr(spec, "all_options", spec.options)
    sections = [_usage(usage), [_sentence(spec.summary)]]
    if spec.description:
        sections.append(_paragraphs(spec.description))
    if options:
        sections.append(["Options:", *option_lines(options)])
    if spec.example:
        sections.append([example, *(f"  {line}" for line in spec.example.strip().splitlines())])
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _usage(words: Sequence[str]) -> list[str]:
    line = " ".join(filter(None, words))
    return textwrap.wrap(line, _WIDTH, initial_indent="Usage: ", subsequent_indent=" " * 9)


def _sentence(summary: str) -> str:
    text = summary[:1].upper() + summary[1:]
    return textwrap.fill(text if text.endswith((".", "?", "!")) else text + ".", _WIDTH)


def _paragraphs(description: str) -> list[str]:
    paragraphs = textwrap.dedent(description).strip().split("\n\n")
    return "\n\n".join(textwrap.fill(" ".join(text.split()), _WIDTH) for text in paragraphs).split("\n")


def family_help(word: str) -> str:
    """Return what a word leads to that several commands begin with.

    :param word: of ``gdbext.grammar.catalogue.SHELL_PREFIXES``.
    """
    specs = [spec for spec in (*COMMANDS, *OWN_COMMANDS) if spec.name.split()[0] == word]
    return "\n\n".join((SHELL_PREFIXES[word], "Commands:\n" + "\n".join(command_lines(specs)))) + "\n"


def command_lines(specs: Sequence[CommandSpec]) -> Iterator[str]:
    """Iterate over a list of commands with their summaries."""
    for spec in specs:
        yield from _entry(f"  {spec.name}", spec.summary, _NAMES)


def option_lines(options: Sequence[Any]) -> Iterator[str]:
    """Iterate over a list of options with their help."""
    names = [_option_name(option) for option in options]
    column = min(max(map(len, names)) + 4, _COLUMN)
    for name, option in zip(names, options):
        yield from _entry(f"  {name}", _option_help(option), column)


def _entry(lead: str, text: str, column: int) -> Iterator[str]:
    if len(lead) + 2 > column:
        yield lead
        lead = ""
    yield from textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=lead.ljust(column),
        subsequent_indent=" " * column,
    )


def _option_name(option: Any) -> str:
    name = option.name if option.name.startswith("-") else f"--{option.name}"
    if option.short:
        name = f"-{option.short}, {name}"
    if option.kind == "flag":
        return name
    value = option.metavar or option.kind.upper()
    return f"{name}[={value}]" if option.kind == "file" else f"{name} {value}"


def _option_help(option: Any) -> str:
    text = str(option.help)
    choices = getattr(option, "choices", ())
    if choices:
        text += f": {', '.join(choices)}"
    if option.default in (None, False, ""):
        return text
    return f"{text} (default {option.default})"
