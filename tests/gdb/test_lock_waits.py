"""``lockwait`` over waits of C++ and of rarer kinds, over PID namespaces, damaged stacks, many threads; no trace left.

The programs are tests/containers/waits.cc and worn_locks.c, which say themselves what each thread waits at.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable
from tests.support.rest import wait_for_rest, wait_until

STATE = """
import gdb, hashlib, sys
def numbers(thread):
    thread.switch()
    frame = gdb.newest_frame()
    names = [register.name for register in frame.architecture().registers('general')]
    return [int(frame.read_register(name)) for name in names]
def state():
    frame, thread = gdb.selected_frame(), gdb.selected_thread()
    found = [gdb.selected_inferior().num, thread.num, gdb.execute('frame', to_string=True).split()[0], frame.pc(),
             gdb.execute('show language', to_string=True), gdb.parameter('may-call-functions'), gdb.parameter('width')]
    found += [numbers(each) for each in gdb.selected_inferior().threads()]
    thread.switch(); frame.select()
    for line in gdb.execute('info proc mappings', to_string=True).splitlines():
        fields = line.split()
        if len(fields) > 4 and 'rw-' in fields[4] and fields[0].startswith('0x'):
            start, end = int(fields[0], 16), int(fields[1], 16)
            memory = gdb.selected_inferior().read_memory(start, min(end - start, 1 << 20))
            found.append(hashlib.md5(memory).hexdigest())
    return found
kept = sys.modules.setdefault('kept_state', type(sys)('kept_state'))
before, kept.state = getattr(kept, 'state', None), state()
print('SAME', before == kept.state, kept.state[:3])
"""
SOURCES = CHECKOUT / "tests" / "containers"
NO_DEBUG_INFO = ["-iex", "set debug-file-directory /nonexistent"]
COST = """
import gdb, resource
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
gdb.execute('help lockwait', to_string=True)
start = cpu(); gdb.execute('info threads', to_string=True); listed = cpu()
gdb.execute('lockwait --json=%s', to_string=True)
print('COST', cpu() - listed, 'LISTING', listed - start)
"""


def compiled(source, folder, *flags):
    compiler = "g++" if source.endswith(".cc") else "gcc"
    if not shutil.which(compiler):
        pytest.skip(f"test programs need {compiler}")
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    program = folder / source.partition(".")[0]
    command = [compiler, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *flags, str(SOURCES / source)]
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True)
    if "-m32" in flags and done.returncode:
        pytest.skip("no compiler and libraries for i386 on this machine")
    assert done.returncode == 0, done.stderr
    return program


class Waiting:
    """A program whose threads wait, and what it says of them.

    :ivar truth: by thread id: primitive, lock, owner, timed.
    """

    def __init__(self, program, folder, *arguments, within=()):
        self.folder = folder
        self._truth = folder / "truth"
        command = [*within, str(program), str(self._truth), *map(str, arguments)]
        with open(folder / "output", "w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        self._settle()
        self.truth = {}
        for line in self._truth.read_text().splitlines():
            tid, primitive, lock, owner, timed = line.split()
            self.truth[int(tid)] = (primitive, lock, int(owner), timed == "1")

    def _settle(self):
        def told():
            if self.process.poll() is not None:
                pytest.skip(f"the program cannot run here: {(self.folder / 'output').read_text()}")
            return self._truth.exists() and self._truth.read_text().endswith("\n")

        wait_until(told, "the truth")
        wait_for_rest(self.pid)

    @property
    def pid(self):
        return self.process.pid

    def attached(self, pid=None):
        return ["-p", str(pid or self.pid)]

    def core(self):
        path = self.folder / "core"
        if not path.exists():
            gdbrun.run_gdb([*self.attached(), "-ex", f"gcore {path}"])
        return [str(self.folder.parent / "waits"), str(path)] if path.exists() else pytest.skip("no gcore here")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


def lockwait(folder, options, *before):
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    words = [word for command in before for word in ("-ex", command)]
    output = preloaded.run_gdb([*options, *gdbrun.load_pack(), *words, "-ex", f"lockwait --json={answer}"])
    return gdbrun.read_envelope(answer, output)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled("waits.cc", tmp_path_factory.mktemp("waits"), "-std=c++20")


@pytest.fixture
def started(program, tmp_path_factory):
    running = []

    def start(*arguments, within=()):
        folder = program.parent / f"run-{len(running)}-{time.monotonic_ns()}"
        folder.mkdir()
        running.append(Waiting(program, folder, *arguments, within=within))
        return running[-1]

    yield start
    for each in running:
        each.close()


@pytest.fixture(scope="module")
def zoo(program):
    folder = program.parent / "zoo"
    folder.mkdir()
    waiting = Waiting(program, folder)
    yield waiting
    waiting.close()


@pytest.fixture(scope="module")
def looked(zoo):
    """The zoo's answers: live and from its core, with libc's debug info and without."""
    answers = {}

    def look(way, info):
        if (way, info) not in answers:
            options = zoo.attached() if way == "live" else zoo.core()
            answers[way, info] = lockwait(zoo.folder, [*(NO_DEBUG_INFO if info == "none" else []), *options])
        return answers[way, info]

    return look


def check(waiting, answer, nameless=()):
    """Every thread waits as it says; whoever says nothing waits for nothing."""
    rows = {row["tid"]: row for row in answer["data"]["threads"]}
    for tid, (primitive, lock, owner, timed) in waiting.truth.items():
        row = rows.pop(tid)
        expected = {primitive, "futex"} if primitive in nameless else {primitive}
        assert row["primitive"] in expected and row["state"] == "futex", (row, primitive)
        assert (row["owner"] or {"tid": None})["tid"] == owner or not owner, row
        assert row["timed"] is timed, row
        assert lock in ("0", "0x0", row["lock"]), (row, lock)
    assert [row for row in rows.values() if row["primitive"]] == []


@pytest.mark.parametrize("way", ["live", "core"])
@pytest.mark.parametrize("info", ["debug", "none"])
def test_every_kind_is_recognised(zoo, looked, way, info):
    answer = looked(way, info)
    # Without names nothing tells std::call_once, one word, from any other futex; and that is what is said.
    check(zoo, answer, nameless=("once",) if info == "none" else ())
    kinds = Counter(finding["kind"] for finding in answer["data"]["findings"])
    assert kinds == {"self-deadlock": 1, "convoy": 1}  # a PI mutex taken twice; main sleeps and holds most of these
    (ring,) = answer["data"]["cycles"]
    (told,) = [row for row in answer["data"]["threads"] if row["number"] in ring]
    assert told["primitive"] == "pi-mutex" and "wait without end" in told["because"][0]


def test_an_owner_in_another_process_is_not_lost(zoo, looked):
    answer = looked("live", "debug")
    (row,) = [row for row in answer["data"]["threads"] if row["owner"] and row["owner"]["number"] is None]
    assert zoo.truth[row["tid"]][:1] == ("mutex",)
    assert not [finding for finding in answer["data"]["findings"] if finding["kind"] == "lost-owner"]


def test_the_joined_thread_and_the_readers(zoo, looked):
    answer = looked("live", "debug")
    join = next(row for row in answer["data"]["threads"] if row["primitive"] == "join")
    assert join["owner"]["alive"] and join["owner"]["tid"] not in zoo.truth
    held = {row["address"]: row["meaning"] for row in answer["data"]["locks"] if row["primitive"].startswith("rwlock")}
    assert Counter(held.values()) == {"held by a writer": 1, "1 reader": 2}


def test_a_process_whose_first_thread_has_ended(started):
    """gdb attaches to one of the others, and has that one only: nothing is said of owners that it does not list."""
    waiting = started("leaderless")
    (tid,) = waiting.truth
    answer = lockwait(waiting.folder, waiting.attached(tid))
    check(waiting, answer)
    assert answer["data"]["findings"] == []
    assert [problem["kind"] for problem in answer["problems"]] == ["threads-not-listed"]


def test_a_first_thread_that_ends_under_gdb(program, tmp_path):
    answer = tmp_path / "answer.json"
    commands = ["break interesting", f"run {tmp_path / 'truth'} leaderless", f"lockwait --json={answer}"]
    words = [word for command in commands for word in ("-ex", command)]
    output = preloaded.run_gdb([str(program), *gdbrun.load_pack(), *words])
    rows = gdbrun.read_envelope(answer, output)["data"]
    (row,) = [row for row in rows["threads"] if row["primitive"]]
    tid, primitive, lock, owner, _ = (tmp_path / "truth").read_text().split()
    assert (row["tid"], row["primitive"], row["lock"], row["owner"]["tid"]) == (int(tid), primitive, lock, int(owner))
    assert row["owner"]["alive"] and rows["findings"] == []


def test_a_process_in_a_pid_namespace_of_its_own(started):
    unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
    if os.geteuid():
        unshare.insert(1, "--map-root-user")
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespaces may be made here")
    waiting = started(within=unshare)
    inner = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text().split()[0]
    wait_for_rest(int(inner))
    answer = lockwait(waiting.folder, waiting.attached(inner))
    check(waiting, answer)
    assert [finding["kind"] for finding in answer["data"]["findings"]].count("lost-owner") == 0
    assert all(row["tid"] != row["lwp"] for row in answer["data"]["threads"])


@pytest.mark.parametrize("flags", [(), ("-m32",)])
def test_locks_that_were_used_for_a_while(tmp_path, flags):
    program = compiled("worn_locks.c", tmp_path, *flags)
    process = subprocess.Popen([str(program)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        lines = list(iter(process.stdout.readline, "READY\n"))
        wait_for_rest(process.pid)
        for options in ([], NO_DEBUG_INFO):
            answer = lockwait(tmp_path, [*options, "-p", str(process.pid)])
            found = Counter((row["primitive"], row["lock"]) for row in answer["data"]["threads"] if row["primitive"])
            assert found == {(line.split()[0], line.split()[1]): int(line.split()[2]) for line in lines}
            assert answer["data"]["findings"] == []
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


# No trace, and no long look.


def test_thread_frame_language_registers_and_memory_stay(zoo, tmp_path):
    state = tmp_path / "state.py"
    state.write_text(STATE)
    lines = ["thread 5", "up", "set language c", f"source {state}"]
    for command in ("lockwait", "lockwait --stacks", "triage"):
        lines += [command, f"source {state}"]
    words = [word for line in lines for word in ("-ex", line)]
    output = preloaded.run_gdb([*zoo.attached(), *gdbrun.load_pack(), *words])
    assert output.out.count("SAME True [1, 5, '#1']") == 3, str(output)


def cost(options, folder):
    script = folder / "cost.py"
    script.write_text(COST % (folder / "answer.json"))
    output = gdbrun.run_gdb([*options, *gdbrun.load_pack(), "-ex", f"source {script}"])
    told = next(line.split() for line in output.out.splitlines() if line.startswith("COST"))
    return float(told[1]), json.loads((folder / "answer.json").read_text())


def test_a_stack_that_cannot_be_unwound_spoils_no_other(started):
    waiting = started()
    sound = lockwait(waiting.folder, waiting.attached())
    ruined = lockwait(waiting.folder, waiting.attached(), "thread 4", "set $rsp = 24", "set $rbp = 24", "thread 1")
    rows, twins = ({row["number"]: row for row in answer["data"]["threads"]} for answer in (ruined, sound))
    own, twin = rows.pop(4), twins.pop(4)
    assert rows == twins and ruined["complete"] == sound["complete"]
    assert own["frame"] is None and (own["state"], own["lock"]) == (twin["state"], twin["lock"])


def test_what_64_threads_cost(started):
    waiting = started("huge", 64)
    for options in (waiting.attached(), waiting.core()):
        seconds, answer = cost(options, waiting.folder)
        assert seconds < 1
        check(waiting, answer)
    assert [finding["waiters"] for finding in answer["data"]["findings"]] == [64]


def test_a_thousand_threads_are_a_bounded_look(started):
    waiting = started("huge", 1000)
    seconds, answer = cost(waiting.attached(), waiting.folder)
    assert seconds < 5
    assert Counter(row["primitive"] for row in answer["data"]["threads"]) == {"mutex": 1000, None: 1}
