"""Blocks of which only the bytes tell."""

from __future__ import annotations

import pytest

from gdbext.abi import I386, X86_64, Abi
from tests.unit.analysis.types.world import DATA, HEAP, World

BIG = Abi(8, "big", "s390x")
TEXT, UNKNOWN = "C string", "unknown"
ORDERS = pytest.mark.parametrize("abi", [X86_64, I386, BIG], ids=lambda abi: abi.machine)


def of(data, usable=None, abi=X86_64):
    world = World(abi)
    at = world.block(data, usable)
    name, _, confidence = world.answers()[at]
    return name, confidence


@pytest.mark.parametrize(
    "data, name, confidence",
    [
        (b"a line of text\n\0", TEXT, "medium"),
        (b"four\0", TEXT, "low"),
        (b"abc\0" + b"\x80" * 12, UNKNOWN, ""),
        (b"text without an end" * 10, TEXT, "low"),
        ("Grüße aus Köln".encode() + b"\0", TEXT, "medium"),
        ("Привет, мир".encode() + b"\0", TEXT, "medium"),
        ("это длинная строка, которую первые байты обрезают посреди буквы".encode(), TEXT, "low"),
        ("Gr\xfc\xdfe aus K\xf6ln".encode("latin-1") + b"\0", UNKNOWN, ""),
        (b"\xc0\xafabcdefgh\0", UNKNOWN, ""),
        (b"\x80text\0" * 5, UNKNOWN, ""),
        (b"bell\x07rings\0", UNKNOWN, ""),
        (b"\x91" * 50, UNKNOWN, ""),
        ("wide text".encode("utf-16-le"), "UTF-16 text", "low"),
        ("wide text".encode("utf-16-be"), "UTF-16 text", "low"),
        (b"\1\0\2\0\3\0\4\0\5\0\6\0\7\0\x08\0" * 3, UNKNOWN, ""),
    ],
)
def test_text(data, name, confidence):
    assert of(data) == (name, confidence)


def test_zeros():
    assert of(bytes(40)) == ("zeros", "medium")
    assert of(bytes(5000)) == ("zeros", "low")
    for size in (72, 128, 200, 512):  # of these every byte is looked at, of larger ones 64 words
        assert of(bytes(size), size) == ("zeros", "low")
        for at in (64, 71, size - 1):
            assert of(bytes(at) + b"\1" + bytes(size - at - 1), size)[0] == UNKNOWN
    assert of(bytes(4992) + bytes([1] * 8))[0] == UNKNOWN
    assert of(bytes(4000) + b"\1" * 1000) == (UNKNOWN, "")
    assert of(bytes(100), 3) == ("zeros", "medium")


@ORDERS
def test_pointers(abi):
    world = World(abi)
    first = world.block(world.words(HEAP + 0x20, 0, DATA + 8, HEAP + 0x40))
    mixed = world.block(world.words(HEAP + 0x20, 0x99, HEAP + 8, HEAP + 16))
    few = world.block(world.words(0, 0, 0, 0, 0, HEAP + 0x20, 0, 0, 0))
    answers = world.answers()
    assert answers[first] == ("pointers", "pointers", "low")
    assert answers[mixed][0] == answers[few][0] == UNKNOWN


def test_an_address_that_looks_like_letters_is_no_text():
    world = World()
    assert world.words(HEAP + 0x20)[:4] == b" `ab"
    at = world.block(world.words(HEAP + 0x20, 5))
    assert world.answers()[at][0] == UNKNOWN


def test_blocks_whose_memory_is_not_there_stay_unknown():
    world = World()
    at = world.block(b"a line of text\0")
    world.absent = (HEAP,)
    assert world.answers()[at] == (UNKNOWN, UNKNOWN, "")


@pytest.mark.parametrize("size", range(20))
def test_blocks_of_any_small_size(size):
    world = World()
    at = world.block(b"abcdefghijklmnopqrstuvwxyz"[:size], max(size, 1))
    assert world.answers()[at][0] == (TEXT if size >= 4 else "zeros" if size == 0 else UNKNOWN)
