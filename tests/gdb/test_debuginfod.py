"""Cores whose program is not on this machine, with a server that has it by build-id: names, as if it were here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.gdb.test_fleet import CHECKOUT, build, dump
from tests.support import gdbrun
from tests.support.glibcs import Unavailable
from tests.unit.filecache.test_debuginfod import paths_of, serving
from tests.unit.fleet import made


@pytest.fixture(scope="module")
def cores(tmp_path_factory):
    """Cores of a program that is gone: their folder, its build-id, and it without and its debug info."""
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("debuginfod")
    program = build(folder / "built", ("-O0",), "system")
    notes = subprocess.run(["readelf", "-n", program], check=True, capture_output=True, text=True).stdout
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)[1]
    core = dump(program, "sessions", 0, True)
    (folder / "cores").mkdir()
    for number in range(2):
        shutil.copy(core, folder / "cores" / f"core.{number}")
    subprocess.run(["objcopy", "--only-keep-debug", program, folder / "debug"], check=True)
    subprocess.run(["strip", program], check=True)
    program.rename(folder / "program")
    return folder / "cores", build_id, (folder / "debug").read_bytes(), (folder / "program").read_bytes()


def gdbext(*words):
    line = [sys.executable, str(CHECKOUT / "bin" / "gdbext"), *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=200)


def test_one_core(cores, tmp_path):
    folder, build_id, debug, program = cores
    line = ("blocks", "leaks", "--core", folder / "core.0", "--json")
    with serving(dict(zip(paths_of(build_id), (debug, program)))) as (url, asked):
        without = gdbext(*line)
        assert not asked and "struct session" not in without.stdout
        done = gdbext(*line, "--debuginfod", url, "--cache", tmp_path / "cache")
        assert "struct session" in json.dumps(json.loads(done.stdout)["data"]), done.stderr
        assert not done.stderr and {path for path in asked if build_id in path} == set(paths_of(build_id))
        again = gdbext(*line, "--debuginfod", url, "--cache", tmp_path / "cache")
        assert again.stdout == done.stdout and len([path for path in asked if build_id in path]) == 2
    later = gdbext(*line, "--debuginfod", url, "--cache", tmp_path / "cache")  # the server is gone, what it gave is not
    assert later.stdout == done.stdout and later.stderr.count("refused") <= 1


def test_a_folder_of_debug_info_without_order(cores, tmp_path):
    folder, _, debug, program = cores
    (tmp_path / "symbols" / "deep").mkdir(parents=True)
    (tmp_path / "symbols" / "some.dbg").write_bytes(debug)
    (tmp_path / "symbols" / "deep" / "some").write_bytes(program)
    os.utime(tmp_path / "symbols" / "deep" / "some", (1, 1))
    done = gdbext("blocks", "leaks", "--core", folder / "core.0", "--json", "--debug-dir", tmp_path / "symbols")
    assert "struct session" in done.stdout and not done.stderr


@pytest.mark.skipif(not (find_spec("pyarrow") and find_spec("duckdb")), reason="needs pyarrow and duckdb")
def test_many_cores(cores, tmp_path):
    folder, build_id, debug, program = cores
    with serving(dict(zip(paths_of(build_id), (debug, program)))) as (url, asked):
        words = ("fleet", "run", folder, "-o", tmp_path / "data", "--cache", tmp_path / "cache")
        done = gdbext(*words, "--debuginfod", url, "--commands", "blocks leaks")
    assert not done.returncode and len([path for path in asked if build_id in path]) == 2
    rows = made.rows_of(tmp_path / "data")
    assert len(rows["cores"]) == 2 and all("struct session" in row for row in rows["causes"][:2]), done.stderr


@pytest.mark.skipif(not (find_spec("pyarrow") and find_spec("duckdb")), reason="needs pyarrow and duckdb")
def test_a_hostile_server_is_named_once_and_costs_no_core(cores, tmp_path):
    folder, build_id, _, _ = cores
    with serving(dict.fromkeys(paths_of(build_id), b"\x7fELF no")) as (url, _):
        words = ("fleet", "run", folder, "-o", tmp_path / "data", "--cache", tmp_path / "cache", "--jobs", "2")
        done = gdbext(*words, "--debuginfod", url, "--commands", "triage")
    assert not done.returncode and done.stderr.count("no ELF file") == 1, done.stderr
    rows = made.rows_of(tmp_path / "data")
    assert len(rows["cores"]) == 2 and len(rows["answers"]) == 2
