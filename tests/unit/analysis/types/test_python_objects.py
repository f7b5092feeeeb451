"""CPython's objects, laid out by hand after Include/object.h."""

from __future__ import annotations

import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.types.languages import python
from tests.unit.analysis.types.world import DATA, HEAP, World

PYTHON = ("python", "high")


class Interpreter(World):
    """A world with ``type`` and a few types."""

    def __init__(self, abi=X86_64):
        super().__init__(abi)
        self.type = self.put(bytes(16 * abi.pointer_size), "data")
        self.fill(self.type, self.type, "type")

    def fill(self, at, kind, name):
        text = name if isinstance(name, int) else self.put(name.encode() + b"\0")
        self.write(at, self.words(1, kind, 0, text))

    def kind(self, name, kind=None):
        at = self.put(bytes(16 * self.abi.pointer_size), "data")
        self.fill(at, self.type if kind is None else kind, name)
        return at


@pytest.mark.parametrize("abi", [X86_64, I386], ids=lambda abi: abi.machine)
def test_objects_with_and_without_a_head(abi):
    world = Interpreter(abi)
    number, mapping, thing = world.kind("float"), world.kind("dict"), world.kind("shop.Thing")
    plain = world.block(world.words(1, number, 7))
    keys = world.block(b"\x91" * 100)
    tracked = world.block(world.words(HEAP, HEAP, 3, mapping, 0, 0, keys, 0))
    managed = world.block(world.words(0, HEAP, HEAP, HEAP, 2, thing, 0, 0))
    immortal = world.block(world.words(0xFFFFFFFF, number, 7))
    assert world.answers() == {
        plain: ("float", *PYTHON),
        keys: ("dict keys", "python", "medium"),
        tracked: ("dict", *PYTHON),
        managed: ("shop.Thing", *PYTHON),
        immortal: ("float", *PYTHON),
    }


def test_a_class_in_a_block_and_its_metaclass():
    world = Interpreter()
    meta = world.kind("ABCMeta")
    world.blocks.clear()
    name = world.put(b"Shape\0")
    heap_type = world.block(world.words(5, meta, 0, name) + bytes(64))
    instance = world.block(world.words(1, heap_type, 0))
    assert world.answers() == {heap_type: ("ABCMeta", *PYTHON), instance: ("Shape", *PYTHON)}


def test_what_is_no_type_is_not_taken_for_one():
    world = Interpreter()
    looped = world.put(bytes(64), "data")  # its own type, and no name
    world.write(looped, world.words(1, looped, 0, 0x10))
    impostor = world.put(bytes(64), "data")  # its own type, named otherwise
    world.fill(impostor, impostor, "struct")
    unnamed = world.kind(0x13)
    strange = world.kind("no name!")
    first, second = world.put(bytes(64), "data"), world.put(bytes(64), "data")
    world.fill(first, second, "a")
    world.fill(second, first, "b")
    kinds = (looped, impostor, unnamed, strange, first, DATA + 0xFFF8, HEAP + 0xFFF0)
    for kind in kinds:
        world.block(world.words(1, kind, 0x9999999999, 3))
    no_count = world.block(world.words(0, world.kind("float"), 0x9999999999))
    many = world.block(world.words(1 << 40, world.kind("int"), 0x9999999999))
    answers = world.answers()
    assert answers[no_count][1] != "python" and answers[many][1] != "python"
    assert not [answer for answer in answers.values() if answer[1] == "python"]


def test_a_sample_tells_whether_there_is_an_interpreter(monkeypatch):
    for share in (2, 40):
        world = Interpreter()
        kind = world.kind("float")
        for number in range(200):
            world.block(world.words(1, kind, 7) if number % share == 0 else b"\x91" * 24)
        whole = [answer for answer in world.answers().values() if answer[1] == "python"]
        with monkeypatch.context() as patch:
            patch.setattr(python, "_SAMPLE", 20)
            assert [answer for answer in world.answers().values() if answer[1] == "python"] == whole
            patch.setattr(python, "_SAMPLE", 1 << 17)
        assert len(whole) == 200 // share
