"""Completion in gdb, asked by its own ``complete``."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gdbext.grammar import catalogue
from tests.gdb.bridged import gdb, need_gdb
from tests.support.boards import Board
from tests.support.glibcs import Unavailable


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Return a function that completes lines in one gdb: what the last word of each may become."""
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    folder = tmp_path_factory.mktemp("completion")
    (folder / "program.c").write_text("int apples, apes; int main(void) { return apples + apes; }\n")
    subprocess.run(["gcc", "-g", "-o", folder / "program", folder / "program.c"], check=True)

    def run(*lines):
        asked = [part for line in lines for part in ("echo @@\\n", f"complete {line}")]
        output = gdb("set max-completions unlimited", *asked, options=[str(folder / "program")], cwd=folder)
        assert output.err == "", output.err
        parts = output.out.split("@@\n")[1:]
        return [[found.rpartition(" ")[2] for found in part.splitlines()] for part in parts]

    return run


def options(name):
    return sorted(f"--{option.name}" for option in catalogue.find_command(name).all_options)


def test_options(complete):
    bins, dashes, begun, flag, nothing, after = complete(
        "glibc bins --", "gx jemalloc extents -", "glibc chunks 0x10 --min", "glibc arenas --byt", "glibc arenas ",
        "blocks list --min-size 4K --max",
    )  # fmt: skip
    assert bins == options("glibc bins") and dashes == options("jemalloc extents")
    assert (begun, flag, after) == (["--min-size"], ["--bytes"], ["--max-size"])
    assert nothing == options("glibc arenas")


def test_values(complete):
    found = complete(
        "glibc chunks --state un", "glibc chunks --state=un", "blocks list --state used,mm", "blocks list --sort -si",
        "blocks list --columns size,addr", "gx jemalloc extents --state ret", "triage --color n",
        "walklist apples --shape std-ma", "gx shapes show unbound-lru", "gx breakpoints ch", "walklist x --end n",
    )  # fmt: skip
    assert found[:7] == [
        ["unsorted"], ["--state=unsorted"], ["used,mmapped"], ["-size"], ["size,address"], ["retained"], ["never"]
    ]  # fmt: skip
    assert "std-map" in found[7] and "unbound-lruhash" in found[8] and found[9:] == [["chain"], ["null"]]


def test_symbols_only_where_an_expression_is_begun(complete):
    empty, begun, value, number, option = complete(
        "blocks at ", "blocks at ap", "walklist apples --where ape", "blocks list ap", "walklist --in ap"
    )
    assert empty == options("blocks at")
    assert (begun, value, number) == (["apes", "apples"], ["apes"], [])
    assert complete("gx safe glibc are") == [["arenas"]]


def test_files(complete):
    names, folders, chosen = complete("lockwait --compare prog", "lockwait --compare=", "gx shapes save x pr")
    assert names == chosen == ["program", "program.c"] and folders == ["--compare=program", "--compare=program.c"]


def test_arenas_once_they_are_known(stages):
    try:
        here = stages.get(Board("core", "debug", "system"), "who_points")
    except Unavailable as reason:
        pytest.skip(str(reason))
    asked = "complete glibc bins 0x"
    lines = gdb(asked, "echo @@\\n", "glibc arenas", "echo @@\\n", asked, options=here.options()).out.split("@@\n")
    (arena,) = lines[2].splitlines()
    assert "glibc bins" not in lines[0] and arena.split()[:2] == ["glibc", "bins"] and arena.split()[2] in lines[1]


def test_nothing_is_too_much(complete):
    """Whatever the command, an empty word offers its options or words, never a program's symbols."""
    specs = [spec for spec in catalogue.COMMANDS if not spec.raw]
    for spec, found in zip(specs, complete(*(f"gx {spec.name} " for spec in specs))):
        assert len(found) < 60 and "apples" not in found, spec.name
