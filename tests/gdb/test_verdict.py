"""What was not examined stands in the verdict; healthy programs of known allocators are whole, however looked at."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT

SOURCE = CHECKOUT / "tests" / "gdb" / "data" / "owners.c"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a function that builds the program with one compiler."""
    folder = tmp_path_factory.mktemp("owners")

    def build(compiler, *flags):
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not on this machine")
        program = folder / f"{compiler}{''.join(flags)}"
        if not program.exists():
            subprocess.run([compiler, "-g", "-O1", *flags, str(SOURCE), "-o", str(program)], check=True)
        return program

    return build


def dumped(program, folder, *arguments, environment=None):
    """Run the program to its abort and return its core, with the kernel's default filter."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if "/" in pattern or pattern.startswith("|") or not hard:
        pytest.skip("the kernel leaves no cores beside the program here")
    subprocess.run(
        [str(program), *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
        stderr=subprocess.DEVNULL,
    )
    (core,) = folder.glob("core*")
    return core


@contextlib.contextmanager
def parked(program, *arguments, environment=None):
    process = subprocess.Popen(
        [str(program), *arguments, "park"], stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}
    )
    try:
        assert process.stdout.readline() == b"parked\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def triage(folder, *options, before=()):
    """Return the answer and its verdict line."""
    file = folder / f"answer-{len(list(folder.iterdir()))}.json"
    arguments = [*options, *gdbrun.load_pack()]
    for command in (*before, f"triage --json={file}", "triage"):
        arguments += ["-ex", command]
    output = preloaded.run_gdb(arguments, cwd=folder)
    verdict = " ".join(re.search(r"^\S+ · .*\n((?:.+\n)+)", output.out, re.MULTILINE)[1].split())
    return gdbrun.read_envelope(file, output), verdict


def unknown(answer):
    return [one["message"] for one in answer["problems"] if one["kind"] == "unknown-allocator"]


HEALTHY = {
    "a heap": ("malloc", "64"),
    "a heap beside a pool": ("malloc", "64", "pool", "100"),
    "a reservation": ("malloc", "1", "empty", "8192"),
}


@pytest.mark.parametrize("what", HEALTHY)
def test_a_healthy_program_is_whole(built, tmp_path, what):
    program = built("gcc")
    (tmp_path / "kernel").mkdir()
    core = dumped(program, tmp_path / "kernel", *HEALTHY[what])
    answers = [triage(tmp_path, str(program), str(core))]
    with parked(program, *HEALTHY[what]) as pid:
        answers.append(triage(tmp_path, "-p", str(pid)))
        if "empty" not in HEALTHY[what]:  # gdb would write all of it
            gcore = tmp_path / "gcore"
            gdbrun.run_gdb(["-p", str(pid), "-ex", f"gcore {gcore}"])
            answers.append(triage(tmp_path, str(program), str(gcore)))
    for answer, verdict in answers:
        assert answer["complete"] and not answer["findings"], answer["problems"]
        assert verdict == "No findings." and answer["problems"] == []


def check_unknown(answer, verdict, name):
    assert not answer["complete"] and not answer["findings"]
    (message,) = unknown(answer)
    assert "allocator is not known" in message and (name is None or f"by its name {name}" in message)
    assert "not examined: " in verdict and "MiB of memory (whose allocator is not known" in verdict


UNKNOWN = {
    "its own": ("gcc", (), ("pool", "64"), None),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_an_unknown_allocator_is_never_clean(built, tmp_path, what):
    compiler, flags, arguments, name = UNKNOWN[what]
    program = built(compiler, *flags)
    (tmp_path / "kernel").mkdir()
    core = dumped(program, tmp_path / "kernel", *arguments)
    check_unknown(*triage(tmp_path, str(program), str(core)), name)
    with parked(program, *arguments) as pid:
        check_unknown(*triage(tmp_path, "-p", str(pid)), name)


def test_a_little_memory_of_an_unknown_allocator_hides_nothing(built, tmp_path):
    program = built("musl-gcc", "-static")
    core = dumped(program, tmp_path, "malloc", "1")
    answer, verdict = triage(tmp_path, str(program), str(core))
    assert answer["complete"] and unknown(answer) == [] and verdict.startswith("No heap was found, so")


LEAST = (
    "set gx leak-search-blocks 1",
    "set gx leak-search-seconds 0",
    "set gx copied-memory 1",
    "set gx max-memory 1",
)


@pytest.mark.parametrize("least", LEAST)
def test_a_budget_at_its_least_never_looks_healthy(built, tmp_path, least):
    program = built("gcc")
    with parked(program, "malloc", "64") as pid:
        answer, verdict = triage(tmp_path, "-p", str(pid), before=[least])
    assert not answer["complete"] and not answer["findings"]
    assert [one["kind"] for one in answer["problems"]] == ["not-examined"]
    assert verdict.startswith("No findings in what was examined; not examined: leaks (")
