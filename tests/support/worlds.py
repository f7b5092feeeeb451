"""Small target memories made of declared structures, for tests of shapes."""

from __future__ import annotations

from gdbext.abi import Abi
from gdbext.layout.declared import declare_types
from gdbext.layout.types import Code, Located, Type
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.notation.paths import parse_path
from gdbext.structures.shapes.shape import StructPart, parse_shape
from gdbext.target import Target

ABIS = {
    "x86-64": Abi(8, "little"),
    "i386": Abi(4, "little", "i386"),
    "s390x": Abi(8, "big", "s390x"),
    "ppc": Abi(4, "big", "ppc"),
}


class World:
    """A stretch of memory in which objects are made, and the types that a debugger would know of it.

    :param structs: ``name: "members; separated"``.
    """

    def __init__(self, abi: Abi = ABIS["x86-64"], base: int = 0x10000, size: int = 1 << 16, /, **structs: str) -> None:
        self.abi = abi
        self.base = base
        self.bytes = bytearray(size)
        self.globals: dict[str, Located] = {}
        self.modules: list[Module] = []
        rows = [
            StructPart(f"struct {name}", tuple(text.strip() for text in members.split(";") if text.strip()))
            for name, members in structs.items()
        ]
        self._declared = declare_types(rows, abi)
        self._next = base + 0x10

    # -- what a debugger knows

    def find_type(self, name: str) -> Type | None:
        return self._declared.find_type(name)

    def find_global(self, name: str) -> Located | None:
        return self.globals.get(name)

    def type(self, name: str) -> Type:
        found = self.find_type(name)
        assert found is not None, name
        return found

    def pointer(self, target: Type | None) -> Type:
        name = f"{target.name} *" if target else "void *"
        return Type(name, Code.POINTER, self.abi.pointer_size, target=lambda: target)

    def array(self, item: Type, length: int) -> Type:
        return Type(f"{item.name} [{length}]", Code.ARRAY, item.size * length, length=length, target=lambda: item)

    # -- objects

    def space(self, size: int) -> int:
        """Return the address of fresh zeros."""
        at = self.abi.align_up(self._next, 16)
        self._next = at + size
        assert self._next <= self.base + len(self.bytes)
        return at

    def new(self, name: str, how_many: int = 1, /, **members: int) -> int:
        """Make some structures side by side; the members are of the first, ``__`` in them a dot."""
        address = self.space(self.type(name).size * how_many)
        self.set(name, address, **members)
        return address

    def set(self, name: str, address: int, /, **members: int) -> None:
        for member, value in members.items():
            bound = parse_path(member.replace("__", ".")).bind(self.type(name))
            self.put(address + bound.offsets[0], value, bound.form.size)

    def words(self, *values: int) -> int:
        """Make an array of words."""
        address = self.space(self.abi.pointer_size * len(values))
        for at, value in enumerate(values):
            self.put(address + at * self.abi.pointer_size, value)
        return address

    def put(self, address: int, value: int, size: int | None = None) -> None:
        size = size or self.abi.pointer_size
        data = (value & ((1 << (8 * size)) - 1)).to_bytes(size, self.abi.byteorder)
        self.bytes[address - self.base : address - self.base + size] = data

    @property
    def target(self) -> Target:
        return Target(FakeMemory([(self.base, bytes(self.bytes))]), self.abi, modules=self.modules)


def library(*texts: str) -> Library:
    """Return a library of shapes."""
    shapes = [parse_shape(text, f"{at}.toml") for at, text in enumerate(texts)]
    return Library({shape.name: shape for shape in shapes})
