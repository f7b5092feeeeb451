"""The shapes that are known: those of the pack and the user's own, read once and again when a file changes."""

from __future__ import annotations

import fnmatch
import importlib
import os
import stat
from dataclasses import dataclass
from typing import Iterable, Iterator, Mapping, Optional, Sequence

from gdbext.errors import ShapeError
from gdbext.layout.types import Type, bare_name
from gdbext.report import Problem
from gdbext.structures.shapes.shape import Shape, parse_shape
from gdbext.wording import printable

_LARGEST = 1 << 20  # bytes of a file; those of the pack have some two thousand
_Stamp = tuple[tuple[str, int, int], ...]

_kept: "Optional[tuple[_Stamp, Library]]" = None


@dataclass(frozen=True)
class Library:
    """Shapes by name.

    :param problems: one for each file that is no shape ("shape-file").
    """

    shapes: Mapping[str, Shape]
    problems: Sequence[Problem] = ()

    def find_shape(self, name: str) -> Optional[Shape]:
        """Return the shape of that name, or None."""
        return self.shapes.get(name)

    def for_each_fitting(self, type: Type) -> Iterator[Shape]:
        """Iterate over the shapes that fit a structure: by its exact name, by a pattern, by its members."""
        names = _names(type)
        for fits in (_named, _matches, _has_needs):
            for shape in self.shapes.values():
                if fits(shape, type, names):
                    yield shape

    def type_names(self) -> Iterable[str]:
        """Return every exact type name that a shape fits: cheap to ask a program for."""
        return {name for shape in self.shapes.values() for name in shape.types if not is_pattern(name)}


def read_shapes(own: str = "") -> Library:
    """Return the pack's shapes and those in a folder of the user's, which rule.

    :param own: it need not exist; "" for none.
    """
    global _kept
    folders = [*importlib.import_module("gdbext.shapes").__path__, *filter(None, [os.path.expanduser(own)])]
    stamp = tuple(entry for folder in folders for entry in sorted(_entries(folder)))
    if _kept is None or _kept[0] != stamp:
        _kept = stamp, read_library(folders)
    return _kept[1]


def read_library(folders: Sequence[str]) -> Library:
    """Read all ``*.toml`` of some folders; of equal names the last folder's rules.

    A folder that does not exist holds none; a file that is no shape becomes a problem, and so does one with
    the name of another in its folder.
    """
    shapes: "dict[str, Shape]" = {}
    problems: "list[Problem]" = []
    for folder in folders:
        found: "dict[str, Shape]" = {}
        for path in _files(folder, problems):
            try:
                shape = read_shape(path)
                if shape.name in found:
                    raise ShapeError(f"{shape.origin}: {found[shape.name].origin} has the name {shape.name} too")
            except ShapeError as error:
                problems.append(Problem("shape-file", None, f"{error.message}; the shape is left out"))
            else:
                found[shape.name] = shape
        shapes.update(found)
    return Library(dict(sorted(shapes.items())), tuple(problems))


def read_shape(path: str) -> Shape:
    """Read one file.

    :raises ShapeError: when it cannot be read, or is no shape.
    """
    name = printable(os.path.basename(path))
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise ShapeError(f"{name}: cannot be read: it is no file")
        if about.st_size > _LARGEST:
            raise ShapeError(f"{name}: cannot be read: {about.st_size} bytes are too many for a shape")
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ShapeError(f"{name}: cannot be read: {reason}") from None
    return parse_shape(text, name)


def _entries(folder: str) -> Sequence[tuple[str, int, int]]:
    try:
        with os.scandir(folder) as listed:
            stats = [(one.path, one.stat()) for one in listed if one.name.endswith(".toml")]
    except OSError:  # no such folder, or a file that has just gone
        return []
    return [(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats]


def _files(folder: str, problems: "list[Problem]") -> Sequence[str]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        message = f"the shapes in {printable(folder)} are left out: {error.strerror}"
        problems.append(Problem("shape-file", None, message))
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(".toml")]


def _named(shape: Shape, type: Type, names: Sequence[str]) -> bool:
    return any(name in shape.types for name in names)


def _matches(shape: Shape, type: Type, names: Sequence[str]) -> bool:
    if _named(shape, type, names):
        return False
    patterns = [name for name in shape.types if is_pattern(name)]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _has_needs(shape: Shape, type: Type, names: Sequence[str]) -> bool:
    if not shape.needs or shape.types or not type.is_record:
        return False
    try:
        return all(path.bind(type) for path in shape.needs)
    except ShapeError:
        return False


def _names(type: Type) -> Sequence[str]:
    names = (type.name, type.tag)
    return [*names, *map(bare_name, names), *(f"struct {name}" for name in names if " " not in name)]


def is_pattern(name: str) -> bool:
    """Return whether a type's name in a shape stands for several."""
    return any(mark in name for mark in "*?[")
