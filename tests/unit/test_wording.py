"""Text from outside, made fit for a terminal and a locale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.wording import encodable, printable, unicode_text

ANY = st.text(st.characters(codec=None, categories=None), max_size=20)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe …", "größe …"),
        ("\x1b[31m\a\n\r\t\x7f", "\\x1b[31m\\x07\\n\\r\\t\\x7f"),
        ("\x9b\x85\u2028\u202e\u200b\ufeff", "\\x9b\\x85\\u2028\\u202e\\u200b\\ufeff"),
        ("bad\udcff", "bad\\xff"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_is_not_printable_is_escaped(text, shown):
    assert printable(text) == shown


def test_lines_may_stay():
    assert printable("a\tb\n\r", "\n\t") == "a\tb\n\\r"


@given(ANY)
def test_any_text_is_printable_and_fits_any_charset(text):
    shown = printable(text)
    assert shown.isprintable() and (shown == text) == text.isprintable()
    for charset in ("ascii", "latin-1", "utf-8"):
        encodable(shown, charset).encode(charset)
    unicode_text(text).encode("utf-8")


def test_characters_of_our_own_have_others_in_their_place():
    assert encodable("3 … 4 µs × 2 → −1 · é", "ascii") == "3 ... 4 us x 2 -> -1 . \\xe9"
    assert encodable("3 … é", "utf-8") == "3 … é"
