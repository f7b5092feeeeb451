"""The gperftools of the tests: Debian's libtcmalloc_minimal of several suites, stripped, each run by ``LD_PRELOAD``.

What can't be had raises :class:`Unavailable` with the reason. A library of a newer suite runs with that suite's libc.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Mapping, Union

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Glibc, Suite, Unavailable, candidate, glibc, unpacked

SONAME = "libtcmalloc_minimal.so.4"


@dataclass(frozen=True)
class Source:
    """Where a version is.

    :param expected: the version when this was written.
    :param libc: the suite whose libc programs run with.
    :param packages: the library's first; others that it needs and that this machine has too old.
    """

    expected: str
    suite: Suite
    libc: str


def _source(codename: str, expected: str, libc: str, *packages: str) -> Source:
    return Source(expected, Suite(f"tcmalloc-{codename}", expected, codename, packages), libc)


_NEWER = ("libtcmalloc-minimal4t64", "libstdc++6", "libgcc-s1")
SOURCES: Mapping[str, Source] = {
    "bullseye": _source("bullseye", "2.8.1", "system", "libtcmalloc-minimal4"),
    "bookworm": _source("bookworm", "2.10", "system", "libtcmalloc-minimal4"),
    "trixie": _source("trixie", "2.16", "trixie", *_NEWER),
    "sid": _source("sid", "2.18.1", "sid", *_NEWER),
}


@dataclass(frozen=True)
class Tcmalloc:
    """A tcmalloc that programs can be run with.

    :param library: the shared library.
    :param libc: what programs have to be built for.
    """

    library: Path
    libc: Glibc

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program needs to run with it."""
        return {"LD_PRELOAD": str(self.library), "LD_LIBRARY_PATH": str(self.library.parent)}


def tcmalloc(codename: str) -> Tcmalloc:
    """Return the tcmalloc of a suite, fetching it if need be; each run tries once.

    :raises Unavailable: it can't be had.
    """
    found = _tried(codename)
    if isinstance(found, str):
        raise Unavailable(found)
    return found


def sampling() -> Mapping[str, str]:
    """Return what a program needs to run with bookworm's whole tcmalloc, which samples.

    :raises Unavailable: it can't be had.
    """
    suite = Suite("tcmalloc-sampling-bookworm", "2.10", "bookworm", ("libgoogle-perftools4", "libunwind8"))
    stamp = cache_dir("tcmalloc") / "sampling"
    with locked("tcmalloc-sampling"):
        if not stamp.exists():
            package = candidate(suite)
            unpacked(suite, suite.packages, package)
            stamp.write_text(package)
    library = next(unpacked(suite, suite.packages, stamp.read_text()).glob("usr/lib/*/libtcmalloc.so.4"))
    folders = {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": str(library.parent)}
    return {**folders, "TCMALLOC_SAMPLE_PARAMETER": "65536"}


@lru_cache(maxsize=None)
def _tried(codename: str) -> Union[Tcmalloc, str]:
    source = SOURCES[codename]
    stamp = cache_dir("tcmalloc") / codename
    try:
        with locked(f"tcmalloc-{codename}"):
            if not stamp.exists():
                package = candidate(source.suite)
                unpacked(source.suite, source.suite.packages, package)
                stamp.write_text(package)
        root = unpacked(source.suite, source.suite.packages, stamp.read_text())
        return Tcmalloc(next(root.glob(f"usr/lib/*/{SONAME}")), glibc(source.libc))
    except Unavailable as reason:
        return f"tcmalloc of {codename}: {reason}"
