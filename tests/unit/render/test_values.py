"""One value as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.render.values import shorten, threads_width, threads_within, value_text
from gdbext.report import Bar, Kind, ThreadRef
from gdbext.wording import size_text

WORKERS = [ThreadRef(number, None, f"worker-{number}") for number in range(3, 10)]


@pytest.mark.parametrize(
    "size, shown",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (93 * 1024**2 + 200000, "93.2 MiB"),
        (233 * 1024**2 + 200000, "233 MiB"),
        (1023 * 1024**2 + 400000, "1023 MiB"),
        (1023 * 1024**2 + 800000, "1 GiB"),
        (3 * 1024**3, "3 GiB"),
        (2**64 - 1, "16 EiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_human_sizes_are_the_same_in_sentences_and_cells(size, shown):
    assert size_text(size) == shown
    assert value_text(size, Kind.BYTES) == shown


@given(st.integers(0, 2**64))
def test_human_sizes_are_short(size):
    assert len(size_text(size)) <= 9


@pytest.mark.parametrize("kind", list(Kind))
def test_none_is_unknown_in_every_kind(kind):
    assert value_text(None, kind) == "?"


@pytest.mark.parametrize(
    "value, kind, shown",
    [
        (4096, Kind.ADDRESS, "0x1000"),
        (1234567, Kind.COUNT, "1 234 567"),
        (1234567, Kind.NUMBER, "1234567"),
        (0.1234, Kind.SHARE, "12 %"),
        (0.01234, Kind.SHARE, "1.2 %"),
        (Bar(0.5), Kind.BAR, "50 %"),
        (float("nan"), Kind.SHARE, "?"),
        (True, Kind.FLAG, "yes"),
        (False, Kind.FLAG, "no"),
        ({"end": 3, "cycle": 1}, Kind.OBJECT, "end 3, cycle 1"),
        ([1, 2], Kind.OBJECT, "1, 2"),
    ],
)
def test_kinds(value, kind, shown):
    assert value_text(value, kind) == shown


def test_exact_sizes_are_plain_digits():
    assert value_text(123456789, Kind.BYTES, exact=True) == "123456789"


def test_threads_within_a_width():
    assert threads_within(WORKERS, 32) == "3 worker-3, 4 worker-4 +5 more"
    assert threads_within(WORKERS[:1], 32) == "3 worker-3"
    assert threads_within([ThreadRef(None, 77, None)], 32) == "lwp 77"
    assert threads_within(WORKERS, 8) == "+7 more"
    assert threads_within(WORKERS, threads_width(WORKERS)) == "3 worker-3 +6 more"
    for few in ([], WORKERS[:1], [ThreadRef(1, None, None), ThreadRef(2, None, None)]):
        assert threads_width(few) == len(threads_within(few, 100))


@given(st.text(max_size=50), st.integers(1, 40))
def test_shortened_text_fits(text, width):
    assert len(shorten(text, width)) <= width
