"""The boards themselves: the truth is there, gdb opens the target, and what it sees is the libc meant."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.boards import Board

FIND_LIBC = """
for objfile in gdb.objfiles():
    if 'libc.so' in objfile.filename or 'libc-2' in objfile.filename:
        print('LIBC', objfile.filename, objfile.build_id)
print('THREADS', len(gdb.selected_inferior().threads()))
"""


def build_id(path):
    """Read a build-id as binutils sees it."""
    out = subprocess.run(["readelf", "-n", str(path)], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: (\w+)", out).group(1)


def test_the_program_the_threads_and_the_libc_are_those_of_the_board(stage, board: Board):
    here = stage("healthy_server")
    assert here.truth.glibc == here.glibc.version
    assert here.truth.raw["program"] == "healthy_server"
    assert here.truth.malloc_info.system_bytes > 0
    script = here.directory / "libc.py"
    script.write_text(FIND_LIBC)
    said = here.gdb(f"source {script}", "print main_arena.system_mem")
    assert f"THREADS {len(here.truth.tids)}\n" in said.out
    if board.info != "bare":
        assert f"LIBC {here.glibc.libc} {build_id(here.glibc.libc)}" in said.out
    if board.info == "debug":
        assert f"= {here.truth.malloc_info.arenas[0].system_bytes}\n" in said.out
    else:
        assert re.search('No symbol ("main_arena"|table is loaded)', said.err)


@pytest.mark.boards(info=("bare",), target=("gcore", "core"))
def test_a_bare_core_has_neither_its_executable_nor_its_libc(stage, board: Board):
    here = stage("healthy_server")
    assert "LIBC" not in here.python(FIND_LIBC)
    assert not (here.directory / "run").exists()
