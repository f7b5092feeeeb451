"""``gx shapes list``, ``show``, ``guess`` and ``save``: how containers are laid out, as data."""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence

from gdbext.abi import Abi
from gdbext.analysis.tables import shapes
from gdbext.errors import NoTargetError, UsageError
from gdbext.layout.types import Type
from gdbext.report import Report


def list_shapes(session: Any, arguments: Any) -> Report:
    """Return every shape that is known."""
    return shapes.list_report(session.shapes)


def show(session: Any, arguments: Any) -> Report:
    """Return one shape, and what it fits here."""
    return shapes.show_report(session.shapes, arguments.expression, session.types, _find_abi(session))


def guess(session: Any, arguments: Any) -> Report:
    """Return a shape proposed for a type."""
    return shapes.guess_report(session.shapes, _find_type(session, arguments.expression))


def save(session: Any, arguments: Any) -> Report:
    """Write a shape in offsets; a file that exists is left alone."""
    if len(arguments.words) < 2:
        raise UsageError(
            "a type or shape, and a file, are needed", "gx shapes save struct table my-table.toml"
        )
    what, file = " ".join(arguments.words[:-1]), os.path.expanduser(arguments.words[-1])
    name = shapes.shape_name(file)
    saving = shapes.find_saving(session.target, session.types, session.shapes, what, name)
    folder = os.path.dirname(file)
    paths = [os.path.join(folder, f"{new}.toml") for new, _ in saving.files]
    for path in paths:
        if os.path.lexists(path):
            raise UsageError(f"{path} exists already", "it is not overwritten: choose another name")
    for path, (_, text) in zip(paths, saving.files):
        _write(path, text)
    return shapes.save_report(saving, paths)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _find_type(session: Any, name: str) -> Type:
    for text in _spellings(name):
        found: Optional[Type] = session.types.find_type(text)
        if found is not None:
            return found
    raise UsageError(f"no type {name}", "structures are written with struct before the name")


def _spellings(name: str) -> Sequence[str]:
    """Return a type's name as it stands, and without what makes it a pointer."""
    return [name, name.rstrip("* ")] if name.rstrip().endswith("*") else [name]


def _find_abi(session: Any) -> Optional[Abi]:
    try:
        abi: Abi = session.target.abi
    except NoTargetError:
        return None
    return abi
