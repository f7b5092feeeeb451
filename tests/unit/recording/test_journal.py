"""A recording on the disk: whole lines, whatever becomes of its writer, of the disk, or of what was there before."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from gdbext.analysis.growth.sample import ProcessId, Row, Sample
from gdbext.analysis.growth.sampletext import sample_text
from gdbext.errors import UsageError
from gdbext.grammar.exchange import SAMPLES, is_recording
from gdbext.recording.events import OPENING, Event, event_text, find_event
from gdbext.recording.journal import Journal
from gdbext.recording.reading import read_recording
from tests.support.cache import CHECKOUT

ROWS = {"owner": [Row("glibc in use", None, 4096)]}
TEXT = sample_text(Sample(ProcessId(7, "server"), time=12.5, held_seconds=0.25, measure="resident", rows=ROWS))

# Adds numbered samples until it is killed, and says how many are surely there.
WRITER = f"""
import os, sys
sys.path.insert(0, {str(CHECKOUT)!r})
from gdbext.recording.journal import Journal
journal = Journal(sys.argv[1])
print("open", flush=True)
number = 0
while True:
    number += 1
    text = '{{"format":"gdbext/sample/1","number":%d,"filled":"%s"}}' % (number, "x" * int(sys.argv[2]))
    if journal.add_sample(text):
        os.write(1, b"%d\\n" % number)
"""


def lines_of(folder):
    return (folder / SAMPLES).read_bytes().split(b"\n")


def kinds_of(folder):
    """Return what a folder's lines are, read by nothing of ours."""
    assert lines_of(folder)[-1] == b""
    documents = [json.loads(line) for line in lines_of(folder)[:-1]]
    return [document.get("event", "sample") for document in documents]


@contextmanager
def opened(folder):
    journal = Journal(str(folder), lambda: 1.5)
    try:
        yield journal
    finally:
        journal.close()


def test_each_line_is_one_entry_and_comes_back(tmp_path):
    with opened(tmp_path / "new") as journal:
        journal.add_event("process", pid=7, name="a\udcff\n", started=1)
        assert journal.add_sample(TEXT)
    assert kinds_of(tmp_path / "new") == ["created", "process", "sample"]
    recorded = read_recording(str(tmp_path / "new"), 9)
    (sample,), (created, process) = recorded.samples, recorded.events
    assert (created.kind, created.time, sample.process.pid, sample.held_seconds) == ("created", 1.5, 7, 0.25)
    assert process == Event("process", 1.5, {"pid": 7, "name": "a\\xff\n", "started": 1})
    assert (recorded.total, recorded.problems) == (1, [])


@pytest.mark.parametrize("umask", [0, 0o777])
def test_nobody_else_may_read_it(umask, tmp_path):
    before = os.umask(umask)
    try:
        with opened(tmp_path / "new"):
            pass
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (tmp_path / "new", tmp_path / "new" / SAMPLES)]
    assert modes == [0o700 & ~umask, 0o600]
    os.chmod(tmp_path / "new", 0o700)


def test_what_is_there_goes_on(tmp_path):
    for _ in range(3):
        with opened(tmp_path) as journal:
            journal.add_sample(TEXT)
    assert kinds_of(tmp_path) == ["created", "sample", "sample", "sample"]


@pytest.mark.parametrize("kept", [1, len(TEXT) // 2, len(TEXT)])
def test_a_torn_last_line_is_left_out_and_stays_one_line(kept, tmp_path):
    with opened(tmp_path) as journal:
        journal.add_sample(TEXT)
        journal.add_sample(TEXT)
    path = tmp_path / SAMPLES
    os.truncate(path, path.stat().st_size - 1 - len(TEXT) + kept)
    recorded = read_recording(str(tmp_path), 9)
    assert len(recorded.samples) == 1
    assert [problem.kind for problem in recorded.problems] == ["damaged-recording"]
    assert "line 3 of samples.jsonl" in recorded.problems[0].message
    with opened(tmp_path) as journal:
        journal.add_sample(TEXT)
    recorded = read_recording(str(tmp_path), 9)
    assert len(recorded.samples) == (3 if kept == len(TEXT) else 2)  # which lacked no more than its end
    assert len(recorded.problems) == (kept != len(TEXT))


@pytest.mark.parametrize("kept", [0, 1, len(OPENING), len(OPENING) + 9])
def test_one_that_was_killed_at_its_first_line_begins_anew(kept, tmp_path):
    (tmp_path / SAMPLES).write_text(event_text(Event("created", 1.0, {"version": "1"}))[:kept])
    with opened(tmp_path) as journal:
        journal.add_sample(TEXT)
    assert kinds_of(tmp_path) == ["created", "sample"]


FOREIGN = (
    "my own notes\n",
    TEXT + "\n",
    event_text(Event("created", 1.0, {"version": "1"})).replace("recording/1", "recording/2") + "\n",
    "x",
)


@pytest.mark.parametrize("text", FOREIGN, ids=["notes", "samples", "later", "short"])
def test_what_is_no_recording_is_let_be(text, tmp_path):
    (tmp_path / SAMPLES).write_text(text)
    with pytest.raises(UsageError, match="is no recording of this version"):
        Journal(str(tmp_path))
    with pytest.raises(UsageError, match="is no recording of this version"):
        read_recording(str(tmp_path), 9)
    assert (tmp_path / SAMPLES).read_text() == text


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(UsageError, match=f"cannot read .*{SAMPLES}: No such file"):
        read_recording(str(tmp_path), 10)
    os.mkfifo(tmp_path / SAMPLES)
    with pytest.raises(UsageError, match=f"{SAMPLES} is no file"):
        read_recording(str(tmp_path), 10)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_what_is_no_file_is_not_written_to(make, tmp_path):
    make(tmp_path / SAMPLES)
    with pytest.raises(UsageError):
        Journal(str(tmp_path))
    with pytest.raises(UsageError):
        read_recording(str(tmp_path), 9)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    with pytest.raises(UsageError, match="cannot record in"):
        Journal(str(tmp_path / "none" / "deeper"))
    assert not is_recording(str(tmp_path))


def test_only_one_adds_to_it(tmp_path):
    with opened(tmp_path) as journal:
        with pytest.raises(UsageError, match="another gdbext records"):
            Journal(str(tmp_path))
        journal.add_sample(TEXT)
    with opened(tmp_path):  # the other one has ended
        pass
    assert kinds_of(tmp_path) == ["created", "sample"]


DAMAGED = {
    "cut": b"{",
    "bytes": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "kind": b'{"format":"gdbext/recording/1","event":3,"time":1}',
    "time": b'{"format":"gdbext/recording/1","event":"ended","time":NaN}',
    "sample": b'{"format":"gdbext/sample/1"}',
    "long": b"x" * (9 << 20),
    "details": b'{"format":"gdbext/recording/1","event":"ended","time":1,"pid":"7","started":1}',
    "far": b'{"format":"gdbext/recording/1","event":"missed","time":1e15,"samples":1}',
    "zeros": b"\0" * 512,
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_line_costs_itself_alone(line, tmp_path):
    with opened(tmp_path) as journal:
        journal.add_sample(TEXT)
    with open(tmp_path / SAMPLES, "ab") as file:
        file.write(line + b"\n" + TEXT.encode() + b"\n")
    recorded = read_recording(str(tmp_path), 9)
    assert (len(recorded.samples), len(recorded.events)) == (2, 1)
    assert [problem.kind for problem in recorded.problems] == ["damaged-recording"]


def test_of_many_samples_some_are_read_that_are_evenly_spread(tmp_path):
    lines = [
        event_text(Event("created", 1.0, {"version": "1"})),
        *(TEXT.replace("12.5", str(number)) for number in range(100)),
    ]
    (tmp_path / SAMPLES).write_text("\n".join(lines) + "\n")
    for most in (2, 3, 10, 99, 100, 101):
        recorded = read_recording(str(tmp_path), most)
        times = [sample.time for sample in recorded.samples]
        assert len(times) == min(most, 100) and (times[0], times[-1]) == (0, 99) and recorded.total == 100
        steps = [later - earlier for earlier, later in zip(times, times[1:])]
        assert max(steps) - min(steps) <= 1


def test_a_line_of_a_later_gdbext_is_no_damage():
    assert find_event('{"format":"gdbext/recording/1","event":"novel","time":2,"more":[1]}').kind == "novel"


@contextmanager
def largest_file(size):
    """Have the kernel refuse what makes a file larger: EFBIG, as ENOSPC of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 1, 70, len(TEXT) + 1])
def test_without_room_lines_are_whole_or_not_there_and_what_was_lost_is_said(room, tmp_path):
    with opened(tmp_path) as journal:
        journal.add_sample(TEXT)
        size = (tmp_path / SAMPLES).stat().st_size
        with largest_file(size + room):
            kept = [journal.add_sample(TEXT) for _ in range(3)]
            journal.add_event("ended", pid=7, started=1)
            assert journal.fault == "File too large"
            assert set(kinds_of(tmp_path)) == {"created", "sample"}
        lost = kept.count(False)
        assert journal.lost == lost == (3 if room < len(TEXT) + 1 else 2)
        assert journal.add_sample(TEXT)
    assert journal.fault is None
    assert kinds_of(tmp_path) == ["created", *["sample"] * (4 - lost), "ended", "lost", "sample"]
    assert json.loads(lines_of(tmp_path)[-3])["samples"] == lost


def test_what_is_written_to_a_file_that_was_removed_is_lost(tmp_path):
    with opened(tmp_path) as journal:
        (tmp_path / SAMPLES).unlink()
        assert not journal.add_sample(TEXT)
        assert (journal.lost, journal.fault) == (1, "samples.jsonl was removed")


def test_a_new_recording_on_a_full_disk_is_refused(tmp_path):
    with largest_file(10), pytest.raises(UsageError, match="cannot record in .*: File too large"):
        Journal(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_on_a_full_file_system(tmp_path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing may be mounted here")
    try:
        with opened(tmp_path) as journal:
            filler = tmp_path / "filler"
            filler.write_bytes(b"x" * 50_000)
            kept = [journal.add_sample(TEXT) for _ in range(60)]
            assert not all(kept) and any(kept)
            kinds_of(tmp_path)
            filler.unlink()
            assert journal.add_sample(TEXT)
        assert kinds_of(tmp_path).count("sample") == kept.count(True) + 1
        assert json.loads(lines_of(tmp_path)[-3])["samples"] == kept.count(False)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_killed_at_any_moment_all_that_was_said_to_be_there_is(tmp_path):
    """Each line is of several pages, so that the kernel copies it in parts."""
    chance, seen = random.Random(1), 0
    for _ in range(12):
        line = [sys.executable, "-c", WRITER, str(tmp_path), str(chance.choice((10, 30_000, 300_000)))]
        with subprocess.Popen(line, stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"open\n"
            time.sleep(chance.random() * 0.03)
            writer.send_signal(signal.SIGKILL)
            said = writer.stdout.read().split(b"\n")[:-1]
        runs = numbers_of(tmp_path)
        assert runs[seen : seen + len(said)] == list(map(int, said))
        seen = len(runs)
    with opened(tmp_path) as journal:
        assert journal.add_sample(TEXT)
    assert lines_of(tmp_path)[-2] == TEXT.encode()


def numbers_of(folder):
    """Return the numbers of samples that are whole, by their order; a line that is not is the last of its writer's."""
    found = []
    for line in lines_of(folder):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if "number" in document:
            found.append(document["number"])
    return found
