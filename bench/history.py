"""What earlier runs took, a line each in ``history/SUBJECT.jsonl``, and what got slower since.

What is compared is a job's CPU time over that of gdb's start in the same round: machines, and hours on one, differ in
speed. A job got slower when its median is over a tenth more and its rounds and the earlier ones do not overlap.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
from datetime import date
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional

FOLDER = Path(__file__).resolve().parent / "history"
MORE = 1.10


def machine() -> "dict[str, Any]":
    """Return what figures are compared within."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {"cpus": os.cpu_count(), "machine": os.uname().machine, "model": found[1] if found else ""}


def keep(figures: "Mapping[str, Any]") -> None:
    """Add a subject's figures to its history."""
    FOLDER.mkdir(exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=FOLDER, capture_output=True, text=True)
    line = {"date": date.today().isoformat(), "commit": commit.stdout.strip(), "machine": machine(), **figures}
    with (FOLDER / f"{figures['subject']}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def find_last(figures: "Mapping[str, Any]") -> "Optional[dict[str, Any]]":
    """Return what was kept last of the same work on such a machine."""
    path = FOLDER / f"{figures['subject']}.jsonl"
    lines = map(json.loads, path.read_text().splitlines() if path.exists() else ())
    same = [line for line in lines if line["title"] == figures["title"] and line["machine"] == machine()]
    return same[-1] if same else None


def slower(before: "Mapping[str, Any]", now: "Mapping[str, Any]") -> "Iterator[str]":
    """Iterate over a line for each job that got slower."""
    old = {row["name"]: row["starts"] for row in before["rows"]}
    for row in now["rows"]:
        starts, earlier = row["starts"], old.get(row["name"])
        if not starts or not earlier or min(starts) <= max(earlier):
            continue
        ratio = statistics.median(starts) / statistics.median(earlier)
        if ratio > MORE:
            yield f"{row['name']} takes {ratio:.2f} times what it took at {before['commit']} of {before['date']}"
