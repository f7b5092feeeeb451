"""A cache whose entries are whole, the user's own, and of the files that they are kept for, or are not there."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
import tracemalloc

import pytest

from gdbext.errors import UsageError
from gdbext.filecache.contents import find_hash
from gdbext.filecache.store import Store, default_folder, key_of
from tests.support.cache import CHECKOUT

VALUE = {"types": [["struct entry", 24, None]], "name": "\ud800é"}


@pytest.fixture
def store(tmp_path):
    made = Store(str(tmp_path / "cache"))
    made.make()
    return made


def entries(store):
    return sorted(os.listdir(store.folder))


def test_what_is_kept_is_found_by_its_key_alone(store):
    store.keep(key_of("a", 1), VALUE)
    store.keep(key_of("a", 2), None)
    assert store.find(key_of("a", 1)) == VALUE
    assert store.find(key_of("a", 2)) is None and store.find(key_of("a", "1")) is None
    assert len(entries(store)) == 2 and os.stat(store.folder).st_mode & 0o777 == 0o700


def test_an_entry_takes_no_more_room_than_it_has(store):
    """A child of a fleet may have little address space left."""
    store.keep(key_of("a"), VALUE)
    tracemalloc.start()
    try:
        assert store.find(key_of("a")) == VALUE and tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_an_entry_that_is_damaged_or_of_another_key_is_not_there_and_is_made_anew(store):
    key = key_of("x")
    store.keep(key, VALUE)
    path = store.path(key)
    with open(path, "rb") as file:
        whole = file.read()
    for at in range(len(whole)):
        with open(path, "wb") as file:
            file.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store.find(key) is None
        with open(path, "wb") as file:
            file.write(whole[:at])
        assert store.find(key) is None
    store.keep(key, VALUE)
    assert store.find(key) == VALUE
    os.rename(path, store.path(key_of("y")))
    assert store.find(key_of("y")) is None


def test_what_is_no_file_of_the_users_own_is_not_read(store, tmp_path):
    key = key_of("x")
    store.keep(key, VALUE)
    os.rename(store.path(key), tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", store.path(key))
    assert store.find(key) is None
    os.unlink(store.path(key))
    os.mkfifo(store.path(key))
    assert store.find(key) is None
    os.unlink(store.path(key))
    os.mkdir(store.path(key))
    assert store.find(key) is None
    store.keep(key, VALUE)  # there is no place for it
    assert store.find(key) is None and not [name for name in entries(store) if name.endswith(".part")]


def test_several_processes_write_one_entry_at_once(store):
    code = (
        "import sys; from gdbext.filecache.store import Store, key_of\n"
        "store, value = Store(sys.argv[1]), [sys.argv[2] * 1000] * 50\n"
        "for _ in range(200):\n"
        "    store.keep(key_of('x'), value)\n"
        "    found = store.find(key_of('x'))\n"
        "    assert found in ([letter * 1000] * 50 for letter in 'ab'), found\n"
    )
    line = [sys.executable, "-c", code, store.folder]
    started = [subprocess.Popen([*line, letter], cwd=CHECKOUT) for letter in "ab"]
    assert [process.wait(60) for process in started] == [0, 0] and len(entries(store)) == 1


def test_its_size_is_bounded_and_what_was_used_last_stays(store):
    for number in range(10):
        store.keep(key_of(number), "x" * 100_000)
        os.utime(store.path(key_of(number)), (number, number))
    assert store.find(key_of(0)) is not None  # used now
    store.prune(1 << 20)
    assert len(entries(store)) == 10
    store.prune(500_000)
    left = [number for number in range(10) if store.find(key_of(number)) is not None]
    assert left == [0, 7, 8, 9] or left == [0, 8, 9]


def test_what_a_killed_process_has_left_is_removed(store):
    for name, age in (("old", 7200), ("new", 60)):
        path = store.path(name, "part")
        open(path, "w").close()
        os.utime(path, (time.time() - age,) * 2)
    store.prune()
    assert entries(store) == ["new.part"]


def test_a_folder_that_others_write_to_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)
    (tmp_path / "file").touch()
    for name in ("open", "file/cache"):
        with pytest.raises(UsageError, match="--cache"):
            Store(str(tmp_path / name)).make()


def test_its_usual_place(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert default_folder() == "/home/somebody/.cache/gdbext"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/somebody")
    assert default_folder() == "/var/cache/somebody/gdbext"


# ---- contents ----


def settled(path, seconds=3600):
    """Have a file be as old as this; its change time stays, which is why tests look from later on."""
    os.utime(path, (time.time() - seconds,) * 2)
    return time.time_ns() + 10**9


def test_a_hash_is_of_what_a_file_holds(store, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    wanted = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    assert find_hash(store, str(path), settled(path)) == wanted
    path.write_bytes(b"two")  # of the same size
    assert find_hash(store, str(path), settled(path)) != wanted
    assert find_hash(store, str(path), os.stat(path).st_ctime_ns) is None  # changed since gdb has opened it
    assert find_hash(store, str(tmp_path / "none"), time.time_ns()) is None
    os.mkfifo(tmp_path / "fifo")
    assert find_hash(store, str(tmp_path / "fifo"), time.time_ns()) is None


def test_a_file_that_has_just_changed_is_read_each_time(store, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    find_hash(store, str(path), settled(path))
    assert entries(store) == []


def test_a_file_is_read_once(store):
    path, now = sys.executable, time.time_ns()
    first = find_hash(store, path, now)
    (name,) = entries(store)
    assert first is not None and find_hash(store, path, now) == first
    with open(os.path.join(store.folder, name), "wb") as file:
        file.write(b"damaged")
    assert find_hash(store, path, now) == first


def test_debug_info_in_other_files_is_not_kept(store, tmp_path):
    (tmp_path / "a.c").write_text("int number; int main(void) { return number; }\n")
    for flags, whole in (((), True), (("-gsplit-dwarf",), False)):
        line = ["gcc", "-g", *flags, "-o", tmp_path / "a", tmp_path / "a.c"]
        subprocess.run(line, check=True, cwd=tmp_path)
        found = find_hash(store, str(tmp_path / "a"), settled(tmp_path / "a"))
        assert (found is not None) == whole


def test_a_hostile_file_is_read_all_the_same(store, tmp_path):
    path = tmp_path / "file"
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 64, 0, 64, 56, 1, 64, 9, 2)
    for data in (header, header + bytes(600), header + b"\xff" * 600):
        path.write_bytes(data)
        assert find_hash(store, str(path), settled(path)) is not None
