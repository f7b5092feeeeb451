"""The cores that are measured: made by the test programs, seeded, so that each run has the same."""

from __future__ import annotations

import atexit
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Sequence

PID = "pid"
HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "testprogs"


def dumped(
    folder: Path, source: Path, flags: Sequence[str], arguments: Sequence[str], preload: str = ""
) -> tuple[Path, Path]:
    """Compile a program, let it dump, and return program and core.

    :raises SystemExit: when the kernel writes no core into the working folder.
    """
    program = compiled(source, folder / source.stem, flags)
    environment = {**os.environ, "LD_PRELOAD": preload} if preload else None
    words = [str(program), *arguments]
    subprocess.run(
        words, cwd=folder, env=environment, preexec_fn=_unlimited, check=False, stdout=subprocess.DEVNULL
    )
    cores = [path for path in folder.iterdir() if path.name.startswith("core")]
    if not cores:
        raise SystemExit("bench/run: no core in the working folder; set kernel.core_pattern to `core`")
    return program, cores[0]


def compiled(source: Path, program: Path, flags: Sequence[str] = ()) -> Path:
    """Compile a program and return it."""
    subprocess.run(["gcc", "-O1", "-g", *flags, "-o", program, source], check=True)
    return program


def _unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def heap(folder: Path, chunks: int) -> tuple[Path, Path]:
    """A glibc heap of so many chunks, a third of them freed."""
    return dumped(folder, HERE / "heap.c", [], [str(chunks)])


def graph(folder: Path, blocks: int) -> tuple[Path, Path]:
    """A glibc heap of so many blocks that hang from one another; one in a hundred hangs from nothing."""
    return dumped(folder, HERE / "graph.c", [], [str(blocks)])


def chained(folder: Path, nodes: int) -> tuple[Path, Path]:
    """A hash table of so many nodes with a payload each, one in ten in one chain, and other blocks."""
    return dumped(folder, HERE / "chained.c", [], [str(nodes)])


def small(folder: Path, nodes: int) -> tuple[Path, Path]:
    """A hash table of so many small nodes, one in a hundred of them in no bin."""
    return dumped(folder, HERE / "small.c", [], [str(nodes)])


def mappings(folder: Path, blocks: int) -> tuple[Path, Path]:
    """Blocks with a mapping of their own, and as many mappings without access."""
    return dumped(folder, HERE / "mappings.c", [], [str(blocks)])


def threads(folder: Path, count: int, most_arenas: int = 16, kib: int = 4, ended: bool = False) -> tuple[Path, Path]:
    """Threads that wait in a mutex, a condition or poll, with little of what they malloced left; or have ended."""
    arguments = [str(count), str(most_arenas), str(kib), *(["ended"] if ended else [])]
    return dumped(folder, HERE / "threads.c", ["-pthread", "-fno-builtin"], arguments)


def with_process(made: tuple[Path, Path], arguments: Sequence[str]) -> tuple[Path, Path]:
    """Start the program of a core once more, until the benchmark ends; the file ``pid`` beside the core has its id."""
    process = subprocess.Popen([str(made[0]), *arguments], stdout=subprocess.DEVNULL)
    atexit.register(process.kill)
    (made[1].parent / PID).write_text(str(process.pid))
    time.sleep(2)  # until all of it is there
    return made


def arenas(folder: Path, threads: int) -> tuple[Path, Path]:
    """A glibc heap with an arena for each of many threads."""
    arguments = ["--threads", str(threads), "--truth", str(folder / "truth.json"), "--abort"]
    return dumped(folder, PROGRAMS / "arena_proliferation.c", ["-pthread", "-fno-builtin"], arguments)


def tables(folder: Path, entries: int, bins: int) -> tuple[Path, Path]:
    """Four tables; one entry in eight has the same stored hash, as in the incident."""
    each = 1 << max(0, (bins // 4).bit_length() - 1)
    given = f"--modes incident --slabs 4 --bins {each} --entries {entries} --abort".split()
    arguments = [*given, "--truth", str(folder / "truth.json")]
    return dumped(folder, PROGRAMS / "hash_tables.c", ["-pthread", "-fno-builtin"], arguments)


def tables_and_none(folder: Path, entries: int, bins: int) -> tuple[Path, Path]:
    """As :func:`tables`; in the folder ``small`` the same program with next to no entries."""
    small = folder / "small"
    small.mkdir()
    tables(small, 4, 16)
    return tables(folder, entries, bins)


def jemalloc(folder: Path, objects: int) -> tuple[Path, Path]:
    """Many small objects on jemalloc 5.3.0 with debug info, a third of them freed.

    :raises SystemExit: when there is no such jemalloc and none can be made.
    """
    sys.path.insert(0, str(HERE.parent))
    from tests.support.glibcs import Unavailable
    from tests.support.jemallocs import jemalloc as built

    try:
        library = built("5.3.0").library
    except Unavailable as reason:
        raise SystemExit(f"bench/run: {reason}") from None
    arguments = ["--count", str(objects), "--abort", "--truth", str(folder / "truth.json")]
    return dumped(folder, PROGRAMS / "jemalloc_small.c", ["-pthread", "-fno-builtin"], arguments, str(library))
