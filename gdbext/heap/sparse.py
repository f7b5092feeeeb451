"""Findings of allocators that cut slabs (spans, pages, groups) into blocks of one size: slabs that few blocks keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional

import numpy as np
import numpy.typing as npt

from gdbext.report import Confidence, Finding, Severity
from gdbext.wording import count_text, share_text, size_text

I64 = npt.NDArray[np.int64]

USED = 0.25  # of a slab's bytes: fewer in use, and few blocks keep it
SHARE = 0.5  # of all slabs' bytes, free in such slabs; growth and random frees stay below
SHARE_OF_CACHES = 1 / 3  # of the bytes of all blocks, in the caches of threads
SHOWN = 5


@dataclass(frozen=True)
class Slabs:
    """The slabs of one heap, one row each.

    :param name: of one: "span", "page", "group".
    :param size: bytes of a block, as the next two.
    :param used: of blocks in use, or in a thread's cache.
    :param free: of blocks that are free.
    """

    name: str
    size: I64
    used: I64
    free: I64


def find_fragmentation(allocator: str, slabs: Slabs, complete: bool, remedy: str) -> Optional[Finding]:
    """Return the finding when most of the slabs' bytes are free in slabs that few blocks keep, else None."""
    whole = int((slabs.used + slabs.free).sum())
    sparse = (slabs.used > 0) & (slabs.used <= USED * (slabs.used + slabs.free))
    lost = int(slabs.free[sparse].sum())
    if not lost or lost < SHARE * whole:
        return None
    count, kept = int(sparse.sum()), int(slabs.used[sparse].sum())
    return Finding(
        "fragmentation",
        Severity.WARNING,
        Confidence.HIGH if complete else Confidence.MEDIUM,
        f"{size_text(lost)} of {size_text(whole)} in {slabs.name}s are free blocks ({share_text(lost, whole)}):"
        f" {count_text(count, slabs.name)} stay for {size_text(kept)} in use",
        bytes=lost,
        evidence=tuple(_rows(slabs, sparse)),
        remedy=remedy,
        details={"allocator": allocator, "slabs": count, "free_bytes": lost, "used_bytes": kept, "heap_bytes": whole},
    )


def _rows(slabs: Slabs, sparse: "npt.NDArray[np.bool_]") -> Iterator[str]:
    """Iterate over the sizes with most that is free, in words."""
    sizes, at = np.unique(slabs.size[sparse], return_inverse=True)
    free, used = (np.bincount(at, column[sparse]).astype(np.int64) for column in (slabs.free, slabs.used))
    for row in np.argsort(-free, kind="stable")[:SHOWN].tolist():
        yield (
            f"blocks of {int(sizes[row])}: {count_text(int((at == row).sum()), slabs.name)},"
            f" {size_text(int(used[row]))} in use, {size_text(int(free[row]))} free"
        )


def find_hoarding(
    allocator: str, cached: I64, whole: int, complete: bool, remedy: str, name: str = "thread cache"
) -> Optional[Finding]:
    """Return the finding when threads' caches hold a large share of the bytes of all blocks, else None.

    :param cached: bytes in the cache of each thread that has one.
    :param whole: bytes of all blocks, free ones included.
    :param name: of what has them.
    """
    held = int(cached.sum())
    if not held or held < SHARE_OF_CACHES * whole:
        return None
    largest = size_text(int(cached.max()))
    return Finding(
        "cache-hoarding",
        Severity.WARNING,
        Confidence.HIGH if complete else Confidence.MEDIUM,
        f"{count_text(len(cached), name)} hold {size_text(held)} of {size_text(whole)} in blocks"
        f" ({share_text(held, whole)}), which nobody else gets",
        bytes=held,
        evidence=(f"the largest {name.split()[-1]} holds {largest}",),
        remedy=remedy,
        details={"allocator": allocator, "caches": len(cached), "free_bytes": held, "heap_bytes": whole},
    )
