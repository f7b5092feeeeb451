"""Anonymous memory that no known allocator owns: where it is most of what there is, leaks may hide in it.

A program that maps a pool of its own beside a heap that was read is no such case; one whose memory comes from an
allocator that gdbext does not know (tcmalloc, musl, Go, a JVM) is. Which one it may be is said by its name alone.
What is known by its owner's name (:mod:`gdbext.analysis.unread`) has not been read either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional, Sequence

import numpy as np

from gdbext.analysis.beyond import NOTHING, Beyond, joined
from gdbext.analysis.footprint.ledger import Account, find_anonymous_rest
from gdbext.analysis.footprint.residency import Residency
from gdbext.analysis.missing import Unexamined
from gdbext.analysis.thresholds import Thresholds
from gdbext.errors import FaultError
from gdbext.heap.model import U64, Heap
from gdbext.memory.intervals import Coverage, unite
from gdbext.target import Target
from gdbext.wording import size_text

if TYPE_CHECKING:
    from gdbext.analysis.unread.model import Owner

KIND = "unknown-allocator"
UNREAD = "unread-heap"

_SHARE = 20  # per cent of the private anonymous memory; where known heaps own as much, the rest is the program's own
_PIECES = 256  # the longest, among which the largest is searched
_SAMPLES = 1 << 12  # pages of a core that are looked at
# Who else takes memory from the system, by the paths of modules, and by a symbol that each defines.
_MODULES = {
    r"/libtcmalloc": "tcmalloc",
    r"/libmimalloc": "mimalloc",
    r"/libsnmalloc": "snmalloc",
    r"/libhoard": "Hoard",
    r"musl": "musl",
    r"/libjvm\.so": "a JVM",
    r"/libcoreclr\.so": ".NET",
    r"/(libpython|python[\d.]*$)": "CPython",
    r"/beam\.smp$": "Erlang",
    r"/node$": "V8",
    r"/lib[atm]san\.so": "a sanitizer",
}
_SYMBOLS = {
    "tc_malloc": "tcmalloc",
    "MallocExtension_Internal_GetStats": "Google's TCMalloc",
    "mi_malloc": "mimalloc",
    "__malloc_context": "musl",
    "runtime.mheap_": "Go",
    "_PyRuntime": "CPython",
}


def find_unattributed(
    target: Target, heaps: Sequence[Heap], account: Account, limits: Thresholds, residency: Optional[Residency] = None
) -> Beyond:
    """Return that an allocator owns much which is not known, or not read.

    :param residency: of a process.
    """
    named = [(part.owner, Coverage(*part.memory)) for part in account.named if part.blocks]
    sizes = [(owner, _size(target, memory, residency)) for owner, memory in named]
    unread = [_unread(owner, size) for owner, size in sizes if limits.reached(size)]
    return joined(Beyond(unexamined=unread, notes=account.notes), _unknown(target, heaps, account, limits, residency))


def _unread(owner: Owner, size: int) -> Unexamined:
    return Unexamined(f"{size_text(size)} of {owner.name}", f"its inside is not read: {owner.further}", "rss", UNREAD)


def _unknown(
    target: Target, heaps: Sequence[Heap], account: Account, limits: Thresholds, residency: Optional[Residency]
) -> Beyond:
    """Return what belongs to no allocator that is known; a note where that is rather the program's own mappings."""
    charged = account.charged
    owned = [(charged.starts, charged.ends), *(part.memory for part in account.named)]
    rest = find_anonymous_rest(target, heaps, unite(owned).covered)
    size = _size(target, rest, residency)
    if not limits.reached(size):
        return NOTHING
    known = charged.bytes if residency is None else residency.resident(charged.starts, charged.ends)
    largest = _largest(rest, residency)
    if 100 * known >= _SHARE * (known + size):
        mapped = f"{size_text(size)} of anonymous memory belong to no heap: the program mapped it itself"
        return Beyond(notes=[f"{mapped}, or an allocator that is not known; the largest piece is {largest}: rss"])
    name = _find_name(target)
    who = f"whose allocator is not known{f', by its name {name}' if name else ''}; the largest piece is {largest}"
    return Beyond(unexamined=[Unexamined(f"{size_text(size)} of memory", who, "rss", KIND)])


def _largest(rest: Coverage, residency: Optional[Residency]) -> str:
    """Return the piece of which most is in RAM; of a core the longest."""
    order = np.argsort(rest.starts - rest.ends, kind="stable")[:_PIECES]  # the lengths, negative
    pieces = [slice(at, at + 1) for at in order.tolist()]
    if residency is not None:
        pieces.sort(key=lambda piece: -residency.resident(rest.starts[piece], rest.ends[piece]))
    return f"{int(rest.starts[pieces[0]][0]):#x}-{int(rest.ends[pieces[0]][0]):#x}"


def _size(target: Target, rest: Coverage, residency: Optional[Residency]) -> int:
    """Return how many bytes cost anything: of a process those in RAM, of a core those that hold anything."""
    if residency is not None:
        return residency.resident(rest.starts, rest.ends)
    return rest.bytes if target.live else _written_bytes(target, rest)


def _written_bytes(target: Target, rest: Coverage) -> int:
    """Estimate how many bytes are in pages that are not all zeros, by a fixed choice among them.

    What was never written is zeros in a core, and may be far larger than all else.
    """
    page = target.abi.page_size
    pages = ((rest.ends - rest.starts) // np.uint64(page)).astype(np.int64)
    total = int(pages.sum())
    step = max(total // _SAMPLES, 1)
    chosen = np.arange(step // 2, total, step)
    before = np.cumsum(pages) - pages
    piece = np.searchsorted(before, chosen, side="right") - 1
    addresses: U64 = rest.starts[piece] + ((chosen - before[piece]) * page).astype(np.uint64)
    zeros = bytes(page)
    written = sum(_is_written(target, address, zeros) for address in addresses.tolist())
    return min(written * step * page, rest.bytes)


def _is_written(target: Target, address: int, zeros: bytes) -> bool:
    try:
        return bytes(target.memory.read(address, len(zeros))) != zeros
    except FaultError:
        return False


def _find_name(target: Target) -> Optional[str]:
    paths = [module.path for module in target.modules]
    found = [name for mark, name in _MODULES.items() if any(re.search(mark, path) for path in paths)]
    if found:
        return found[0]
    return next((name for symbol, name in _SYMBOLS.items() if target.symbols.find_symbols(symbol)), None)
