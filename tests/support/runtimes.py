"""Programs that keep heaps of their own, for tests: Debian's php and ruby unpacked, others as this machine has them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Mapping, Sequence

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Suite, Unavailable, candidate, unpacked

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
PACKAGES: Mapping[str, Sequence[str]] = {
    "php8.2": ("php8.2-cli", "libargon2-1", "libsodium23"),
    "ruby3.1": ("libruby3.1", "ruby3.1"),
}


@dataclass(frozen=True)
class Runtime:
    """A program, and the environment that it needs."""

    program: Path
    environment: Mapping[str, str]


def installed(program: str) -> Runtime:
    """Return a program of this machine.

    :raises Unavailable: it has none.
    """
    found = shutil.which(program, path=f"/usr/local/go/bin:{os.defpath}")
    if not found:
        raise Unavailable(f"no {program} on this machine")
    return Runtime(Path(found), {})


@lru_cache(maxsize=None)
def unpacked_runtime(name: str) -> Runtime:
    """Return a program of Debian 12's packages; each run tries once.

    :raises Unavailable: they can't be had.
    """
    suite = Suite(name, "", "bookworm", tuple(PACKAGES[name]))
    stamp = cache_dir("runtimes") / name
    with locked(f"runtime-{name}"):
        if not stamp.exists():
            package = candidate(suite)
            unpacked(suite, suite.packages, package)
            stamp.write_text(package)
    root = unpacked(suite, suite.packages, stamp.read_text())
    places = [root / "usr/lib/ruby/3.1.0", root / _LIBRARIES / "ruby/3.1.0"]
    own = {"LD_LIBRARY_PATH": str(root / _LIBRARIES), "RUBYLIB": ":".join(map(str, places))}
    return Runtime(root / "usr/bin" / name, own)
