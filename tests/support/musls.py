"""The musls of the tests: Debian's library of several suites, stripped; programs are built with the machine's musl-gcc.

What can't be had raises :class:`Unavailable` with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Mapping, Union

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Suite, Unavailable, candidate, unpacked
from tests.support.programs import SOURCES

EXPECTED: Mapping[str, str] = {"bullseye": "1.2.2", "bookworm": "1.2.3", "trixie": "1.2.5", "sid": "1.2.6"}
FLAGS = ("-g", "-O1", "-Wall", "-Wextra", "-fno-builtin", "-Wl,--build-id")


def musl(codename: str) -> Path:
    """Return the library of a suite, which is its dynamic linker too; each run tries once.

    :raises Unavailable: it can't be had.
    """
    found = _tried(codename)
    if isinstance(found, str):
        raise Unavailable(found)
    return found


@lru_cache(maxsize=None)
def _tried(codename: str) -> Union[Path, str]:
    suite = Suite(f"musl-{codename}", EXPECTED[codename], codename, ("musl",))
    stamp = cache_dir("musl") / codename
    try:
        with locked(f"musl-{codename}"):
            if not stamp.exists():
                package = candidate(suite)
                unpacked(suite, suite.packages, package)
                stamp.write_text(package)
        return next(unpacked(suite, suite.packages, stamp.read_text()).glob("**/libc.so"))
    except Unavailable as reason:
        return f"musl of {codename}: {reason}"


def build(name: str, place: Path, *more: str, library: "Path | None" = None) -> Path:
    """Build a test program in a directory.

    :param library: that it runs with; None is the machine's own.
    :raises Unavailable: no musl-gcc on this machine.
    """
    if not shutil.which("musl-gcc"):
        raise Unavailable("musl-gcc is not on this machine")
    linker = [] if library is None else [f"-Wl,--dynamic-linker={library}"]
    program = place / name
    subprocess.run(["musl-gcc", *FLAGS, str(SOURCES / f"{name}.c"), *linker, *more, "-o", str(program)], check=True)
    return program
