"""How long a process stands still for a snapshot and for gcore, by its own clock: ``pauses.py [MEGABYTES…]``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, Tuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from gdbext.snapshot.taking import Wishes, take_snapshot  # noqa: E402  the checkout is put into the path first

SIZES = (10, 1000, 5000)  # 10^6 bytes, about
REPEAT = 5


@contextmanager
def clocked(folder: Path, megabytes: int) -> Iterator[Tuple[int, Path]]:
    """Have a process of that size; give its id, and the file in which it notes when it stood still."""
    program, notes = folder / "pauses", folder / "notes"
    if not program.exists():
        subprocess.run(["gcc", "-O1", "-o", str(program), str(HERE / "pauses.c")], check=True)
    with notes.open("wb") as out:
        process = subprocess.Popen([str(program), str(megabytes)], stdout=out)
    try:
        while not notes.read_text().startswith("ready"):
            time.sleep(0.01)
        yield process.pid, notes
    finally:
        process.kill()
        process.wait()


def longest(notes: Path, since: float) -> float:
    """Return the longest time that a process stood still since a moment of ``CLOCK_MONOTONIC``."""
    time.sleep(0.05)
    rows = [line.split() for line in notes.read_text().splitlines()[1:]]
    return max((float(seconds) for seconds, end in rows if float(end) > since), default=0.0)


def paused(notes: Path, work: Callable[[], float]) -> Tuple[float, float]:
    """Do something; return how long the process stood still by its own clock, and by what was done."""
    since = time.monotonic()
    own = work()
    return longest(notes, since), own


def snapshot(pid: int) -> float:
    """Take a snapshot; return its own figure."""
    taken = take_snapshot(pid, Wishes())
    taken.close()
    return taken.facts.held_seconds


def gcore(pid: int, folder: Path) -> float:
    """Have gdb write a core."""
    subprocess.run(["gcore", "-o", str(folder / "core"), str(pid)], check=True, capture_output=True)
    os.unlink(folder / f"core.{pid}")
    return 0.0


def measure(folder: Path, megabytes: int) -> str:
    """Return a row: the least of several of each."""
    with clocked(folder, megabytes) as (pid, notes):
        ours = [paused(notes, lambda: snapshot(pid)) for _ in range(REPEAT)]
        theirs = [paused(notes, lambda: gcore(pid, folder)) for _ in range(2)]
    seen, own = min(ours)
    limit = 0.06 + 0.25 * megabytes / 1000
    return f"{megabytes:>6}{seen:>10.3f}{own:>10.3f}{limit:>10.3f}{min(theirs)[0]:>10.3f}"


if __name__ == "__main__":
    print(f"{'MB':>6}{'its clock':>10}{'our word':>10}{'allowed':>10}{'gcore':>10}")
    with tempfile.TemporaryDirectory(prefix="pauses-") as made:
        for size in map(int, sys.argv[1:] or SIZES):
            print(measure(Path(made), size), flush=True)
