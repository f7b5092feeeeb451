"""``gdbext record`` and ``gdbext watch`` over processes: what they say is held against the kernel and the process."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import select
import signal
import stat
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gdb.test_no_harm import compile_c, folder
from tests.support.cache import CHECKOUT
from tests.support.gdbrun import die_with_parent
from tests.support.growing import running
from tests.support.rest import wait_until

assert folder  # a fixture

SOURCE = Path(__file__).parent / "data" / "grown.c"
MIB = 1 << 20
FAST = ("--every", "0.1s", "--budget", "100%", "--depth", "sizes")


class Grown:
    """A process of grown.c."""

    def __init__(self, process, file):
        self.process, self.pid, self._file = process, process.pid, file

    def count(self, at):
        return struct.unpack_from("3q", self._file.read_bytes())[at]

    def do(self, word, times):
        before = self.count(1)
        self.process.stdin.write(word * times)
        self.process.stdin.flush()
        wait_until(lambda: abs(self.count(1) - before) == 16 * times, "it has done it")

    @property
    def status(self):
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return dict(line.split(":", 1) for line in lines)

    @property
    def rss(self):
        return int(self.status["VmRSS"].split()[0]) << 10

    def goes_on(self):
        before = self.count(0)
        wait_until(lambda: self.count(0) > before + 3, "it goes on")
        assert self.status["TracerPid"].strip() == "0"


@contextmanager
def grown(folder, name="grown"):
    program = compile_c(folder, name, SOURCE.read_text())
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "preexec_fn": die_with_parent}
    file = folder / f"counts-{random.random()}"
    with subprocess.Popen([str(program), str(file)], **how) as process:
        assert process.stdout.readline() == b"ready\n"
        try:
            yield Grown(process, file)
        finally:
            process.kill()


@pytest.fixture
def target(folder):
    with grown(folder) as one:
        yield one


def start(*arguments, terminal="dumb", **how):
    line = [sys.executable, "-m", "gdbext.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "LC_ALL": "C.UTF-8", "TERM": terminal}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": die_with_parent, **how}
    return subprocess.Popen(line, env=environment, text=True, **pipes)


@contextmanager
def recording(target, place, *words):
    """Have a recorder at work until the end of the block; what it says is the value then."""
    recorder = start("record", "-p", target.pid, "--depth", "sizes", *words, "-o", place)
    yield recorder
    recorder.send_signal(signal.SIGTERM)
    recorder.out, recorder.err = recorder.communicate(timeout=60)


def run(*arguments, **how):
    recorder = start(*arguments, **how)
    out, err = recorder.communicate(timeout=120)
    assert "Traceback" not in err, err
    return recorder.returncode, out, err


def lines_of(place):
    """Return the documents of whole lines, read by nothing of ours."""
    path = place / "samples.jsonl"
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def samples_of(place):
    return [line for line in lines_of(place) if line["format"].startswith("gdbext/sample/")]


def events_of(place, kind):
    return [line for line in lines_of(place) if line.get("event") == kind]


def figure(sample, kind, key):
    return next(row for row in sample["rows"][kind] if row[0] == key)


def wait_for_samples(place, count):
    wait_until(lambda: len(samples_of(place)) >= count, f"{count} samples")


def wait_for_events(place, kind, count):
    wait_until(lambda: len(events_of(place, kind)) >= count, f"{count} {kind}")


def wait_for_line(stream, text):
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"it does not say {text}")


def test_samples_are_those_of_the_process_and_a_threshold_is_noticed(target, tmp_path):
    place, rss = tmp_path / "new", []
    conditions = ("--when", "grown > 300%", "--when", "blocks > 200", "--when", "rss > 1T")
    recorder = start("record", "-p", target.pid, *FAST, "-o", place, "--most-snapshots", "1", *conditions)
    for number in range(3):
        count = len(samples_of(place))
        wait_for_samples(place, count + 2)
        rss.append((count + 1, target.rss))
        if number < 2:
            target.do(b"g", 10)
    recorder.send_signal(signal.SIGTERM)
    _, err = recorder.communicate(timeout=60)
    samples = samples_of(place)
    for at, kernels in rss:
        assert figure(samples[at], "total", "memory")[2] == pytest.approx(kernels, abs=MIB // 4)
    for at, blocks in zip((rss[0][0], rss[-1][0]), (0, 320)):
        assert blocks <= figure(samples[at], "heap", "glibc in use")[1] < blocks + 20
    assert [event["condition"] for event in events_of(place, "raised")] == ["grown > 300%", "blocks > 200"]
    assert "grown > 300%: it is" in err and recorder.returncode == 1
    assert events_of(place, "stopped")[0]["reason"] == "stopped"
    assert [event["reason"] for event in events_of(place, "snapshot")] == ["grown > 300%"]
    assert "there may be 1 snapshot" in events_of(place, "no-snapshot")[0]["message"]
    check_snapshot(place, events_of(place, "snapshot")[0], target)
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    assert max(len(json.dumps(sample)) for sample in samples) < 40_000
    target.goes_on()
    compared = compare(place)
    assert [row["time"] for row in compared["data"]["samples"]] == [sample["time"] for sample in samples]
    assert [row["used_blocks"] for row in compared["data"]["samples"]] == [
        figure(sample, "heap", "glibc in use")[1] for sample in samples
    ]
    assert compared["data"]["one_process"]


def compare(place):
    status, out, err = run("compare", place, "--json")
    assert status in (0, 1), err
    return json.loads(out)


def test_killed_at_any_moment_the_folder_is_whole_and_the_process_goes_on(target, tmp_path):
    chance, said = random.Random(7), 0
    for _ in range(4):
        recorder = start("record", "-p", target.pid, *FAST, "-o", tmp_path)
        wait_for_samples(tmp_path, said + 1)
        time.sleep(chance.random() * 0.4)
        recorder.kill()
        recorder.communicate()
        target.goes_on()
        said = len(samples_of(tmp_path))
    status, out, _ = run("record", "-p", target.pid, *FAST, "--for", "0.5s", "-o", tmp_path)
    assert status == 0 and len(samples_of(tmp_path)) > said
    assert len(events_of(tmp_path, "started")) == 5 and len(events_of(tmp_path, "created")) == 1
    assert f"in {tmp_path}; the process stood still" in out
    times = [sample["time"] for sample in samples_of(tmp_path)]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 60
    with open(tmp_path / "samples.jsonl", "a") as file:
        file.write('{"format":"gdbext/sample/1","proc')
    compared = compare(tmp_path)
    assert "damaged-recording" in [problem["kind"] for problem in compared["problems"]]
    assert [row["time"] for row in compared["data"]["samples"]] == times


def test_the_next_process_of_the_name_is_recorded(folder, tmp_path):
    recorder = start("record", "--comm", "gx-server", *FAST, "-o", tmp_path)
    pids = []
    for number in (1, 2):
        with grown(folder, "gx-server") as one:
            pids.append(one.pid)
            wait_for_events(tmp_path, "process", number)
            wait_for_samples(tmp_path, len(samples_of(tmp_path)) + 2)
        wait_for_events(tmp_path, "ended", number)
    recorder.send_signal(signal.SIGINT)
    recorder.communicate(timeout=60)
    assert recorder.returncode == 0
    assert [event["pid"] for event in events_of(tmp_path, "process")] == pids
    assert [event["pid"] for event in events_of(tmp_path, "ended")] == pids
    assert list(dict.fromkeys(sample["process"]["pid"] for sample in samples_of(tmp_path))) == pids
    assert not events_of(tmp_path, "failed")


def test_the_end_of_the_process_is_that_of_the_recording(target, tmp_path):
    recorder = start("record", "-p", target.pid, *FAST, "-o", tmp_path)
    wait_for_samples(tmp_path, 1)
    target.process.stdin.write(b"x")
    target.process.stdin.flush()
    _, err = recorder.communicate(timeout=60)
    assert recorder.returncode == 0, err
    assert [line["event"] for line in lines_of(tmp_path)[-2:]] == ["ended", "stopped"]
    assert events_of(tmp_path, "stopped")[0]["reason"] == "ended"


def test_what_the_disk_does_not_take_is_counted(target, tmp_path):
    def little_room():
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

    recorder = start("record", "-p", target.pid, *FAST, "-o", tmp_path, preexec_fn=little_room)
    wait_for_line(recorder.stderr, "what is recorded now is lost until there is room")
    kept = len(samples_of(tmp_path))
    assert kept >= 1 and (tmp_path / "samples.jsonl").read_bytes().endswith(b"\n")
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_for_samples(tmp_path, kept + 1)
    recorder.send_signal(signal.SIGTERM)
    out, err = recorder.communicate(timeout=60)
    lost = sum(event["samples"] for event in events_of(tmp_path, "lost"))
    assert lost >= 1 and f"{lost} sample" in out and "there is room again" in err
    assert recorder.returncode == 3


def test_one_folder_has_one_recorder_and_a_sampler_that_dies_costs_one_sample(target, tmp_path):
    recorder = start("record", "-p", target.pid, *FAST, "-o", tmp_path)
    wait_for_samples(tmp_path, 1)
    status, _, err = run("record", "-p", target.pid, *FAST, "-o", tmp_path)
    assert status == 2 and f"another gdbext records in {tmp_path}" in err
    wait_until(lambda: kill_child_of(recorder.pid), "it samples")
    wait_until(lambda: events_of(tmp_path, "failed"), "that is noticed")
    assert "SIGKILL" in events_of(tmp_path, "failed")[0]["message"]
    wait_for_samples(tmp_path, len(samples_of(tmp_path)) + 1)
    recorder.send_signal(signal.SIGUSR1)
    wait_for_events(tmp_path, "snapshot", 1)
    check_snapshot(tmp_path, events_of(tmp_path, "snapshot")[0], target)
    recorder.send_signal(signal.SIGTERM)
    recorder.communicate(timeout=60)
    assert recorder.returncode == 3
    target.goes_on()


def check_snapshot(place, event, target):
    """It is a core, by its first bytes; its pages are the process's memory."""
    path = place / event["file"]
    data = path.read_bytes()
    assert data[:4] == b"\x7fELF" and struct.unpack_from("<H", data, 16) == (4,)  # ET_CORE
    assert 0 < event["bytes"] <= path.stat().st_blocks * 512 < 2 * target.rss + MIB
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def kill_child_of(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    return children


def test_the_process_stands_still_no_longer_than_the_budget_says(target, tmp_path):
    target.do(b"g", 40)
    late, began = target.count(2), time.monotonic()
    with recording(target, tmp_path, "--every", "0.05s", "--budget", "5%"):
        wait_for_samples(tmp_path, 2)
    late, elapsed = (target.count(2) - late) / 1e9, time.monotonic() - began
    (stopped,) = events_of(tmp_path, "stopped")
    last = samples_of(tmp_path)[-1]["held_seconds"]  # after which it did not wait
    assert late <= 0.05 * elapsed + last + 0.02  # ticks and what letting go of it takes
    assert stopped["held_seconds"] <= 0.05 * stopped["elapsed"] + last
    assert late > 0 and events_of(tmp_path, "stretched")


def test_types_and_variables_have_names_where_a_gdb_is_borrowed(target, tmp_path):
    status, _, err = run("record", "-p", target.pid, "--for", "0.1s", "--names", "-o", tmp_path)
    (sample,) = samples_of(tmp_path)
    assert status == 0 and sample["named"] and sample["held_seconds"] < 0.5, err
    target.goes_on()


@pytest.mark.full
def test_a_recording_says_what_grows_with_its_type_and_what_keeps_it(tmp_path):
    with running("list,cache,traffic") as here:
        line = ("-p", here.process.pid, "--every", "0.1s", "--budget", "100%", "--names", "-o", tmp_path)
        recorder = start("record", *line)
        for number in range(9):
            wait_for_samples(tmp_path, number + 1)
            here.step()
        recorder.send_signal(signal.SIGTERM)
        recorder.communicate(timeout=60)
    document = compare(tmp_path)
    first, *others = document["data"]["findings"]
    assert (first["kind"], first["severity"]) == ("growth", "warning") and "struct session" in first["summary"]
    assert "global sessions of growing" in first["details"]["kept_by"] and not others


WRONG = {
    "no process": (("-o", "new"), "nothing to record"),
    "no folder": (("-p", "1"), "no folder to record in"),
    "no such process": (("-p", "4194999", "-o", "new"), "there is no process 4194999"),
    "a condition": (("-p", "PID", "-o", "new", "--when", "rss > x"), "'x' is not a size"),
    "a duration": (("-p", "PID", "-o", "new", "--every", "0s"), "--every: '0s' is not a duration"),
    "a budget": (("-p", "PID", "-o", "new", "--budget", "5"), "--budget: '5' is not a percentage"),
}


@pytest.mark.parametrize("words, said", WRONG.values(), ids=list(WRONG))
def test_what_is_wrong_is_said_before_a_folder_is_made(words, said, tmp_path):
    status, _, err = run("record", *[str(os.getpid()) if word == "PID" else word for word in words], cwd=tmp_path)
    assert status == 2 and said in err
    assert list(tmp_path.iterdir()) == []


def test_watch_prints_a_line_for_each_sample(target):
    watcher = start("watch", "-p", target.pid, *FAST)
    for _ in range(2):
        wait_for_line(watcher.stdout, f"  pid {target.pid}  resident ")
    watcher.send_signal(signal.SIGINT)
    out, err = watcher.communicate(timeout=60)
    assert watcher.returncode == 0 and "\x1b" not in out and err == ""
    target.goes_on()


def test_nothing_of_the_name_is_no_recording(tmp_path):
    status, out, _ = run("record", "--comm", "gx-nobody", "--for", "0.2s", "-o", tmp_path)
    assert status == 2 and out == "there was no process of that name\n"
    status, _, err = run("compare", tmp_path)
    assert status == 2 and "nothing to compare" in err


def test_watch_needs_a_process():
    status, out, err = run("watch")
    assert status == 2 and out == "" and "nothing to watch; name a process with --pid or --comm" in err


@contextmanager
def watching(target, terminal):
    """Have ``watch`` run on a terminal of its own."""
    ours, theirs = pty.openpty()
    how = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    with start("watch", "-p", target.pid, *FAST, terminal=terminal, **how) as watcher:
        try:
            yield watcher, ours
        finally:
            watcher.terminate()
            watcher.wait(timeout=60)
            os.close(ours)
            os.close(theirs)


def test_watch_draws_nothing_on_a_dumb_terminal(target):
    with watching(target, "dumb") as (watcher, ours):
        page = b""
        while page.count(b"\n") < 3:
            assert select.select([ours], [], [], 60)[0], page
            page += os.read(ours, 1 << 16)
    assert b"\x1b" not in page and f"  pid {target.pid}  resident ".encode() in page


def test_watch_draws_on_a_terminal_until_ctrl_c(target):
    with watching(target, "xterm") as (watcher, ours):
        page = b""
        while page.count(b"\x1b[H") < 3 or b"since first" not in page:
            assert select.select([ours], [], [], 60)[0], page
            page += os.read(ours, 1 << 16)
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(timeout=60) == 0
    assert "grown · pid".encode() in page and b"\x1b[J" in page and b"\x1b[?" not in page
    target.goes_on()
