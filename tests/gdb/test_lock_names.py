"""What ``lockwait`` calls a lock where its name is not plain; the program is data/named_locks.cc."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.gdb.bridged import DATA, gdb, need_gdb
from tests.support.gdbrun import read_envelope


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    need_gdb()
    if not shutil.which("g++"):
        pytest.skip("no g++ on this machine")
    folder = tmp_path_factory.mktemp("named")
    program = folder / "named"
    flags = ["-g", "-O0", "-pthread", "-Wall", "-Werror"]
    subprocess.run(["g++", *flags, str(DATA / "named_locks.cc"), "-o", str(program)], check=True)
    path = folder / "answer.json"
    output = gdb("run", "thread 3", f"lockwait --json={path}", "lockwait", options=[str(program)])
    return read_envelope(path, output), output.out


def by_function(answer):
    return {row["frame"].partition("(")[0]: row for row in answer["data"]["threads"] if row["frame"]}


def test_a_path_from_a_global_comes_before_the_name_of_a_local(answer):
    row = by_function(answer[0])["want"]
    assert row["lock_name"] == "lock of slab 1 of server->env->cache"
    assert row["owner"]["number"] == by_function(answer[0])["hold"]["number"]


def test_names_in_anonymous_namespaces_and_of_functions(answer):
    rows = by_function(answer[0])
    assert rows["hold"]["lock_name"] == "(anonymous namespace)::hidden_lock"
    assert rows["want_own"]["lock_name"] == "own_lock()::lock"
    assert re.search(r"the mutex \(anonymous namespace\)::hidden_lock, held by thread 1", answer[1]), answer[1]
