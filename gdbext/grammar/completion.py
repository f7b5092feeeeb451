"""What may follow on a line of a command, from its row in the command table; pure text in and out."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from gdbext.grammar.arguments import Option
from gdbext.grammar.catalogue import CommandSpec

_SYMBOLS = ("expression", "arena")


class Offer(NamedTuple):
    """What a word may become.

    :param typed: the part of it that stands there, as far as it is to be completed.
    :param words: what it may become, where that is known; not chosen by ``typed``.
    :param names: what it names otherwise: see ``gdbext.grammar.arguments.Option``.
    """

    typed: str
    words: Sequence[str] = ()
    names: str = ""


def offer(spec: CommandSpec, text: str) -> Offer:
    """Return what the last word of a line may become.

    :param text: the line after the command's name, up to the cursor.
    """
    words = text.split()
    last = words.pop() if words and not text[-1].isspace() else ""
    if spec.raw:
        return Offer(last, names=spec.names)
    option = _find_open(spec, words)
    if option is not None:
        return _value(option, last)
    if "--" in words:
        return Offer(last, names=spec.names)
    name, equals, value = last.partition("=")
    if equals and name.startswith("--"):
        option = _find_option(spec, name)
        return Offer(value) if option is None else _value(option, value)
    return _offer_word(spec, words, last)


def _offer_word(spec: CommandSpec, words: Sequence[str], last: str) -> Offer:
    options = [f"--{option.name}" for option in spec.all_options]
    takes_text = spec.positional != "none"
    if last.startswith("-") or not takes_text:
        return Offer(last, options)
    if spec.values and not words:
        return Offer(last, spec.values)
    # Names of a whole program are no help where nothing is typed yet.
    return Offer(last, () if last or spec.names not in _SYMBOLS else options, spec.names)


def _value(option: Option, typed: str) -> Offer:
    if option.kind == "file":
        return Offer(typed, names="file")
    if option.choices:
        return Offer(typed, option.choices)
    if option.values:
        return Offer(typed.rpartition(",")[2].removeprefix("-"), option.values)
    return Offer(typed, names=option.names)


def _find_open(spec: CommandSpec, words: Sequence[str]) -> Optional[Option]:
    """Return the option that waits for a value, or None."""
    found, left = None, 0
    for word in words:
        if left:
            left -= 1
        elif word == "--":
            return None
        elif word.startswith("-") and "=" not in word:
            found = _find_option(spec, word)
            left = 0 if found is None or found.kind in ("flag", "file") else found.words
    return found if left else None


def _find_option(spec: CommandSpec, word: str) -> Optional[Option]:
    for option in spec.all_options:
        if word == f"--{option.name}" or (option.short and word == f"-{option.short}"):
            return option
    return None
