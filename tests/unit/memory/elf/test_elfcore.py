"""The core reader, over cores written here: what is held, filled, absent, cut, hostile."""

import gc
import os
import random
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbext import open_core, progress
from gdbext.errors import BadCoreError, FaultError, GdbextError
from gdbext.memory.elf import elfcore
from gdbext.memory.elf.elfcore import ElfCore
from gdbext.memory.room import Room
from tests.support.elfwriter import CoreWriter, R, W, X, shared_object
from tests.support.examples import examples

PAGE = 0x1000
MACHINES = [
    ("x86-64", True, "little"),
    ("i386", False, "little"),
    ("ppc64", True, "big"),
    ("s390", False, "big"),
]


def save(tmp_path, data, name="core"):
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def sources(core):
    return [(r.start, r.end, r.permissions, r.name, r.source) for r in core.regions()]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("machine,wide,order", MACHINES)
def test_reads_what_was_written(tmp_path, machine, wide, order, mmap):
    rng = random.Random(1)
    blobs = {0x10000: rng.randbytes(PAGE), 0x11000: rng.randbytes(2 * PAGE), 0x20000: rng.randbytes(PAGE)}
    writer = CoreWriter(machine, wide, order).prstatus(7)
    for address, data in blobs.items():
        writer.load(address, data)
    core = ElfCore(save(tmp_path, writer.build()), mmap=mmap)
    for address, data in blobs.items():
        assert bytes(core.read(address, len(data))) == data
        assert bytes(core.view(address + 5, 17)) == data[5:22]
    assert bytes(core.read(0x10FF0, 0x30)) == blobs[0x10000][-16:] + blobs[0x11000][:32]
    assert core.abi.pointer_size == (8 if wide else 4)
    assert core.abi.byteorder == order
    assert core.abi.machine == {"ppc64": "21", "s390": "22"}.get(machine, machine)
    assert not core.problems


def test_view_does_not_copy(tmp_path):
    core = ElfCore(save(tmp_path, CoreWriter().prstatus(1).load(0x10000, b"x" * PAGE).build()))
    whole = core.view(0x10000, PAGE)
    assert isinstance(whole, memoryview)
    assert core.view(0x10010, 8).obj is whole.obj
    assert core.read(0x10010, 8).obj is whole.obj


def resident(path):
    """Return the bytes of a file that are mapped and in memory, as the kernel has it."""
    with open("/proc/self/smaps") as lines:
        text = lines.read()
    found = [part for part in text.split("VmFlags:") if f"{path}\n" in part]
    return sum(int(part.split("\nRss:")[1].split()[0]) << 10 for part in found)


def test_pages_that_were_read_go_where_memory_is_short(tmp_path):
    data = random.Random(1).randbytes(1 << 20) * 4
    path = save(tmp_path, CoreWriter().prstatus(1).load(0x10000, data).build())
    core = ElfCore(path)
    held = core.view(0x10000, len(data))
    progress.check()
    assert bytes(held) == data and resident(path) >= len(data)
    core.bound_resident(1 << 40)
    progress.check()
    assert resident(path) >= len(data)
    core.bound_resident(0)
    progress.check()
    assert resident(path) == 0 and bytes(held) == data
    del core, held
    gc.collect()
    assert not progress.is_tight()


@pytest.mark.parametrize(("most", "free", "short"), [(0, 1 << 30, False), (0, 1 << 20, True), (1 << 30, 1 << 30, True)])
def test_memory_is_short_where_the_core_is_larger_or_somebody_says_so(tmp_path, monkeypatch, most, free, short):
    monkeypatch.setattr(elfcore, "find_room", lambda: Room(free, "free"))
    path = save(tmp_path, CoreWriter().prstatus(1).load(0x10000, bytes(PAGE)).build())
    ElfCore(path).spare_memory(most)
    assert not progress.is_tight()  # a small core is none that matters
    monkeypatch.setattr(elfcore, "_LARGE", 1)
    core = ElfCore(path)
    core.spare_memory(most)
    assert progress.is_tight() == short


@pytest.mark.parametrize(
    "address,size",
    [(0, 1), (0xFFFF, 1), (0xFFFF, 2), (0x10FFF, 2), (0x11000, 1), (0x30000, 1), (0x10000, 1 << 60),
     ((1 << 64) - 1, 8), (-8, 8), (0x10008, -8), (0x12FFF, 2), (0x11FFF, 2)],
)  # fmt: skip
def test_faults_outside(tmp_path, address, size):
    writer = CoreWriter().prstatus(1).load(0x10000, bytes(PAGE)).load(0x12000, bytes(PAGE))
    core = ElfCore(save(tmp_path, writer.build()))
    core.read(0x10000, 8)
    with pytest.raises(FaultError) as fault:
        core.read(address, size)
    assert fault.value.address == address
    assert fault.value.size == size


def test_nothing_is_readable_of_nothing(tmp_path):
    core = ElfCore(save(tmp_path, CoreWriter().prstatus(1).load(0x10000, bytes(PAGE)).build()))
    assert bytes(core.read(0x10000, 0)) == b""
    assert bytes(core.read(0x11000, 0)) == b""


def test_what_was_not_dumped_is_absent_not_zero(tmp_path):
    writer = (
        CoreWriter().prstatus(1).load(0x10000, b"a" * PAGE, memsz=3 * PAGE).load(0x20000, memsz=PAGE, flags=0)
    )
    core = ElfCore(save(tmp_path, writer.build()))
    assert sources(core) == [
        (0x10000, 0x11000, "rw-", "", "memory"),
        (0x11000, 0x13000, "rw-", "", "absent"),
        (0x20000, 0x21000, "---", "", "absent"),
    ]
    with pytest.raises(FaultError):
        core.read(0x11000, 1)
    assert not core.problems


def test_filtered_core_is_told(tmp_path):
    core = ElfCore(save(tmp_path, CoreWriter().prstatus(1).load(0x10000, memsz=PAGE).build()))
    assert [p.kind for p in core.problems] == ["filtered-core"]
    assert "coredump_filter" in core.problems[0].message


def test_segments_are_sorted(tmp_path):
    writer = (
        CoreWriter().prstatus(1).load(0x30000, b"c" * 16).load(0x10000, b"a" * 16).load(0x20000, b"b" * 16)
    )
    core = ElfCore(save(tmp_path, writer.build()))
    assert [r.start for r in core.regions()] == [0x10000, 0x20000, 0x30000]
    assert bytes(core.read(0x20000, 2)) == b"bb"


@pytest.mark.parametrize("memsz", [2 * PAGE, 1 << 40])
def test_a_segment_at_the_end_of_memory_is_cut_and_counted(tmp_path, memsz):
    start = (1 << 64) - 2 * PAGE
    writer = CoreWriter().prstatus(1).load(0x10000, b"a" * PAGE).load(start, b"b" * 2 * PAGE, memsz)
    path = save(tmp_path, writer.build())
    assert [one[:2] for one in sources(ElfCore(path))] == [(0x10000, 0x10000 + PAGE), (start, start + PAGE)]
    with open_core(path) as session:
        answer = session.run("rss")
    assert answer.report.data.total == 2 * PAGE
    assert ("damaged-core", start) in [(problem.kind, problem.address) for problem in answer.report.problems]


def test_a_segment_a_page_below_the_end_of_memory_is_whole(tmp_path):
    core = ElfCore(save(tmp_path, CoreWriter().prstatus(1).load((1 << 64) - 2 * PAGE, b"b" * PAGE).build()))
    assert sources(core)[0][:2] == ((1 << 64) - 2 * PAGE, (1 << 64) - PAGE)
    assert not core.problems


def test_overlapping_segments_are_cut(tmp_path):
    writer = CoreWriter().prstatus(1).load(0x10000, b"a" * 0x2000).load(0x11000, b"b" * 0x2000)
    writer.load(0x11800, b"c" * 0x100).load((1 << 64) - 0x2000, b"d" * 0x3000)
    core = ElfCore(save(tmp_path, writer.build()))
    spans = [(r.start, r.end) for r in core.regions()]
    assert spans == [(0x10000, 0x12000), (0x12000, 0x13000), ((1 << 64) - 0x2000, (1 << 64) - 0x1000)]
    assert bytes(core.read(0x11FFF, 2)) == b"ab"
    assert [p.kind for p in core.problems] == ["damaged-core"]
    assert "overlaps" in core.problems[0].message


def test_many_program_headers(tmp_path):
    writer = CoreWriter().prstatus(1)
    for index in range(70000):
        writer.loads.append((0x10000 + index * 2 * PAGE, b"%08d" % index, PAGE, R | W))
    data = writer.build(xnum=True)
    core = ElfCore(save(tmp_path, data))
    assert len(core.regions()) == 140000
    for index in (0, 1, 65535, 69999):
        assert bytes(core.read(0x10000 + index * 2 * PAGE, 8)) == b"%08d" % index
    # cut, it has lost the section header with the count; the notes tell how long the table is
    core = ElfCore(save(tmp_path, data[:-1000]))
    assert bytes(core.read(0x10000 + 65535 * 2 * PAGE, 8)) == b"00065535"
    assert core.problems[0].kind == "truncated-core"
    with pytest.raises(BadCoreError, match="truncated, and with it the number"):
        ElfCore(save(tmp_path, CoreWriter().load(0x10000, bytes(99)).build(xnum=True, notes_last=True)[:-60]))


# --- truncation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("machine,wide,order", MACHINES)
def test_truncated_anywhere(tmp_path, machine, wide, order):
    writer = CoreWriter(machine, wide, order).prstatus(5).prpsinfo(5, "x", "x")
    for index in range(3):
        writer.load(0x10000 + index * 0x10000, bytes([65 + index]) * 256)
    data = writer.build()
    body = len(data) - 3 * 256
    for size in [
        *range(0, 130, 7),
        *range(body - 40, len(data), 13),
        body,
        body + 256,
        body + 512,
        len(data),
    ]:
        path = save(tmp_path, data[:size])
        if size <= body:
            with pytest.raises(BadCoreError) as error:
                ElfCore(path)
            assert "\n" not in str(error.value)
            continue
        core = ElfCore(path)
        held = sum(r.size for r in core.regions() if r.source == "memory")
        assert held == size - body
        assert sum(r.size for r in core.regions()) == 3 * 256
        missing = [p.message for p in core.problems if p.kind == "truncated-core"]
        assert missing == (
            [f"the core is truncated: {len(data) - size} of {len(data)} bytes missing"]
            if size < len(data)
            else []
        )


def test_reading_up_to_the_cut(tmp_path):
    data = CoreWriter().prstatus(1).load(0x10000, b"q" * (4 * PAGE)).build()
    core = ElfCore(save(tmp_path, data[: -PAGE - 100]))
    end = 0x10000 + 3 * PAGE - 100
    assert sources(core) == [(0x10000, end, "rw-", "", "memory"), (end, 0x14000, "rw-", "", "absent")]
    assert core.problems[0].address == end
    assert bytes(core.read(end - 8, 8)) == b"q" * 8
    with pytest.raises(FaultError):
        core.read(end - 8, 9)


def test_truncated_gcore_keeps_its_memory(tmp_path):
    data = CoreWriter().load(0x10000, b"q" * PAGE).prstatus(1).build(notes_last=True)
    core = ElfCore(save(tmp_path, data[:-20]))
    assert bytes(core.read(0x10000, 4)) == b"qqqq"
    kinds = [p.kind for p in core.problems]
    assert kinds == ["truncated-core", "damaged-core", "damaged-core"]
    assert "the notes are cut off, 20 bytes" in core.problems[1].message
    assert "name no thread" in core.problems[2].message


def test_file_that_shrinks_while_read_by_pread(tmp_path):
    path = save(tmp_path, CoreWriter().prstatus(1).load(0x10000, b"q" * PAGE).build())
    core = ElfCore(path, mmap=False)
    os.truncate(path, 100)
    with pytest.raises(BadCoreError, match="shrank"):
        core.read(0x10000, 8)


# --- bad input ----------------------------------------------------------------------------------


def header_with(**changes):
    data = bytearray(CoreWriter().prstatus(1).load(0x10000, b"x" * 64).build())
    places = {"type": ("<H", 16), "phentsize": ("<H", 54), "phnum": ("<H", 56), "phoff": ("<Q", 32)}
    for name, value in changes.items():
        struct.pack_into(places[name][0], data, places[name][1], value)
    return bytes(data)


@pytest.mark.parametrize(
    "data,message",
    [
        (b"", "is empty; was it cut by a full disk"),
        (b"hello", "not an ELF file"),
        (b"\x7fELF", "not an ELF file"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "unpack it first"),
        (b"\x7fELF\x02\x01\x01" + bytes(40), "cut inside its header"),
        (b"\x7fELF\x09\x01\x01" + bytes(60), "not an ELF file"),
        (header_with(type=2), "is an executable, not a core"),
        (header_with(type=3), "is a shared object or executable, not a core"),
        (header_with(type=77), "an ELF file of unknown type, not a core"),
        (header_with(phentsize=57), "program headers of 57 bytes, not 56"),
        (header_with(phnum=60000), "cut inside its 60000 program headers"),
        (header_with(phoff=1 << 63), "cut inside its 2 program headers"),
        (header_with(phnum=0), "holds no memory"),
        (CoreWriter().prstatus(1).build(), "holds no memory"),
        (CoreWriter().prstatus(1).load(0, bytes(9)).build()[:400], "is cut before its memory begins"),
    ],
)
def test_bad_input(tmp_path, data, message):
    for mmap in (True, False):
        with pytest.raises(BadCoreError) as error:
            ElfCore(save(tmp_path, data), mmap=mmap)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
        assert error.value.hint


def test_bad_paths(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, message in [
        (tmp_path, "not a regular file"),
        (tmp_path / "fifo", "not a regular file"),
        (tmp_path / "nowhere", "No such file"),
        ("a\0b", "null byte"),
    ]:
        with pytest.raises(BadCoreError, match=message):
            ElfCore(str(path))


BASE = bytes(
    CoreWriter()
    .prstatus(1, {"rsp": 0x10010})
    .prpsinfo(1, "x", "x y")
    .auxv(pagesz=4096, execfn=0x10000, vdso=0x10000)
    .files((0x10000, 0x11000, 0, "/etc/hostname"), (0x12000, 0x13000, 0x1000, "/etc/hostname"))
    .siginfo(6)
    .load(0x10000, shared_object(CoreWriter(), b"\1" * 20)[:PAGE], flags=R)
    .load(0x20000, b"y" * 64, memsz=PAGE)
    .build()
)


@settings(max_examples=examples(400), deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, len(BASE) - 1), st.binary(min_size=1, max_size=9)), max_size=6),
    st.one_of(st.none(), st.integers(0, len(BASE))),
)
def test_hostile_bytes(tmp_path, patches, cut):
    # aim at headers and notes: the file's first kilobyte or so
    data = bytearray(BASE)
    for at, patch in patches:
        at = at % 1400 if at % 3 else at
        data[at : at + len(patch)] = patch
    path = save(tmp_path, bytes(data[:cut]))
    try:
        core = ElfCore(path)
    except BadCoreError as error:
        assert "\n" not in str(error)
        return
    regions = core.regions()
    assert all(r.start < r.end for r in regions)
    assert all(low.end <= high.start for low, high in zip(regions, regions[1:]))
    for region in regions:
        size = min(region.size, 64)
        if region.source == "absent":
            with pytest.raises(FaultError):
                core.read(region.start, size)
        else:
            assert len(core.read(region.start, size)) == size
            assert len(core.read(region.end - size, size)) == size


@settings(max_examples=examples(200), deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.sampled_from(MACHINES))
def test_hostile_notes(tmp_path, notes, machine):
    writer = CoreWriter(*machine).load(0x10000, b"x" * 16)
    writer.notes = notes
    core = ElfCore(save(tmp_path, writer.build()))
    assert bytes(core.read(0x10000, 1)) == b"x"


@pytest.mark.parametrize(
    "lwps, odd",
    [((7,), None), ((7, 8, 4194304), None), ((0,), "1 of 1 threads have no id of their own (0)"),
     ((7, 7, 8), "2 of 3 threads have no id of their own (7)"),
     ((-1, 7, 4194305, 0, 9, 9), "5 of 6 threads have no id of their own (-1, 4194305, 0, …)")],
)  # fmt: skip
def test_threads_without_an_id_of_their_own(tmp_path, lwps, odd):
    writer = CoreWriter().load(0x10000, bytes(PAGE))
    for lwp in lwps:
        writer.prstatus(lwp, {"rsp": 0x10000})
    core = ElfCore(save(tmp_path, writer.build()))
    assert [problem.message for problem in core.problems] == ([odd] if odd else [])
    assert [thread.lwp for thread in core.notes.threads] == list(lwps)


GIANT = 1 << 40


def giant(tmp_path, *parts):
    """A sparse file of 1 TiB with (offset, bytes) in it."""
    with open(tmp_path / "core", "wb") as file:
        for at, data in parts:
            file.seek(at)
            file.write(data)
        file.truncate(GIANT)
    return str(tmp_path / "core")


def test_tables_in_a_hole_are_not_read(tmp_path):
    """A file of a few KiB on the disk, whose headers would be a hundred gigabytes."""
    writer = CoreWriter().prstatus(1)
    table = writer.segment(4, 0, 0x2000, 0, len(writer.notes), 0, 4) + writer.segment(1, 6, 0x3000, 0x10000, 4, 4)
    section = bytes(44) + writer.pack("I", 0x7FFFFFFF) + bytes(16)
    path = giant(tmp_path, (0, writer.header(4, 0xFFFF, shoff=0x1000)), (64, table), (0x1000, section))
    for mmap in (True, False):
        with pytest.raises(BadCoreError, match="is cut inside its 2147483647 program headers, or damaged; take"):
            ElfCore(path, mmap=mmap)
    table = writer.segment(4, 0, 0x2000, 0, GIANT - 0x2000, 0, 4) + writer.segment(1, 6, 0x3000, 0x10000, 4, 4)
    path = giant(tmp_path, (0, writer.header(4, 2)), (64, table), (0x2000, writer.notes))
    for mmap in (True, False):
        with pytest.raises(BadCoreError, match="of its 1099511619584 bytes of notes most are in a hole of the file"):
            ElfCore(path, mmap=mmap)


def test_a_cut_core_whose_first_header_leads_nowhere(tmp_path):
    writer = CoreWriter()
    data = writer.header(4, 0xFFFF, shoff=1 << 62) + writer.segment(4, 0, 0, 0, 0, 0, 4) + bytes(PAGE)
    for mmap in (True, False):
        with pytest.raises(BadCoreError, match="is truncated, and with it the number of its mappings"):
            ElfCore(save(tmp_path, data), mmap=mmap)


@pytest.mark.parametrize("count", [0, 1, (48 << 20) // 24 - 8, 1 << 60])
def test_counts_and_zeros_cost_no_more_than_their_bytes(tmp_path, count):
    """As many names, threads or notes as there are zeros would be gigabytes."""
    zeros = bytes(48 << 20)
    writer = CoreWriter().prstatus(1).load(0x10000, bytes(PAGE))
    writer.add("CORE", 0x46494C45, writer.words(count, 4096) + zeros).add("CORE", 6, b"\1" * 8 + zeros)
    writer.notes += zeros
    path = save(tmp_path, writer.build())
    del zeros, writer
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({600 << 20},) * 2)"
    opened = f"from gdbext.memory.elf.corefacts import read_facts; print(read_facts({path!r}).lwps)"
    done = subprocess.run([sys.executable, "-c", f"{limited}; {opened}"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[1]\n", done.stderr[-2000:]


def test_zeros_behind_notes_are_padding_and_before_notes_damage(tmp_path):
    writer = CoreWriter().prstatus(1).load(0x10000, bytes(PAGE))
    writer.notes += bytes(40)
    assert ElfCore(save(tmp_path, writer.build())).problems == ()
    writer.prstatus(2)
    core = ElfCore(save(tmp_path, writer.build()))
    assert [problem.message for problem in core.problems] == ["the notes do not fit into their segment"]


def test_note_segments_that_overlap_cost_no_more(tmp_path):
    writer = CoreWriter().prstatus(1)
    notes = writer.notes + writer.note("x", 0, b"") * 100000
    entries = 20000
    at = 64 + 56 * (entries + 1)
    table = b"".join(writer.segment(4, 0, at + 16 * n, 0, len(notes) - 16 * n, 0, 4) for n in range(entries))
    table += writer.segment(1, 6, at, 0x10000, 16, 16)
    core = ElfCore(save(tmp_path, writer.header(4, entries + 1) + table + notes))
    assert len(core.notes.threads) == 1


# --- files --------------------------------------------------------------------------------------

ID, OTHER = b"\x11" * 20, b"\x22" * 20
LIB = 0x7F0000000000


def lib_core(path, build_id=ID, held=PAGE, text_flags=R | X, gcore=False, **options):
    """A library mapped as a loader does, with only ``held`` bytes of its first page dumped."""
    image = shared_object(CoreWriter(), build_id, **options)
    writer = CoreWriter().prstatus(1)
    writer.files(
        (LIB, LIB + PAGE, 0, path),
        (LIB + PAGE, LIB + 2 * PAGE, PAGE, path),
        (LIB + 3 * PAGE, LIB + 4 * PAGE, 2 * PAGE, path),
    )
    writer.load(LIB, image[:held], memsz=PAGE, flags=R)
    if not gcore:
        writer.load(LIB + PAGE, memsz=PAGE, flags=text_flags)
    writer.load(LIB + 3 * PAGE, memsz=PAGE, flags=R | W)
    return writer.load(LIB + 4 * PAGE, b"bss".ljust(PAGE, b"\0"), flags=R | W)


@pytest.mark.parametrize("gcore", [False, True])
@pytest.mark.parametrize("base", [0, 0x400000])
def test_text_comes_from_the_file(tmp_path, gcore, base):
    path = save(tmp_path, shared_object(CoreWriter(), ID, text=b"TEXT", base=base), "lib.so")
    core = ElfCore(save(tmp_path, lib_core(path, gcore=gcore, base=base).build()))
    assert sources(core) == [
        (LIB, LIB + PAGE, "r--", path, "memory"),
        (LIB + PAGE, LIB + 2 * PAGE, "r-x", path, "file"),
        (LIB + 3 * PAGE, LIB + 4 * PAGE, "rw-", path, "absent"),
        (LIB + 4 * PAGE, LIB + 5 * PAGE, "rw-", "", "memory"),
    ]
    assert [r.offset for r in core.regions()] == [0, PAGE, 2 * PAGE, 0]
    assert bytes(core.read(LIB + PAGE, 5)) == b"TEXT\0"
    assert bytes(core.read(LIB + PAGE - 1, 5)) == b"\0TEXT"
    assert not core.problems


def test_sysroot_and_find_file(tmp_path):
    lib = shared_object(CoreWriter(), ID, text=b"TEXT")
    (tmp_path / "root" / "opt").mkdir(parents=True)
    save(tmp_path / "root" / "opt", lib, "lib.so")
    path = save(tmp_path, lib_core("/opt/lib.so").build())
    assert [p.kind for p in ElfCore(path).problems] == ["absent-file"]
    assert bytes(ElfCore(path, sysroot=str(tmp_path / "root")).read(LIB + PAGE, 4)) == b"TEXT"
    asked = []

    def find_file(name, build_id):
        asked.append((name, build_id))
        return str(tmp_path / "root/opt/lib.so")

    assert bytes(ElfCore(path, find_file=find_file).read(LIB + PAGE, 4)) == b"TEXT"
    assert asked == [("/opt/lib.so", ID.hex())]


@pytest.mark.parametrize(
    "file_id,core_options,kind,message",
    [
        (OTHER, {}, "build-id-mismatch", "the files here have another build-id"),
        (None, {}, "build-id-mismatch", "the files here have another build-id"),
        (ID, {"build_id": None}, "no-build-id", "nor is a build-id"),
        (ID, {"held": 0}, "no-build-id", "nor is a build-id"),
    ],
)
def test_files_that_prove_nothing_are_not_read(tmp_path, file_id, core_options, kind, message):
    path = save(tmp_path, shared_object(CoreWriter(), file_id, text=b"TEXT"), "lib.so")
    core = ElfCore(save(tmp_path, lib_core(path, **core_options).build()))
    assert core.regions()[1].source == "absent"
    assert [p.kind for p in core.problems] == [kind]
    assert message in core.problems[0].message
    assert path in core.problems[0].message
    with pytest.raises(FaultError):
        core.read(LIB + PAGE, 4)


@pytest.mark.parametrize("gcore", [False, True])
def test_the_hole_between_segments_is_no_problem(tmp_path, gcore):
    # the loader reserves a library as a whole, and leaves what no segment covers inaccessible
    path = save(tmp_path, shared_object(CoreWriter(), ID), "lib.so")
    writer = lib_core(path, gcore=gcore).files((LIB + 2 * PAGE, LIB + 3 * PAGE, 2 * PAGE, path))
    if not gcore:
        writer.load(LIB + 2 * PAGE, memsz=PAGE, flags=0)
    core = ElfCore(save(tmp_path, writer.build()))
    assert [r.source for r in core.regions() if r.start == LIB + 2 * PAGE] == ["absent"]
    assert not core.problems


def test_a_data_file_is_no_problem(tmp_path):
    writer = CoreWriter().prstatus(1)
    writer.files((LIB, LIB + PAGE, 0, "/usr/lib/locale/locale-archive")).load(LIB, memsz=PAGE, flags=R)
    core = ElfCore(save(tmp_path, writer.load(LIB + PAGE, b"x" * PAGE, flags=R | W).build()))
    assert [r.source for r in core.regions()] == ["absent", "memory"]
    assert not core.problems


def test_relro_is_not_filled(tmp_path):
    # the data segment, made read-only by the loader after relocation, and left out of the core
    path = save(tmp_path, shared_object(CoreWriter(), ID), "lib.so")
    writer = lib_core(path)
    writer.loads[2] = (LIB + 3 * PAGE, b"", PAGE, R)
    core = ElfCore(save(tmp_path, writer.build()))
    assert core.regions()[2].permissions == "r--"
    assert core.regions()[2].source == "absent"


def test_writable_text_is_not_filled(tmp_path):
    path = save(tmp_path, shared_object(CoreWriter(), ID), "lib.so")
    core = ElfCore(save(tmp_path, lib_core(path, text_flags=R | W | X).build()))
    assert core.regions()[1].source == "absent"


def test_mapping_past_the_end_of_its_file(tmp_path):
    lib = shared_object(CoreWriter(), ID)[: PAGE + 100]
    core = ElfCore(save(tmp_path, lib_core(save(tmp_path, lib, "lib.so")).build()))
    spans = [(r.start, r.end, r.source) for r in core.regions()][1:3]
    cut = LIB + PAGE + 100
    assert spans == [(LIB + PAGE, cut, "file"), (cut, LIB + 2 * PAGE, "absent")]
    assert bytes(core.read(cut - 4, 4)) == bytes(4)
    with pytest.raises(FaultError):
        core.read(cut - 4, 5)


def test_file_that_changes_after_the_core_was_opened(tmp_path):
    path = save(tmp_path, shared_object(CoreWriter(), ID), "lib.so")
    core = ElfCore(save(tmp_path, lib_core(path).build()))
    save(tmp_path, b"something else", "lib.so")
    with pytest.raises(FaultError, match="lib.so"):
        core.read(LIB + PAGE, 4)


def test_file_that_is_gone_after_the_core_was_opened(tmp_path):
    path = save(tmp_path, shared_object(CoreWriter(), ID), "lib.so")
    core = ElfCore(save(tmp_path, lib_core(path).build()))
    os.unlink(path)
    with pytest.raises(FaultError, match="lib.so"):
        core.read(LIB + PAGE, 4)


def test_files_without_contents(tmp_path):
    path = save(tmp_path, b"", "lib.so")
    assert [p.kind for p in ElfCore(save(tmp_path, lib_core(path).build())).problems] == ["absent-file"]


def test_file_system_that_cannot_map(tmp_path, monkeypatch):
    path = save(tmp_path, CoreWriter().prstatus(1).load(0x10000, b"q" * PAGE).build())

    def refuse(*arguments, **options):
        raise OSError(19, "No such device")

    monkeypatch.setattr("gdbext.memory.corefile.mapping.mmap", refuse)
    assert bytes(ElfCore(path).read(0x10000, 8)) == b"q" * 8


def test_paths_that_must_not_be_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    os.symlink("/proc/self/exe", tmp_path / "exe")
    for path in (str(tmp_path / "fifo"), "/dev/zero", "/proc/self/mem", "relative", "/a\nb", str(tmp_path)):
        core = ElfCore(save(tmp_path, lib_core(path).build()))
        assert core.regions()[1].source == "absent"
        assert [p.kind for p in core.problems] == ["absent-file"]


def test_files_are_told_once_for_each_kind(tmp_path):
    writer = CoreWriter().prstatus(1)
    names = [(0x10000 + n * 2 * PAGE, 0x11000 + n * 2 * PAGE, 0, f"/data/{n}") for n in range(9)]
    writer.files(*names)
    for start, _, _, _ in names:
        writer.load(start, memsz=PAGE, flags=R | X)
    core = ElfCore(save(tmp_path, writer.build()))
    assert [p.message for p in core.problems if p.kind != "filtered-core"] == [
        f"{9 * PAGE} bytes of mapped files are not in the core, nor is a build-id to know them by: "
        "/data/0, /data/1, /data/2 and 6 more"
    ]


def test_private_file_pages_that_were_dumped_are_the_cores(tmp_path):
    path = save(tmp_path, shared_object(CoreWriter(), ID, text=b"file"), "lib.so")
    writer = lib_core(path)
    writer.loads[1] = (LIB + PAGE, b"core".ljust(PAGE, b"\0"), PAGE, R | X)
    core = ElfCore(save(tmp_path, writer.build()))
    assert bytes(core.read(LIB + PAGE, 4)) == b"core"
    assert core.regions()[1].source == "memory"


def test_one_program_header_over_several_files(tmp_path):
    writer = CoreWriter().prstatus(1)
    writer.files((0x11000, 0x12000, 0, "/a"), (0x12000, 0x13000, 0x5000, "/b"), (0x90000, 0x91000, 0, "/c"))
    core = ElfCore(save(tmp_path, writer.load(0x10000, bytes(4 * PAGE)).build()))
    assert [(r.start, r.name, r.offset) for r in core.regions()] == [
        (0x10000, "", 0),
        (0x11000, "/a", 0),
        (0x12000, "/b", 0x5000),
        (0x13000, "", 0),
        (0x90000, "/c", 0),
    ]
    assert core.regions()[-1].permissions == "???"
    assert bytes(core.read(0x10800, 0x2000)) == bytes(0x2000)


# --- names --------------------------------------------------------------------------------------


def test_names_of_special_mappings(tmp_path):
    writer = CoreWriter().prstatus(1).auxv(execfn=0x7FFE000, vdso=0x8000000)
    for address in (0x10000, 0x7FFE000, 0x8000000, 0xFFFFFFFFFF600000):
        writer.load(address, bytes(PAGE))
    core = ElfCore(save(tmp_path, writer.build()))
    assert [r.name for r in core.regions()] == ["", "[stack]", "[vdso]", "[vsyscall]"]


def test_stack_by_the_main_threads_register(tmp_path):
    writer = CoreWriter().prstatus(9, {"rsp": 0x10010}).prstatus(8, {"rsp": 0x20010}).prpsinfo(8, "x", "x")
    writer.load(0x10000, bytes(PAGE)).load(0x20000, bytes(PAGE))
    core = ElfCore(save(tmp_path, writer.build()))
    assert [r.name for r in core.regions()] == ["", "[stack]"]


def test_errors_are_gdbext_errors():
    assert issubclass(BadCoreError, GdbextError)


def sparse(tmp_path, written, size=64 << 30, at=0x10000):
    """A core with one mapping at 0x7000000000 whose bytes are a hole of the file, but for some pages."""
    writer = CoreWriter().prstatus(1)
    rows = [writer.segment(4, 0, 0x200, 0, len(writer.notes), 0, 4)]
    rows.append(writer.segment(1, R | W, at, 0x7000000000, size, size))
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(writer.header(4, 2) + b"".join(rows))
        file.seek(0x200)
        file.write(writer.notes)
        for page in written:
            file.seek(at + page * PAGE)
            file.write(b"written".ljust(PAGE, b"!"))
        file.truncate(at + size)
    if 512 * os.stat(path).st_blocks > 1 << 24:
        pytest.skip("no holes in files here")
    return ElfCore(str(path))


@pytest.mark.parametrize("at", [0x10000, 0x10008])
def test_holes_of_a_sparse_core_cost_nothing(tmp_path, at):
    start, pages = 0x7000000000, (3, 1 << 20)
    core = sparse(tmp_path, pages, at=at)
    found = list(core.for_each_written(start, start + (64 << 30)))
    assert all(any(low <= start + page * PAGE < high for low, high in found) for page in pages)
    assert sum(high - low for low, high in found) <= 1 << 18 and found == sorted(found)
    assert all(low % PAGE == high % PAGE == 0 for low, high in found)
    third = start + 3 * PAGE
    assert list(core.for_each_written(third, third + 8)) == [(third, third + 8)]
    assert list(core.for_each_written(start + (1 << 30), start + (2 << 30))) == []
    places = np.array([start + 3 * PAGE, start + (1 << 30), 0x1000], np.uint64)
    assert core.untouched(places).tolist() == [False, True, False]
    assert bytes(core.read(start + (1 << 30), 8)) == bytes(8)


def test_a_core_without_holes_was_written_all_over(tmp_path):
    core = ElfCore(save(tmp_path, CoreWriter().prstatus(1).load(0x10000, b"x" * PAGE, 2 * PAGE).build()))
    assert list(core.for_each_written(0, 1 << 63)) == [(0x10000, 0x11000)]
    assert core.untouched(np.array([0x10000, 0x11000], np.uint64)).tolist() == [False, False]


def test_a_core_that_changes_meanwhile(tmp_path):
    path = save(tmp_path, CoreWriter().prstatus(1).load(0x10000, b"x" * PAGE).build())
    core = ElfCore(path)
    assert core.check_reads() == ()
    with open(path, "r+b") as file:
        os.utime(file.fileno(), (1, 1))
    (problem,) = core.check_reads()
    assert problem.kind == "changed-core" and not problem.corruption
    with open(path, "r+b") as file:
        file.truncate(100)
    with pytest.raises(BadCoreError, match="^the core shrank while it was read; copy it, and examine the copy$"):
        core.check_reads()
    core.close()
    assert core.check_reads() == ()


def test_no_answer_is_made_of_a_core_that_shrank(tmp_path):
    path = save(tmp_path, CoreWriter().prstatus(1).load(0x10000, b"x" * PAGE).build())
    with open_core(path) as session:
        assert session.run("rss").complete
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - PAGE)
        with pytest.raises(BadCoreError, match="shrank"):
            session.run("rss")
