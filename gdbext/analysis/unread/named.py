"""Owners that a mapping's name gives away: by PR_SET_VMA_ANON_NAME, as a file of the kernel's, as a device."""

from __future__ import annotations

import re
from functools import partial
from typing import Callable, Iterator, List, Mapping, Tuple

from gdbext.analysis.unread.model import Claim, Ground
from gdbext.memory.intervals import columns

_NO_BLOCKS = ("Go runtime", "TCMalloc metadata", "io_uring rings", "devices")
_POSTGRESQL_MAGIC = 679834894  # PGShmemMagic, of src/include/storage/pg_shmem.h


def _find(names: Mapping[str, str], ground: Ground) -> Iterator[Claim]:
    for owner, pattern in names.items():
        regions = [one for one in ground.target.index.regions if re.search(pattern, one.name)]
        if regions:
            shown = sorted({one.name for one in regions})
            evidence = f"by the name of its mappings: {', '.join(shown[:3])}"
            memory = columns((one.start, one.end) for one in regions)
            yield Claim(owner, memory, evidence, owner not in _NO_BLOCKS)


def by_name(names: Mapping[str, str]) -> Callable[[Ground], Iterator[Claim]]:
    """Return what finds mappings by patterns for their names.

    :param names: the pattern by owner.
    """
    return partial(_find, names)


def find_postgresql(ground: Ground) -> Iterator[Claim]:
    """Find PostgreSQL's shared memory, which begins with a ``PGShmemHeader``: one, or one for each segment."""
    found: List[Tuple[int, int]] = []
    for start, end in ground.stretches:
        magic, size = (ground.words(start, 2) or (0, 0))[:2]
        if magic & 0xFFFFFFFF == _POSTGRESQL_MAGIC and 0 < size <= end - start:
            found.append((start, end))
    if found:
        yield Claim("PostgreSQL shared memory", columns(found), "it begins with a PGShmemHeader and its own size")
