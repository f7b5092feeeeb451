"""Colour and characters: what a role looks like on a terminal, and what stands for it where there is none.

Text is painted after ``wording.printable`` has escaped whatever came from the target: a name can hold no escape of its
own, and cannot end one of ours. Only the sixteen colours of every terminal are used, so that they follow its theme.
"""

from __future__ import annotations

import re
from typing import Optional

from gdbext.report import Bar, Memory, Severity
from gdbext.wording import only_ascii

_RESET = "\x1b[0m"
_CODES: "dict[object, str]" = {
    Severity.CRITICAL: "1;31",
    Severity.WARNING: "1;33",
    Severity.INFO: "1;36",
    Memory.USED: "34",
    Memory.FREE: "32",
    Memory.OVERHEAD: "35",
    Memory.STACK: "36",
    Memory.FILE: "90",
    Memory.ANONYMOUS: "33",
    Memory.RESERVED: "90",
    Memory.CACHED: "96",
    Memory.RETURNED: "37",
    Memory.UNTOUCHED: "90",
    Memory.MISSING: "31",
    Memory.MIXED: "93",
    "good": "1;32",
    "title": "1",
    "header": "2",
    "number": "1",
    "dim": "2",
    "command": "36",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII = str.maketrans("…→←·×−▏▎▍▌▋▊▉█", "~><-x-" + "    ####")
_ADDRESS = r"0x[0-9a-fA-F]{5,}"
_COMMAND = r"`[^`]+`"
_DIGITS = r"\b\d{1,3}(?:[ \u00a0]\d{3})+|\b\d+(?:\.\d+)?"
_UNIT = r"[KMGTPE]iB|B|%|bytes|blocks?|waiters?|threads?|arenas?|entries|entry"
_AMOUNT = rf"(?:{_DIGITS})[ \u00a0](?:{_UNIT})(?!\w)"
_SPOTS = re.compile(rf"(?P<dim>{_ADDRESS})|(?P<number>{_AMOUNT})|(?P<command>{_COMMAND})")
_JOINED = re.compile(rf"`[^`]{{1,40}}`|{_AMOUNT}|{_DIGITS}")
_HARD = "\u00a0"  # never in what was escaped: it is not printable


class Style:
    """How roles look.

    :param color: whether escapes may be written.
    :param plain: only ASCII of our own; None asks the locale.
    """

    def __init__(self, color: bool = False, plain: Optional[bool] = None) -> None:
        self.color = color
        self.plain = only_ascii() if plain is None else plain

    def paint(self, text: str, role: object) -> str:
        """Return text in the colour of a role: a :class:`Severity`, a :class:`Memory`, or a word of this module.

        :param text: escaped already; spaces around it stay unpainted.
        """
        code = _CODES.get(role) if self.color else None
        body = text.strip(" ")
        if code is None or not body:
            return text
        before = len(text) - len(text.lstrip(" "))
        return f"{text[:before]}\x1b[{code}m{body}{_RESET}{text[before + len(body) :]}"

    def halves(self, upper: Memory, lower: Optional[Memory], count: int) -> str:
        """Return cells of two rows that share a line: the upper halves in the ink, the lower ones behind it."""
        behind = "" if lower is None else f";{int(_CODES[lower]) + 10}"
        return f"\x1b[{_CODES[upper]}{behind}m{'▀' * count}{_RESET}"

    def sentence(self, line: str) -> str:
        """Return a line with its sizes bold, its addresses dim and its commands coloured."""
        if not self.color:
            return line
        return _SPOTS.sub(lambda spot: self.paint(spot.group(), spot.lastgroup), line)

    def finish(self, line: str) -> str:
        """Return a line in characters that the terminal has, each of the same width."""
        return line.translate(_ASCII) if self.plain else line


def unbroken(line: str) -> str:
    """Return a line in which wrapping parts no amount from its unit and no command; :func:`wrapped_back` undoes it."""
    return _JOINED.sub(lambda spot: spot.group().replace(" ", _HARD), line)


def wrapped_back(line: str) -> str:
    """Return a wrapped line with plain spaces again."""
    return line.replace(_HARD, " ")


def bar_text(bar: Bar, width: int) -> str:
    """Return a bar in eighths of characters."""
    eighths = round(min(max(bar.share or 0.0, 0.0), 1.0) * width * 8)
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
