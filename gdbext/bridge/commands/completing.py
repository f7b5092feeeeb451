"""Completion of commands' lines in gdb: options and their values, and gdb's own symbols only where one is begun."""

from __future__ import annotations

import glob
import os
from typing import Mapping, Optional, Sequence, Union

import gdb

from gdbext.bridge.stops import session
from gdbext.grammar.catalogue import CommandSpec
from gdbext.grammar.completion import Offer, offer
from gdbext.starting import dependencies

_GDBS: Mapping[str, int] = {
    "expression": gdb.COMPLETE_EXPRESSION,
    "arena": gdb.COMPLETE_EXPRESSION,
    "command": gdb.COMPLETE_COMMAND,
}


def complete(spec: CommandSpec, text: str, word: Optional[str]) -> Union[int, Sequence[str]]:
    """Return what gdb's ``complete`` method of a command returns.

    :param text: the line after the command's name.
    :param word: the end of it that gdb replaces; None where gdb only asks what ends a word.
    """
    offered = offer(spec, text)
    words = [*offered.words, *_named(offered)]
    if not words and offered.names in _GDBS:
        return _GDBS[offered.names]
    return _endings(offered, words, word or "")


def _endings(offered: Offer, words: Sequence[str], word: str) -> Sequence[str]:
    """Return the words that fit, from where gdb's word begins: it breaks words at dashes and commas."""
    fitting = [one for one in words if one.startswith(offered.typed)]
    before = len(offered.typed) - len(word)
    return [one[before:] if before >= 0 else word[:-before] + one for one in fitting]


def _named(offered: Offer) -> Sequence[str]:
    names = offered.names
    if names == "file":
        return _files(offered.typed)
    if names == "shape":
        dependencies.load()
        return list(session.read_shapes().shapes)
    if names == "arena":  # as far as a command has asked for them: none is worth walking a heap while somebody types
        return [f"{arena.address:#x}" for heap in session.current().known_heaps for arena in heap.arenas]
    return ()


def _files(typed: str) -> Sequence[str]:
    """Return the files that a name may become. gdb's own completion takes the whole line for a name."""
    return [f"{path}/" if os.path.isdir(path) else path for path in glob.glob(glob.escape(typed) + "*")]
