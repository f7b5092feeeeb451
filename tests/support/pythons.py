"""CPythons of several versions, as Debian packages them: fetched once into the cache, never installed.

Each comes with the C library of its suite and runs under that one's dynamic linker where the machine's is older.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Sequence, Union

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Suite, Unavailable, candidate, unpacked

VERSIONS = {
    "3.9": ("bullseye", ()),
    "3.11": (None, ()),
    "3.13": ("trixie", ("libc6", "libexpat1", "zlib1g")),
    "3.14": ("sid", ("libc6", "libexpat1", "zlib1g", "libzstd1")),
}


@dataclass(frozen=True)
class Python:
    """A CPython that can be run.

    :param program: its executable.
    :param command: that starts it: the dynamic linker of its suite before it, where it needs one.
    :param environment: that it needs.
    """

    version: str
    program: Path
    command: Sequence[str]
    environment: "dict[str, str]"


def python(version: str) -> Python:
    """Return a CPython, fetching it if need be; each run tries once.

    :raises Unavailable: the suite cannot be reached, or has no such version any more.
    """
    found = _tried(version)
    if isinstance(found, str):
        raise Unavailable(found)
    return found


@lru_cache(maxsize=None)
def _tried(version: str) -> Union[Python, str]:
    codename, libraries = VERSIONS[version]
    if codename is None:
        own = Path("/usr/bin", f"python{version}")
        return Python(version, own, [str(own)], dict(os.environ)) if own.exists() else f"no {own} on this machine"
    try:
        return _fetched(version, codename, libraries)
    except Unavailable as reason:
        return f"python{version} of {codename}: {reason}"


def _fetched(version: str, codename: str, libraries: Sequence[str]) -> Python:
    packages = (f"python{version}-minimal", f"libpython{version}-minimal", *libraries)
    suite = Suite(f"python{version}-{codename}", version, codename, packages)
    stamp = cache_dir("glibc") / f"{suite.name}.json"
    with locked(f"glibc-{suite.name}"):
        package = json.loads(stamp.read_text())["package"] if stamp.exists() else candidate(suite)
        root = unpacked(suite, list(packages), package)
        stamp.write_text(json.dumps({"package": package}))
    program = root / f"usr/bin/python{version}"
    environment = {**os.environ, "PYTHONHOME": str(root / "usr")}
    if not libraries:
        return Python(version, program, [str(program)], environment)
    folders = ":".join(str(root / place / "x86_64-linux-gnu") for place in ("usr/lib", "lib"))
    loader = next(path for path in sorted(root.glob("**/ld-linux-x86-64.so.2")))
    return Python(version, program, [str(loader), "--library-path", folders, str(program)], environment)
