"""What is read off cores before gdb opens them, and that damage stays bounded."""

from __future__ import annotations

import errno
import os
import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbext.errors import BadCoreError
from gdbext.memory.corefile import CoreFile
from gdbext.starting.corefile import read_build_id, read_core
from gdbext.starting.executable import choose_exe
from gdbext.starting.failures import NoPermissionError, WrongExeError
from tests.support.examples import examples

from .elfs import Maker

OWN, OTHER = bytes(range(20)), bytes(range(100, 120))
BASE, LIB = 0x400000, 0x700000


# the library's own words
AGAIN = "take the core again, with room on the disk and ulimit -c unlimited"
CUT = "is not an ELF file, or cut inside its header; give a core file; unpack it first when it is packed"


def written(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return str(path)


def core_of(folder, build_id=OWN, *, maker=None, path="/no/such/program", dumped=True, phdr=True):
    maker = maker or Maker()
    modules = [(BASE, path, maker.executable(build_id, phdr)), (LIB, "/lib/libx.so", maker.executable(OTHER))]
    return written(folder, "core", maker.core(modules, dumped=dumped))


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("phdr", [True, False])
def test_facts(tmp_path, wide, order, phdr):
    facts = read_core(core_of(tmp_path, maker=Maker(wide, order), phdr=phdr))
    assert facts.exe == "/no/such/program"
    assert facts.build_id == OWN.hex()
    assert facts.build_ids == {"/no/such/program": OWN.hex(), "/lib/libx.so": OTHER.hex()}


def test_build_id_unknown_when_the_page_was_not_dumped(tmp_path):
    facts = read_core(core_of(tmp_path, dumped=False))
    assert (facts.exe, facts.build_id, facts.build_ids) == ("/no/such/program", None, {})


def test_core_without_notes(tmp_path):
    maker = Maker()
    held = maker.header(4, 1) + maker.segment(1, maker.header_size + maker.step, BASE, 8) + bytes(8)
    facts = read_core(written(tmp_path, "core", held))
    assert (facts.exe, facts.build_id) == (None, None)
    choice = choose_exe(facts, None, None)
    assert choice.exe is None
    assert choice.remark == "the core does not say which executable it is of: name it with --exe"


def test_build_id_of_a_file(tmp_path):
    assert read_build_id(written(tmp_path, "a", Maker().executable(OWN))) == OWN.hex()
    assert read_build_id(written(tmp_path, "b", Maker().executable(b""))) is None


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "is empty; was it cut by a full disk or by ulimit -c?"),
        (b"#!/bin/sh\n", "is not a core; the kernel and gcore write cores, as ELF files"),
        (Maker().executable(OWN), "is an ELF file but not a core; an executable is named with --exe"),
        (b"\x7fELF\x02\x01", CUT),
        (Maker().header(4, 1)[:40], CUT),
        (Maker().header(4, 0), f"holds no memory; {AGAIN}"),
        (Maker().header(4, 3), f"is cut inside its 3 program headers, or damaged; {AGAIN}"),
        (struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 4, 62, 1, 0, 64, 0, 0, 64, 8, 9, 0, 0, 0),
         f"has program headers of 8 bytes, not 56; {AGAIN}"),
    ],
)  # fmt: skip
def test_not_a_core(tmp_path, data, message):
    path = written(tmp_path, "core", data)
    with pytest.raises(BadCoreError) as caught:
        read_core(path)
    assert str(caught.value) == f"{path} {message}"


def test_no_such_core(tmp_path):
    with pytest.raises(BadCoreError, match="missing does not exist"):
        read_core(str(tmp_path / "missing"))
    with pytest.raises(BadCoreError, match="is not a file"):
        read_core(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_core_of_others(tmp_path):
    path = core_of(tmp_path)
    os.chmod(path, 0)
    with pytest.raises(NoPermissionError):
        read_core(path)


def test_core_of_others_as_told_by_open(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError

    path = core_of(tmp_path)
    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(NoPermissionError, match="may not be read; run as its owner or as root"):
        read_core(path)


def test_a_core_that_becomes_a_fifo_meanwhile(tmp_path, monkeypatch):
    path, opened = core_of(tmp_path), os.open

    def exchanged(name, *how):
        os.unlink(path)
        os.mkfifo(path)
        return opened(name, *how)

    monkeypatch.setattr("os.open", exchanged)
    for read in (read_core, lambda path: CoreFile(path, mmap=False)):
        os.unlink(path)
        core_of(tmp_path)
        with pytest.raises(BadCoreError, match="is not a (regular )?file"):
            read(path)


def test_a_core_that_cannot_be_opened(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    path = core_of(tmp_path)
    monkeypatch.setattr("os.open", fail)
    with pytest.raises(BadCoreError, match="core cannot be opened: Too many open files"):
        read_core(path)


@given(st.integers(0, 9000), st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=20))
@settings(max_examples=examples(150), deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_cores_end_in_one_error_or_in_less(tmp_path, length, changes):
    data = bytearray(Maker().core([(BASE, "/p", Maker().executable(OWN))])[:length])
    for at, value in changes:
        if at < len(data):
            data[at] = value
    try:
        read_core(written(tmp_path, "core", bytes(data)))
    except BadCoreError as error:
        assert "\n" not in str(error)


def _hostile(kind, at, index):
    return kind[0], at, 4096 * index, kind[1]


def test_a_core_that_is_cut_inside_its_notes_says_so(tmp_path):
    maker = Maker()
    at = maker.header_size + 2 * maker.step
    data = maker.header(4, 2) + maker.segment(1, at, BASE, 8) + maker.segment(4, at, 0, 1000) + bytes(300)
    path = written(tmp_path, "core", data)
    with pytest.raises(BadCoreError) as caught:
        read_core(path)
    assert str(caught.value) == (
        f"{path} is truncated: 700 of {at + 1000} bytes are missing, and with them the notes, without which "
        "gdb does not open a core; take the core again, with room on the disk"
    )


def test_a_core_of_very_many_hostile_segments_is_read_in_time(tmp_path):
    maker = Maker()
    count = 65_000
    at = maker.header_size + maker.step * count
    notes = maker.note(b"CORE", 0x46494C45, maker.pack("WW", 1 << 60, 1) + bytes(24 * 60_000))
    kinds = ((4, len(notes)), (1, 1 << 40))
    table = b"".join(maker.segment(*_hostile(kinds[index % 2], at, index)) for index in range(count))
    path = written(tmp_path, "core", maker.header(4, count) + table + notes)
    started = time.monotonic()
    read_core(path)
    assert time.monotonic() - started < 20


def test_named_executable(tmp_path):
    facts = read_core(core_of(tmp_path))
    good = written(tmp_path, "good", Maker().executable(OWN))
    assert choose_exe(facts, good, None) == (good, None)


def test_named_executable_of_another_build(tmp_path):
    facts = read_core(core_of(tmp_path))
    bad = written(tmp_path, "bad", Maker().executable(bytes(20)))
    with pytest.raises(WrongExeError) as caught:
        choose_exe(facts, bad, None)
    assert caught.value.message == (
        f"{bad} is not the executable of this core: its build-id is {bytes(20).hex()}, the core's {OWN.hex()}"
    )
    assert caught.value.hint == "the core is of /no/such/program; leave --exe away to go without"


def test_named_program_that_was_started_by_a_loader(tmp_path):
    """``ld.so PROGRAM``: the kernel's idea of the executable is ld.so."""
    maker = Maker()
    modules = [(BASE, "/lib/ld.so", maker.executable(OTHER)), (LIB, "/bin/p", maker.executable(OWN))]
    facts = read_core(written(tmp_path, "core", maker.core(modules)))
    program = written(tmp_path, "p", maker.executable(OWN))
    assert choose_exe(facts, program, None).exe == program


def test_named_executable_that_is_none(tmp_path):
    facts = read_core(core_of(tmp_path))
    with pytest.raises(WrongExeError, match="--exe: .*missing does not exist; name the program"):
        choose_exe(facts, str(tmp_path / "missing"), None)
    with pytest.raises(WrongExeError, match="--exe: .*text is not an ELF file"):
        choose_exe(facts, written(tmp_path, "text", b"text"), None)


def test_named_executable_without_proof(tmp_path):
    facts = read_core(core_of(tmp_path, dumped=False))
    named = written(tmp_path, "p", Maker().executable(OWN))
    choice = choose_exe(facts, named, None)
    assert choice.exe == named
    assert choice.remark == f"no build-id shows whether {named} is the core's executable: it is believed"


def test_found_executable_only_with_equal_build_id(tmp_path):
    path = str(tmp_path / "program")
    facts = read_core(core_of(tmp_path, path=path))
    assert choose_exe(facts, None, None).remark == (
        f"the core's executable {path} is not here: name it with --exe"
    )
    written(tmp_path, "program", Maker().executable(OTHER))
    assert choose_exe(facts, None, None).remark == (
        f"the core's executable {path} is another build here: name it with --exe"
    )
    written(tmp_path, "program", Maker().executable(OWN))
    assert choose_exe(facts, None, None) == (path, None)
    unproved = read_core(core_of(tmp_path, path=path, dumped=False))
    assert choose_exe(unproved, None, None).exe is None
    assert choose_exe(unproved, None, None).remark == (
        f"the core holds no build-id of {path}: name the executable with --exe"
    )


def test_below_the_sysroot_unless_provably_another(tmp_path):
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    inside = written(root / "bin", "p", Maker().executable(OWN))
    assert choose_exe(read_core(core_of(tmp_path, path="/bin/p")), None, str(root)).exe == inside
    assert choose_exe(read_core(core_of(tmp_path, OTHER, path="/bin/p")), None, str(root)).exe is None
    unproved = read_core(core_of(tmp_path, path="/bin/p", dumped=False))
    assert choose_exe(unproved, None, str(root)).exe == inside
    assert "it is believed" in choose_exe(unproved, None, str(root)).remark


def test_a_core_does_not_lead_out_of_the_sysroot(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    written(tmp_path, "outside", Maker().executable(b""))
    (root / "link").symlink_to(tmp_path / "outside")
    for path in ("/../outside", "/link"):
        facts = read_core(core_of(tmp_path, path=path, dumped=False))
        assert choose_exe(facts, None, str(root)).exe is None
