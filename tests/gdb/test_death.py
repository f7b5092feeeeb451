"""``triage`` on crash cores: why it died. The program, tests/containers/deaths.cc, says itself what must be found."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable

SOURCE = CHECKOUT / "tests" / "containers" / "deaths.cc"
# By way: the signal, the line's function ("" where the line is not in the newest frame shown), and what is said.
WAYS = {
    "null": ("SIGSEGV", "die_null", r"address not mapped, 0x18 \(null pointer \+ 0x18\)"),
    "wild": ("SIGSEGV", "die_wild", r"address not mapped, 0x[0-9a-f]+ \(nothing is mapped there.*\)"),
    "noncanonical": ("SIGSEGV", "die_noncanonical", r"no address is reported, .* not canonical \(x86\)"),
    "overflow": ("SIGSEGV", "", r".*\(below the stack of thread \d+: stack overflow\)"),
    "overflow-of-main": ("SIGSEGV", "", r".*\(below the stack of thread 1: stack overflow\)"),
    "free": ("SIGABRT", "die_free", r'"free\(\): double free detected in tcache 2"'),
    "assert": ("SIGABRT", "die_assert", r'".*: Assertion .zero == 1 && "the queue\\thas entries".* failed\."'),
    "fortify": ("SIGABRT", "", r'"\*\*\* buffer overflow detected \*\*\*: terminated"'),
    "smash": ("SIGABRT", "die_smash", r'"\*\*\* stack smashing detected \*\*\*: terminated"'),
    "throw": ("SIGABRT", "die_throw", r"\"terminate called after throwing an instance of 'DiskError': disk is full\""),
    "fpe": ("SIGFPE", "die_fpe", r"integer division by zero, 0x[0-9a-f]+ \(die_fpe\(\)\+\d+\)"),
    "raise": ("SIGQUIT", "die_raise", "raised by the process itself"),
    "readonly": ("SIGSEGV", "die_readonly", r"access not permitted, 0x\w+ \(constant\+4096, which is read-only\)"),
    "jump": ("SIGSEGV", "", r"address not mapped, 0x0 \(null pointer, jumped to\)"),
    "bus": ("SIGBUS", "die_bus", r"no memory behind the address, 0x[0-9a-f]+ \(past the end of the file: .*\)"),
    "handled": ("SIGABRT", "die_handled", r"raised by the process's own handler of SIGSEGV: .*null pointer \+ 0x18\)"),
}  # fmt: skip
ENVIRONMENT = {**os.environ, "LC_ALL": "C", "ASAN_OPTIONS": "abort_on_error=1:disable_coredump=0"}


def line_of(way):
    lines = SOURCE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"// {way}"))


def compiled(folder, *flags):
    if not shutil.which("g++"):
        pytest.skip("no g++ on this machine")
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern not in ("core", "core.%p"):
        pytest.skip(f"the kernel puts cores elsewhere: core_pattern is {pattern}")
    program = folder / "deaths"
    made = subprocess.run(
        ["g++", "-g", "-O1", "-w", "-D_FORTIFY_SOURCE=2", "-fstack-protector-all", "-pthread", *flags, str(SOURCE),
         "-o", str(program)], capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode and flags:
        pytest.skip(f"no runtime for {' '.join(flags)} on this machine")
    assert made.returncode == 0, made.stderr
    return program


def start(program, folder, way):
    """Start the program where its core will lie; it has said what must be found when this returns."""
    folder.mkdir()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    process = subprocess.Popen(
        [str(program), way], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=ENVIRONMENT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )  # fmt: skip
    told = dict(part.split("=") for part in process.stdout.readline().split())
    return process, {name: int(value, 0) for name, value in told.items()}


def core_in(folder, process):
    process.communicate(timeout=60)
    found = sorted(folder.glob("core*"))
    if not found:
        pytest.skip("the kernel wrote no core here")
    return found[0]


def triages(program, cores, *before):
    """The page of each core, as text and as JSON; all of them in one gdb."""
    words = []
    for core in cores:
        answer = core.with_suffix(".json")
        for command in (f"core-file {core}", "echo >>>\\n", "triage", "echo <<<\\n", f"triage --json={answer}"):
            words += ["-ex", command]
    output = preloaded.run_gdb([*before, str(program), *gdbrun.load_pack(), *words])
    pages = re.findall(r"^>>>$(.*?)^<<<$", output.out, re.MULTILINE | re.DOTALL)
    assert len(pages) == len(cores), output
    sections = [re.findall(r"^died.*?^$", page, re.MULTILINE | re.DOTALL) for page in pages]
    return [
        (" ".join(" ".join(section).split()), json.loads(core.with_suffix(".json").read_text())["data"]["died"])
        for core, section in zip(cores, sections)
    ]


@pytest.fixture(scope="module")
def dead(tmp_path_factory):
    """The program, and by way what it said and its core."""
    folder = tmp_path_factory.mktemp("deaths")
    program = compiled(folder)
    started = {way: start(program, folder / way, way) for way in WAYS}
    return program, {way: (truth, core_in(folder / way, process)) for way, (process, truth) in started.items()}


@pytest.fixture(scope="module")
def pages(dead):
    program, cores = dead
    return dict(zip(cores, triages(program, [core for _, core in cores.values()])))


@pytest.mark.parametrize("way", list(WAYS))
def test_why_it_died(dead, pages, way):
    signal_name, function, said = WAYS[way]
    truth, _ = dead[1][way]
    text, died = pages[way]
    assert died["signal"] == signal_name and died["stopped"] is False
    summary = f"{signal_name} in thread {died['thread']}: "
    assert re.search(f"^died {re.escape(summary)}{said} \\S", text), text
    here = f"deaths.cc:{line_of('overflow' if way == 'overflow-of-main' else way)} "
    assert any(frame.startswith(here + function) for frame in died["frames"]), died
    assert died["frames"][0].startswith(here + function) or not function
    assert len(died["frames"]) <= 3
    if truth["address"]:
        assert int(died["address"], 0) == truth["address"]


def test_without_debug_info_the_words_stay(dead, tmp_path):
    """Of a stripped program and libraries: what is said rests on dynamic symbols and memory alone."""
    program, cores = dead
    stripped = tmp_path / "deaths"
    subprocess.run(["objcopy", "--strip-all", str(program), str(stripped)], check=True)
    ways = ("null", "free", "throw", "smash")
    options = ["-iex", "set debug-file-directory /nonexistent"]
    for way, (text, died) in zip(ways, triages(stripped, [cores[way][1] for way in ways], *options)):
        assert re.search(f"^died {WAYS[way][0]} in thread 1: {WAYS[way][2]} deaths", text), text
        assert re.match(r"deaths\+0x[0-9a-f]+$", died["frames"][0]), died


def test_a_healthy_process_has_not_died_and_one_that_is_killed_has(dead, tmp_path):
    program, _ = dead
    process, truth = start(program, tmp_path / "alive", "outside")
    try:
        core, answer = tmp_path / "alive" / "gcore", tmp_path / "live.json"
        words = ["triage", f"triage --json={answer}", f"gcore {core}"]
        output = preloaded.run_gdb(
            ["-p", str(process.pid), *gdbrun.load_pack(), *(word for one in words for word in ("-ex", one))]
        )
        assert "died" not in output.out and json.loads(answer.read_text())["data"]["died"] is None
        ((text, died),) = triages(program, [core])
        assert died is None and "died" not in text
        process.send_signal(signal.SIGQUIT)
        ((text, died),) = triages(program, [core_in(tmp_path / "alive", process)])
        assert f"SIGQUIT in thread 1: sent by process {os.getpid()}, user {os.getuid()} " in text
        assert any(frame.startswith(f"deaths.cc:{line_of('outside')} die_outside") for frame in died["frames"])
    finally:
        process.kill()
        process.communicate()


def test_what_the_address_sanitizer_said(tmp_path):
    program = compiled(tmp_path, "-fsanitize=address")
    process, truth = start(program, tmp_path / "asan", "asan")
    ((text, died),) = triages(program, [core_in(tmp_path / "asan", process)])
    said = f"AddressSanitizer: heap-use-after-free on address {truth['address']:#x} at pc "
    assert died["message"].startswith(said) and "WRITE of size 1" in died["message"]
    assert died["source"] == "AddressSanitizer" and said in text
    assert died["frames"][0] == f"deaths.cc:{line_of('asan')} die_asan"
