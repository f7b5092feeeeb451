"""Stacks by address and file:line in ``lockwait``; waits without a known owner. The program is data/lambdas.cc."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter

import pytest

from tests.gdb.bridged import DATA, gdb, need_gdb
from tests.support.gdbrun import read_envelope

SOURCE = DATA / "lambdas.cc"


def line_of(mark):
    lines = SOURCE.read_text().splitlines()
    return f"lambdas.cc:{next(at for at, line in enumerate(lines, 1) if line.endswith(f'// {mark}'))}"


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    need_gdb()
    if not shutil.which("g++"):
        pytest.skip("no g++ on this machine")
    folder = tmp_path_factory.mktemp("lambdas")
    program = folder / "lambdas"
    flags = ["-g", "-O0", "-pthread", "-Wall", "-Werror"]
    subprocess.run(["g++", *flags, str(SOURCE), "-o", str(program)], check=True)
    files = {name: folder / name for name in ("waits", "stacks", "flame", "triage")}
    output = gdb(
        "run",
        f"lockwait --json={files['waits']} --flame={files['flame']}",
        f"lockwait --stacks --json={files['stacks']}",
        f"triage --json={files['triage']}",
        "lockwait",
        options=[str(program)],
    )
    read_envelope(files["waits"], output)
    return {name: path.read_text() for name, path in files.items()}, output.out


def test_two_lambdas_of_one_function_are_two_stacks(answers):
    rows = json.loads(answers[0]["stacks"])["data"]["stacks"]
    counts = {}
    for row in rows:
        lines = {frame["line"] for frame in row["frames"]} & {line_of("produce"), line_of("consume")}
        counts.update(dict.fromkeys(lines, row["count"]))
    assert counts == {line_of("produce"): 2, line_of("consume"): 3}
    flame = answers[0]["flame"]
    assert f"_({line_of('produce')});" in flame and f"_({line_of('consume')});" in flame


def test_threads_are_shown_with_file_and_line(answers):
    rows = json.loads(answers[0]["waits"])["data"]["threads"]
    lines = Counter(row["frame"] for row in rows if row["primitive"] == "condition")
    assert lines == {"wait_for_signal": 9}
    (line,) = {row["frame_line"] for row in rows if row["frame"] == "wait_for_signal"}
    assert line.startswith("lambdas.cc:") and f"wait_for_signal ({line})" in " ".join(answers[1].split())


def test_waits_without_a_known_owner_are_grouped_and_no_finding(answers):
    waits, page = (json.loads(answers[0][name])["data"] for name in ("waits", "triage"))
    (group,) = waits["unowned"]
    assert (group["count"], group["function"], group["line"]) == (4, "MDL_wait::timed_wait", line_of("metadata"))
    assert "4 threads wait in MDL_wait::timed_wait for a metadata lock" in " ".join(answers[1].split())
    assert waits["findings"] == [] and page["findings"] == [] and page["waits"] == []
