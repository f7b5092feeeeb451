"""Targets from cores: synthetic ones, and real ones of one parked process.

The process is read through ``/proc`` while it lives; then gcore takes a core and SIGABRT makes the kernel
write another. So the truth is the kernel's; thread numbers and registers are gdb's, reads also drgn's.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from gdbext.abi import X86_64
from gdbext.coretarget import modules_of, read_core_target
from gdbext.errors import BadCoreError, FaultError
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from tests.support.elfwriter import CoreWriter, R, shared_object
from tests.support.rest import wait_for_rest

PAGE = 0x1000
ID = b"\x11" * 20
LIB = 0x7F0000000000
EXE = 0x400000


def save(tmp_path, data, name="core"):
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


# --- synthetic ----------------------------------------------------------------------------------


def test_everything_a_core_says(tmp_path):
    image = shared_object(CoreWriter(), ID)
    writer = (
        CoreWriter()
        .prstatus(101, {"rsp": 0x20010, "rip": EXE + PAGE, "fs_base": 0x30000, "orig_rax": 7}, signal=6)
        .prpsinfo(100, "prog", "./prog arg")
        .siginfo(11)
        .auxv(phdr=EXE + 64, pagesz=4096, entry=EXE + PAGE, execfn=0x20100)
        .files((EXE, EXE + PAGE, 0, "/opt/prog"))
        .prstatus(100, {"rsp": 0x20020})
        .load(EXE, image[:PAGE], flags=R)
        .load(0x20000, bytes(PAGE))
    )
    path = save(tmp_path, writer.build())
    os.utime(path, (5, 1234.5))
    target = read_core_target(path)
    assert [(t.number, t.lwp, t.stack_pointer, t.tls, t.name) for t in target.threads] == [
        (1, 101, 0x20010, 0x30000, None),
        (2, 100, 0x20020, 0, None),
    ]
    assert target.threads[0].registers["orig_rax"] == 7
    assert target.threads[0].registers["rip"] == EXE + PAGE
    identity = target.identity
    assert (identity.exe, identity.build_id, identity.pid) == ("/opt/prog", ID.hex(), 100)
    assert (identity.core, identity.time) == (path, 1234.5)
    assert target.auxv[6] == 4096
    assert target.memory.notes.signal == 11
    assert not target.live
    assert target.local_pid is None


@pytest.mark.parametrize(
    "add,exe",
    [
        (lambda w: w, None),
        (lambda w: w.prpsinfo(1, "comm", ""), "comm"),
        (lambda w: w.prpsinfo(1, "comm", "./prog arg"), "./prog"),
        (lambda w: w.prpsinfo(1, "comm", "./prog arg").auxv(execfn=0x20100), "./called/so"),
        (lambda w: w.auxv(execfn=0x20100, entry=EXE + 8).files((EXE, EXE + PAGE, 0, "/opt/x")), "/opt/x"),
        (lambda w: w.auxv(execfn=0xDEAD0000), None),
    ],
)
def test_exe_without_its_headers(tmp_path, add, exe):
    stack = (bytes(0x100) + b"./called/so").ljust(PAGE, b"\0")
    writer = add(CoreWriter().prstatus(1)).load(0x20000, stack)
    target = read_core_target(save(tmp_path, writer.build()))
    assert (target.identity.exe, target.identity.build_id) == (exe, None)


@pytest.mark.parametrize(
    "size,expected", [(16384, 16384), (65536, 65536), (12345, 4096), (0, 4096), (1 << 60, 4096)]
)
def test_page_size(tmp_path, size, expected):
    writer = CoreWriter("aarch64").prstatus(1, {"sp": 5}).auxv(pagesz=size).load(0x20000, bytes(16))
    assert read_core_target(save(tmp_path, writer.build())).abi.page_size == expected


def test_i386_thread_pointer_is_the_entry_that_gs_selects(tmp_path):
    writer = CoreWriter("i386", wide=False).prstatus(1, {"gs": 0x63, "esp": 0x20010, "eip": 9})
    entries = [(6, 1), (12, 0xF7D00500), (13, 2)]
    writer.add("LINUX", 0x200, b"".join(writer.pack("4I", number, base, 0, 0) for number, base in entries))
    (thread,) = read_core_target(save(tmp_path, writer.load(0x20000, bytes(16)).build())).threads
    assert (thread.tls, thread.stack_pointer) == (0xF7D00500, 0x20010)


def test_aarch64_thread_pointer(tmp_path):
    writer = CoreWriter("aarch64")
    for lwp in (1, 2):
        writer.prstatus(lwp, {"sp": 16 * lwp, "x30": 3}).add("LINUX", 0x401, writer.words(0x5000 + lwp, 0))
    target = read_core_target(save(tmp_path, writer.load(0x20000, bytes(16)).build()))
    assert [(t.tls, t.stack_pointer, t.registers["x30"]) for t in target.threads] == [
        (0x5001, 16, 3),
        (0x5002, 32, 3),
    ]


def test_big_endian_threads_have_no_registers(tmp_path):
    writer = CoreWriter("ppc64", order="big").prstatus(77).prpsinfo(76, "x", "x").load(0x20000, bytes(16))
    target = read_core_target(save(tmp_path, writer.build()))
    assert [(t.lwp, t.registers, t.tls, t.stack_pointer) for t in target.threads] == [(77, {}, None, None)]
    assert target.identity.pid == 76


@pytest.mark.parametrize(
    "kind,contents,message",
    [
        (1, bytes(40), "note 0x1 of 40 bytes is too short"),
        (3, bytes(40), "note 0x3 of 40 bytes is too short"),
        (0x46494C45, bytes(7), "note 0x46494c45 of 7 bytes is too short"),
        (0x46494C45, b"\xff" * 8 + bytes(100), "announces 18446744073709551615 mappings in 108 bytes"),
        (
            0x46494C45,
            CoreWriter().words(1, 4096, 0x1000, 0x2000, 0) + b"nameless",
            "names 0 files for 1 mappings",
        ),
        (0x46494C45, CoreWriter().words(1, 4096, 0x2000, 0x1000, 0) + b"a\0", "holds 1 impossible mappings"),
    ],
)
def test_damaged_notes_are_told(tmp_path, kind, contents, message):
    writer = CoreWriter().prstatus(1).add("CORE", kind, contents).load(0x20000, bytes(16))
    problem = read_core_target(save(tmp_path, writer.build())).problems[0]
    assert problem.kind == "damaged-core"
    assert message in problem.message


def test_notes_that_do_not_fit(tmp_path):
    writer = CoreWriter().prstatus(1).load(0x20000, bytes(16))
    writer.notes += writer.pack("III", 5, 1 << 31, 1) + b"CORE\0\0\0\0"
    target = read_core_target(save(tmp_path, writer.build()))
    assert [p.message for p in target.problems] == ["the notes do not fit into their segment"]
    assert len(target.threads) == 1


def test_bad_core_is_one_line(tmp_path):
    with pytest.raises(BadCoreError, match="is empty"):
        read_core_target(save(tmp_path, b""))


# --- modules ------------------------------------------------------------------------------------


def mapped(path, image, base=LIB):
    """A shared object as a loader maps it: pieces of memory, and regions."""
    data = [(base, image[:PAGE]), (base + PAGE, image[PAGE : 2 * PAGE]), (base + 3 * PAGE, image[2 * PAGE :])]
    regions = [
        Region(base, base + PAGE, "r--", path, 0),
        Region(base + PAGE, base + 2 * PAGE, "r-x", path, PAGE),
        Region(base + 3 * PAGE, base + 4 * PAGE, "rw-", path, 2 * PAGE),
    ]
    return data, regions


def modules(*parts, abi=X86_64):
    memory = FakeMemory(
        [piece for data, _ in parts for piece in data], [region for _, regions in parts for region in regions]
    )
    return [(m.path, m.base, m.end, m.build_id) for m in modules_of(memory, abi)]


@pytest.mark.parametrize("machine,wide,order", [("x86-64", True, "little"), ("s390", False, "big")])
@pytest.mark.parametrize("base", [0, 0x40000])
def test_module_with_load_bias(machine, wide, order, base):
    writer = CoreWriter(machine, wide, order)
    found = modules(mapped("/lib/a", shared_object(writer, ID, base=base), 0x70000000))
    assert found == [("/lib/a", 0x70000000, 0x70005000, ID.hex())]


def test_same_file_twice_and_others_between():
    image = shared_object(CoreWriter(), ID)
    nothing = (
        [(LIB + 0x10000, b"locale data".ljust(PAGE))],
        [Region(LIB + 0x10000, LIB + 0x11000, "r--", "/locale")],
    )
    found = modules(
        mapped("/a", image), nothing, mapped("/a", image, LIB + 0x20000), mapped("/b", image, LIB + 0x30000)
    )
    assert [(path, base - LIB) for path, base, _, _ in found] == [("/a", 0), ("/a", 0x20000), ("/b", 0x30000)]


def test_header_mapped_again_with_the_data():
    # small programs of older linkers: the data segment's page is the file's first page too
    image = bytearray(shared_object(CoreWriter(), ID))
    data, regions = mapped("/a", bytes(image))
    regions[2] = Region(LIB + 3 * PAGE, LIB + 4 * PAGE, "rw-", "/a", 0)
    data[2] = (LIB + 3 * PAGE, image[:PAGE])
    assert [base for _, base, _, _ in modules((data, regions))] == [LIB]


def test_data_mapping_of_an_elf_file_has_no_bss():
    image = shared_object(CoreWriter(), ID)
    found = modules(([(LIB, image)], [Region(LIB, LIB + 3 * PAGE, "r--", "/a")]))
    assert found == [("/a", LIB, LIB + 3 * PAGE, ID.hex())]


def test_modules_do_not_overlap():
    image = shared_object(CoreWriter(), ID)
    found = modules(mapped("/a", image), mapped("/b", image, LIB + 4 * PAGE))
    assert [(base, end) for _, base, end, _ in found] == [
        (LIB, LIB + 4 * PAGE),
        (LIB + 4 * PAGE, LIB + 9 * PAGE),
    ]


def test_build_id_unknown():
    writer = CoreWriter()
    other = writer.note("GNU", 1, bytes(16)) + writer.note("XYZ", 3, b"\7" * 20)
    for image in (shared_object(writer, None), shared_object(writer, None, notes=other)):
        assert modules(mapped("/a", image)) == [("/a", LIB, LIB + 5 * PAGE, None)]
    assert modules(mapped("/a", shared_object(writer, ID, notes=other)))[0][3] == ID.hex()


def test_what_is_no_module():
    image = shared_object(CoreWriter(), ID)
    data, regions = mapped("/a", image)
    assert modules((data[1:], [Region(LIB, LIB + PAGE, "r--", "/a", 0, "absent"), *regions[1:]])) == []
    assert modules((data[1:], regions)) == []
    assert modules(mapped("[vdso]", image)) == []
    assert modules(mapped("/a", image[:60].ljust(PAGE, b"\xff") + image[PAGE:])) == []
    assert modules(([(LIB, image[:64])], [Region(LIB, LIB + 64, "r--", "/a")])) == []


# --- real ---------------------------------------------------------------------------------------

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int ready;
static char filler[300000];
static void *park(void *p) { __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST); for (;;) pause(); }
int main(int argc, char **argv)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < 3; i++) { pthread_t t; pthread_create(&t, &small, park, 0); }
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 3) usleep(1000);
    memset(filler, 5, sizeof filler);
    memset(malloc(100000), 7, 100000);
    mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open(argv[1], O_RDONLY);
    mmap(0, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"""

GDB_SCRIPT = r"""
import gdb, hashlib, json
want = json.load(open(%(ask)r))
threads = []
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    values = {}
    for name in want["registers"]:
        value = frame.read_register(name)
        values[name] = int(value.cast(gdb.lookup_type("unsigned long"))) & (2 ** (8 * value.type.sizeof) - 1)
    threads.append([thread.num, thread.ptid[1], values])
spans = []
for start, size in want["spans"]:
    spans.append(hashlib.sha1(bytes(gdb.selected_inferior().read_memory(start, size))).hexdigest())
json.dump({"threads": sorted(threads), "spans": spans}, open(%(answer)r, "w"))
"""

DRGN_SCRIPT = r"""
import drgn, hashlib, json, sys
program = drgn.Program()
program.set_core_dump(sys.argv[1])
spans = json.loads(sys.argv[2])
print(json.dumps([hashlib.sha1(program.read(start, size)).hexdigest() for start, size in spans]))
"""

MAPS = re.compile(r"(\w+)-(\w+) (...). (\w+) \S+ \d+ *(.*)")
REGISTERS = {64: ["rsp", "rip", "rbx", "orig_rax", "fs_base", "gs", "r15"], 32: ["esp", "eip", "ebx", "gs"]}
BUILDS = {"64": ["-m64"], "32": ["-m32"], "static": ["-m64", "-static"], "no-pie": ["-m64", "-no-pie"]}


def read_maps(pid):
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        start, end, permissions, offset, name = MAPS.match(line).groups()
        yield int(start, 16), int(end, 16), permissions, int(offset, 16), name


class Specimen:
    """A parked process: its maps and bytes as ``/proc`` showed them, and its two cores."""

    def __init__(self, folder, build, coredump_filter=None):
        self.folder, self.build = folder, build
        self.bits = 32 if build == "32" else 64
        self.program = folder / "parked"
        (folder / "parked.c").write_text(SOURCE)
        (folder / "data").write_bytes(b"not an ELF file" * 1000)
        command = ["gcc", *BUILDS[build], "-g", "-pthread", "-o", self.program, folder / "parked.c"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot compile {build}: {done.stderr.strip().splitlines()[-1]}")
        # rseq's area changes with every migration: without it, nothing changes in a parked process
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -c unlimited; exec "$0" "$1"', self.program, folder / "data"],
            cwd=folder, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        try:
            assert process.stdout.readline() == b"ready\n"
            wait_for_rest(process.pid)
            self.pid = process.pid
            self.maps = list(read_maps(self.pid))
            self.bytes = self._read_memory()
            if coredump_filter is None:
                gcore = ["gcore", "-o", folder / "gcore", str(self.pid)]
                subprocess.run(gcore, capture_output=True, check=True)
            else:
                Path(f"/proc/{self.pid}/coredump_filter").write_text(hex(coredump_filter))
            process.send_signal(signal.SIGABRT)
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
        self.gcore = folder / f"gcore.{self.pid}"

    def _read_memory(self):
        found = {}
        descriptor = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY)
        for start, end, permissions, _, name in self.maps:
            if "r" in permissions and not name.startswith("[vv"):
                found[start] = os.pread(descriptor, end - start, start)
        os.close(descriptor)
        return found

    def core(self, kind):
        if kind == "gcore":
            return str(self.gcore)
        cores = [path for path in self.folder.glob("core*") if path.is_file()]
        if not cores:
            pytest.skip(
                "the kernel wrote no core here: " + Path("/proc/sys/kernel/core_pattern").read_text().strip()
            )
        return str(cores[0])


def require_tools():
    for tool in ("gcc", "gdb", "gcore", "readelf"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")


@pytest.fixture(scope="module", params=list(BUILDS))
def specimen(request, tmp_path_factory):
    require_tools()
    return Specimen(tmp_path_factory.mktemp(f"parked-{request.param}"), request.param)


@pytest.fixture(params=["kernel", "gcore"])
def kind(request):
    return request.param


@pytest.fixture
def target(specimen, kind):
    return read_core_target(specimen.core(kind))


def ask_gdb(specimen, core, spans, tmp_path):
    ask, answer, script = (tmp_path / name for name in ("ask", "answer", "script.py"))
    ask.write_text(json.dumps({"registers": REGISTERS[specimen.bits], "spans": spans}))
    script.write_text(GDB_SCRIPT % {"ask": str(ask), "answer": str(answer)})
    command = ["gdb", "-nx", "-batch", "-iex", "set auto-load off", specimen.program, core, "-x", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert answer.exists(), done.stderr
    return json.loads(answer.read_text())


def test_threads_are_numbered_as_gdb_does(specimen, kind, target, tmp_path):
    theirs = ask_gdb(specimen, specimen.core(kind), [], tmp_path)["threads"]
    assert len(theirs) == 4
    assert [(t.number, t.lwp) for t in target.threads] == [(number, lwp) for number, lwp, _ in theirs]
    for thread, (_, _, registers) in zip(target.threads, theirs):
        assert {name: thread.registers[name] for name in registers} == registers
        assert thread.stack_pointer == registers["rsp" if specimen.bits == 64 else "esp"]
        if specimen.bits == 64:
            assert thread.tls == registers["fs_base"]


def test_thread_pointers_point_to_themselves(specimen, kind, target):
    # the first word of tcbhead_t; gdb's gcore writes no NT_386_TLS
    for thread in target.threads:
        if specimen.bits == 32 and kind == "gcore":
            assert thread.tls is None
        else:
            assert target.reader.word(thread.tls) == thread.tls


def compare_with_proc(specimen, target):
    """Compare every region with the live process; return the bytes compared by source."""
    compared = {}
    stacks = [(thread.stack_pointer - 512, thread.stack_pointer) for thread in target.threads]
    for region in target.memory.regions():
        start = max((at for at in specimen.bytes if at <= region.start), default=None)
        if region.source == "absent" or start is None or region.start >= start + len(specimen.bytes[start]):
            continue
        truth = specimen.bytes[start][region.start - start : region.end - start]
        ours = bytes(target.memory.read(region.start, region.size))
        assert len(truth) == len(ours)
        # the signal that ended it may have used the stack below the stack pointer
        if ours != truth and region.name in ("", "[stack]"):
            differ = [region.start + i for i in range(len(ours)) if ours[i] != truth[i]]
            assert all(any(low - 4096 <= at < high for low, high in stacks) for at in differ)
        else:
            assert ours == truth, region
        compared[region.source] = compared.get(region.source, 0) + region.size
    return compared


def test_memory_is_what_proc_showed(specimen, target):
    compared = compare_with_proc(specimen, target)
    assert compared["memory"] > 900_000
    assert compared["file"] > (100_000 if specimen.build == "static" else 1_400_000)


# bits of core(5): 0 anonymous private, 1 anonymous shared, 2 file private, 3 file shared, 4 ELF headers
@pytest.mark.parametrize(
    "coredump_filter,memory,file,problems",
    [
        (0x00, False, False, {"filtered-core", "no-build-id"}),
        (0x10, True, True, {"filtered-core"}),
        (0x01, True, False, {"no-build-id"}),
        (0x1F, True, False, set()),
    ],
)
def test_filtered_cores(tmp_path, coredump_filter, memory, file, problems):
    require_tools()
    specimen = Specimen(tmp_path, "64", coredump_filter)
    target = read_core_target(specimen.core("kernel"))
    compared = compare_with_proc(specimen, target)
    # the vDSO is in every core
    assert (compared["memory"] > 1 << 14, "file" in compared) == (memory, file)
    assert {problem.kind for problem in target.problems} == problems
    # what the loader relocated and then made read-only is not what the file holds
    relro = [r for r in target.memory.regions() if r.permissions == "r--" and r.name == str(specimen.program)]
    assert relro[-1].source == ("memory" if coredump_filter & 5 else "absent")


def test_memory_is_what_gdb_and_drgn_read(specimen, kind, target, tmp_path):
    spans = [(r.start, r.size) for r in target.memory.regions() if r.source == "memory"]
    ours = [hash_of(target.memory.read(*span)) for span in spans]
    assert ask_gdb(specimen, specimen.core(kind), spans, tmp_path)["spans"] == ours
    if subprocess.run(["/usr/bin/python3", "-c", "import drgn"], capture_output=True).returncode:
        pytest.skip("no python3-drgn")
    command = ["/usr/bin/python3", "-c", DRGN_SCRIPT, specimen.core(kind), json.dumps(spans)]
    assert json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout) == ours


def hash_of(data):
    return hashlib.sha1(data).hexdigest()


def test_regions_are_the_maps(specimen, kind, target):
    regions = [r for r in target.memory.regions() if r.name != "[vsyscall]"]
    joined = {}
    for region in regions:
        for start, end, permissions, offset, name in specimen.maps:
            if start <= region.start and region.end <= end:
                joined[start] = joined.get(start, 0) + region.size
                if kind == "kernel":
                    assert region.permissions == permissions
                if name and name not in ("[heap]", "[vvar]", "[vvar_vclock]"):
                    assert region.name == name
                if name.startswith("/"):
                    assert region.offset == offset + region.start - start
                break
        else:
            raise AssertionError(region)
    whole = {start: end - start for start, end, _, _, name in specimen.maps if name != "[vsyscall]"}
    if kind == "gcore":
        whole = {start: size for start, size in whole.items() if start in joined}
        names = {name for start, _, _, _, name in specimen.maps if start not in joined}
        assert names <= {"[vvar]", "[vvar_vclock]", "[vsyscall]"}
    assert joined == whole


def test_reservations_and_untouched_memory_are_absent(specimen):
    # in the kernel's core; gdb writes them as zeros
    target = read_core_target(specimen.core("kernel"))
    absent = {(r.start, r.end) for r in target.memory.regions() if r.source == "absent" and r.anonymous}
    guards = {(start, end) for start, end, permissions, _, name in specimen.maps if permissions == "---"}
    assert guards and guards <= absent
    assert any(end - start == 1 << 16 for start, end in absent)
    for start, _ in absent:
        with pytest.raises(FaultError):
            target.memory.read(start, 1)


def test_modules_and_build_ids_are_readelfs(specimen, target):
    bases = {}
    for start, _, _, offset, name in specimen.maps:
        if offset == 0 and name.startswith("/") and name != str(specimen.folder / "data"):
            bases.setdefault(name, start)
    assert {m.path: m.base for m in target.modules} == bases
    for module in target.modules:
        text = subprocess.run(["readelf", "-n", module.path], capture_output=True, text=True).stdout
        assert re.search(r"Build ID: (\w+)", text)[1] == module.build_id
        ends = [end for _, end, _, _, name in specimen.maps if name == module.path]
        assert max(ends) <= module.end
    exe = next(m for m in target.modules if m.path == str(specimen.program))
    bss = next(start for start, _, _, _, name in specimen.maps if start == exe.end or name == "[heap]")
    assert exe.end <= bss
    assert exe.end - max(e for _, e, _, _, n in specimen.maps if n == exe.path) >= 280000  # filler


def test_identity_is_the_process(specimen, kind, target):
    identity = target.identity
    assert (identity.exe, identity.pid) == (str(specimen.program), specimen.pid)
    assert identity.build_id == next(m.build_id for m in target.modules if m.path == identity.exe)
    assert target.memory.notes.process.comm == "parked"
    assert target.abi.pointer_size == specimen.bits // 8
    assert target.abi.page_size == os.sysconf("SC_PAGE_SIZE")
    if kind == "kernel":
        assert target.memory.notes.signal == signal.SIGABRT


def test_a_data_file_is_absent_but_no_problem(specimen, target):
    assert target.problems == ()
    (data,) = [r for r in target.memory.regions() if r.name == str(specimen.folder / "data")]
    assert data.source == "absent"


def test_wrong_file_is_not_believed(specimen, kind, tmp_path):
    moved = tmp_path / "root"
    own = moved / str(specimen.program).lstrip("/")
    own.parent.mkdir(parents=True)
    shutil.copy("/bin/true", own)
    hidden = specimen.program.rename(specimen.folder / "hidden")
    try:
        target = read_core_target(specimen.core(kind), sysroot=str(moved))
    finally:
        hidden.rename(specimen.program)
    assert "build-id-mismatch" in [problem.kind for problem in target.problems]
    own = [r.source for r in target.memory.regions() if r.name == str(specimen.program)]
    assert set(own) == {"memory", "absent"}
