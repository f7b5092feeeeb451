"""The ``gdbext`` program with the real gdb: over a core of a small program, and over the process itself."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdbext.pipeline.corefile import read_build_id, read_core

ROOT = Path(__file__).resolve().parents[2]
GDB = shutil.which(os.environ.get("GDB") or "gdb")
BLOCKS = 1000

pytestmark = [
    pytest.mark.skipif(not GDB, reason="no gdb on this machine"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on this machine"),
]

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
  for (int at = 0; at < %d; at++) *(char *)malloc(2000) = 1;
  if (count == 1) abort();
  puts("ready"); fflush(stdout);
  for (;;) pause();
}
"""


def program(*arguments, **how):
    line = [sys.executable, "-m", "gdbext.pipeline", *map(str, arguments), "--gdb", GDB]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **how.pop("environment", {})}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment, **how)
    assert "Traceback" not in done.stderr
    return done


def answer(*arguments, status=0, **how):
    done = program(*arguments, "--json", **how)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder with spaces")
    source = folder / "program.c"
    source.write_text(SOURCE % BLOCKS)
    subprocess.run(["gcc", "-g", "-O0", "-o", folder / "program", source], check=True)
    dump = ["-ex", "run", "-ex", f"generate-core-file {folder}/core"]
    subprocess.run([GDB, "-nx", "-batch", *dump, folder / "program"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def core(folder):
    return folder / "core"


def test_the_core_knows_its_executable(folder, core):
    """Oracle: the build-id as the linker wrote it, read by readelf."""
    if not shutil.which("readelf"):
        pytest.skip("no readelf on this machine")
    told = subprocess.run(["readelf", "-n", folder / "program"], capture_output=True, text=True).stdout
    build_id = next(line.split()[-1] for line in told.splitlines() if "Build ID" in line)
    facts = read_core(str(core))
    assert (facts.exe, facts.build_id) == (str(folder / "program"), build_id)
    assert read_build_id(str(folder / "program")) == build_id


def test_json_over_a_core(folder, core):
    document = answer("blocks", "summary", "--core", core)
    assert document["schema"] == "gdbext/blocks-summary/2"
    assert document["target"]["core"] == str(core)
    assert document["target"]["exe"] == str(folder / "program")
    assert document["complete"] is True
    assert document["data"]["totals"]["used_blocks"] >= BLOCKS


def test_text_and_json_agree(core):
    done = program("blocks", "summary", "--core", core, "--bytes")
    used = answer("blocks", "summary", "--core", core)["data"]["totals"]
    assert done.returncode == 0
    assert str(used["used_bytes"]) in done.stdout
    assert not done.stdout.startswith("\n")
    assert "[New LWP" not in done.stdout and "Core was generated" not in done.stdout


def test_nothing_of_gdb_on_stderr_that_is_normal(core):
    assert program("glibc", "arenas", "--core", core).stderr == ""


def test_options_and_arguments_reach_the_command(core):
    document = answer("glibc", "chunks", "--limit", "3", "--core", core)
    assert len(document["data"]["chunks"]) == 3


def test_a_packed_core_answers_as_itself(core, tmp_path):
    packed = tmp_path / "core.xz"
    packed.write_bytes(lzma.compress(core.read_bytes(), preset=0))
    document = answer("blocks", "summary", "--core", packed)
    assert document["target"]["core"] == str(packed)
    assert document["data"] == answer("blocks", "summary", "--core", core)["data"]


def test_a_live_process_goes_on_afterwards(folder):
    process = subprocess.Popen([folder / "program", "stay"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        document = answer("blocks", "summary", "--pid", process.pid)
        assert document["target"]["pid"] == process.pid
        assert document["data"]["totals"]["used_blocks"] >= BLOCKS
        assert process.poll() is None
        assert tracer_of(process.pid) == "0"
    finally:
        process.kill()
        process.communicate()


def tracer_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("TracerPid"))


def test_a_process_that_has_a_debugger(folder):
    process = subprocess.Popen([folder / "program", "stay"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    holding = ["-p", str(process.pid), "-ex", "echo held\\n", "-ex", "shell sleep 60"]
    holder = subprocess.Popen(
        [GDB, "-nx", "-batch", *holding], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert any(line == "held\n" for line in holder.stdout)
        document = answer("rss", "--pid", process.pid, status=2)
        assert document["error"]["kind"] == "no-permission"
        assert document["data"] is None
    finally:
        os.killpg(holder.pid, 9)
        process.kill()
        holder.communicate()
        process.communicate()


def test_unknown_command(core):
    error = answer("nonsense", "--core", core, status=2)["error"]
    assert (error["kind"], error["message"]) == ("usage", "there is no command nonsense")


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_fault_of_the_user_is_status_2(core, how):
    done = program("blocks", "at", "no_such_symbol", "--core", core, *how)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("gdbext: blocks at: ")]
    assert len(lines) == 1
    if how:
        assert json.loads(done.stdout)["error"]["message"] in lines[0]
    else:
        assert done.stdout == ""


def test_help_of_a_command():
    done = program("glibc", "arenas", "-h")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: glibc arenas")


def test_commands():
    assert "gx glibc arenas" in program("commands").stdout
    assert "glibc arenas" in str(answer("commands")["data"])


def test_another_program_for_the_core(folder, core, tmp_path):
    (tmp_path / "other.c").write_text("int main(void) { return 0; }")
    other = tmp_path / "other"
    subprocess.run(["gcc", "-o", other, tmp_path / "other.c"], check=True)
    assert answer("rss", "--core", core, "--exe", other, status=2)["error"]["kind"] == "wrong-exe"


def test_timeout_is_kept(core):
    started = time.monotonic()
    error = answer("triage", "--core", core, "--timeout", "0.05", status=2)["error"]
    assert error["kind"] == "timeout"
    assert time.monotonic() - started < 15


def test_a_core_that_is_cut_off_is_answered_or_refused(core, tmp_path):
    short = tmp_path / "core"
    data = core.read_bytes()
    for size in (0, 40, 100, 3000, len(data) // 2):
        short.write_bytes(data[:size])
        done = program("triage", "--core", short, "--json")
        document = json.loads(done.stdout)
        assert done.returncode == 2 if document["data"] is None else done.returncode in (0, 1)
