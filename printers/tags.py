"""The names of types, as shapes and families of printers have them."""

from __future__ import annotations

_KEYWORDS = ("struct ", "union ", "class ")


def bare_name(name: str) -> str:
    """Return a type's name without qualifiers and "struct"."""
    for word in ("const ", "volatile ", *_KEYWORDS):
        if name.startswith(word):
            name = name[len(word) :]
    return name
