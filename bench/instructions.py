#!/usr/bin/env python3
"""Count the instructions of small jobs of the engine, and hold them against those that were counted before.

    bench/instructions.py [--renew]

Ends with status 1 when a job takes over a tenth more than ``instructions.json`` says, with 2 when there is nothing to
say: without valgrind and gcc, or where the counts are of other versions. ``--renew`` writes the file anew.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
COUNTS = HERE / "instructions.json"
SIZE = 5_000  # chunks, nodes or blocks
BLOCKS = 2_000  # of the core
COMMANDS = ("blocks summary", "blocks leaks", "blocks types", "blocks retained", "glibc check")
MORE = 1.10
MARKS = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(const char *job) { CALLGRIND_DUMP_STATS_AT(job); CALLGRIND_STOP_INSTRUMENTATION; }
"""


def run_jobs(marks: str, core: str) -> None:
    """Run every job once unmarked, so that what it imports is there, and once marked; this is what valgrind runs."""
    import kernels
    import numpy as np

    import gdbext
    from gdbext.kernels import native, native_graph
    from gdbext.progress import limit_threads

    mark = ctypes.CDLL(marks)
    library, why = native.find_library()
    if library is None:
        raise SystemExit(f"no native kernels: {why}")
    graphs = native_graph.NativeGraphs(library)
    native.STEP_MILLISECONDS = 600_000  # steps by the clock are others each time
    limit_threads(1)

    def answer(core: str, command: str) -> None:
        with gdbext.open_core(core) as session:
            session.run(command)

    def counted(name: str, job: Any, *arguments: Any) -> None:
        job(*arguments)
        mark.start()
        job(*arguments)
        mark.stop(name.encode())

    for name, make in kernels.KERNELS.items():
        counted(name, make(SIZE, np.random.default_rng(1)), graphs if make in kernels.GRAPHS else library)
    for command in COMMANDS:
        counted(command, answer, core, command)


def count() -> "dict[str, int]":
    """Return the instructions of each job."""
    with tempfile.TemporaryDirectory() as folder:
        return dict(_count(Path(folder)))


def _count(folder: Path) -> "Iterator[tuple[str, int]]":
    import cores

    marks = folder / "marks.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", marks, "-x", "c", "-"], input=MARKS.encode(), check=True)
    _, core = cores.graph(folder, BLOCKS)
    tool = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counted"]
    alone = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run([*tool, sys.executable, __file__, "--jobs", marks, core], env=alone, check=True)
    for path in folder.glob("counted.*"):
        text = path.read_text()
        if job := re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE):
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            yield job[1], int(total[1]) if total else 0


def environment() -> "dict[str, str]":
    """Return what the counts depend on besides this project."""
    import numpy as np

    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    python = sys.version.split()[0]
    return {"machine": os.uname().machine, "libc": libc, "python": python, "numpy": np.__version__, "rustc": rustc}


def refuse(why: str) -> int:
    """Say why nothing is counted, and return the status for it."""
    print(f"bench/instructions.py: {why}", file=sys.stderr)
    return 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--renew", action="store_true", help=f"write {COUNTS.name} anew")
    parser.add_argument("--jobs", nargs=2, metavar=("MARKS", "CORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.jobs:
        run_jobs(*options.jobs)
        return 0
    if missing := [name for name in ("valgrind", "gcc") if not shutil.which(name)]:
        return refuse(f"no {missing[0]}")
    here = environment()
    if options.renew:
        COUNTS.write_text(json.dumps({"counted with": here, "instructions": count()}, indent=2) + "\n")
        return 0
    before = json.loads(COUNTS.read_text())
    if before["counted with"] != here:
        return refuse(f"{COUNTS.name} was counted with {before['counted with']}, here are {here}")
    return compare(before["instructions"], count())


def compare(before: "dict[str, int]", now: "dict[str, int]") -> int:
    """Print a line for each job; return 1 when one takes more than is allowed, or is not in both."""
    print(f"{'job':16} {'instructions':>13} {'before':>13} {'ratio':>6}")
    worse = sorted(before.keys() ^ now.keys())
    for name in (one for one in now if one in before):
        ratio = now[name] / before[name]
        print(f"{name:16} {now[name]:13} {before[name]:13} {ratio:6.3f}")
        worse += [name] if ratio > MORE else []
    if worse:
        print(f"over {MORE:.2f} times as many, or not counted in both: {', '.join(worse)}; on purpose? --renew")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
