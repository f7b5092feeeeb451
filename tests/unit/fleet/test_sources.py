"""Which cores words name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gdbext.errors import UsageError
from gdbext.fleet import sources
from gdbext.fleet.sources import find_sources

HANDLER = Path(__file__).resolve().parents[3] / "contrib" / "gdbext-core-handler"


def names(*words, listed=(), hosts=None):
    return [os.path.basename(one.path) for one in find_sources([str(word) for word in words], listed, hosts)]


@pytest.fixture
def folder(tmp_path):
    for name in ("a/core.2", "a/core.1", "b/c/core.3", ".hidden/core.4", "b/.part"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    os.mkfifo(tmp_path / "a" / "fifo")
    return tmp_path


def test_files_folders_patterns_and_lists(folder):
    assert names(folder) == ["core.1", "core.2", "core.3"]
    assert names(folder / "b" / "c" / "core.3", folder / "a") == ["core.3", "core.1", "core.2"]
    assert names(folder / "*" / "core.*") == ["core.1", "core.2"]
    assert names(folder / "**" / "core.*") == ["core.1", "core.2", "core.3"]
    assert names("-", listed=[str(folder / "a" / "core.2"), "/nowhere/core"]) == ["core.2", "core"]


def test_a_core_with_several_names_is_one(folder):
    (folder / "a" / "link").symlink_to("core.1")
    os.link(folder / "a" / "core.1", folder / "b" / "core.same")
    assert names(folder / "a", folder / "a" / "core.1", folder) == ["core.1", "core.2", "core.3"]


def test_datasets_in_a_folder_are_no_cores(folder):
    (folder / "data").mkdir()
    for name in ("dataset.json", "lock", "anything"):
        (folder / "data" / name).write_text("")
    assert names(folder) == ["core.1", "core.2", "core.3"]


def test_hosts(folder):
    (one, two, three) = find_sources([str(folder)], (), f"{folder}/([^/]+)/core")
    assert (one.host, two.host, three.host) == ("a", "a", None)
    with pytest.raises(UsageError, match="no group"):
        find_sources([str(folder)], (), "core")
    with pytest.raises(UsageError, match="regular expression"):
        find_sources([str(folder)], (), "(")


def test_ids_change_with_the_file(folder):
    (before,) = find_sources([str(folder / "a" / "core.1")], ())
    os.utime(folder / "a" / "core.1", (5, 5))
    (after,) = find_sources([str(folder / "a" / "core.1")], ())
    assert before.core != after.core and after.time == 5


def test_what_does_not_exist(folder):
    for word in ("nowhere", "no*where"):
        with pytest.raises(UsageError, match="does not exist"):
            names(folder / word)


def test_what_systemd_has_noted_of_a_core_counts(folder, monkeypatch):
    core = folder / "a" / "core.1"
    try:
        os.setxattr(core, "user.coredump.hostname", b"web-7")
        os.setxattr(core, "user.coredump.timestamp", b"1700000000250000")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error.strerror}")
    monkeypatch.setattr(sources, "_COREDUMPCTL", str(folder / "a"))
    (one, two) = find_sources(["coredumpctl"], ())
    assert (one.host, one.time) == ("web-7", 1700000000.25) and two.host is None
    assert find_sources([str(core)], (), "/(a)/")[0].host == "a"
    os.setxattr(core, "user.coredump.timestamp", "¹".encode())
    assert find_sources([str(core)], ())[0].time == core.stat().st_mtime


def test_a_core_handler_keeps_what_there_is_room_for(tmp_path):
    def hand(size, *words, mib="1"):
        environment = {**os.environ, "GDBEXT_SPOOL": str(tmp_path / "spool"), "GDBEXT_SPOOL_MIB": mib}
        subprocess.run([str(HANDLER), *words], input=bytes(size), env=environment, check=True)

    hand(5000, "12", "1700000000", "web-7", "a/../b")
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["core.web-7.a_.._b.12.1700000000"]
    assert next((tmp_path / "spool").iterdir()).stat().st_mode & 0o777 == 0o600
    hand(2 << 20, "13", "1700000000", "web-7", "b")
    hand(100, "14", "1700000000", "web-7", "c", mib="0")
    assert len(os.listdir(tmp_path / "spool")) == 1
