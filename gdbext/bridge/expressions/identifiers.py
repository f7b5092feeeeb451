"""The names in an expression of C or C++ that may be variables, found by their look."""

from __future__ import annotations

import re
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence

_TOKEN = re.compile(
    r"""(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<number>[0-9](?:[\w.]|(?<=[eEpP])[+-])*)
    |(?P<name>(?:::\s*)?[A-Za-z_$][\w$]*(?:\s*::\s*~?[A-Za-z_][\w$]*)*)
    |(?P<mark>->|\.|::|\S)""",
    re.VERBOSE,
)
_TAGS = frozenset(("struct", "union", "class", "enum"))
_WORDS = frozenset(
    (
        "sizeof", "alignof", "_Alignof", "void", "char", "short", "int", "long", "float", "double",
        "signed", "unsigned", "bool", "_Bool", "const", "volatile", "this", "typename", "true", "false",
        "nullptr", "and", "or", "not", "static_cast", "dynamic_cast", "reinterpret_cast", "const_cast",
        "wchar_t", "char8_t", "char16_t", "char32_t", "__int128", "operator", "new", "delete", "typeof",
        "decltype",
    )
)


class Name(NamedTuple):
    """One place in an expression where a variable may be named.

    :param text: without spaces: ``cache``, ``ns::cache``.
    """

    start: int
    end: int
    text: str


def find_names(expression: str) -> Sequence[Name]:
    """Return the names that may be variables: not members, tags, keywords, ``$names``, ``'file.c'::names``."""
    found: List[Name] = []
    before: Optional[str] = None
    for match in _TOKEN.finditer(expression):
        text = "".join(match[0].split()) if match["name"] else match[0]
        if match["name"] and _is_variable(text, before):
            found.append(Name(match.start(), match.end(), text))
        before = text
    return found


def replace_names(expression: str, replace: Callable[[str], Optional[str]]) -> str:
    """Return the expression with names replaced where ``replace`` gives another text, None leaves a name."""
    return "".join(_pieces(expression, replace))


def _pieces(expression: str, replace: Callable[[str], Optional[str]]) -> Iterator[str]:
    at = 0
    for name in find_names(expression):
        yield expression[at : name.start]
        other = replace(name.text)
        yield expression[name.start : name.end] if other is None else other
        at = name.end
    yield expression[at:]


def _is_variable(text: str, before: Optional[str]) -> bool:
    if text.startswith("$") or text in _WORDS or text in _TAGS:
        return False
    if before in (".", "->", "::", "@@") or before in _TAGS:
        return False
    # ``'file.c'::x`` and ``Box<int>::x`` say themselves whose x is meant.
    return not (text.startswith("::") and before is not None and (before[0] == "'" or before == ">"))
