"""The shapes that are known: those of the pack and the user's own, read once and again when a file changes."""

from __future__ import annotations

import fnmatch
import importlib
import os
import re
import stat
from functools import cached_property
from typing import Callable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from gdbext.errors import ShapeError
from gdbext.layout.types import Type, bare_name
from gdbext.report import Problem
from gdbext.structures.shapes.notation.paths import parse_path
from gdbext.structures.shapes.shape import Paths, Shape, parse_shape
from gdbext.wording import printable

_LARGEST = 1 << 20  # bytes of a file; those of the pack have some two thousand
_Stamp = tuple[tuple[str, int, int], ...]

_kept: "Optional[tuple[_Stamp, Library]]" = None


class Later:
    """A shape that is parsed when it is asked for; until then only what says which types it fits."""

    def __init__(self, text: str, origin: str) -> None:
        import tomli  # as in parse_shape

        top = tomli.loads(text)
        self.origin, self._text = origin, text
        self.name: str = top["name"]
        self.types, self._needs = (_texts(top.get(key, ())) for key in ("types", "needs"))

    @cached_property
    def needs(self) -> Paths:
        """As of :class:`Shape`."""
        return tuple(map(parse_path, self._needs))

    @cached_property
    def whole(self) -> Shape:
        """The shape.

        :raises ShapeError: when it is none.
        """
        return parse_shape(self._text, self.origin)


Known = Union[Shape, Later]


class Library(NamedTuple):
    """Shapes by name.

    :param problems: one for each file that is no shape ("shape-file").
    """

    known: Mapping[str, Known]
    problems: Sequence[Problem] = ()

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """All shapes by name."""
        return {name: _whole(shape) for name, shape in self.known.items()}

    def find_shape(self, name: str) -> Optional[Shape]:
        """Return the shape of that name, or None."""
        shape = self.known.get(name)
        return None if shape is None else _whole(shape)

    def for_each_fitting(self, type: Type) -> Iterator[Shape]:
        """Iterate over the shapes that fit a structure: by its exact name, by a pattern, by its members."""
        names = _names(type)
        for fits in (_named, _matches, _has_needs):
            for shape in self.known.values():
                if fits(shape, type, names):
                    yield _whole(shape)

    def type_names(self) -> Iterable[str]:
        """Return every exact type name that a shape fits: cheap to ask a program for."""
        return {name for shape in self.known.values() for name in shape.types if not is_pattern(name)}


def read_shapes(own: str = "") -> Library:
    """Return the pack's shapes and those in a folder of the user's, which rule.

    :param own: it need not exist; "" for none.
    """
    global _kept
    pack = list(importlib.import_module("gdbext.shapes").__path__)
    folders = [*pack, *filter(None, [os.path.expanduser(own)])]
    stamp = tuple(entry for folder in folders for entry in sorted(_entries(folder)))
    if _kept is None or _kept[0] != stamp:
        _kept = stamp, read_library(folders, pack)
    return _kept[1]


def read_library(folders: Sequence[str], sound: Sequence[str] = ()) -> Library:
    """Read all ``*.toml`` of some folders; of equal names the last folder's rules.

    :param sound: those whose shapes are not checked before they are asked for: reading them all takes its time.

    A folder that does not exist holds none; a file that is no shape becomes a problem, and so does one with
    the name of another in its folder.
    """
    shapes: "dict[str, Known]" = {}
    problems: "list[Problem]" = []
    for folder in folders:
        parse = _parse_later if folder in sound else parse_shape
        found: "dict[str, Known]" = {}
        for path in _files(folder, problems):
            try:
                shape = read_shape(path, parse)
                if shape.name in found:
                    raise ShapeError(f"{shape.origin}: {found[shape.name].origin} has the name {shape.name} too")
            except ShapeError as error:
                problems.append(Problem("shape-file", None, f"{error.message}; the shape is left out"))
            else:
                found[shape.name] = shape
        shapes.update(found)
    return Library(dict(sorted(shapes.items())), tuple(problems))


def _parse_later(text: str, origin: str) -> Known:
    try:
        return Later(text, origin)
    except (ValueError, KeyError, TypeError, RecursionError):
        return parse_shape(text, origin)  # which says what is wrong


def read_shape(path: str, parse: Callable[[str, str], Known]) -> Known:
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
    return parse(text, name)


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


def _named(shape: Known, type: Type, names: Sequence[str]) -> bool:
    return any(name in shape.types for name in names)


def _matches(shape: Known, type: Type, names: Sequence[str]) -> bool:
    if _named(shape, type, names):
        return False
    patterns = [name for name in shape.types if is_pattern(name)]
    return any(_fits(name, pattern) for name in names for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    """Whether a name is one of a pattern's; the letters before its first mark go first: no regex is made for most."""
    before = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    return name.startswith(before) and fnmatch.fnmatchcase(name, pattern)


def _has_needs(shape: Known, type: Type, names: Sequence[str]) -> bool:
    if not shape.needs or shape.types or not type.is_record:
        return False
    try:
        return all(path.bind(type) for path in shape.needs)
    except ShapeError:
        return False


def _whole(shape: Known) -> Shape:
    return shape.whole if isinstance(shape, Later) else shape


def _texts(value: Union[str, Sequence[str]]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else tuple(value)


def _names(type: Type) -> Sequence[str]:
    names = (type.name, type.tag)
    return [*names, *map(bare_name, names), *(f"struct {name}" for name in names if " " not in name)]


def is_pattern(name: str) -> bool:
    """Return whether a type's name in a shape stands for several."""
    return any(mark in name for mark in "*?[")
