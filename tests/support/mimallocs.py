"""The mimallocs of the tests: Debian's, stripped, and those whose sources Rust crates carry, built from their one file.

A version may have a variant: ``3.3.2-secure`` has encoded free lists and padding, ``3.3.2-debug`` checks itself, too.

What can't be had raises :class:`Unavailable` with the reason. Builds are kept in the cache.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Mapping, Sequence, Tuple, Union

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Suite, Unavailable, candidate, unpacked
from tests.support.jemallocs import crate_sources, require, run

# Suite and package; 2.0.9 and 3.0.1 when this was written.
DEBIAN: Mapping[str, Tuple[str, str]] = {
    "debian": ("bookworm", "libmimalloc2.0"),
    "debian-trixie": ("trixie", "libmimalloc3"),
}
# Of libmimalloc-sys: its version, and where in it the sources are.
CRATES: Mapping[str, Tuple[str, str]] = {
    "2.1.2": ("0.1.35", ""), "2.1.7": ("0.1.39", ""), "2.2.4": ("0.1.44", "v2"), "3.3.2": ("0.1.49", "v3"),
}  # fmt: skip
VARIANTS: Mapping[str, Sequence[str]] = {
    "": ("-DNDEBUG",),
    "secure": ("-DNDEBUG", "-DMI_SECURE=4"),
    "debug": ("-DMI_DEBUG=3",),
}
FLAGS = (
    "-O1", "-DMI_MALLOC_OVERRIDE=1", "-DMI_SHARED_LIB=1", "-DMI_SHARED_LIB_EXPORT", "-fPIC", "-w",
    "-fvisibility=hidden", "-ftls-model=initial-exec", "-shared", "-s", "-pthread",
)  # fmt: skip


def mimalloc(name: str) -> Path:
    """Return a library to preload, fetching and building it if need be; each run tries once.

    :param name: of :data:`DEBIAN`, or a version of :data:`CRATES`, with ``-`` and one of :data:`VARIANTS`.
    :raises Unavailable: it can't be had.
    """
    found = _tried(name)
    if isinstance(found, str):
        raise Unavailable(found)
    return found


@lru_cache(maxsize=None)
def _tried(name: str) -> Union[Path, str]:
    try:
        return _debian(name) if name in DEBIAN else _built(name)
    except Unavailable as reason:
        return f"mimalloc {name}: {reason}"


def _debian(name: str) -> Path:
    codename, package = DEBIAN[name]
    suite = Suite(f"mimalloc-{codename}", "", codename, (package,))
    stamp = cache_dir("mimalloc") / name
    with locked(f"mimalloc-{name}"):
        if not stamp.exists():
            version = candidate(suite)
            unpacked(suite, suite.packages, version)
            stamp.write_text(version)
    return next(unpacked(suite, suite.packages, stamp.read_text()).glob("usr/lib/*/libmimalloc.so.?.0"))


def _built(name: str) -> Path:
    version, _, variant = name.partition("-")
    library = cache_dir("mimalloc") / f"libmimalloc-{name}.so"
    with locked(f"mimalloc-{name}"):
        if not library.exists():
            require("gcc")
            crate, folder = CRATES[version]
            home = crate_sources("libmimalloc-sys", crate, "c_src/mimalloc") / folder
            fresh = library.with_suffix(".new")
            run(["gcc", *FLAGS, *VARIANTS[variant], "-Iinclude", "src/static.c", "-o", str(fresh)], home)
            fresh.rename(library)
    return library
