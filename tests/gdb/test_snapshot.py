"""A copy of a living process: it loses nothing of the process and does it no harm, and answers as it."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import resource
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import gdbext
from gdbext.errors import DebuggerError, GdbextError, NoTargetError, TooLargeError
from gdbext.memory.live import copying
from gdbext.memory.room import Room
from gdbext.snapshot import taking
from gdbext.snapshot.taking import Wishes, take_snapshot
from tests.gdb.test_no_harm import MAPPINGS, NOBODY, compile_c, folder, mapped, sanitized, started
from tests.gdb.test_open_process import counting, keeper
from tests.support import programs
from tests.support.boards import Board
from tests.support.figures import growth, read_figures
from tests.support.gdbrun import die_with_parent
from tests.support.glibcs import Unavailable, glibc
from tests.support.jemallocs import DEBIAN, jemalloc
from tests.support.rest import wait_for_rest, wait_until

assert folder  # a fixture

BUSY, WAITS = (Path(__file__).parent / "data" / name for name in ("busy.c", "waits.c"))
INTERRUPTED = {
    "epoll_wait", "epoll_pwait", "epoll_pwait2", "sigtimedwait", "sigwaitinfo", "semop", "semtimedop",
    "recv with SO_RCVTIMEO", "accept with SO_RCVTIMEO", "io_getevents", "io_uring_enter",
}  # fmt: skip
KINDS = ("nanosleep", "read", "poll", "pthread_cond_timedwait", "sem_wait", "write", "fork", "pthread_create", "listed")
SAME = (
    "triage", "rss", "heapmap", "glibc arenas", "glibc heaps", "glibc chunks", "glibc bins", "glibc tcache",
    "glibc mmapped", "glibc check", "glibc trim", "jemalloc arenas", "jemalloc bins", "jemalloc extents",
    "jemalloc large", "jemalloc tcache", "jemalloc check", "python types", "python blocks", "blocks summary",
    "blocks list", "blocks leaks --list --possible", "blocks types", "blocks retained", "lockwait",
)  # fmt: skip
# What differs by its nature: the share in pages that others map too, and when it was.
OF_THE_MOMENT = ("pss", "time")
# What only one of a core and a snapshot has, or has in another order: what is in RAM, names and order of threads, why
# it died; and how many pages were searched, of which a snapshot knows which were never written to.
OF_A_KIND = (
    *OF_THE_MOMENT, "resident", "in_core", "not_in_core", "share", "bar", "rss", "rss_difference", "swap",
    "anon_huge_pages", "name", "holder_name", "thread", "threads", "lwp", "tid", "number", "root", "roots", "died",
    "unknown", "core",
)  # fmt: skip

UNNAMED = ("[vvar]", "[vvar_vclock]", "anonymous rest")


@pytest.fixture
def staged(stages):
    def on(program, *arguments, **how):
        try:
            return stages.get(Board("attach", "debug", "system"), program, arguments, **how)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return on


@pytest.fixture
def held(folder, tmp_path):
    with counting(folder, tmp_path) as process:
        yield process


def without(value, names):
    if isinstance(value, dict):
        return {key: without(item, names) for key, item in value.items() if key not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value


def answers(session, names):
    found = {}
    for line in SAME:
        try:
            found[line] = without(session.run(line).to_dict()["data"], names)
        except GdbextError as error:
            found[line] = str(error)
    return found


def both(pid):
    """Return the answers of a snapshot and of the process, between which the kernel took no page of a file from it."""
    for _ in range(5):
        before = read_figures(pid)
        with gdbext.open_snapshot(pid) as session:
            ours = answers(session, OF_THE_MOMENT)
        with gdbext.open_process(pid) as session:
            theirs = answers(session, OF_THE_MOMENT)
        if read_figures(pid) == before:
            return ours, theirs
    raise AssertionError("its figures change")


# -- answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program,arguments,variant", (
    ("leaks", (), ""), ("arena_proliferation", (), ""), ("locks", ("--mode", "zoo"), ""), ("leaks", (), "i386"),
))  # fmt: skip
def test_answers_are_those_of_the_process(staged, program, arguments, variant):
    here = staged(program, *arguments, variant=variant)
    if program != "locks":  # some of its threads never rest
        wait_for_rest(here.process.pid)
    with gdbext.open_snapshot(here.process.pid) as session:
        page, target = session.triage().to_dict(), session.target
    with gdbext.open_process(here.process.pid) as session:
        assert session.triage().to_dict()["problems"] == page["problems"]
        assert list(map(place_of, session.target.threads)) == list(map(place_of, target.threads))
        assert session.target.modules == target.modules
        assert session.target.memory.regions() == target.memory.regions()
    ours, theirs = both(here.process.pid)
    for line in SAME:
        assert ours[line] == theirs[line], line
    assert ours["rss"]["resident"] == ours["rss"]["rss"]


def place_of(thread):
    """Return what a stop leaves as it was: a call that the kernel restarts has another number then."""
    return thread.number, thread.lwp, thread.name, thread.tls, thread.stack_pointer, sorted(thread.registers)


@pytest.mark.parametrize("what", MAPPINGS)
def test_answers_are_those_of_the_process_beside_much_that_is_untouched(folder, what):
    with mapped(folder, what) as pid:
        wait_for_rest(pid)
        ours, theirs = both(pid)
    assert ours == theirs


@pytest.mark.parametrize(
    "program,arguments", (("leaks", ()), ("locks", ("--mode", "self")), ("jemalloc_zoo", ())), ids=lambda one: str(one)
)
def test_a_core_of_the_kernel_gives_the_same_answers(tmp_path, program, arguments):
    try:
        executable = str(programs.build(program, glibc("system")))
        preloaded = str(jemalloc(DEBIAN).library) if program.startswith("jemalloc") else ""
    except Unavailable as reason:
        pytest.skip(str(reason))
    with parked(executable, *arguments, folder=tmp_path, preloaded=preloaded) as process:
        with gdbext.open_snapshot(process.pid) as session:
            ours = answers(session, OF_A_KIND)
        Path(f"/proc/{process.pid}/coredump_filter").write_text("0x7f")
        process.send_signal(signal.SIGABRT)
        process.wait()
    cores = list(tmp_path.glob("core*"))
    if not cores:
        pytest.skip("the kernel wrote no core here")
    with gdbext.open_core(str(cores[0])) as session:
        theirs = answers(session, OF_A_KIND)
    for line in SAME:
        assert flat(ours[line]) == flat(theirs[line]), line


def flat(value, *path):
    """Return what a report says, whatever the order of its rows, which is that of their size in RAM, or of threads.

    Other cores do not name the kernel's clock pages, which count as anonymous there.
    """
    if isinstance(value, dict):
        parts = [] if value.get("owner") in UNNAMED else [flat(item, *path, key) for key, item in value.items()]
    elif isinstance(value, list):
        parts = [flat(item, *path) for item in value]
    else:
        return [(*path, re.sub(r"thread \d+(?: \w+(?='))?", "thread N", repr(value)))]
    return sorted(one for part in parts for one in part)


@contextlib.contextmanager
def parked(*command, folder, preloaded):
    def prepare():
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    how = {"stdout": subprocess.PIPE, "preexec_fn": prepare, "env": {**os.environ, "LD_PRELOAD": preloaded}}
    process = subprocess.Popen([*command, "--park"], cwd=folder, **how)
    try:
        assert any(line == b"READY\n" for line in iter(process.stdout.readline, b""))
        wait_for_rest(process.pid)
        yield process
    finally:
        process.kill()
        process.communicate()


# -- the process goes on, and nothing of it is lost -----------------------------------------------------


@pytest.mark.parametrize("nested", ((), ("nested",)), ids=("here", "in-a-pid-namespace"))
def test_nothing_is_lost(folder, tmp_path, nested, request):
    """Signals, ticks of a timer, system calls: as of a run that nobody examines, but for what signal(7) lists."""
    if nested and os.geteuid():
        pytest.skip("a PID namespace needs root")
    times = 1000 if request.config.getoption("--boards") == "full" else 40
    program = compile_c(folder, "busy", BUSY.read_text(), "-pthread")
    with started([str(program), str(tmp_path / "counts"), *nested]) as leader:
        pid = only_child(leader) if nested else leader
        sent, ended = [], threading.Event()
        sender = threading.Thread(target=send, args=(pid, sent, ended))
        sender.start()
        for number in range(times):
            gdbext.open_snapshot(pid).close()
            if number == times // 2:
                stopped_stays_stopped(pid)
        ended.set()
        sender.join()
        wait_until(lambda: read_counts(tmp_path)[0] >= len(sent), "all signals come")
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: state(leader) in "ZX", "it ends by itself")
    signals, ticks, first, last, _, *calls = read_counts(tmp_path)
    assert signals == len(sent)
    assert abs(ticks - (last - first) // 1_000_000) <= 2
    made, failed = dict(zip(KINDS, calls)), dict(zip(KINDS, calls[len(KINDS) :]))
    assert all(made.values()) and {name for name, count in failed.items() if count} <= {"listed"}
    assert failed["listed"] <= times + 2


def read_counts(folder):
    return struct.unpack_from(f"{5 + 2 * len(KINDS)}q", (folder / "counts").read_bytes())


def only_child(pid):
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def send(pid, sent, ended):
    while not ended.is_set():
        os.kill(pid, signal.SIGRTMIN)
        sent.append(1)
        ended.wait(0.0005)


def stopped_stays_stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state(pid) == "T", "it is stopped")
    for _ in range(3):
        gdbext.open_snapshot(pid).close()
        wait_until(lambda: state(pid) == "T", "it stops again")  # each thread wakes in the kernel to do so
    os.kill(pid, signal.SIGCONT)


def test_calls_that_a_stop_interrupts(folder):
    """Each snapshot has at most one call of a thread fail with EINTR, and only those that docs/guide.md names."""
    program = compile_c(folder, "waits", WAITS.read_text(), "-pthread", "-lrt")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        wait_for_rest(process.pid)
        for _ in range(3):
            take_snapshot(process.pid, Wishes()).close()
            wait_for_rest(process.pid)
        rows = [row.rsplit(": ", 1) for row in process.communicate("", timeout=60)[0].splitlines()]
    counts = {name: int(count) for name, count in rows if not count.startswith("ended")}
    assert len(counts) > 20 and max(counts.values()) <= 3
    assert {name for name, count in counts.items() if count} == INTERRUPTED & set(counts)


def test_it_goes_on_whenever_we_are_killed(folder, tmp_path, request):
    times = 100 if request.config.getoption("--boards") == "full" else 15
    with counting(folder, tmp_path, "20") as held:
        before = read_figures(held.pid)
        for number in range(times):
            kill_amid(held.pid, random.uniform(0, 0.03), number % 2)
            held.wait_for_ticks()
        wait_until(lambda: set(held.states) == {"S"}, "all threads go on")
        os.kill(held.pid, signal.SIGRTMIN)
        wait_until(lambda: held.count(1) == 1, "a signal comes")
        after = read_figures(held.pid)
    assert not growth(before, after)


def kill_amid(pid, seconds, stopped):
    """Have another process take snapshots, and kill it a while after it began.

    :param stopped: whether then at the next moment at which the process is held.
    """
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, b"x")
        with contextlib.suppress(BaseException):
            while True:
                take_snapshot(pid, Wishes()).close()
        os._exit(1)
    os.read(told, 1)
    time.sleep(seconds)  # any moment will do
    if stopped:
        wait_until(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text(), "it is held")
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    os.close(told)
    os.close(tell)


def kill_after(process, seconds):
    """Kill a program a while after it was started."""
    time.sleep(seconds)  # any moment will do
    process.kill()
    process.wait()


def test_threads_that_come_and_go_are_all_held(folder, tmp_path):
    with counting(folder, tmp_path, "200", "churn") as held:
        for _ in range(10):
            with gdbext.open_snapshot(held.pid) as session:
                assert len(session.target.threads) >= 202
                assert all(one.registers and one.tls and one.name == "held" for one in session.target.threads)
            held.wait_for_ticks()


@pytest.mark.parametrize("program", ("mappings", "swapped", "address", "thread"))
def test_no_figure_of_it_changes(folder, program):
    made = {"mappings": lambda: mapped(folder, *MAPPINGS), "swapped": lambda: mapped(folder, "swapped")}
    with made.get(program, lambda: sanitized(folder, program))() as pid:
        wait_for_rest(pid)
        before = read_figures(pid)
        with gdbext.open_snapshot(pid) as session:
            session.triage()
        after = read_figures(pid)
    assert all(after[name] <= before[name] for name in before if name != "VmSwap"), (before, after)
    assert after["VmSwap"] >= before["VmSwap"]


def test_fifty_leave_nothing_behind(folder, tmp_path):
    def ours():
        return (
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            Path("/proc/self/maps").read_text().count("memfd"),
        )

    with counting(folder, tmp_path, "20") as held:
        gdbext.open_snapshot(held.pid).close()
        before = ours()
        for _ in range(50):
            gdbext.open_snapshot(held.pid).close()
        assert ours() == before


# -- what cannot be -------------------------------------------------------------------------------------


def test_what_is_wrong_is_an_error(held, folder):
    for nobody in (1 << 30, -1, 0):
        with pytest.raises(NoTargetError, match=f"there is no process {nobody}"):
            gdbext.open_snapshot(nobody)
    with pytest.raises(DebuggerError, match="itself"):
        gdbext.open_snapshot(os.getpid())
    with keeper(held.pid), pytest.raises(DebuggerError, match="traced already"):
        gdbext.open_snapshot(held.pid)
    held.wait_for_ticks()
    ended = subprocess.Popen(["true"])
    wait_until(lambda: state(ended.pid) == "Z", "it ends")
    with pytest.raises(NoTargetError, match="is gone"):
        gdbext.open_snapshot(ended.pid)
    ended.wait()
    if Path("/proc/2/exe").is_symlink() and not Path("/proc/2/exe").exists():
        with pytest.raises(GdbextError):  # a thread of the kernel's
            gdbext.open_snapshot(2)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root to be made")
def test_another_users_process_is_not_permitted(held):
    child = os.fork()
    if not child:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            gdbext.open_snapshot(held.pid)
        except GdbextError as error:
            os._exit(3 if "root" in str(error) else 4)
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    held.wait_for_ticks()


def test_one_that_ends_meanwhile_is_gone(folder, tmp_path):
    for _ in range(5):
        with mapped(folder, "private") as pid:
            killer = threading.Timer(random.uniform(0.005, 0.04), os.kill, (pid, signal.SIGKILL))
            killer.start()
            with contextlib.suppress(NoTargetError, DebuggerError):
                while True:
                    gdbext.open_snapshot(pid).close()
            killer.join()


def test_too_little_memory_is_known_before_it_is_stopped(held, monkeypatch):
    monkeypatch.setattr(taking, "find_room", lambda: Room(1 << 20, "left by its cgroup"))
    monkeypatch.setattr(taking, "Tracer", None)
    with pytest.raises(TooLargeError, match="1 MiB are left by its cgroup"):
        gdbext.open_snapshot(held.pid)
    held.wait_for_ticks()


def test_little_address_space_is_known_before_it_is_stopped(held, monkeypatch):
    monkeypatch.setattr(taking, "Tracer", None)
    child = os.fork()
    if not child:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + (256 << 20),) * 2)
        try:
            gdbext.open_snapshot(held.pid)
        except TooLargeError:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_a_limit_of_time_leaves_out_what_is_least_needed(folder, monkeypatch):
    """Where the time suffices for little, answers say so, and variables and stacks are there."""
    source = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
long known[4096] = {0x1234567};
int main(void) {
    char *large = mmap(0, 1 << 27, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(large, 'x', 1 << 27);
    known[1] = (long)large;
    puts("ready"); fflush(stdout); pause();
}
"""
    with started([str(compile_c(folder, "large", source))]) as pid:
        with gdbext.open_snapshot(pid) as session:
            assert session.run("rss").complete
        begun = itertools.count()
        clock = SimpleNamespace(monotonic=lambda: 0.0 if next(begun) < 3 else float("inf"))
        monkeypatch.setattr(copying, "time", clock)
        with gdbext.open_snapshot(pid, max_pause=10) as session:
            page, target = session.run("rss"), session.target
            sp = target.threads[0].stack_pointer
            assert len(target.memory.read(sp, 64)) == 64
            assert any(b"\x67\x45\x23\x01" in bytes(target.memory.read(one.start, one.size))
                       for one in target.memory.regions() if one.name.endswith("/large") and one.writable)  # fmt: skip
    missing = [one for one in page.problems if one.kind == "not-copied"]
    assert len(missing) == 1 and not page.complete and "--max-pause" in missing[0].message
    assert page.data.resident == page.data.rss  # that is known all the same
