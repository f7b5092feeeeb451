"""Exported names of mapped objects, held against what readelf says of their files."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gdbext.abi import X86_64
from gdbext.errors import FaultError
from gdbext.memory.elf.elfdynamic import find_exported
from gdbext.memory.elf.elffile import find_header, find_image, parse_segments
from gdbext.memory.fake import FakeMemory

LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6")
BASE = 0x7F00_0000_0000


@pytest.fixture(scope="module")
def names():
    if not LIBC.exists() or not shutil.which("readelf"):
        pytest.skip("no libc of Debian's for x86-64, or no readelf")
    rows = subprocess.run(["readelf", "-W", "--dyn-syms", LIBC], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *\d+: ([0-9a-f]{16}) +\d+ (?:FUNC|OBJECT) +\w+ +\w+ +\d+ (\w+)@@", rows, re.M)
    return {name: int(value, 16) for value, name in found}


def mapped(change=lambda data: None):
    data = bytearray(LIBC.read_bytes())
    change(data)
    header = find_header(data)
    table = data[header.phoff : header.phoff + header.phnum * header.entry_size]
    loads = [one for one in parse_segments(table, header) if one.type == 1]
    parts = []
    for one in loads:
        low, pad = one.address & -4096, one.address & 4095
        parts.append(
            (BASE + low, bytes(data[one.offset - pad : one.offset + one.filesz]) + bytes(one.memsz - one.filesz))
        )
    return FakeMemory(parts)


def test_every_name_has_its_address(names):
    memory = mapped()
    image = find_image(memory.read, BASE)
    chosen = random.Random(1).sample(sorted(names), 300)
    assert {name: find_exported(memory, X86_64, image, name) for name in chosen} == {
        name: BASE + names[name] for name in chosen
    }
    assert find_exported(memory, X86_64, image, "_PyRuntime") is None


@pytest.mark.parametrize("seed", range(30))
def test_damaged_tables_end(seed, names):
    chosen = random.Random(seed)

    def change(data):
        for _ in range(2000):
            data[chosen.randrange(0x200, 0x20000)] = chosen.randrange(256)

    memory = mapped(change)
    image = find_image(memory.read, BASE)
    try:
        found = find_exported(memory, X86_64, image, "malloc") if image else None
    except FaultError:
        return
    assert found is None or isinstance(found, int)
