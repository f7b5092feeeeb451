"""The tests' own tools: all pairs, malloc_info's sums, apt's sources, and the reasons for skips."""

from __future__ import annotations

import sys
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.support import gdbrun, glibcs, jemallocs, preloaded, timings
from tests.support.boards import DIMENSIONS
from tests.support.jestages import JE_DIMENSIONS, JeBoard
from tests.support.pairwise import full, pairwise, thorough
from tests.support.truth import parse_malloc_info


@pytest.mark.parametrize(
    "dimensions",
    [
        DIMENSIONS,
        {**DIMENSIONS, "program": ["a", "b", "c", "d", "e", "f", "g"]},
        {"one": ["x", "y"], "two": ["z"]},
        {"one": ["x", "y", "z"]},
    ],
)
def test_pairwise_covers_every_pair(dimensions):
    rows = pairwise(dimensions)
    for (left, lefts), (right, rights) in combinations(dimensions.items(), 2):
        assert {(row[left], row[right]) for row in rows} == set(product(lefts, rights))
    for name, values in dimensions.items():
        assert {row[name] for row in rows} == set(values)
    assert rows == pairwise(dict(dimensions))
    assert len(rows) <= len(full(dimensions))


def test_pairwise_of_the_boards_is_small():
    assert len(pairwise(DIMENSIONS)) <= 22 < len(full(DIMENSIONS)) == 60


def test_malloc_info_is_freed_of_the_flag_bits_it_adds_up():
    info = parse_malloc_info(
        '<malloc version="1"><heap nr="0"><sizes><size from="33" to="33" total="66" count="2"/></sizes>'
        '<total type="fast" count="1" size="32"/><total type="rest" count="3" size="1066"/>'
        '<system type="current" size="4096"/></heap>'
        '<total type="fast" count="1" size="32"/><total type="rest" count="3" size="1066"/>'
        '<total type="mmap" count="2" size="409600"/></malloc>'
    )
    assert (info.mmap_blocks, info.mmap_bytes, info.system_bytes) == (2, 409600, 4096)
    assert info.arenas[0].rest_bytes == 1064
    assert info.arenas[0].used_bytes == 4096 - 32 - 1064


def test_apt_sources_are_understood():
    stanza = "Types: deb\n# not this\nURIs: http://a.example/debian\nSuites: x x-updates\nSigned-By: /k.gpg"
    assert list(glibcs._from_stanza(stanza)) == [("http://a.example/debian", ["x", "x-updates"], "/k.gpg")]
    line = "deb [arch=amd64 signed-by=/k.gpg] http://a.example/debian x main"
    assert list(glibcs._from_line(line)) == [("http://a.example/debian", ["x"], "/k.gpg")]
    line = "deb http://a.example/debian x main"
    assert list(glibcs._from_line(line)) == [("http://a.example/debian", ["x"], None)]
    assert not list(glibcs._from_line("deb-src http://a.example/debian x main"))
    assert not list(glibcs._from_stanza(stanza + "\nEnabled: no"))


@pytest.mark.parametrize(
    ("moved", "version", "versions", "twin"),
    [
        ("sid", "2.43", {}, None),
        ("sid", "2.41", {}, "trixie"),
        ("sid", "2.44", {}, "experimental"),
        ("sid", "2.44", {"experimental": "2.45"}, None),
        ("sid", "2.44", {"experimental": None}, None),
        ("sid", "2.45", {"experimental": "2.45"}, None),
        ("experimental", "2.45", {"sid": "2.45"}, "sid"),
    ],
)
def test_a_suite_that_moved_to_another_ones_version_is_told(monkeypatch, moved, version, versions, twin):
    now = {**{name: suite.expected for name, suite in glibcs.SUITES.items()}, **versions}
    monkeypatch.setattr(glibcs, "_version", now.get)
    nowhere = Path("/nowhere")
    found = glibcs.Glibc(moved, version, version, nowhere, nowhere, nowhere, nowhere)
    assert glibcs._twin(found) == twin


def test_a_suite_that_cannot_be_reached_is_unavailable(monkeypatch, tmp_path):
    monkeypatch.setenv("GDBEXT_TEST_CACHE", str(tmp_path))
    monkeypatch.setattr(glibcs, "_archive", lambda: ((tmp_path / "no-archive").as_uri(), None))
    with pytest.raises(glibcs.Unavailable, match="E:"):
        glibcs._fetched(glibcs.SUITES["trixie"])


def test_a_run_that_does_not_end_is_stopped():
    with pytest.raises(AssertionError, match="did not end in 0.2 s"):
        gdbrun.run([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)


def test_missing_json_fails_with_what_gdb_wrote(tmp_path):
    with pytest.raises(AssertionError, match="no JSON(.|\n)*it was so"):
        gdbrun.read_envelope(tmp_path / "none.json", gdbrun.Output("", "it was so"))


def test_jemallocs_that_cannot_be_had_say_why(monkeypatch, tmp_path):
    monkeypatch.setenv("GDBEXT_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    wanted = jemallocs._tried.__wrapped__("5.3.0-rjem")
    assert isinstance(wanted, str) and wanted.startswith("jemalloc 5.3.0-rjem: ")
    assert not list((tmp_path / "cache/jemalloc").glob("*"))


def test_the_boards_of_jemalloc_cover_every_pair():
    rows = pairwise(JE_DIMENSIONS)
    assert len(rows) <= 20 < len(full(JE_DIMENSIONS)) == 64
    assert len({str(JeBoard(*(row[name] for name in JE_DIMENSIONS))) for row in rows}) == len(rows)


def test_what_is_needed_once_is_in_no_more_rows():
    dimensions = {**DIMENSIONS, "program": list("abcdefghi")}
    rows = pairwise(dimensions, ("program",))
    assert len(rows) == len(pairwise(DIMENSIONS)) < len(pairwise(dimensions))
    for one, other in combinations(DIMENSIONS, 2):
        pairs = set(product(DIMENSIONS[one], DIMENSIONS[other]))
        assert {(row[one], row[other]) for row in rows} == pairs
    assert {row["program"] for row in rows} == set(dimensions["program"])
    assert len({(row["program"], row["glibc"]) for row in rows}) == len(rows)


def test_thorough_covers_every_board_and_every_pair():
    dimensions = {**DIMENSIONS, "program": ["a", "b", "c", "d", "e", "f", "g"], "twin": ["broken", "healthy"]}
    rows = thorough(dimensions, list(DIMENSIONS))
    assert {tuple(row[name] for name in DIMENSIONS) for row in rows} == set(product(*DIMENSIONS.values()))
    for (left, lefts), (right, rights) in combinations(dimensions.items(), 2):
        assert {(row[left], row[right]) for row in rows} == set(product(lefts, rights))
    assert len(rows) <= 1.5 * len(full(DIMENSIONS))
    assert len(thorough(DIMENSIONS, list(DIMENSIONS))) == len(full(DIMENSIONS))


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [
        (["-iex", "a b", "/x", "/c", "-ex", "d"], ["a b", "file /x", "core-file /c", "d"]),
        (["-ex", "d", "-p", "12", "-iex", "a"], ["a", "attach 12", "d"]),
        (["-core", "/c"], ["core-file /c"]),
        (["/x", "-p", "12"], ["file /x", "attach 12"]),
        (["-q"], None),
        (["/with space"], None),
        (["--core=/c"], None),
    ],
)
def test_arguments_of_gdb_are_commands_of_a_copy(arguments, commands):
    assert preloaded.as_commands(arguments) == commands


def test_a_copy_of_gdb_does_as_a_fresh_one(tmp_path):
    script = "python print(__import__('os').getcwd(), gdb.selected_inferior().pid)"
    arguments = [*gdbrun.load_pack(), "-ex", script, "-ex", "nonsense", "-ex", "gx safe triage", "-ex", "gx triage -h"]
    fresh = gdbrun.run_gdb(arguments, cwd=tmp_path)
    assert str(tmp_path) in fresh.out and "nonsense" in fresh.err and "Usage" in fresh.out
    for _ in range(2):
        assert preloaded.run_gdb(arguments, cwd=tmp_path) == fresh


def test_a_copy_of_gdb_that_does_not_end_is_stopped():
    with pytest.raises(AssertionError, match="(?s)did not end in 0.5 s.*begun"):
        preloaded.run_gdb([*gdbrun.load_pack(), "-ex", "echo begun\\n", "-ex", "shell sleep 60"], 0.5)
    assert preloaded.run_gdb([*gdbrun.load_pack(), "-ex", "echo again\\n"]).out == "again\n"


class Report:
    def __init__(self, nodeid, duration):
        self.nodeid, self.duration = nodeid, duration


def test_slow_files_and_areas_are_listed():
    reports = [
        Report("tests/unit/heap/glibc/test_a.py::test_one[x::y]", 30.0),
        Report("tests/gdb/test_b.py::two", 50.0),
    ]
    lines = list(timings.describe({"passed": reports, "": [Report("tests/unit/heap/test_c.py::three", 1.0)], "x": [1]}))
    assert [line.split() for line in lines[1:4]] == [
        ["50.0", "s", "tests/gdb/test_b.py"],
        ["30.0", "s", "tests/unit/heap/glibc/test_a.py"],
        ["1.0", "s", "tests/unit/heap/test_c.py"],
    ]
    assert [line.split() for line in lines[5:]] == [["50.0", "s", "tests/gdb"], ["31.0", "s", "tests/unit/heap"]]
    assert not list(timings.describe({"passed": reports[:1]}))
