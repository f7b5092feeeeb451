"""Pointers in executable memory that the program writes itself: immediates of instructions lie at any byte."""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np

from gdbext.heap.model import U64, Mask
from gdbext.kernels import BlockIndex, Hits, PointerRules, Span, gather_scalars, scan_pointers
from gdbext.memory import Region

# Files that hold what a program wrote, not what was installed.
_UNBACKED = ("/memfd:", "/dev/zero", "/dev/shm/", "/SYSV")


def is_generated_code(region: Region) -> bool:
    """Whether a region may hold instructions that the program has made: executable, and no unchanged file."""
    written = region.anonymous or region.writable or region.name.startswith(_UNBACKED)
    return "x" in region.permissions and written


def scan_code(spans: Sequence[Span], index: BlockIndex, rules: PointerRules, machine: str) -> Hits:
    """Find the words at every byte that point at blocks.

    Out of alignment an interior pointer counts only as the operand of an instruction that loads an address: with eight
    words for each eight bytes of code, some lead into a block by chance, but hardly any to a beginning. Words count as
    they stand, never mangled.

    :param spans: sorted, disjoint.
    :param machine: of the instructions, as :class:`gdbext.abi.Abi` names it.
    """
    pieces = [*spans, *_seams(spans, rules.word)]
    starts = np.array([start for start, _ in pieces], np.uint64)
    views = [memoryview(data).cast("B") for _, data in pieces]  # type: ignore[arg-type]
    rooms = np.array([len(view) // rules.word + 2 for view in views], np.uint64) * np.uint64(rules.word)
    laid = np.cumsum(rooms) - rooms  # one behind the other, at aligned places of our own
    found = []
    for shift in range(rules.word):
        shifted = [(int(at), view[shift:]) for at, view in zip(laid, views)]
        hits = scan_pointers(shifted, index, rules._replace(mangled=False))
        piece = np.searchsorted(laid, hits.place, side="right") - 1
        place = hits.place - laid[piece] + starts[piece] + np.uint64(shift)
        kept = ~hits.interior | (place % np.uint64(rules.word) == 0) | _loaded(spans, place, machine)
        found.append((place[kept], hits.row[kept], hits.interior[kept]))
    place, row, interior = (np.concatenate(each) for each in zip(*found))
    order = np.argsort(place, kind="stable")
    return Hits(place[order], row[order], interior[order])


def _seams(spans: Sequence[Span], word: int) -> Iterator[Span]:
    """Iterate over the bytes on both sides of the bound between two adjacent spans, too few for a word of one side."""
    for (start, one), (next_start, other) in zip(spans, spans[1:]):
        left, right = memoryview(one).cast("B"), memoryview(other).cast("B")  # type: ignore[arg-type]
        if start + len(left) == next_start:
            tail = bytes(left[-(word - 1) :])
            yield next_start - len(tail), tail + bytes(right[: word - 1])


def _loaded(spans: Sequence[Span], places: U64, machine: str) -> Mask:
    """Return which words follow REX.W B8+r: ``movabs``, x86-64's only instruction with an address as its operand."""
    if machine != "x86-64":
        return np.zeros(len(places), np.bool_)
    before, known = gather_scalars(spans, places - np.uint64(2), 2, "little")
    loaded: Mask = known & (before & np.uint64(0xF8F8) == 0xB848)
    return loaded
