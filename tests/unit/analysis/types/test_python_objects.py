"""CPython's objects, laid out by hand after Include/object.h."""

from __future__ import annotations

import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.python import objects
from tests.unit.analysis.types.world import DATA, HEAP, World

PYTHON = ("python", "high")


HAVE_GC, MANAGED_DICT, READY, DICT, TYPE = 1 << 14, 1 << 4, 1 << 12, 1 << 29, 1 << 31
TYPE_WORDS = 52


class Interpreter(World):
    """A world with ``type`` and a few types, of a version that is not known."""

    def __init__(self, abi=X86_64):
        super().__init__(abi)
        self.type = self.put(bytes(TYPE_WORDS * abi.pointer_size), "data")
        self.fill(self.type, self.type, "type", TYPE_WORDS, READY | TYPE)

    def fill(self, at, kind, name, words=2, flags=READY):
        text = name if isinstance(name, int) else self.put(name.encode() + b"\0")
        size = words * self.abi.pointer_size
        self.write(at, self.words(1, kind, 0, text, size, *[0] * 16, flags))

    def kind(self, name, kind=None, flags=0, words=2):
        at = self.put(bytes(TYPE_WORDS * self.abi.pointer_size), "data")
        self.fill(at, self.type if kind is None else kind, name, words, READY | flags)
        return at


@pytest.mark.parametrize("abi", [X86_64, I386], ids=lambda abi: abi.machine)
def test_objects_with_and_without_a_head(abi):
    world = Interpreter(abi)
    number, mapping = world.kind("float"), world.kind("dict", flags=HAVE_GC | DICT)
    thing = world.kind("shop.Thing", flags=HAVE_GC | MANAGED_DICT)
    plain = world.block(world.words(1, number, 7))
    keys = world.block(world.words(1) + b"\x91" * 100)
    shared = world.block(world.words(2) + b"\x91" * 100)
    tracked = world.block(world.words(HEAP, HEAP, 3, mapping, 0, 0, keys, 0))
    split = world.block(world.words(HEAP, HEAP, 3, mapping, 0, 0, shared, 0))
    managed = world.block(world.words(0, HEAP, HEAP, HEAP, 2, thing, 0, 0))
    immortal = world.block(world.words(0xFFFFFFFF, number, 7))
    assert world.answers() == {
        plain: ("float", *PYTHON),
        keys: ("dict keys", "python", "medium"),
        tracked: ("dict", *PYTHON),
        shared: ("unknown", "unknown", ""),
        split: ("dict", *PYTHON),
        managed: ("shop.Thing", *PYTHON),
        immortal: ("float", *PYTHON),
    }


def test_a_class_in_a_block_and_its_metaclass():
    world = Interpreter()
    meta = world.kind("ABCMeta", flags=TYPE, words=TYPE_WORDS)
    world.blocks.clear()
    heap_type = world.block(bytes(TYPE_WORDS * 8))
    world.fill(heap_type, meta, "Shape")
    instance = world.block(world.words(1, heap_type, 0))
    assert world.answers() == {heap_type: ("ABCMeta", *PYTHON), instance: ("Shape", *PYTHON)}


def test_what_is_no_type_is_not_taken_for_one():
    world = Interpreter()
    looped = world.put(bytes(TYPE_WORDS * 8), "data")  # its own type, and no name
    world.write(looped, world.words(1, looped, 0, 0x10))
    impostor = world.put(bytes(TYPE_WORDS * 8), "data")  # its own type, named otherwise
    world.fill(impostor, impostor, "struct")
    unnamed = world.kind(0x13)
    strange = world.kind("no name!")
    first, second = (world.put(bytes(TYPE_WORDS * 8), "data") for _ in range(2))
    world.fill(first, second, "a")
    world.fill(second, first, "b")
    unready = world.put(bytes(TYPE_WORDS * 8), "data")
    world.fill(unready, world.type, "float", flags=0)
    larger = world.kind("Large")
    world.write(larger + 32, world.words(400))
    world.block(world.words(1, world.kind("small")) + b"\x91" * 100)
    kinds = (looped, impostor, unnamed, strange, first, unready, larger, DATA + 0xFFF8, HEAP + 0xFFF0)
    for kind in kinds:
        world.block(world.words(1, kind, 0x9999999999, 3))
    many = world.block(world.words(1 << 40, world.kind("int"), 0x9999999999))
    answers = world.answers()
    assert answers[many][1] != "python"
    assert not [answer for answer in answers.values() if answer[1] == "python"]


def test_what_the_interpreter_keeps_for_the_next_is_freed():
    world = Interpreter()
    kind = world.kind("list")
    kept = world.block(world.words(0, kind, 7))
    assert world.answers() == {kept: ("list, freed and kept", "python", "medium")}


@pytest.mark.parametrize("letter", [b"r", b"m", b"o"])
def test_fences_of_the_debug_mode_stand_before_objects(letter):
    world = Interpreter()
    plain, tracked = world.kind("float"), world.kind("list", flags=HAVE_GC)
    fence = (24).to_bytes(8, "big") + letter + b"\xfd" * 7
    one = world.block(fence + world.words(1, plain, 7) + b"\xfd" * 8)
    other = world.block(fence + world.words(HEAP, HEAP, 1, tracked, 0) + b"\xfd" * 8)
    unfenced = world.block(bytes(16) + world.words(1, plain, 7))
    answers = world.answers()
    assert (answers[one][0], answers[other][0]) == ("float", "list") and answers[unfenced][1] != "python"


def test_a_sample_tells_whether_there_is_an_interpreter(monkeypatch):
    for share in (2, 40):
        world = Interpreter()
        kind = world.kind("float")
        for number in range(200):
            world.block(world.words(1, kind, 7) if number % share == 0 else b"\x91" * 24)
        whole = [answer for answer in world.answers().values() if answer[1] == "python"]
        with monkeypatch.context() as patch:
            patch.setattr(objects, "_SAMPLE", 20)
            assert [answer for answer in world.answers().values() if answer[1] == "python"] == whole
            patch.setattr(objects, "_SAMPLE", 1 << 17)
        assert len(whole) == 200 // share
