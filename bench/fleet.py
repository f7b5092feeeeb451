#!/usr/bin/env python3
"""``gdbext fleet run`` over hundreds of cores of all test programs, killed again and again: the rows must be the same.

    .venv/bin/python bench/fleet.py FOLDER [--cores 500] [--largest 1000] [--kills 10] [--seed 1] [--memory 3G]

FOLDER gets ``cores``, unless it has them already, and two datasets: ``whole`` of a run that nobody disturbs, ``killed``
of one that is ended by SIGKILL, SIGINT or the death of a child at random moments. One core in twenty is broken: cut
short, no core, empty, or such that the time limit ends it. Needs gcc, gdb, pyarrow and DuckDB.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.append(str(ROOT / ".deps" / "py{}.{}".format(*sys.version_info)))  # DuckDB, which compares the rows

from gdbext._mount import mount  # noqa: E402

mount(str(ROOT / "gdbext"))
from tests.support import programs  # noqa: E402
from tests.support.boards import Board, set_up  # noqa: E402
from tests.support.glibcs import Unavailable  # noqa: E402
from tests.unit.fleet import made  # noqa: E402

FLEET = [sys.executable, str(ROOT / "bin" / "gdbext"), "fleet"]
LARGE = "#include <stdlib.h>\n#include <string.h>\nint main(int n, char **a) { for (long i = atol(a[1]); i--;) " \
        "memset(malloc(1 << 20), 'x', 1 << 20); abort(); }\n"  # fmt: skip
SIZES = (16, 100, 400)  # MiB of the large ones, besides the largest
LIMIT = 30  # seconds for a core
BOMB = 40 << 30  # bytes that a packed core unpacks to, which takes longer


def make_cores(folder: Path, count: int, largest: int) -> None:
    """Make so many cores, broken ones among them."""
    kinds = [*_of_programs(folder / "made"), *_large(folder / "made", largest)]
    cores = folder / "cores"
    cores.mkdir()
    for number in range(count):
        place = cores / f"core.{number:04d}"
        if number % 20 == 7:
            _break(kinds[number % len(kinds)], place, number // 20)
        else:
            few = kinds if number < len(kinds) else [one for one in kinds if one.stat().st_size < 32 << 20]
            subprocess.run(["cp", "--sparse=always", few[number % len(few)], place], check=True)


def _of_programs(place: Path) -> Iterator[Path]:
    place.mkdir()
    for name in programs.names():
        for target in ("core", "gcore"):
            try:
                stage = set_up(Board(target), name, place=place)
            except Unavailable as reason:
                print(f"without {name}: {reason}")
                continue
            kept = place / f"{target}.{name}"
            shutil.move(str(stage.core), kept)
            stage.close()
            yield kept


def _large(place: Path, largest: int) -> Iterator[Path]:
    (place / "large.c").write_text(LARGE)
    subprocess.run(["gcc", "-O0", "-o", place / "large", place / "large.c"], check=True)
    for size in (*SIZES, largest):
        inside = place / f"large-{size}"
        inside.mkdir()
        subprocess.run(["sh", "-c", f"ulimit -c unlimited; cd {inside}; ../large {size}"], stderr=subprocess.DEVNULL)
        yield next(inside.glob("core*"))


def _break(core: Path, place: Path, which: int) -> None:
    kind = which % 5
    if kind == 0:
        place.write_bytes(core.read_bytes()[: core.stat().st_size // 2])
    elif kind == 1:
        place.write_bytes(core.read_bytes()[:3000])
    elif kind == 2:
        place.write_bytes(b"")
    elif kind == 3:
        shutil.copy(sys.executable, place)
    else:
        shutil.copy(_bomb(place.parent.parent / "made" / "bomb"), place)


def _bomb(path: Path) -> Path:
    """Return a small file that takes longer to unpack than a core may take."""
    if not path.exists():
        with gzip.open(path, "wb", 1) as out:
            for _ in range(BOMB >> 26):
                out.write(bytes(1 << 26))
    return path


def run(folder: Path, dataset: str, memory: str) -> "subprocess.Popen[str]":
    """Start a run over the cores."""
    words = ["run", folder / "cores", "-o", folder / dataset, "--timeout", LIMIT, "--memory", memory]
    return subprocess.Popen([*FLEET, *map(str, words)], stdout=subprocess.PIPE, text=True)


class Peak(threading.Thread):
    """Watches the anonymous memory of a run with all that it has started."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.bytes = 0

    def run(self) -> None:
        while Path(f"/proc/{self._pid}").exists():
            self.bytes = max(self.bytes, sum(map(_anonymous, _family(self._pid))))
            time.sleep(0.2)


def _family(pid: int) -> Sequence[int]:
    found, lines = {pid}, subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout.split("\n")
    for _ in range(4):
        found |= {int(line.split()[0]) for line in lines if line and int(line.split()[1]) in found}
    return sorted(found)


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def disturb(folder: Path, kills: int, chance: random.Random, memory: str) -> None:
    """Run again and again, ended at random moments."""
    for _ in range(kills):
        process = run(folder, "killed", memory)
        time.sleep(chance.uniform(0.5, 25))
        family = [pid for pid in _family(process.pid) if pid != process.pid]
        how = chance.choice(("run", "child", "interrupt"))
        if how == "child" and family:
            end(chance.choice(family))
            time.sleep(chance.uniform(0, 3))
        process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
        process.wait()
        time.sleep(1)
        left = [pid for pid in family if _lives(pid)]
        print(f"ended by {how}, {len(left)} processes left")


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def end(pid: int) -> None:
    """End a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Make, run, compare; return 1 where the rows differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name, value in (("cores", 500), ("largest", 1000), ("kills", 10), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--memory", default="3G")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    if not (given.folder / "cores").exists():
        make_cores(given.folder, given.cores, given.largest)
    began = time.monotonic()
    process = run(given.folder, "whole", given.memory)
    peak = Peak(process.pid)
    peak.start()
    said, _ = process.communicate()
    print(f"{said.strip()}; {time.monotonic() - began:.0f} s, {peak.bytes >> 20} MiB of anonymous memory at most")
    disturb(given.folder, given.kills, random.Random(given.seed), given.memory)
    print(run(given.folder, "killed", given.memory).communicate()[0].strip())
    whole, killed = (made.rows_of(given.folder / name) for name in ("whole", "killed"))
    rows = {kind: len(rows) for kind, rows in whole.items()}
    print(f"{'equal' if whole == killed else 'DIFFERENT'}: {rows}")
    return int(whole != killed)


if __name__ == "__main__":
    sys.exit(main())
