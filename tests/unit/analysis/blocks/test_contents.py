import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.abi import I386, X86_64
from gdbext.analysis.blocks.contents import contents_hint
from gdbext.memory import Reader
from gdbext.memory.fake import FakeMemory


def hint(data, size=None, name=None, abi=X86_64):
    return contents_hint(Reader(FakeMemory([(0x1000, data)]), abi), 0x1000, size or len(data), name)


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"hello world\0\0\0\0\0", '"hello world"'),
        (b"two\nlines\tand\r\0", '"two\\nlines\\tand\\r"'),
        ("grün".encode() + bytes(8), '"grün"'),
        (b"x" * 100, '"' + "x" * 64 + '"'),
        (b"abc" + bytes(5), "6162630000000000"),
        (b"bad \xff text....", "62616420ff207465 78742e2e2e2e"),
        (b"\x1b[31m red\0\0\0\0\0\0\0", "1b5b33316d207265 6400000000000000"),
        (bytes(24), "zeros"),
        (bytes(100), "zeros in the first 64 bytes"),
        (bytes(range(1, 33)), "0102030405060708 090a0b0c0d0e0f10 …"),
    ],
)
def test_hints(data, expected):
    assert hint(data) == expected


def test_pointers_are_named_in_the_target_s_word_size():
    names = {0x8048000: "server+0x0", 0x9000: "glibc block 0x9000"}
    data = b"".join(value.to_bytes(4, "little") for value in (1, 0x8048000, 0x9000, 0x9000))
    assert hint(data, name=names.get, abi=I386) == "+0x4 -> server+0x0, +0x8 -> glibc block 0x9000"


def test_memory_that_cannot_be_read():
    assert contents_hint(Reader(FakeMemory([]), X86_64), 0x1000, 8) == "not readable"
    assert contents_hint(Reader(FakeMemory([]), X86_64), 0x1000, 0) == "nothing"


@given(st.binary(min_size=1, max_size=80))
def test_hints_are_one_printable_line(data):
    shown = hint(data)
    assert shown.isprintable()
    assert len(shown) < 140
