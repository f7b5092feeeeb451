"""Snapshots beside a recording: how many, and where there is room."""

from __future__ import annotations

import os

import pytest

from gdbext.errors import GdbextError
from gdbext.files import PrivateFile
from gdbext.recording.snapshots import Snapshots, find_size


def test_numbers_go_on_and_are_bounded(tmp_path):
    snapshots = Snapshots(str(tmp_path), 2)
    assert snapshots.find_path(os.getpid()) == str(tmp_path / "snapshot-0001.core")
    (tmp_path / "snapshot-0007.core").touch()
    (tmp_path / "snapshot.core").touch()
    assert snapshots.find_path(os.getpid()) == str(tmp_path / "snapshot-0008.core")
    (tmp_path / "snapshot-0008.core").touch()
    with pytest.raises(GdbextError, match="there may be 2 snapshots"):
        snapshots.find_path(os.getpid())


def test_without_room_there_is_none(tmp_path, monkeypatch):
    facts = os.statvfs(tmp_path)
    room = (64 << 20) + find_size(os.getpid())

    def with_room(size):
        values = list(facts)
        values[1], values[4] = 1, size  # f_frsize, f_bavail
        monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))

    with_room(room + (16 << 20))  # it may grow a little meanwhile
    assert Snapshots(str(tmp_path), 1).find_path(os.getpid())
    with_room(room - (16 << 20))
    with pytest.raises(GdbextError, match="no room for a snapshot"):
        Snapshots(str(tmp_path), 1).find_path(os.getpid())


def test_the_size_is_the_kernel_s():
    with open("/proc/self/status") as file:
        fields = dict(line.split(":") for line in file)
    ours = (int(fields["VmRSS"].split()[0]) + int(fields["VmSwap"].split()[0])) << 10
    assert find_size(os.getpid()) == pytest.approx(ours, abs=4 << 20)


def test_what_a_killed_recorder_has_left_is_removed(tmp_path):
    left = PrivateFile(str(tmp_path / "snapshot-0001.core"))
    os.write(left.descriptor, b"x")
    (tmp_path / "samples.jsonl").touch()
    (tmp_path / ".gdbext-mine.part").touch()
    Snapshots(str(tmp_path), 1).remove_left()
    assert sorted(os.listdir(tmp_path)) == [".gdbext-mine.part", "samples.jsonl"]
    left.discard()
