"""Expressions of shapes, against C's own arithmetic on 64 bits, written out by hand or by Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.errors import ShapeError
from gdbext.structures.shapes.notation.expressions import parse_expression

MASK = (1 << 64) - 1
WORDS = st.integers(0, MASK)


def value(text, **names):
    return parse_expression(text, names)(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 << 10", 1024),
        ("1 << 64", 0),
        ("7 / 2", 3),
        ("7 % 4", 3),
        ("-1", MASK),
        ("~0", MASK),
        ("2 - 3", MASK),
        ("0x10 | 010", 0x10 | 10),
        ("3 if 1 == 1 else 4", 3),
        ("1 and 0", 0),
        ("0 or 7", 1),
        ("not 0", 1),
        ("+5", 5),
    ],
)
def test_constants(text, expected):
    assert value(text) == expected


@given(WORDS, WORDS)
def test_numbers_and_columns_agree(left, right):
    for text in ("a + b", "a - b", "a * b", "a & b", "a | b", "a ^ b", "a << (b & 127)", "a >> (b & 127)", "~a",
                 "-a", "a < b", "a >= b", "a != b", "not a", "a and b", "a if a > b else b"):  # fmt: skip
        expression = parse_expression(text, ("a", "b"))
        number = expression({"a": left, "b": right})
        columns = {"a": np.array([left], np.uint64), "b": np.array([right], np.uint64)}
        mixed = {"a": columns["a"], "b": right}
        assert expression(columns).tolist() == [number]
        assert expression(mixed).tolist() == [number]
        assert 0 <= number <= MASK


@given(WORDS, st.integers(1, MASK))
def test_division_is_whole(left, right):
    assert value("a / b", a=left, b=right) == left // right
    assert value("a % b", a=np.array([left], np.uint64), b=right).tolist() == [left % right]


def test_dividing_by_zero_is_told():
    with pytest.raises(ShapeError, match="divides by zero"):
        value("1 / a", a=0)
    with pytest.raises(ShapeError, match="divides by zero"):
        value("1 % a", a=np.array([3, 0], np.uint64))


def test_an_unknown_name_is_told_with_those_known():
    with pytest.raises(ShapeError, match="'size', .* the names are hash, mask"):
        parse_expression("hash & size", ("hash", "mask"))


@pytest.mark.parametrize(
    "text",
    ["", "a b", "f(1)", "a.b", "a[0]", "'x'", "1.5", "lambda: 1", "a == b == c", "2 ** 3", "[1]", "a := 1",
     "__import__('os')", "1 if 2", str(1 << 64), "(" * 300, "a" * 600, "True"],
)  # fmt: skip
def test_nothing_else_is_let_through(text):
    with pytest.raises(ShapeError):
        parse_expression(text, ("a", "b", "c"))


def test_a_negative_number_read_from_memory_equals_its_unsigned_form():
    assert value("index != -1", index=-1) == 0
    assert value("index != -1", index=MASK) == 0
    assert value("index != -1", index=3) == 1
