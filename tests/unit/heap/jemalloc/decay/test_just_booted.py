"""The clock and all that is judged by it, on a machine booted a moment ago; the kernel makes the place."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdbext.abi import X86_64
from gdbext.heap.jemalloc.decay.clock import SECOND, find_monotonic
from gdbext.memory.fake import FakeMemory
from gdbext.target import Target
from tests.support.booted import UPTIME, just_booted
from tests.support.glibcs import Unavailable

TESTS = Path(__file__).resolve().parents[1]
TELL = "import os, time; print(os.getpid(), time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True); input()"


@pytest.fixture
def booted():
    def start(*command: str) -> subprocess.Popen[str]:
        try:
            line = just_booted(sys.executable, *command)
        except Unavailable as reason:
            pytest.skip(str(reason))
        return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start


def test_the_tests_of_decay_pass_there(booted):
    files = [str(TESTS / name) for name in ("decay/test_decay.py", "report/test_findings.py")]
    with booted("-m", "pytest", "-q", "-p", "no:cacheprovider", *files) as tests:
        said, _ = tests.communicate(timeout=120)
    assert tests.returncode == 0, said


def test_the_clock_of_a_process_in_a_time_namespace_is_its_own(booted):
    with booted("-c", TELL) as process:
        pid, theirs = map(int, process.stdout.readline().split())
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        found = find_monotonic(Target(FakeMemory([], []), X86_64, live=True, local_pid=pid))
        passed = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - before
        process.communicate("\n")
    assert found is not None
    assert UPTIME * SECOND <= theirs <= found <= theirs + passed + 30 * SECOND
