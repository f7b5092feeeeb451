"""The mimallocs of the tests: Debian's, stripped, and those whose sources Rust crates carry, built from their one file.

What can't be had raises :class:`Unavailable` with the reason. Builds are kept in the cache.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Mapping, Union

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Suite, Unavailable, candidate, unpacked
from tests.support.jemallocs import crate_sources, require, run

DEBIAN = "debian"  # bookworm's libmimalloc2.0, 2.0.9 when this was written
CRATES: Mapping[str, str] = {"2.1.2": "0.1.35", "2.1.7": "0.1.39", "2.2.4": "0.1.44"}  # of libmimalloc-sys
FLAGS = (
    "-O2", "-DNDEBUG", "-DMI_MALLOC_OVERRIDE=1", "-DMI_SHARED_LIB=1", "-DMI_SHARED_LIB_EXPORT", "-fPIC", "-w",
    "-fvisibility=hidden", "-ftls-model=initial-exec", "-shared", "-s", "-pthread",
)  # fmt: skip


def mimalloc(name: str) -> Path:
    """Return a library to preload, fetching and building it if need be; each run tries once.

    :param name: ``debian``, or a version of :data:`CRATES`.
    :raises Unavailable: it can't be had.
    """
    found = _tried(name)
    if isinstance(found, str):
        raise Unavailable(found)
    return found


@lru_cache(maxsize=None)
def _tried(name: str) -> Union[Path, str]:
    try:
        return _debian() if name == DEBIAN else _built(name)
    except Unavailable as reason:
        return f"mimalloc {name}: {reason}"


def _debian() -> Path:
    suite = Suite("mimalloc-bookworm", "2.0.9", "bookworm", ("libmimalloc2.0",))
    stamp = cache_dir("mimalloc") / DEBIAN
    with locked("mimalloc-debian"):
        if not stamp.exists():
            package = candidate(suite)
            unpacked(suite, suite.packages, package)
            stamp.write_text(package)
    return next(unpacked(suite, suite.packages, stamp.read_text()).glob("usr/lib/*/libmimalloc.so.2.0"))


def _built(version: str) -> Path:
    library = cache_dir("mimalloc") / f"libmimalloc-{version}.so"
    with locked(f"mimalloc-{version}"):
        if not library.exists():
            require("gcc")
            sources = crate_sources("libmimalloc-sys", CRATES[version], "c_src/mimalloc")
            home = next(path for path in (sources, sources / "v2") if (path / "src/static.c").exists())
            fresh = library.with_suffix(".new")
            run(["gcc", *FLAGS, "-Iinclude", "src/static.c", "-o", str(fresh)], home)
            fresh.rename(library)
    return library
