"""The ``gdbext`` program with the real gdb: over a core of a small program, and over the process itself."""

from __future__ import annotations

import json
import lzma
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gdbext.coretarget import read_core_target
from gdbext.starting.corefile import read_build_id, read_core
from tests.support.rest import wait_until
from tests.support.touched import touched_by_gdb

ROOT = Path(__file__).resolve().parents[2]
GDB = shutil.which(os.environ.get("GDB") or "gdb")
BLOCKS = 1000

pytestmark = [
    pytest.mark.skipif(not GDB, reason="no gdb on this machine"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on this machine"),
]

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
  for (int at = 0; at < %d; at++) *(char *)malloc(2000) = 1;
  if (count == 1) abort();
  puts("ready"); fflush(stdout);
  for (;;) pause();
}
"""


def program(*arguments, gdb=GDB, **how):
    line = [sys.executable, "-m", "gdbext.cli", *(["--gdb", gdb] if gdb else []), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **how.pop("environment", {})}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment, **how)
    assert "Traceback" not in done.stderr
    return done


def answer(*arguments, status=0, **how):
    done = program(*arguments, "--json", **how)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder with spaces")
    source = folder / "program.c"
    source.write_text(SOURCE % BLOCKS)
    subprocess.run(["gcc", "-g", "-O0", "-o", folder / "program", source], check=True)
    dump = ["-ex", "run", "-ex", f"generate-core-file {folder}/core"]
    subprocess.run([GDB, "-nx", "-batch", *dump, folder / "program"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def core(folder):
    return folder / "core"


def test_the_core_knows_its_executable(folder, core):
    """Oracle: the build-id as the linker wrote it, read by readelf."""
    if not shutil.which("readelf"):
        pytest.skip("no readelf on this machine")
    told = subprocess.run(["readelf", "-n", folder / "program"], capture_output=True, text=True).stdout
    build_id = next(line.split()[-1] for line in told.splitlines() if "Build ID" in line)
    facts = read_core(str(core))
    assert (facts.exe, facts.build_id) == (str(folder / "program"), build_id)
    assert read_build_id(str(folder / "program")) == build_id
    modules = read_core_target(str(core)).modules
    assert facts.build_ids == {module.path: module.build_id for module in modules if module.build_id}


def test_json_over_a_core(folder, core):
    document = answer("blocks", "summary", "--core", core)
    assert document["schema"] == "gdbext/blocks-summary/2"
    assert document["target"]["core"] == str(core)
    assert document["target"]["exe"] == str(folder / "program")
    assert document["complete"] is True
    assert document["data"]["totals"]["used_blocks"] >= BLOCKS


def test_text_and_json_agree(core):
    done = program("blocks", "summary", "--core", core, "--bytes")
    used = answer("blocks", "summary", "--core", core)["data"]["totals"]
    assert done.returncode == 0
    assert str(used["used_bytes"]) in done.stdout
    assert not done.stdout.startswith("\n")
    assert "[New LWP" not in done.stdout and "Core was generated" not in done.stdout


def test_nothing_of_gdb_on_stderr_that_is_normal(core):
    assert program("glibc", "arenas", "--core", core).stderr == ""


def test_options_and_arguments_reach_the_command(core):
    document = answer("glibc", "chunks", "--limit", "3", "--core", core)
    assert len(document["data"]["chunks"]) == 3


def test_a_packed_core_answers_as_itself(core, tmp_path):
    packed = tmp_path / "core.xz"
    packed.write_bytes(lzma.compress(core.read_bytes(), preset=0))
    document = answer("blocks", "summary", "--core", packed)
    assert document["target"]["core"] == str(packed)
    assert document["data"] == answer("blocks", "summary", "--core", core)["data"]


def test_a_live_process_goes_on_afterwards(folder):
    process = subprocess.Popen([folder / "program", "stay"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        document = answer("blocks", "summary", "--pid", process.pid)
        assert document["target"]["pid"] == process.pid
        assert document["data"]["totals"]["used_blocks"] >= BLOCKS
        assert 0 < document["held_seconds"] < 60
        page = program("blocks", "summary", "--pid", process.pid).stdout
        assert re.fullmatch(r"The process was stopped for \d+\.\d\d\d s\.", page.splitlines()[-1])
        assert process.poll() is None
        assert tracer_of(process.pid) == "0"
    finally:
        process.kill()
        process.communicate()


def tracer_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("TracerPid"))


def test_a_process_that_has_a_debugger(folder):
    process = subprocess.Popen([folder / "program", "stay"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    holding = ["-p", str(process.pid), "-ex", "echo held\\n", "-ex", "shell sleep 60"]
    holder = subprocess.Popen(
        [GDB, "-nx", "-batch", *holding], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert any(line == "held\n" for line in holder.stdout)
        refused = program("rss", "--pid", process.pid, "--json")
        document = json.loads(refused.stdout)
        assert document["error"]["kind"] == "no-permission"
        assert document["data"] is None and refused.returncode == 2
        said = f"gdbext: rss: process {process.pid} is traced already, by process {holder.pid} (gdb); "
        assert refused.stderr == f"{said}a process has one debugger at a time\n"
    finally:
        os.killpg(holder.pid, 9)
        process.kill()
        holder.communicate()
        process.communicate()


def test_unknown_command(core):
    error = answer("nonsense", "--core", core, status=2)["error"]
    assert (error["kind"], error["message"]) == ("usage", "there is no command nonsense")


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_fault_of_the_user_is_status_2(core, how):
    done = program("blocks", "at", "no_such_symbol", "--core", core, *how)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("gdbext: blocks at: ")]
    assert len(lines) == 1
    if how:
        assert json.loads(done.stdout)["error"]["message"] in lines[0]
    else:
        assert done.stdout == ""


def test_a_command_for_gdb_alone(core):
    assert answer("safe", "rss", "--core", core, status=2)["error"]["message"] == "safe is for gdb alone"


def test_a_disk_without_room_for_the_answer(core):
    """Stood for by a limit on the size of files."""
    done = program(
        "blocks", "leaks", "--list", "--limit", "0", "--core", core,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    said = "a file would be too large; ulimit -f bounds the size of files; raise it"
    assert done.stderr == f"gdbext: blocks leaks: {said}\n"


BROKEN_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_broken(int fd) {
  struct stat facts;
  return !fstat(fd, &facts) && facts.st_ino == strtoul(getenv("BROKEN_FILE"), 0, 10);
}
ssize_t pread64(int fd, void *to, size_t size, off64_t at) {
  ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
  if (is_broken(fd) && at + (off64_t)size > atoll(getenv("BROKEN_FROM")) && at < atoll(getenv("BROKEN_TO"))) {
    errno = EIO;
    return -1;
  }
  return real(fd, to, size, at);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
  void *(*real)(void *, size_t, int, int, int, off64_t) = dlsym(RTLD_NEXT, "mmap64");
  if (fd >= 0 && is_broken(fd)) {
    errno = ENODEV;
    return MAP_FAILED;
  }
  return real(at, size, protection, flags, fd, offset);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap64(at, size, protection, flags, fd, offset);
}
"""


@pytest.mark.parametrize("which", ["alone", "gdb"])
def test_a_disk_that_does_not_give_the_core(folder, core, tmp_path, which):
    """Where it can not be mapped either: a page of a mapping that cannot be read is a SIGBUS."""
    core = static_core(folder) if which == "alone" else core
    (tmp_path / "broken.c").write_text(BROKEN_DISK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "broken.so", tmp_path / "broken.c"], check=True)
    offset, _, _, size = struct.unpack_from("<4Q", core.read_bytes(), find_largest(core.read_bytes()) + 8)
    broken = {"FILE": core.stat().st_ino, "FROM": offset, "TO": offset + size}
    environment = {"LD_PRELOAD": tmp_path / "broken.so", **{f"BROKEN_{name}": str(broken[name]) for name in broken}}
    done = program("rss", core, gdb=None, environment=environment)
    why = f"cannot read {core}: Input/output error; copy what can be read, and examine the copy"
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.endswith(f"gdbext: rss: {why}\n")


def test_help_of_a_command():
    done = program("glibc", "arenas", "-h")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: gdbext glibc arenas CORE|-p PID [OPTIONS]\n")


def test_commands():
    assert "gx glibc arenas" in program("commands").stdout
    assert "glibc arenas" in str(answer("commands")["data"])


@pytest.mark.parametrize("packed", [False, True])
def test_gdb_opened_for_a_person(core, tmp_path, packed):
    path = tmp_path / "core.xz" if packed else core
    if packed:
        path.write_bytes(lzma.compress(core.read_bytes(), preset=0))
    told = program("open", path, input="print main\nblocks summary\n", environment={"HOME": str(tmp_path)})
    assert told.returncode == 0 and "<main>" in told.stdout and "checks held" in told.stdout, told


def test_another_program_for_the_core(folder, core, tmp_path):
    (tmp_path / "other.c").write_text("int main(void) { return 0; }")
    other = tmp_path / "other"
    subprocess.run(["gcc", "-o", other, tmp_path / "other.c"], check=True)
    assert answer("rss", "--core", core, "--exe", other, status=2)["error"]["kind"] == "wrong-exe"


def test_timeout_is_kept(core):
    started = time.monotonic()
    error = answer("triage", "--core", core, "--timeout", "0.05", status=2)["error"]
    assert error["kind"] == "timeout"
    assert time.monotonic() - started < 15


def test_a_core_that_is_cut_off_is_answered_or_refused(core, tmp_path):
    short = tmp_path / "core"
    data = core.read_bytes()
    for size in (0, 40, 100, 3000, len(data) // 2):
        short.write_bytes(data[:size])
        done = program("triage", "--core", short, "--json")
        document = json.loads(done.stdout)
        assert done.returncode == document["status"]
        assert document["status"] == (2 if document["data"] is None else 3)


# ---- one answer ----

CASES = {
    0: ("blocks", "summary"),
    1: ("blocks", "leaks", "--list"),
    2: ("blocks", "at", "no_such_symbol"),
    3: ("rss", "--core", "short"),
}


@pytest.mark.parametrize("status", CASES)
def test_text_json_and_status_agree(core, tmp_path, status):
    without_largest(core, tmp_path / "short")
    where = () if "--core" in CASES[status] else ("--core", core)
    done = program(*CASES[status], *where, cwd=tmp_path)
    document = answer(*CASES[status], *where, status=status, cwd=tmp_path)
    assert (done.returncode, document["status"]) == (status, status)
    assert document["findings"] is (status == 1)
    assert document["complete"] is (status in (0, 1))
    assert done.stdout.startswith("not complete: ") is (status == 3)
    if status == 1:
        totals = document["data"]["totals"]
        assert f"Leaked: {totals['leaked_blocks']} blocks" in done.stdout.replace("\xa0", " ").replace(" 000", "000")


def without_largest(core, path):
    """Write a copy of a core that lacks the contents of its largest writable segment (ELF64, little-endian)."""
    data = bytearray(core.read_bytes())
    struct.pack_into("<Q", data, find_largest(data) + 32, 0)
    path.write_bytes(data)


def find_largest(data):
    """Return where the program header of the largest writable segment is."""
    offset, (size, count) = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<HH", data, 54)
    headers = [offset + at * size for at in range(count)]
    loads = [at for at in headers if struct.unpack_from("<I", data, at)[0] == 1 and data[at + 4] & 2]
    return max(loads, key=lambda at: struct.unpack_from("<Q", data, at + 32)[0])


@pytest.mark.parametrize("command", [("triage",), ("blocks", "leaks", "--list")])
def test_one_core_gives_one_answer(core, command, repeats):
    """Not even the load of the machine shows: under --boards=full all CPUs are kept busy meanwhile."""
    with burning(os.cpu_count() if repeats > 2 else 0):
        pages = {program(*command, "--core", core).stdout for _ in range(repeats)}
        documents = {program(*command, "--core", core, "--json").stdout for _ in range(repeats)}
    assert len(pages) == len(documents) == 1


@contextmanager
def burning(count):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.fixture
def repeats(request):
    return 20 if request.config.getoption("--boards") == "full" else 2


@pytest.fixture
def moments(request):
    count = 50 if request.config.getoption("--boards") == "full" else 10
    return [(at + 0.5) / count for at in range(count)]


def start(*arguments):
    line = [sys.executable, "-m", "gdbext.cli", "--gdb", GDB, *map(str, arguments)]
    return subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ended_at(moments, arguments, end):
    """Run the program for each moment, as share of an undisturbed run, and end it then; yield what it left."""
    begun = time.monotonic()
    whole = program(*arguments)
    lasted = time.monotonic() - begun
    for moment in moments:
        process = start(*arguments)
        time.sleep(moment * lasted)
        end(process.pid)
        out, err = process.communicate(timeout=60)
        yield whole, process.returncode, out, err


def kill_gdb(pid):
    for child in children_of(pid):
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("how", [pytest.param((), marks=pytest.mark.full), ("--json",)])
def test_a_gdb_that_is_killed_is_never_a_good_answer(core, moments, how):
    seen, some = set(), moments[len(how) :: 2]
    for whole, status, out, err in ended_at(some, ("blocks", "leaks", "--list", "--core", core, *how), kill_gdb):
        if (status, out) != (whole.returncode, whole.stdout):
            assert status == 2 and "gdb was ended by SIGKILL before it answered" in err
            assert json.loads(out)["status"] == 2 if how else out == ""
        seen.add(status)
    assert 2 in seen


@pytest.mark.parametrize("how", ((), ("--in-place",)))
def test_a_process_goes_on_when_gdb_is_killed(folder, moments, how):
    process = subprocess.Popen([folder / "program", "stay"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        for _, status, out, _ in ended_at(moments[1::2], ("blocks", "summary", *how, "--pid", process.pid), kill_gdb):
            assert status == 2 and out == "" or status == 0 and "The process was stopped for" in out
            assert tracer_of(process.pid) == "0"
            assert state_of(process.pid) in "SR"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_a_process_goes_on_when_we_are_killed(folder, tmp_path, monkeypatch, number):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = subprocess.Popen([folder / "program", "stay"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        killed = start("blocks", "summary", "--in-place", "--pid", process.pid)
        wait_until(lambda: tracer_of(process.pid) != "0", "gdb attaches")
        gdb = tracer_of(process.pid)
        os.kill(killed.pid, number)
        out, err = killed.communicate(timeout=60)
        assert (out, err.count("\n")) == ("", 1) and "stands still until that is done" in err
        assert killed.returncode == -number
        wait_until(lambda: not Path(f"/proc/{gdb}").exists(), "gdb ends")
        assert tracer_of(process.pid) == "0"
        wait_until(lambda: state_of(process.pid) == "S", "it goes on")
        assert [one.name[:7] for one in tmp_path.iterdir()] == ["gdbext-"] * (number == signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_interrupt_leaves_a_whole_answer_that_says_so_or_none(core, moments):
    def interrupt(pid):
        os.kill(pid, signal.SIGINT)

    arguments = ("blocks", "leaks", "--list", "--core", core, "--json")
    for whole, status, out, err in ended_at(moments[::2], arguments, interrupt):
        if status == -signal.SIGINT and (not out or "it may be cut short" in err):
            continue  # where there is nothing, Python had not come to our code
        document = json.loads(out)
        if status == -signal.SIGINT:
            assert document["status"] == 2 and document["data"] is None
            continue
        assert status == document["status"]
        assert out == whole.stdout or (document["complete"] is False and status != 0)


@pytest.mark.parametrize("form", [[], pytest.param(["--json"], marks=pytest.mark.full)])
def test_what_gdb_adds_nothing_to_is_the_same_without_it(folder, form):
    """A core whose program is gone; a gdb that is named answers."""
    core = static_core(folder)
    for command in ("rss", "glibc arenas", "glibc bins", "glibc chunks", "glibc tcache", "blocks summary"):
        alone = program(*command.split(), core, *form, gdb=None, environment={"PATH": "/nonexistent"})
        gdbs = program(*command.split(), core, *form)
        assert (alone.returncode, alone.stdout, alone.stderr) == (gdbs.returncode, gdbs.stdout, gdbs.stderr), command
        assert alone.returncode in (0, 3), alone.stderr


def static_core(folder):
    """Return a core no file of which is here."""
    core = folder / "static core"
    if not core.exists():
        subprocess.run(["gcc", "-static", "-o", folder / "static", folder / "program.c"], check=True)
        dump = ["-ex", "run", "-ex", f"generate-core-file {core}"]
        subprocess.run([GDB, "-nx", "-batch", *dump, folder / "static"], check=True, capture_output=True)
        (folder / "static").unlink()
    return core


# All else that triage of a healthy core loads is in folders that it needs whole.
FOR_TRIAGE = {
    "analysis.leaks": {"doubts", "search"},
    "analysis.tables": {"places", "search", "variables"},
    "analysis.types": {"languages", "languages.names", "model"},
    "commands": {"triage"},
    "heap.jemalloc": {"find", "find.builds", "find.globals", "find.named", "find.versions", "heap", "layouts"},
    "helpers": set(),
    "render": {"printing", "style", "tables", "textual", "values"},
    "structures.shapes": {"anchored", "library", "notation", "notation.expressions", "notation.paths", "shape"},
    "structures.walk": {"counting", "model"},
}  # fmt: skip
MOST_MODULES = 244


def test_what_gdb_loads_for_triage(folder, core):
    """Every run pays for it; `python3 -m tests.support.touched` shows which files have a part in the answer."""
    loaded = touched_by_gdb("triage", str(core), str(folder / "program"))[2]
    for place, needed in FOR_TRIAGE.items():
        inside = {name.partition(f"gdbext.{place}.")[2] for name in loaded if name.startswith(f"gdbext.{place}.")}
        assert inside <= needed, place
    assert len(loaded) <= MOST_MODULES
