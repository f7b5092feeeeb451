"""``gdbext snapshot``: a file that gdb reads, with answers of the process; and what cannot be, before it is stopped."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gdb.test_no_harm import compile_c, folder, started
from tests.gdb.test_open_process import counting
from tests.gdb.test_snapshot import OF_THE_MOMENT, kill_after, without
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.cgroups import memory_cgroup
from tests.support.figures import read_figures
from tests.support.gdbrun import run_gdb
from tests.support.glibcs import Unavailable
from tests.support.rest import wait_for_rest, wait_until

assert folder  # a fixture

PROGRAM = str(CHECKOUT / "bin" / "gdbext")
SAID = re.compile(
    r"(?P<file>\S+): (?P<size>[\d.]+ \w+) of process \d+ \((?P<name>.*)\), which was stopped for (?P<held>[\d.]+) s\n"
)
WITHOUT_ZSTD = f"""
import shutil, sys
find = shutil.which
shutil.which = lambda name, *more, **others: None if name == "zstd" else find(name, *more, **others)
sys.path.insert(0, {str(CHECKOUT)!r})
from gdbext.cli.program import main
sys.exit(main(sys.argv[1:]))
"""
NAMED = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static void *waits(void *none) { puts("ready"); fflush(stdout); pthread_mutex_lock(&known_lock); return none; }
int main(void) {
    pthread_t made;
    pthread_mutex_lock(&known_lock);
    pthread_create(&made, NULL, waits, NULL);
    pause();
}
"""
PRIVATE = """
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
char *secret, *other;
int main(void) {
    secret = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(secret, 1 << 20, MADV_DONTDUMP);
    other = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(secret, "a well-kept "), strcat(secret, "secret"), strcpy(other, "no "), strcat(other, "matter");
    puts("ready"); fflush(stdout); pause();
}
"""
# A stop has epoll_wait return EINTR.
STOPS = """
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
char *volatile held;
int main(int count, char **words) {
    int waits = epoll_create1(0);
    struct epoll_event got;
    held = malloc(128 << 20);
    memset(held, 'x', 128 << 20);
    puts("ready"); fflush(stdout);
    while (epoll_wait(waits, &got, 1, -1) < 0 && errno == EINTR)
        truncate(words[1], 1);
}
"""


@pytest.fixture
def here(stages):
    try:
        return stages.get(Board("attach", "debug", "system"), "leaks", ())
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def held(folder, tmp_path):
    with counting(folder, tmp_path) as process:
        yield process


def gdbext(*words, cwd, **how):
    return subprocess.run([PROGRAM, *map(str, words)], cwd=cwd, capture_output=True, text=True, **how)


def snapshot(pid, cwd, *words, **how):
    return gdbext("snapshot", "--pid", pid, *words, cwd=cwd, **how)


def said(run):
    assert run.returncode == 0 and not run.stderr, run
    return SAID.fullmatch(run.stdout)


def test_a_file_with_answers_of_the_process(here, tmp_path):
    pid = here.process.pid
    before = read_figures(pid)
    found = said(snapshot(pid, tmp_path))
    assert found["file"] == f"snapshot.{pid}" and found["name"] == "leaks" and 0 < float(found["held"]) < 5
    assert read_figures(pid) == before
    facts = os.stat(tmp_path / found["file"])
    assert stat.S_IMODE(facts.st_mode) == 0o600 and os.listdir(tmp_path) == [found["file"]]
    of_file = json.loads(gdbext("triage", found["file"], "--json", cwd=tmp_path).stdout)
    of_process = json.loads(gdbext("triage", "--pid", pid, "--json", cwd=tmp_path).stdout)
    assert without(of_file["data"], OF_THE_MOMENT) == without(of_process["data"], OF_THE_MOMENT)
    assert (of_file["problems"], of_file["status"]) == (of_process["problems"], of_process["status"])
    assert of_file["target"]["pid"] == pid and of_file["target"]["core"] == str(tmp_path / found["file"])


def test_gdb_reads_what_it_reads_of_the_process(here, tmp_path):
    said(snapshot(here.process.pid, tmp_path, "-o", "core"))
    asked = ("info auxv", "thread apply all -ascending backtrace 20", "info registers rsp", "p stated", "x/64xg $rsp")
    words = [word for one in asked for word in ("-ex", one)]
    of_process = run_gdb([str(here.executable), "-p", str(here.process.pid), *words]).out
    of_file = run_gdb([str(here.executable), str(tmp_path / "core"), *words]).out
    assert len(lines_of(of_file)) > 60
    of_file, of_process = (
        [line for line in lines_of(text) if "pause ()" not in line] for text in (of_file, of_process)
    )
    assert of_file == of_process


def lines_of(text):
    """Return the frames, registers and words that gdb prints."""
    return [line for line in text.splitlines() if re.match(r"#\d|\d+ +AT_|rsp|0x|\$1 =", line)]


@pytest.mark.parametrize("program", ("zstd", "gzip"))
def test_a_packed_file_is_read_as_it_is(here, tmp_path, program):
    if program == "zstd" and not shutil.which("zstd"):
        pytest.skip("no zstd")
    words = ("snapshot", "--pid", str(here.process.pid), "--compress")
    line = [PROGRAM] if program == "zstd" else [sys.executable, "-c", WITHOUT_ZSTD]
    run = subprocess.run([*line, *words], cwd=tmp_path, capture_output=True, text=True)
    file = said(run)["file"]
    assert file == f"snapshot.{here.process.pid}{'.zst' if program == 'zstd' else '.gz'}"
    of_file = json.loads(gdbext("blocks", "summary", file, "--json", cwd=tmp_path).stdout)
    of_process = json.loads(gdbext("blocks", "summary", "--pid", here.process.pid, "--json", cwd=tmp_path).stdout)
    assert of_file["data"] == of_process["data"]


def test_what_may_not_be_dumped_is_left_out(folder, tmp_path):
    with started([str(compile_c(folder, "private", PRIVATE))]) as pid:
        run = snapshot(pid, tmp_path, "-o", "core")
    assert run.returncode == 3 and "MADV_DONTDUMP" in run.stderr
    data = (tmp_path / "core").read_bytes()
    assert b"no matter" in data and b"a well-kept secret" not in data
    answer = json.loads(gdbext("rss", "core", "--json", cwd=tmp_path).stdout)
    assert answer["status"] == 3 and [one["kind"] for one in answer["problems"]] == ["not-dumped"]
    assert answer["data"]["rss"] == answer["data"]["resident"]


def test_what_cannot_be_written_is_known_before_it_is_stopped(held, tmp_path):
    (tmp_path / "link").symlink_to("elsewhere")
    before = Path(f"/proc/{held.pid}/status").read_text()
    for name in ("link", "/dev/null", "none/core"):
        run = snapshot(held.pid, tmp_path, "-o", name)
        assert run.returncode == 2 and f"cannot write {name}" in run.stderr, run
    limited = snapshot(
        held.pid, tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    )
    assert limited.returncode == 2 and "ulimit -f" in limited.stderr and set(os.listdir(tmp_path)) == {"link", "counts"}
    assert "State:\tt" not in before
    held.wait_for_ticks()


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs root")
def test_a_full_disk_is_known_before_it_is_stopped(held, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    asked = f'"{PROGRAM}" snapshot --pid {held.pid}; echo $?; ls -A'
    line = f'mount -t tmpfs -o size=1m none "{place}" && cd "{place}" && {asked}'
    run = subprocess.run(["unshare", "-m", "sh", "-c", line], capture_output=True, text=True)
    if "mount" in run.stderr:
        pytest.skip("nothing can be mounted here")
    assert run.stdout == "2\n" and "MiB are free where it is to be" in run.stderr, run
    held.wait_for_ticks()


def test_what_is_wrong_is_said(held, tmp_path):
    for words, message in (
        (("snapshot",), "no process is named"),
        (("snapshot", "--pid", held.pid, "--max-pause", "soon"), "'soon' is not a number of seconds"),
        (("snapshot", "--pid", held.pid, "--max-pause", "0"), "'0' is not a number of seconds"),
        (("snapshot", "--pid", 1 << 30), "there is no process"),
        (("snapshot", "--pid", held.pid, "core"), "takes no argument"),
    ):
        run = gdbext(*words, cwd=tmp_path)
        assert (run.returncode, run.stdout) == (2, "") and message in run.stderr, run
    assert os.listdir(tmp_path) == ["counts"]


def test_an_end_by_a_signal_leaves_no_file(held, tmp_path):
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(CHECKOUT)!r})
from gdbext.cli import copying, program, snapshot
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a CI may ignore it
def end(*words, **more):
    os.kill(os.getpid(), signal.SIGHUP)
snapshot.write_sparse = end
program.main(['snapshot', '--pid', '{held.pid}'])
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == -1 and os.listdir(tmp_path) == ["counts"], run
    held.wait_for_ticks()


# -- commands over a copy -------------------------------------------------------------------------------


def both(command, pid, cwd):
    """Return what is answered of a copy, and where gdb holds the process: that goes first, as it reads pages."""
    found = []
    for how in (("--in-place",), ()):
        run = gdbext(*command.split(), "--pid", pid, *how, "--json", cwd=cwd)
        found.append({**json.loads(run.stdout), "returned": run.returncode, "held": None})
        assert ("is examined itself" in run.stderr) == bool(how)
    return found[1], found[0]


def test_a_copy_answers_as_the_process_that_gdb_holds(here, tmp_path, request):
    gdbext("rss", "--in-place", "--pid", here.process.pid, cwd=tmp_path)
    every = request.config.getoption("--boards") == "full"
    for command in (
        "triage",
        "lockwait",
        *(("rss", "blocks types", "glibc tcache", "blocks retained") if every else ()),
    ):
        ours, theirs = both(command, here.process.pid, tmp_path)
        assert ours["held_seconds"] < theirs["held_seconds"]
        names = (*OF_THE_MOMENT, "held_seconds")
        assert without(ours, names) == without(theirs, names)


def test_without_memory_for_a_copy_the_process_is_examined_itself(held, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    run = gdbext("rss", "--pid", held.pid, "--json", cwd=tmp_path, preexec_fn=limit)
    assert run.returncode == 0 and json.loads(run.stdout)["complete"], run
    assert f"process {held.pid} is examined itself, and stands still until that is done" in run.stderr
    held.wait_for_ticks()


@pytest.mark.skipif(os.geteuid() != 0, reason="a cgroup needs root to be made")
def test_a_cgroup_without_room_for_a_copy_is_known_before_it_is_stopped(folder, tmp_path):
    program, stops = compile_c(folder, "stops", STOPS), tmp_path / "stops"
    stops.touch()
    with memory_cgroup() as cgroup, started(cgroup.command(program, stops)) as pid:

        def run(*words):
            line = cgroup.command(PROGRAM, *words, "--pid", pid)
            return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)

        wait_for_rest(pid)
        cgroup.bound(308 << 20)
        refused = run("snapshot", "-o", "core")
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), refused
        assert re.search(r"a copy takes 1\d\d MiB, and 1\d\d MiB are left by its cgroup", refused.stderr), refused
        assert not stops.stat().st_size and os.listdir(tmp_path) == ["stops"]
        examined = run("rss", "--json")
        assert examined.returncode == 0 and json.loads(examined.stdout)["complete"], examined
        assert re.fullmatch(
            rf"gdbext: a copy takes .* left by its cgroup: process {pid} is examined itself, .*\n", examined.stderr
        )
        wait_until(lambda: stops.stat().st_size, "the other way stops it")
        cgroup.bound(608 << 20)
        said(run("snapshot", "-o", "core"))
        assert not cgroup.killed


def test_a_deleted_program_has_its_names(folder, tmp_path):
    program = tmp_path / "deleted"
    shutil.copy(compile_c(folder, "named", NAMED, "-pthread"), program)
    with started([str(program)]) as pid:
        program.unlink()
        answer = json.loads(gdbext("lockwait", "--pid", pid, "--json", cwd=tmp_path).stdout)
    assert "known_lock" in json.dumps(answer["data"])


@pytest.mark.parametrize("words", (("snapshot",), ("rss",)))
def test_the_process_goes_on_when_the_program_is_killed(held, tmp_path, words):
    for seconds in (0.1, 0.2, 0.3, 0.4):
        line = [PROGRAM, *words, "--pid", str(held.pid)]
        kill_after(subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), seconds)
        held.wait_for_ticks()
    wait_until(lambda: set(held.states) == {"S"}, "all go on")  # what copies may outlast the program


def test_a_pause_that_is_too_short_is_said(held, tmp_path):
    run = gdbext("rss", "--pid", held.pid, "--max-pause", "0.000001", "--json", cwd=tmp_path)
    answer = json.loads(run.stdout)
    assert run.returncode == 3 and "not-copied" in [one["kind"] for one in answer["problems"]]
    for words, message in (
        (("rss", "--max-pause", "1", "core"), "--in-place and --max-pause need --pid"),
        (("rss", "--pid", held.pid, "--max-pause", "1", "--in-place"), "exclude each other"),
    ):
        run = gdbext(*words, cwd=tmp_path)
        assert run.returncode == 2 and message in run.stderr, run
