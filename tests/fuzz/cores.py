"""The cores that the campaign damages: small programs of the whole test matrix."""

from __future__ import annotations

import ctypes
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from tests.support import jestages
from tests.support.boards import Board, Stage, set_up
from tests.support.glibcs import Unavailable

ADDR_NO_RANDOMIZE = 0x0040000  # personality(2)


def _glibc(program: str, target: str = "core", info: str = "debug", glibc: str = "system", variant: str = "") -> Any:
    name, *arguments = program.split()
    return lambda place: set_up(Board(target, info, glibc), name, arguments, variant, place=place)


def _jemalloc(program: str, build: str, target: str = "core", symbols: str = "debug") -> Any:
    name, *arguments = program.split()
    board = jestages.JeBoard(target, symbols, build)
    return lambda place: jestages.set_up(board, name, arguments, conf="narenas:2", place=place)


_ARENAS = "arena_proliferation --healthy --threads=3 --arena-bytes=65536"

# By name; the names are part of the fixed seeds.
CORES: Mapping[str, Any] = {
    "tcaches-2.31": _glibc("tcache_full --healthy", glibc="bullseye"),
    "tcaches-2.36": _glibc("tcache_full --healthy"),
    "tcaches-i386": _glibc("tcache_full --healthy", variant="i386"),
    "fastbins-2.31": _glibc("fastbins", glibc="bullseye"),
    "fastbins-gcore": _glibc("fastbins", "gcore"),
    "fastbins-2.44": _glibc("fastbins", glibc="experimental"),
    "large-2.43": _glibc("free_list_cycle --healthy --bin=large", glibc="sid"),
    "unsorted-2.41": _glibc("free_list_cycle --healthy --bin=unsorted", glibc="trixie", info="plain"),
    "small-i386": _glibc("free_list_cycle --healthy --bin=small", variant="i386"),
    "mmapped-2.41": _glibc("mmapped_blocks --healthy", glibc="trixie"),
    "mmapped-2.44": _glibc("mmapped_blocks --healthy", glibc="experimental"),
    "arenas-2.36": _glibc(_ARENAS),
    "arenas-2.43": _glibc(_ARENAS, glibc="sid", info="bare"),
    "segments-2.41": _glibc("noncontiguous --healthy", glibc="trixie", info="bare"),
    "pointers-gcore": _glibc("who_points --healthy", "gcore"),
    "leaks-static": _glibc("leaks", variant="static"),
    "leaks-2.44": _glibc("leaks", glibc="experimental"),
    "tables-2.36": _glibc("hash_tables --entries=300 --healthy"),
    "lists-2.36": _glibc("broken_lists --healthy"),
    "locks-2.36": _glibc("locks --mode=zoo"),
    "locks-2.31": _glibc("locks --mode=zoo", glibc="bullseye"),
    "no-heap": _glibc("no_heap"),
    "jemalloc-5.1.0": _jemalloc("jemalloc_small --count=2000", "5.1.0"),
    "jemalloc-5.2.1": _jemalloc("jemalloc_small --count=2000", "5.2.1"),
    "jemalloc-5.3.0": _jemalloc("jemalloc_holes --count=2000", "5.3.0", "core", "stripped"),
    "jemalloc-5.3.1": _jemalloc("jemalloc_small --count=2000", "5.3.1"),
    "jemalloc-static": _jemalloc("jemalloc_small --count=2000", "5.3.0-static"),
    "jemalloc-debian": _jemalloc("jemalloc_small --count=2000", "debian", "core", "gone"),
}


def build(folder: Path, names: Sequence[str] = tuple(CORES)) -> dict[str, str]:
    """Make the cores that are not in a folder yet; return the names of those that cannot be had, with the reason."""
    missing = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (folder / f"{name}.json").exists():
            try:
                with _same_addresses():
                    _keep(CORES[name](folder), folder, name)
            except Unavailable as reason:
                missing[name] = str(reason)
    return missing


@contextmanager
def _same_addresses() -> Iterator[None]:
    """Have the programs that are started meanwhile lie at the same addresses each time, as far as the kernel can."""
    libc = ctypes.CDLL(None)
    before = libc.personality(ctypes.c_ulong(0xFFFFFFFF))
    libc.personality(ctypes.c_ulong(before | ADDR_NO_RANDOMIZE))
    try:
        yield
    finally:
        libc.personality(ctypes.c_ulong(before))


def _keep(stage: Stage, folder: Path, name: str) -> None:
    """Keep a stage's core and what else is needed of it; the stage's directory stays where its files are named."""
    assert stage.core
    core = folder / f"{name}.core"
    os.rename(stage.core, core)
    truth = stage.truth.raw
    executable = str(stage.executable) if stage.executable else None
    known = {"truth": truth, "executable": executable, "debug_dir": str(stage.glibc.debug_dir)}
    (folder / f"{name}.json").write_text(json.dumps(known))
