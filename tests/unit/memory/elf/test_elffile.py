"""ELF parsing of bytes that need not be honest; real files against readelf."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.errors import FaultError
from gdbext.memory.elf.elffile import find_file_build_id, find_header, find_image, for_each_note, parse_segments
from tests.support.elfwriter import CoreWriter, Writer, shared_object

ID = b"\xab" * 20


def reader(data, base=0):
    def read(address, size):
        if address < base or address + size > base + len(data) or size < 0:
            raise FaultError(address, size)
        return data[address - base : address - base + size]

    return read


@pytest.mark.parametrize("program", ["/bin/true", "/bin/sh"])
def test_headers_are_readelfs(program):
    if shutil.which("readelf") is None:
        pytest.skip("no readelf")
    with open(program, "rb") as file:
        data = file.read()
    text = subprocess.run(["readelf", "-lnW", program], capture_output=True, text=True).stdout
    rows = re.findall(r"^  \w+ +(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) (...) (0x\w+)$", text, re.M)
    header = find_header(data)
    segments = parse_segments(data[header.phoff : header.phoff + header.phnum * header.phentsize], header)
    ours = [(s.offset, s.address, s.filesz, s.memsz, s.permissions) for s in segments]
    assert ours == [
        (
            int(offset, 16),
            int(address, 16),
            int(filesz, 16),
            int(memsz, 16),
            flags.lower().replace(" ", "-").replace("e", "x"),
        )
        for offset, address, filesz, memsz, flags, _ in rows
    ]
    build_id = find_file_build_id(lambda offset, size: data[offset : offset + size])
    assert build_id == re.search(r"Build ID: (\w+)", text)[1]


@pytest.mark.parametrize("align", [4, 8])
@pytest.mark.parametrize("order", ["little", "big"])
def test_notes(align, order):
    writer = Writer(order=order)
    data = writer.note("GNU", 3, b"abc", align) + writer.note("LINUX", 0x202, b"12345678", align)
    notes = [(n.owner, n.type, bytes(n.contents)) for n in for_each_note(data, order, align)]
    assert notes == [("GNU", 3, b"abc"), ("LINUX", 0x202, b"12345678")]
    assert list(for_each_note(data[:-1], order, align))[-1] is None
    assert list(for_each_note(data + b"\0" * 11, order, align))[-1] is not None


def test_build_id_behind_property_note():
    # GNU property notes come first, in a segment aligned to 8
    writer = Writer()
    image = shared_object(writer, ID, notes=writer.note("GNU", 5, bytes(16)))
    assert find_image(reader(image, 0x10000), 0x10000).build_id == ID.hex()


def test_image_is_limited_in_work():
    writer = Writer()
    many = shared_object(writer, ID, notes=writer.note("GNU", 0, b"") * 64)
    assert find_image(reader(many), 0).build_id is None
    huge = writer.header(3, 129) + writer.segment(1, 4, 0, 0, 64, 64) * 129
    assert find_image(reader(huge.ljust(0x10000, b"\0")), 0) is None


def test_image_that_wraps():
    writer = Writer()
    head = writer.header(3, 1) + writer.segment(1, 4, 0, 0, 64, (1 << 64) - 64)
    assert find_image(reader(head, 0x10000), 0x10000) is None


IMAGE = shared_object(Writer(), ID)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=9)), max_size=8),
    st.integers(0, 0x3000),
)
def test_hostile_images(patches, size):
    data = bytearray(IMAGE)
    for at, patch in patches:
        data[at : at + len(patch)] = patch
    data = bytes(data[:size] if size % 2 else data)
    image = find_image(reader(data, 0x10000), 0x10000)
    if image is not None:
        assert image.end > image.base
        image.find_segment(0x11000)
    find_file_build_id(lambda offset, length: data[offset : offset + length])


@given(st.binary(max_size=200), st.sampled_from([0, 4, 8, 1 << 63]))
def test_hostile_notes(data, align):
    notes = list(for_each_note(data, "little", align))
    assert len(notes) <= len(data) // 12 + 1


@given(st.binary(max_size=80))
def test_hostile_headers(data):
    for head in (data, b"\x7fELF\x01\x01" + data, b"\x7fELF\x02\x02" + data):
        header = find_header(head)
        assert header is None or header.pointer_size in (4, 8)


def test_core_header():
    header = find_header(CoreWriter("aarch64").build())
    assert (header.type, header.machine, header.abi(65536).machine, header.abi(65536).page_size) == (
        4, 183, "aarch64", 65536,
    )  # fmt: skip
