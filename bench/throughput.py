#!/usr/bin/env python3
"""Cores a second of ``gdbext fleet run``, and what each costs, with and without what is kept of files.

    .venv/bin/python bench/throughput.py FOLDER [--cores 24] [--jobs 2]

FOLDER gets cores of 16 MB of two builds: ``small`` is ``chained.c``, ``large`` a program of 60 source files with 6000
variables of 1500 types. Of a build's first core the CPU seconds are shown by themselves; `early` and `late` are medians
of the first and the last third of the others, so that what a core costs is seen not to grow; `all` has the run's own
CPU time, too. Needs gcc, gdb, pyarrow and DuckDB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Sequence

ROOT = Path(__file__).resolve().parents[1]
FLEET = [sys.executable, str(ROOT / "bin" / "gdbext"), "fleet"]
FILES, STRUCTS, VARIABLES = 60, 25, 100  # source files; of each: structures, variables
WAYS = (
    ("without gdb", ("--no-gdb", "--no-cache")),
    ("default, without the cache", ("--no-cache",)),
    ("default", ()),
)
QUERY = "SELECT cpu_seconds FROM cores WHERE status <> 2 ORDER BY path"


def large(folder: Path) -> Path:
    """Build a program with many types and variables, which fills 16 MB and aborts."""
    sources = [folder / f"part{number}.c" for number in range(FILES)]
    for number, source in enumerate(sources):
        source.write_text("".join(_part(number)))
    main = folder / "main.c"
    main.write_text(
        "#include <stdlib.h>\n#include <string.h>\nvoid *kept[2000];\n"
        "int main(void) { for (int i = 0; i < 2000; i++) memset(kept[i] = malloc(8192), i, 8192); abort(); }\n"
    )
    subprocess.run(["gcc", "-g", "-O0", "-fno-builtin", "-o", folder / "large", main, *sources], check=True)
    return folder / "large"


def _part(number: int) -> Sequence[str]:
    structs = [
        f"struct s{number}_{one} {{ struct s{number}_{one} *next; struct s{number}_{(one + 1) % STRUCTS} *other; "
        f"char name[16]; long value, count; }};\n"
        for one in range(STRUCTS)
    ]
    variables = [f"struct s{number}_{one % STRUCTS} *v{number}_{one};\n" for one in range(VARIABLES)]
    return [*structs, *variables]


def small(folder: Path) -> Path:
    """Build a program of one file."""
    subprocess.run(["gcc", "-g", "-O1", "-o", folder / "small", ROOT / "bench" / "chained.c"], check=True)
    return folder / "small"


def make_cores(place: Path, count: int) -> None:
    """Make so many cores of each build."""
    for build, arguments in ((small, ["60000"]), (large, [])):
        cores = place / build.__name__
        cores.mkdir(parents=True)
        built = place / f"built-{build.__name__}"
        built.mkdir()
        program = build(built)
        subprocess.run([program, *arguments], cwd=built, preexec_fn=_unlimited, stderr=subprocess.DEVNULL)
        core = next(built.glob("core*"))
        for number in range(count):
            shutil.copy(core, cores / f"core.{number:04d}")


def _unlimited() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def measure(place: Path, build: str, name: str, words: Sequence[str], jobs: int) -> None:
    """Run over the cores of a build, and print what that cost."""
    dataset, cache = place / "data", place / "cache"
    shutil.rmtree(dataset, ignore_errors=True)
    shutil.rmtree(cache, ignore_errors=True)
    line = ["run", place / build, "-o", dataset, "--jobs", jobs, "--cache", cache, *words]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*FLEET, *map(str, line)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    total = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = subprocess.run([*FLEET, "sql", dataset, QUERY, "--json"], check=True, capture_output=True, text=True).stdout
    first, *others = [row[0] for row in json.loads(said)["data"]["rows"]]
    third = max(len(others) // 3, 1)
    figures = (first, median(others[:third]), median(others[-third:]), total / (1 + len(others)))
    shown = "".join(f"{figure:9.2f}" for figure in figures)
    print(f"{build:6} {name:28}{(1 + len(others)) / seconds:9.2f}{shown}{os.cpu_count() / figures[3]:11.1f}")


def main() -> int:
    """Make cores, unless they are there; run each way over both builds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cores", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if not (given.folder / "small").exists():
        make_cores(given.folder, given.cores)
    print(f"{'':35}  cores/s  first/s  early/s   late/s    all/s  cores/s if idle")
    for build in ("small", "large"):
        for name, words in WAYS:
            measure(given.folder, build, name, words, given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
