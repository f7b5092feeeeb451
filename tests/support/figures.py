"""What a process costs by the kernel's own figures, before and after it was looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from tests.support.gdbrun import die_with_parent, kill_group

FIGURES = ("RssAnon", "RssShmem", "RssFile", "VmPTE", "VmSwap")
SPARE = 1 << 20  # bytes that a figure may grow by, or two per cent of it
OWN_MOST = 200 << 20  # bytes of our own memory, beside twice what is resident


def read_figures(pid: int) -> Mapping[str, int]:
    """Return the five figures of a process, in bytes."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        lines = dict(line.split(":", 1) for line in status)
    return {name: int(lines[name].split()[0]) * 1024 for name in FIGURES}


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> Mapping[str, int]:
    """Return the figures that grew by more than they may, and by how much."""
    grown = {name: after[name] - before[name] for name in FIGURES}
    return {name: by for name, by in grown.items() if by > max(SPARE, before[name] // 50)}


def resident(figures: Mapping[str, int]) -> int:
    """Return the resident bytes among the figures."""
    return sum(figures[name] for name in ("RssAnon", "RssShmem", "RssFile"))


@dataclass(frozen=True)
class Run:
    """One run of a program and what it cost.

    :param status: exit status.
    :param seconds: of processor time.
    :param peak: bytes of memory of the largest process in it.
    """

    status: int
    out: str
    err: str
    seconds: float
    peak: int


# A process's greatest size counts from its fork: as a child of ours it would be ours.
_MEASURE = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    print(status, used.ru_utime + used.ru_stime, used.ru_maxrss, file=file)
"""


def run_measured(command: Sequence[str], folder: Path, timeout: float, user: Sequence[str] = ()) -> Run:
    """Run a program to its end.

    :param folder: for its output.
    :param user: a command that runs another as somebody else, or nothing.
    :raises AssertionError: when it does not end in time.
    """
    usage = folder / "usage"
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _MEASURE, str(usage), *user, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            said = (folder / "err").read_text()
            raise AssertionError(f"{command[0]} did not end in {timeout} s\n{said}") from None
        finally:
            kill_group(process)
    texts = [(folder / name).read_text(errors="replace") for name in ("out", "err")]
    status, seconds, peak = usage.read_text().split()
    return Run(int(status), *texts, float(seconds), int(peak) * 1024)
