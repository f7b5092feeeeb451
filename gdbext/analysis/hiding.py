"""Reports whose text leaves out what is not known, where "?" would be noise; JSON keeps all keys."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass, replace
from functools import lru_cache
from typing import Any, Tuple


@lru_cache(maxsize=256)
def quiet(page: type, names: Tuple[str, ...]) -> Any:
    """Return a report's or row's dataclass that does not show some of its fields in text.

    :param names: of fields; what is no field of it does not matter.
    """
    hidden = [
        (each.name, each.type, field(metadata={"show": replace(each.metadata["show"], label=None)}))
        for each in fields(page)
        if each.name in names
    ]
    return make_dataclass(page.__name__, hidden, bases=(page,), frozen=True) if hidden else page
