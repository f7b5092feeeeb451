"""The words, numbers, texts and signs of a query, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Optional

from gdbext.errors import UsageError

WORD, NUMBER, TEXT, SIGN, END = ("word", "number", "text", "sign", "end")

_LARGEST = (1 << 64) - 1
_SUFFIXES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)(?:([KMGTkmgt])(?:i?[Bb])?|[Bb])?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_SIGN = re.compile(r"[=!<>]=|!~|[<>~(),]")
_TEXT = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_HABITS = {"&&": "and", "||": "or", "!": "not", "=": "=="}
_SHOWN = 40


@dataclass(frozen=True)
class Token:
    """One token.

    :param text: as it is written; of a text what the quotes enclose.
    :param place: of its first character, counted from 1.
    :param number: its value, of numbers.
    """

    kind: str
    text: str
    place: int
    number: Optional[int] = None

    @property
    def keyword(self) -> str:
        """A sign or a word in lower case, which may be a keyword; "" for what cannot be one."""
        return self.text.lower() if self.kind in (WORD, SIGN) else ""

    @property
    def shown(self) -> str:
        """The token as errors show it."""
        return quoted(self.text)


def quoted(text: str) -> str:
    """Return a text as errors show it: in quotes, on one line, not too long."""
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return repr(shown)


def fault(token: Token, message: str, hint: Optional[str] = None) -> UsageError:
    """Return the error that a token is the place of."""
    return UsageError(f"at character {token.place}: {message}", hint)


def tokens(text: str) -> Iterator[Token]:
    """Iterate over the tokens of a query; the last one is of kind END.

    :raises UsageError: where something is none.
    """
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        token, at = _token(text, at)
        yield token
    yield Token(END, "", len(text) + 1)


def _token(text: str, at: int) -> "tuple[Token, int]":
    """Return the token that begins at a place, and the place behind it."""
    place = at + 1
    if text[at] in "\"'":
        return _text(text, at)
    if text[at].isdigit():
        return _number(text, at)
    for kind, pattern in ((WORD, _WORD), (SIGN, _SIGN)):
        match = pattern.match(text, at)
        if match:
            return Token(kind, match[0], place), match.end()
    habit = next((sign for sign in _HABITS if text.startswith(sign, at)), None)
    if habit:
        raise UsageError(f"at character {place}: {habit} is no sign here", f"write {_HABITS[habit]}")
    raise UsageError(f"at character {place}: {quoted(text[at])} cannot be part of a query", _TEXTS_HINT)


_TEXTS_HINT = "put texts that are not one word in quotes"


def _text(text: str, at: int) -> "tuple[Token, int]":
    match = _TEXT.match(text, at)
    if match is None:
        raise UsageError(f"at character {at + 1}: the quote {text[at]} is not closed")
    quote, inner = text[at], match[0][1:-1]
    return Token(TEXT, inner.replace("\\" + quote, quote), at + 1), match.end()


def _number(text: str, at: int) -> "tuple[Token, int]":
    match = _NUMBER.match(text, at)
    if match is None:
        word = re.match(r"[\w.]+", text[at:])
        shown = quoted(word[0] if word else text[at])
        raise UsageError(f"at character {at + 1}: {shown} is not a number", "write 4096, 0x1000, 4K, 16M or 1G")
    digits = match[1]
    base = 16 if digits[:2].lower() == "0x" else 10
    # Longer than any number that is allowed; int() of very long texts is slow, and Python may refuse it.
    value = int(digits, base) if len(digits) <= 24 else _LARGEST + 1
    value *= _SUFFIXES[(match[2] or "").upper()]
    if value > _LARGEST:
        raise UsageError(f"at character {at + 1}: {quoted(match[0])} is more than any target has")
    return Token(NUMBER, match[0], at + 1, value), match.end()
