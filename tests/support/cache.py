"""The cache that test runs share: packages, built programs; outside git, safe to delete.

``GDBEXT_TEST_CACHE`` names another place than ``.cache`` in the checkout.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]


def cache_dir(*parts: str) -> Path:
    """Make and return a directory of the cache; git ignores all of it."""
    top = Path(os.environ.get("GDBEXT_TEST_CACHE") or CHECKOUT / ".cache").resolve()
    top.mkdir(parents=True, exist_ok=True)
    ignore = top / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    path = top.joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock that other test runs on this cache respect; released when its holder dies."""
    with (cache_dir("locks") / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
