"""Symbol tables as columns. The oracle is ``nm`` of the binutils, and tables laid out by hand."""

import shutil
import struct
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.memory.elf.elfsymbols import find_symbol_table

SOURCE = """
struct { long a, b[5]; } wide = {1};
static int quiet = 2;
static __thread char own[24];
__thread long loud = 7;
int read_all(void) { return quiet + own[1] + (int)loud; }
int main(void) { return read_all(); }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if not shutil.which("gcc") or not shutil.which("nm"):
        pytest.skip("needs gcc and nm")
    folder = tmp_path_factory.mktemp("symbols")
    (folder / "some.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O0", "-rdynamic", str(folder / "some.c"), "-o", str(folder / "some")], check=True)
    return folder / "some"


def nm(path, *options):
    lines = subprocess.run(["nm", "-S", *options, str(path)], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in lines.splitlines())
    return {row[3]: (int(row[0], 16), int(row[1], 16), row[2]) for row in rows if len(row) == 4}


def told(variables):
    return {
        variables.name(at): (int(variables.address[at]), int(variables.size[at]), bool(variables.local[at]))
        for at in range(len(variables))
    }


def test_variables_are_those_of_nm(built):
    table, expected = find_symbol_table(built.read_bytes()), nm(built)
    data, own = told(table.data), told(table.thread_local)
    for name in ("wide", "quiet"):
        address, size, kind = expected[name]
        assert data[name] == (address, size, kind.islower())
    assert own["loud"] == (*expected["loud"][:2], False) and own["own"] == (*expected["own"][:2], True)
    assert "main" not in data and table.whole and table.first == 0
    assert table.tls[0] >= 32 and table.tls[1] >= 8


def test_a_stripped_file_has_only_what_others_see(built, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run(["strip", "-s", str(built), "-o", str(bare)], check=True)
    table = find_symbol_table(bare.read_bytes())
    assert not table.whole and "wide" in told(table.data) and "quiet" not in told(table.data)


def test_which_variable_an_address_is_in(built):
    table = find_symbol_table(built.read_bytes())
    start = nm(built)["wide"][0]
    moved = table.data.moved(0x5000_0000)
    at = moved.find(np.array([start, start + 47, start + 48, 0, 2**64 - 1], np.uint64) + np.uint64(0x5000_0000))
    names = [moved.name(one) if one >= 0 else None for one in at.tolist()]
    assert names[:2] == ["wide", "wide"] and names[2] != "wide" and names[3:] == [None, None]


def test_no_elf_file_and_no_table():
    assert find_symbol_table(b"") is None
    assert find_symbol_table(b"not an ELF file" * 10) is None
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)
    assert find_symbol_table(head) is None


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=40))
def test_any_bytes_end_in_an_answer(built, changes):
    data = bytearray(built.read_bytes())
    section_table = int.from_bytes(data[40:48], "little")
    for at, value in changes:
        data[at % 64 if at % 3 else section_table + at % (len(data) - section_table)] = value
    table = find_symbol_table(bytes(data))
    if table is not None:
        assert len(told(table.data)) <= len(table.data)
