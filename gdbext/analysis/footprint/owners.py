"""Memory by owner on a few lines: the ledger, joined until it can be read at a glance.

Shares are of what costs memory: pages in RAM of a live process, bytes in a core otherwise, mapped bytes where neither
is known. Address space that is only reserved costs nothing, and stands below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence

from gdbext.analysis.footprint.ledger import (
    FREE_PARTS,
    MAIN_STACK,
    STACKS,
    Entry,
    Ledger,
    cost_of,
    is_reserve,
    memory_of,
)
from gdbext.report import Bar, Kind, Labels, Memory, column
from gdbext.wording import size_text

FILES = "files and rest"

_FILES_SHOWN = 2  # that are not joined, where they are large
_FILE_SHARE = 0.05
_SMALL = 0.002  # of other owners; they are joined with the files


@dataclass(frozen=True)
class OwnerRow:
    """One kind of owner: the cost in bytes, its share of all, and what there is to say."""

    owner: str = column("memory")
    bytes: int = column("mapped", Kind.BYTES)
    bar: Bar = column("share", Kind.BAR)
    share: Optional[float] = column("", Kind.SHARE)
    remark: str = column("")


def labels_of(account: Ledger) -> Labels:
    """Return the header of the bytes: what of the memory costs anything."""
    if account.resident is not None:
        return {(OwnerRow, "bytes"): "resident"}
    in_core = any(entry.in_core is not None for entry in account.entries)
    return {(OwnerRow, "bytes"): "in core"} if in_core else {}


def owner_rows(account: Ledger, allocators: Sequence[str], remarks: Mapping[str, str]) -> Sequence[OwnerRow]:
    """Return the ledger on a few lines, the largest first, then the sum.

    :param allocators: names of the heaps, with which their owners begin.
    :param remarks: by owner as shown ("glibc in use").
    """
    whole = sum(map(cost_of, account.entries))
    files = _large_files(account.entries, whole)
    sums: Dict[str, int] = {}
    kinds: Dict[str, Memory] = {}
    for entry in account.entries:
        name = _joined_name(entry, allocators, files)
        if name == entry.owner and cost_of(entry) < _SMALL * whole:
            name = FILES
        sums[name] = sums.get(name, 0) + cost_of(entry)
        kinds.setdefault(name, Memory.FILE if name == FILES else memory_of(entry.owner))
    rows = []
    for name, cost in sorted(sums.items(), key=lambda item: -item[1]):
        if cost:
            share = cost / whole
            rows.append(OwnerRow(name, cost, Bar(share, kinds[name]), share, remarks.get(name, "")))
    return [*rows, OwnerRow("", whole, Bar(None), 1.0, "")]


def _large_files(entries: Sequence[Entry], whole: int) -> Sequence[str]:
    files = [entry for entry in entries if memory_of(entry.owner) is Memory.FILE]
    files = [entry for entry in files if cost_of(entry) >= _FILE_SHARE * whole]
    return [entry.owner for entry in sorted(files, key=cost_of, reverse=True)[:_FILES_SHOWN]]


def _joined_name(entry: Entry, allocators: Sequence[str], files: Sequence[str]) -> str:
    for allocator in sorted(allocators, key=len, reverse=True):
        if entry.owner.startswith(f"{allocator} "):
            return f"{allocator} {_part(entry.owner[len(allocator) + 1 :])}"
    if entry.owner in (STACKS, MAIN_STACK):
        return STACKS
    if memory_of(entry.owner) is Memory.FILE and entry.owner not in files:
        return FILES
    return entry.owner


def is_free(owner: str, allocator: str) -> bool:
    """Return whether an owner is free memory of a heap."""
    return owner.startswith(f"{allocator} ") and _part(owner[len(allocator) + 1 :]) == "free"


def _part(owner: str) -> str:
    if owner in FREE_PARTS:
        return "free"
    if owner == "tcache":
        return "in thread caches"
    return owner if owner in ("in use", "retained") else "overhead"


def besides(account: Ledger) -> Sequence[str]:
    """Return what is mapped and costs nothing, and the kernel's own figure, as one line or none."""
    whole = sum(map(cost_of, account.entries))
    parts: List[str] = []
    reserved = sum(entry.bytes - cost_of(entry) for entry in account.entries if is_reserve(entry.owner))
    absent = sum(entry.not_in_core or 0 for entry in account.entries if not is_reserve(entry.owner))
    rest = account.total - whole - reserved - absent
    if reserved:
        parts.append(f"reserved, not used {size_text(reserved)}")
    if absent:
        parts.append(f"not in the core {size_text(absent)}")
    if rest > 0:
        where = "not resident" if account.resident is not None else "never written, or in files"
        parts.append(f"{where} {size_text(rest)}")
    if account.rss is not None:
        parts.append(f"the kernel's RSS {size_text(account.rss)}")
    return [" · ".join(parts)] if parts else []
