"""The names in an expression that may be variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.bridge.expressions.identifiers import find_names, replace_names


@pytest.mark.parametrize(
    "expression, names",
    [
        ("daemon", ["daemon"]),
        ("daemon->worker[number].env", ["daemon", "number"]),
        ("a . b -> c + d", ["a", "d"]),
        ("*(struct lruhash *) 0x1234", []),
        ("*(struct lruhash*)table", ["table"]),
        ("sizeof(struct goal) * count", ["count"]),
        ("$rdi + $mine->next", []),
        ("'file.c'::cache", []),
        ("'file.c'::cache.size + size", ["size"]),
        ("ns::cache", ["ns::cache"]),
        ("ns :: cache.size", ["ns::cache"]),
        ("::cache", ["::cache"]),
        ("Box<int>::cache", ["Box"]),
        ("strcmp(name, \"name 'x' y\") == 'n'", ["strcmp", "name"]),
        ("0x1f + 10UL + 1.5e-3f", []),
        ("(unsigned long) &head", ["head"]),
        ("array[2]@4", ["array"]),
        ("\"unclosed", ["unclosed"]),
        ("", []),
    ],
)  # fmt: skip
def test_names(expression, names):
    assert [name.text for name in find_names(expression)] == names


def test_replacing_keeps_the_rest_as_it_was():
    replaced = replace_names(
        "cache->size + ns :: cache .size + x.cache", {"cache": "(*$1)", "ns::cache": "(*$2)"}.get
    )
    assert replaced == "(*$1)->size + (*$2) .size + x.cache"


@given(st.text(alphabet="ab_:<>.->'\"\\$0x1 ()[]*&\n", max_size=40))
def test_any_text_is_left_as_it_is_when_nothing_is_replaced(text):
    assert replace_names(text, lambda name: None) == text
    assert all(text[name.start : name.end].replace(" ", "").replace("\n", "") == name.text for name in find_names(text))
