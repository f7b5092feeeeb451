#!/usr/bin/env python3
"""What ``gdbext fleet`` takes to answer over a dataset of simulated rows.

    .venv/bin/python bench/fleetrows.py FOLDER [--cores 10000] [--rounds 5]

FOLDER gets the dataset, unless it has it already: for each core the row of itself, two causes, four problems, sixty
mappings, five types of leaked blocks, over thirty days, fifty hosts, twenty builds and four hundred causes; one core in
twenty has no answer. Each command's least CPU time (user and system) and wall time of some rounds are printed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gdbext._mount import mount  # noqa: E402

mount(str(ROOT / "gdbext"))
from tests.unit.fleet import made  # noqa: E402

DAYS = 30
COMMANDS = (("report", "-o", "/dev/null"), ("top",), ("new", "--since", "1d"))


def cores(count: int, chance: random.Random) -> Iterator[Tuple[str, Dict[str, Any], Dict[str, Any]]]:
    """Iterate over cores: id, row, rows of other kinds."""
    now = time.time()
    for number in range(count):
        facts = {"path": f"/crash/h{number % 50}/core.{number}", "host": f"h{number % 50}", "size": 16 << 20,
                 "time": now - chance.uniform(0, DAYS * 86400)}  # fmt: skip
        if number % 20 == 7:
            yield f"{number:016x}", {**facts, "status": 2, "error_kind": "bad-core", "error": "cut short"}, {}
            continue
        program, cause = number % 20, min(int(chance.expovariate(0.02)), 399)
        first = {"signature": f"1-{cause:016x}", "cause": f"SIGSEGV in function_{cause}"}
        row = {**facts, **first, "status": 1, "program": f"server-{program // 5}", "build_id": f"{program:040x}"}
        yield f"{number:016x}", row, _others(first, chance)


def _others(first: Dict[str, str], chance: random.Random) -> Dict[str, Any]:
    leak = {"signature": "1-leak", "kind": "leak", "cause": "leak of T", "words": "[]", "rank": 1}
    return {
        "causes": [{**first, "kind": "crash", "words": "[]", "rank": 0}, leak],
        "problems": [{"kind": f"kind-{at}", "message": "m" * 60, "corruption": False} for at in range(4)],
        "mappings": [{"owner": f"/usr/lib/lib{at}.so", "in_core": chance.randrange(1 << 24)} for at in range(60)],
        "leak_groups": [{"type": f"T{at}", "bytes": chance.randrange(1 << 20), "kept_bytes": 5} for at in range(5)],
    }


def measure(dataset: Path, words: Tuple[str, ...]) -> Tuple[float, float]:
    """Return the CPU and the wall time of a command."""
    line = [sys.executable, str(ROOT / "bin" / "gdbext"), "fleet", words[0], str(dataset), *words[1:]]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(line, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - began


def main() -> None:
    """Make, measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cores", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if not (given.folder / "dataset.json").exists():
        os.makedirs(given.folder, exist_ok=True)
        made.put(given.folder, cores(given.cores, random.Random(1)))
    for words in COMMANDS:
        cpu, wall = zip(*(measure(given.folder, words) for _ in range(given.rounds)))
        print(f"fleet {words[0]}: {min(cpu):.2f} s of CPU, {min(wall):.2f} s")


if __name__ == "__main__":
    main()
