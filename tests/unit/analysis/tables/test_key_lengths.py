"""Keys whose every entry says how long its own is."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.analysis.tables.keys import LONGEST_KEY, Entries
from gdbext.memory.fake import FakeMemory
from gdbext.structures.walk.model import BinArray, BinsWalk, Key, Links, Node, Scalar, Table
from gdbext.target import Target

BASE, TEXTS, SIZE = 0x1000, 0x8000, 64
NOWHERE = 0xDEAD0000


def entries_of(keys, compare):
    """Return entries that hold a pointer, a length and the key's first bytes; a key is (bytes, length)."""
    nodes, texts = bytearray(), bytearray()
    for text, length in keys:
        at = TEXTS + len(texts) if text is not None else NOWHERE
        nodes += struct.pack("<QI", at, length) + (text or b"")[: SIZE - 12].ljust(SIZE - 12, b"?")
        texts += (text or b"") + b"!"
    target = Target(FakeMemory([(BASE, bytes(nodes)), (TEXTS, bytes(texts) + bytes(LONGEST_KEY))]), X86_64)
    at = Scalar(0, 8) if compare == "bytes" else Scalar(12, 8)
    table = Table(0, Node(Links(0), key=Key(at, compare, 0, Scalar(8, 4))), [BinArray(0, 1, 8)])
    places = np.arange(len(keys), dtype=np.uint64) * np.uint64(SIZE) + np.uint64(BASE)
    walk = BinsWalk(np.array([len(keys)], np.uint64), np.zeros(1, np.uint8), places, places * np.uint64(0))
    return Entries(target, table, walk)


def keys_of(keys, compare):
    """Return a number for each key, None for one that is not known."""
    found = entries_of(keys, compare).find_keys(np.arange(len(keys)))
    return [int(number) if known else None for number, known in zip(found.values, found.known)]


@pytest.mark.parametrize("compare", ("bytes", "inline"))
def test_keys_are_equal_when_length_and_bytes_are(compare):
    texts = [b"abc", b"abd", b"abc", b"ab", b"abcdefghijk", b"abcdefghijl", b"abcdefghijk", b"", b""]
    numbers = keys_of([(text, len(text)) for text in texts], compare)
    assert None not in numbers
    for one, text in zip(numbers, texts):
        for other, like in zip(numbers, texts):
            assert (one == other) == (text == like)


@pytest.mark.parametrize("compare", ("bytes", "inline"))
def test_what_follows_a_key_does_not_count(compare):
    one, other = keys_of([(b"key-x", 3), (b"key-y", 3)], compare)
    assert one == other is not None


def test_a_length_that_no_key_has_is_unknown():
    huge, sound, long = keys_of([(b"abc", 0xFFFFFFFF), (b"abc", 3), (b"abc", LONGEST_KEY + 1)], "bytes")
    assert (huge, long) == (None, None) and sound is not None


def test_a_key_that_is_nowhere_is_unknown():
    missing, found = keys_of([(None, 3), (b"abc", 3)], "bytes")
    assert missing is None and found is not None
