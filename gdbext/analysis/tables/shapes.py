"""Reports on shapes: which are known, which types they fit, one guessed, one saved in offsets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from gdbext.abi import Abi
from gdbext.debuginfo import Types
from gdbext.errors import ShapeError, UsageError
from gdbext.layout.types import Type
from gdbext.report import Evidence, Kind, Report, Rows, column, line, table
from gdbext.structures.shapes.bind import BoundShape, bind
from gdbext.structures.shapes.guessing import guess
from gdbext.structures.shapes.library import Library, is_pattern
from gdbext.structures.shapes.notation.paths import GlobalRoot, ModuleRoot, Root
from gdbext.structures.shapes.opening import root_addresses
from gdbext.structures.shapes.resolve import bind_fitting, nearest_shape
from gdbext.structures.shapes.saving import save_all
from gdbext.structures.shapes.shape import Shape, parse_shape
from gdbext.target import Target


@dataclass(frozen=True)
class ShapeRow:
    """One shape.

    :param name: by which ``--shape`` takes it.
    :param kind: ``list``, ``bins``, ``group``, ``probe``, ``tree``.
    :type kind: word
    :param types: the types that it fits, or how else it is chosen.
    :param summary: one line.
    :param file: without folders.
    :param source: where the layout was read.
    """

    name: str = column("name")
    kind: str = column("kind")
    types: str = column("types")
    summary: str = column("summary")
    file: str = column(None)
    source: str = column(None)


@dataclass(frozen=True)
class ShapeList:
    """All shapes."""

    shapes: Sequence[ShapeRow] = table("Shapes")


@dataclass(frozen=True)
class FitRow:
    """One type that a shape fits by name.

    :param type: a type that the shape names and this program has; "any address" where the shape needs no type of the
        program. ``fits`` is None without a program.
    :param members: where offsets come from: ``debug info``, ``declarations`` (the shape's own), ``offsets``; ``none``:
        it does not fit.
    :type members: word
    :param reason: why it does not fit; else empty.
    """

    type: str = column("type")
    members: str = column("members from")
    reason: str = column("reason")


@dataclass(frozen=True)
class TextRow:
    """One line of a file."""

    text: str = column("")


@dataclass(frozen=True)
class ShapeShown:
    """One shape whole.

    :param name: as in ``shapes list``.
    :param summary: one line.
    :param kind: ``list``, ``bins``, ``group``, ``probe``, ``tree``.
    :type kind: word
    :param source: where the layout was read.
    :param file: without folders.
    :param text: the file.
    """

    name: str = line("name")
    summary: str = line("summary")
    kind: str = line("kind")
    source: str = line("source")
    file: str = line("file")
    fits: Optional[Sequence[FitRow]] = table("In this program")
    text: str = line(None)
    lines: Sequence[str] = table("File", json=False, whole=True)


@dataclass(frozen=True)
class Guessed:
    """A shape proposed for a type; as text nothing but the file.

    :param type: that was asked about.
    :param name: of the proposed shape.
    :param kind: ``list``, ``bins``, ``group``.
    :type kind: word
    :param reasons: what was recognised in the type.
    :param text: the proposed file; the text answer is nothing else.
    """

    type: str = line(None)
    name: str = line(None)
    kind: str = line(None)
    reasons: Sequence[str] = line(None, Kind.OBJECT)
    text: str = line(None)
    lines: Rows[TextRow] = table("File", json=False)


@dataclass(frozen=True)
class SavedRow:
    """One file that was written.

    :param file: its path.
    :param shape: the new shape's name.
    :param kind: ``list``, ``bins``, ``group``, ``probe``, ``tree``.
    :type kind: word
    :param of: the shape that it is in offsets.
    """

    file: str = column("file")
    shape: str = column("shape")
    kind: str = column("kind")
    of: str = column("in offsets")


@dataclass(frozen=True)
class Saved:
    """What ``shapes save`` has written."""

    files: Sequence[SavedRow] = table("Written")


def list_report(library: Library) -> Report:
    """Return all shapes; files that are none stand among the problems."""
    rows = [
        ShapeRow(shape.name, shape.kind, _types_text(shape), shape.summary, shape.origin, shape.source)
        for shape in library.shapes.values()
    ]
    return Report(ShapeList(rows), problems=tuple(library.problems))


def show_report(library: Library, name: str, types: Types, abi: Optional[Abi]) -> Report:
    """Return one shape, and which of its types this program has.

    :param abi: of the program; None when there is none.
    :raises UsageError: when there is no such shape.
    """
    shape = library.find_shape(name)
    if shape is None:
        raise nearest_shape(library, name)
    fits = None if abi is None else list(_fits(shape, library, types, abi))
    lines = shape.text.rstrip("\n").split("\n")
    shown = ShapeShown(
        shape.name, shape.summary, shape.kind, shape.source, shape.origin, fits, shape.text, lines
    )
    return Report(shown)


def guess_report(library: Library, type: Type) -> Report:
    """Return a shape proposed for a type.

    :raises UsageError: when nothing in it looks like a list or a table.
    """
    found = guess(type)
    known = [f"{shape.name} fits {type.name} already" for shape in library.for_each_fitting(type)]
    rows = [TextRow(text) for text in found.text.rstrip("\n").split("\n")]
    data = Guessed(
        type.name, found.name, found.kind, found.reasons, found.text, Rows(lambda: rows, TextRow, len(rows))
    )
    return Report(data, notes=known, bare=True)


@dataclass(frozen=True)
class Saving:
    """What is to be written.

    :param files: name of the shape, its text, and the bound shape, for each file.
    """

    bound: BoundShape
    files: "Sequence[tuple[str, str]]"


def find_saving(target: Target, types: Types, library: Library, what: str, name: str) -> Saving:
    """Return a shape, or the one that fits a type, in offsets of this program.

    :param what: a shape or a type; where no shape fits the type one is guessed.
    :param name: of the new shape.
    :raises UsageError: when it is neither, or the name is taken.
    :raises ShapeError: when the shape does not fit what this program has.
    """
    bound = _bound(target, types, library, what)
    files = save_all(bound, name, lambda root: _place(target, types, root))
    for new, text in files:
        if library.find_shape(new) is not None:
            raise UsageError(f"a shape {new} exists already", "it would be hidden: choose another file name")
        parse_shape(text, new)  # what is written can be read
    return Saving(bound, files)


def save_report(saving: Saving, paths: Sequence[str]) -> Report:
    """Return what has been written where."""
    bounds = [saving.bound, *filter(None, [saving.bound.member])]
    rows = [
        SavedRow(path, name, bound.shape.kind, bound.name)
        for path, (name, _), bound in zip(paths, saving.files, bounds)
    ]
    evidence = [
        Evidence(bound.name, f"{bound.shape.origin}, members from {bound.types_from}") for bound in bounds
    ]
    return Report(Saved(rows), evidence=evidence, notes=[f"used by --shape {saving.files[0][0]}"])


def shape_name(file: str) -> str:
    """Return the name of a shape that is written to a file: that of the file.

    :raises UsageError: when it is none.
    """
    base = file.replace("\\", "/").rpartition("/")[2]
    stem, dot, ending = base.rpartition(".")
    if ending != "toml" or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", stem):
        raise UsageError(
            f"{file!r} cannot hold a shape", "lower case, digits and dashes, then .toml: my-table.toml"
        )
    return stem


def _bound(target: Target, types: Types, library: Library, what: str) -> BoundShape:
    shape = library.find_shape(what)
    if shape is not None:
        return bind(shape, None, types, library, target.abi)
    type = types.find_type(what)
    if type is None:
        raise UsageError(
            f"neither a shape nor a type {what}", "structures are written with struct before the name"
        )
    if next(library.for_each_fitting(type), None) is not None:
        return bind_fitting(target, types, library, type)
    proposed = parse_shape(guess(type).text, "guessed")
    return bind(proposed, type, types, library, target.abi)


def _place(target: Target, types: Types, root: GlobalRoot) -> Root:
    """Return where in which mapped file a variable is; itself, where it is in none."""
    address = root_addresses(target, types)(root)
    module = target.find_module(address)
    return ModuleRoot(module.path.rpartition("/")[2], address - module.base) if module else root


def _types_text(shape: Shape) -> str:
    if shape.types:
        return ", ".join(shape.types)
    if shape.needs:
        return "any with " + ", ".join(path.text for path in shape.needs)
    return f"by --shape {shape.name}"


def _fits(shape: Shape, library: Library, types: Types, abi: Abi) -> Iterator[FitRow]:
    """Iterate over the types that a shape names and this program has; where it has none, what the shape declares."""
    found = False
    for name in [name for name in shape.types if not is_pattern(name)]:
        type = types.find_type(name)
        if type is not None:
            found = True
            yield _fit(shape, name, type, library, types, abi)
    if (shape.structs and not found) or not (shape.types or shape.needs):
        yield _fit(shape, "any address", None, library, types, abi)


def _fit(shape: Shape, name: str, type: Optional[Type], library: Library, types: Types, abi: Abi) -> FitRow:
    try:
        return FitRow(name, bind(shape, type, types, library, abi).types_from, "")
    except ShapeError as error:
        return FitRow(name, "none", error.message.replace(f"shape {shape.name}: ", "", 1))
