"""How much memory is left, on laid-out machines."""

from __future__ import annotations

import resource

import pytest

from gdbext.memory.room import Bound, Room, find_room, for_each_bound

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 800 MiB free; files are put by path."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def put(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return find_room(tmp_path / "proc", tmp_path / "cgroup")

    put(**{"proc/meminfo": "MemTotal: 4000000 kB\nMemFree: 1 kB\nMemAvailable: 819200 kB\n"})
    return put


def bounded(folder, names, most, taken, cached):
    limit, current, files = names
    stat = f"anon 5\n{files} {cached}\nactive_file 7\n"
    return {f"{folder}/{limit}": f"{most}\n", f"{folder}/{current}": f"{taken}\n", f"{folder}/memory.stat": stat}


UNIFIED = ("memory.max", "memory.current", "inactive_file")
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_of_a_machine_without_bounds_what_is_free(machine):
    assert machine() == Room(800 * MIB, "free on this machine")


def test_a_cgroup_leaves_less_and_gives_back_files(machine):
    files = bounded("cgroup/a/b", UNIFIED, 300 * MIB, 200 * MIB, 50 * MIB)
    assert machine(**{"proc/self/cgroup": "0::/a/b\n"}, **files) == Room(150 * MIB, "left by its cgroup")


def test_the_tightest_of_cgroups_in_one_another_counts(machine):
    inner = bounded("cgroup/a/b", UNIFIED, "max", 200 * MIB, 0)
    outer = bounded("cgroup/a", UNIFIED, 100 * MIB, 90 * MIB, 0)
    found = machine(**{"proc/self/cgroup": "0::/a/b\n"}, **inner, **outer)
    assert found == Room(10 * MIB, "left by its cgroup")


def test_cgroups_of_the_first_version(machine):
    files = bounded("cgroup/memory/a", LEGACY, 300 * MIB, 400 * MIB, 0)
    assert machine(**{"proc/self/cgroup": "3:cpu:/x\n9:memory:/a\n"}, **files) == Room(0, "left by its cgroup")


@pytest.mark.parametrize("path", ["/not/mounted/here", "/../../elsewhere"])
def test_a_cgroup_that_is_not_visible_here_is_not_known(machine, path):
    assert machine(**{"proc/self/cgroup": f"0::{path}\n"}) == Room(800 * MIB, "free on this machine")


def test_what_is_visible_of_cgroups_bounds_one_that_is_not(machine):
    files = bounded("cgroup", UNIFIED, 300 * MIB, 200 * MIB, 0)
    assert machine(**{"proc/self/cgroup": "0::/../../x\n"}, **files) == Room(100 * MIB, "left by its cgroup")


def test_a_cgroup_that_says_nothing_of_files(machine):
    files = {**bounded("cgroup/a", UNIFIED, 300 * MIB, 200 * MIB, 0), "cgroup/a/memory.stat": "anon 5\n"}
    assert machine(**{"proc/self/cgroup": "0::/a\n"}, **files) == Room(100 * MIB, "left by its cgroup")


def test_a_limit_of_addresses(machine, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (700 * MIB, 900 * MIB))
    found = machine(**{"proc/self/statm": f"{600 * MIB // resource.getpagesize()} 1 1 1 0 1 0\n"})
    assert found == Room(100 * MIB, "left by ulimit -v")


def test_where_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert find_room(tmp_path, tmp_path) is None


def test_another_process_has_bounds_of_its_own(tmp_path):
    files = {
        **bounded("cgroup/memory/a", LEGACY, 300 * MIB, 200 * MIB, 50 * MIB),
        **bounded("cgroup/memory", LEGACY, 9223372036854771712, 400 * MIB, 0),  # none
        "proc/7/cgroup": "9:memory:/a\n",
        "proc/7/limits": "Limit  Soft Limit  Hard Limit  Units\nMax address space   1048576000  unlimited  bytes\n",
        "proc/7/statm": "512 3 2 1 0 1 0\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = list(for_each_bound("7", tmp_path / "proc", tmp_path / "cgroup"))
    page = resource.getpagesize()
    assert found == [Bound(300 * MIB, 150 * MIB, "cgroup"), Bound(1048576000, 512 * page, "RLIMIT_AS")]
    (tmp_path / "proc/7/limits").write_text("Max address space         unlimited  unlimited  bytes\n")
    assert [one.what for one in for_each_bound("7", tmp_path / "proc", tmp_path / "cgroup")] == ["cgroup"]
    assert list(for_each_bound("8", tmp_path / "proc", tmp_path / "cgroup")) == []
