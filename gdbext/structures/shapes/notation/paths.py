"""Paths from an object to one of its parts, written in member names or in offsets; see ``docs/shapes.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Callable, Iterator, NamedTuple, Optional, Union

from gdbext.errors import ShapeError
from gdbext.layout.types import Code, Type
from gdbext.memory import Reader
from gdbext.structures.shapes.notation.expressions import shown
from gdbext.structures.walk.model import NUMBER_SIZES, Scalar

_STEP = re.compile(
    r"(?P<arrow>->)|(?P<dot>\.)|\[(?P<index>\d{1,18})\]|\+(?P<offset>0[xX][0-9a-fA-F]{1,16}|\d{1,18})"
    r"|(?P<name>[A-Za-z_~]\w*)"
)
_ROOT = re.compile(
    r"@(?P<module>[^\s+@>\[\]]*[^\s+@>\[\].])\+(?P<offset>0[xX][0-9a-fA-F]{1,16}|\d{1,18})|@(?P<name>[A-Za-z_][\w:]*)"
)
_FORM = re.compile(r":(?P<size>[1248])(?P<signed>s?)(?:@(?P<shift>\d{1,3})\.(?P<width>\d{1,3}))?$")
_DEEPEST = 16
LARGEST_OFFSET = 1 << 32  # no structure is as large


class GlobalRoot(NamedTuple):
    """A global variable that a path starts at."""

    name: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"@{self.name}"


class ModuleRoot(NamedTuple):
    """A place in a mapped file that a path starts at.

    :param module: the file's name without folders.
    :param offset: bytes from where the file's first byte is mapped.
    """

    module: str
    offset: int

    @property
    def text(self) -> str:
        """As it is written."""
        return f"@{self.module}+{self.offset:#x}"


Root = Union[GlobalRoot, ModuleRoot]
RootAddress = Callable[[Root], int]


class Form(NamedTuple):
    """How the part at the end of a path is read, where the path says it."""

    size: int
    signed: bool = False
    bits: Optional[tuple[int, int]] = None

    @property
    def text(self) -> str:
        """As it is written, ``:4s@3.2``."""
        bits = f"@{self.bits[0]}.{self.bits[1]}" if self.bits else ""
        return f":{self.size}{'s' if self.signed else ''}{bits}"


@dataclass(frozen=True)
class BoundPath:
    """A path in offsets.

    :param offsets: bytes added, one after another, a pointer being followed between each two.
    :param form: how the part is read; None where it is no number (an embedded structure).
    :param type: of the part, where known.
    :param address: read as the part's address (``&PATH``).
    """

    offsets: tuple[int, ...]
    form: Optional[Form]
    root: Optional[Root] = None
    type: Optional[Type] = field(default=None, compare=False)
    address: bool = False

    @property
    def offset(self) -> int:
        """Bytes from the start of the structure that it is in, of a path that follows no pointer."""
        return self.offsets[0]

    def locate(self, reader: Reader, address: int, roots: RootAddress) -> int:
        """Return the address of the part.

        :param address: of the object; not used where the path has a root of its own.
        :raises FaultError: when a pointer on the way cannot be read.
        :raises ShapeError: when the root is unknown.
        """
        at = roots(self.root) if self.root else address
        for offset in self.offsets[:-1]:
            at = reader.word((at + offset) & reader.abi.word_mask, self.text)
        return (at + self.offsets[-1]) & reader.abi.word_mask

    def read(self, reader: Reader, address: int, roots: RootAddress) -> int:
        """Return the number there, or its address; errors as :meth:`locate`."""
        if self.address:
            return self.locate(reader, address, roots)
        form = self.form or Form(reader.abi.pointer_size)
        return read_form(reader, self.locate(reader, address, roots), form, self.text)

    def find_scalar(self, word: int) -> Optional[Scalar]:
        """Return the part as a number at an offset of the object, or None when a pointer leads to it.

        :param word: bytes of a part whose size is not known.
        """
        if self.root is not None or len(self.offsets) != 1 or self.address:
            return None
        form = self.form or Form(word)
        return Scalar(self.offsets[0], form.size, form.signed, form.bits)

    @property
    def text(self) -> str:
        """The path in its raw form."""
        steps = "->".join(f"+{offset:#x}" for offset in self.offsets)
        # A dot keeps a global's name apart from the offset: @NAME+0x10 would be a place in a file.
        root = f"{self.root.text}." if self.root else ""
        return "&" * self.address + root + steps + (self.form.text if self.form else "")


class _Step(NamedTuple):
    kind: str  # "name", "offset", "index", "arrow"
    name: str = ""
    number: int = 0


class Path(NamedTuple):
    """A path as it is written."""

    text: str
    steps: tuple[_Step, ...]
    root: Optional[Root] = None
    form: Optional[Form] = None
    address: bool = False

    @property
    def is_self(self) -> bool:
        """Whether it is the object itself."""
        return not self.steps and self.root is None and self.form is None and not self.address

    def bind(self, type: Optional[Type], root_type: Optional[Type] = None) -> BoundPath:
        """Replace names by offsets.

        :param type: of the object; None is good enough for a path without names.
        :param root_type: of the global that the path starts at, where it does.
        :raises ShapeError: naming the member that is missing.
        """
        walk = _Binding(self.text, root_type if self.root else type)
        for step in self.steps:
            walk.take(step)
        for offset in walk.offsets:
            if offset >= LARGEST_OFFSET:
                raise ShapeError(f"{self.text}: no structure has {offset:#x} bytes")
        form = self.form or _form_of(walk.type, walk.bits)
        return BoundPath(tuple(walk.offsets), form, self.root, walk.type, self.address)


def parse_path(text: str) -> Path:
    """Take a path apart.

    :raises ShapeError: when it is not one.
    """
    rest, form = text.strip(), None
    address, rest = rest.startswith("&"), rest[rest.startswith("&") :].lstrip()
    match = _FORM.search(rest)
    if match is not None:
        bits = (int(match["shift"]), int(match["width"])) if match["shift"] else None
        if bits and not 0 < bits[1] <= 8 * int(match["size"]) - bits[0]:
            raise ShapeError(f"{shown(text)} is not a path: {match['size']} bytes have no such bits")
        form, rest = Form(int(match["size"]), bool(match["signed"]), bits), rest[: match.start()]
    root, rest = _take_root(rest)
    if rest == "self":
        rest = ""
    elif not rest and root is None:
        raise ShapeError("a path is empty", "write self for the object itself")
    return Path(text.strip(), tuple(_steps(text, rest, root is None)), root, form, address)


def for_each_ending(type: Type, name: str) -> Iterator[str]:
    """Iterate over the paths within a structure, without following pointers, that end in a member ``name``."""
    yield from _ending(type, name, "", 0)


def read_form(reader: Reader, address: int, form: Form, reading: str) -> int:
    """Read a number; errors as :meth:`Reader.uint`."""
    if form.bits is not None:
        shift, width = form.bits
        return (reader.uint(address, form.size, reading) >> shift) & ((1 << width) - 1)
    if form.signed:
        return reader.sint(address, form.size, reading)
    return reader.uint(address, form.size, reading)


class _Binding:
    """Where a path has come to."""

    def __init__(self, text: str, type: Optional[Type]) -> None:
        self.text = text
        self.type = type
        self.offsets = [0]
        self.bits: Optional[tuple[int, int]] = None

    def take(self, step: _Step) -> None:
        getattr(self, f"_take_{step.kind}")(step)

    def _take_name(self, step: _Step) -> None:
        if self.type is None or not self.type.is_record:
            what = "an untyped object" if self.type is None else self.type.name
            raise ShapeError(f"{self.text}: {what} has no members, so no {step.name}")
        found = self.type.find_field(step.name)
        if found is None:
            raise ShapeError(f"{self.text}: {self.type.tag} has no member {step.name}")
        self.offsets[-1] += found.offset
        self.type, self.bits = found.type, found.bits

    def _take_offset(self, step: _Step) -> None:
        self.offsets[-1] += step.number
        self.type, self.bits = None, None

    def _take_index(self, step: _Step) -> None:
        if self.type is None or self.type.code is not Code.ARRAY or self.type.target is None:
            raise ShapeError(f"{self.text}: what stands before [{step.number}] is no array")
        if self.type.length is not None and step.number >= self.type.length:
            raise ShapeError(f"{self.text}: the array has {self.type.length} elements")
        self.type = self.type.target
        self.offsets[-1] += step.number * self.type.size

    def _take_arrow(self, step: _Step) -> None:
        if self.type is not None and self.type.code is not Code.POINTER:
            raise ShapeError(f"{self.text}: what stands before -> is no pointer but {self.type.name}")
        self.type = self.type.target if self.type else None
        self.offsets.append(0)
        self.bits = None


def _form_of(type: Optional[Type], bits: Optional[tuple[int, int]]) -> Optional[Form]:
    if type is None or type.code not in (Code.INTEGER, Code.POINTER) or type.size not in NUMBER_SIZES:
        return None
    return Form(type.size, type.signed, bits)


def _take_root(rest: str) -> tuple[Optional[Root], str]:
    match = _ROOT.match(rest)
    if match is None:
        return None, rest
    rest = rest[match.end() :]
    if match["module"]:
        return ModuleRoot(match["module"], int(match["offset"], 0)), rest
    return GlobalRoot(match["name"]), rest


def _steps(text: str, rest: str, joined: bool) -> Iterator[_Step]:
    at = 0  # a name needs a dot or an arrow before it, unless it is the first
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise ShapeError(f"{shown(text)} is not a path: {shown(rest[at:])} is no step of one")
        at = match.end()
        if match["dot"]:
            if joined:
                raise ShapeError(f"{shown(text)} is not a path: nothing stands before a dot")
            joined = True
            continue
        if match["name"] and not joined:
            raise ShapeError(f"{shown(text)} is not a path: a dot is missing before {shown(match['name'])}")
        yield _step(match)
        joined = bool(match["arrow"])


def _step(match: "re.Match[str]") -> _Step:
    if match["arrow"]:
        return _Step("arrow")
    if match["name"]:
        return _Step("name", match["name"])
    if match["index"]:
        return _Step("index", number=int(match["index"]))
    return _Step("offset", number=int(match["offset"], 0))


def _ending(type: Type, name: str, prefix: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    for member in type.fields:
        inner = prefix if member.is_base or not member.name else f"{prefix}{member.name}"
        if member.name == name and not member.is_base:
            yield inner
        elif member.type.is_record:
            yield from _ending(
                member.type, name, f"{inner}." if inner and inner != prefix else prefix, depth + 1
            )
