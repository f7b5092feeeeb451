"""The kernels in Python and numpy: the definition that a native version must equal.

Positions are word indices into a buffer. A ptmalloc chunk at position p keeps ``prev_size`` in word
p and its size with three flag bits in word p+1 (malloc/malloc.c, ``struct malloc_chunk``).
"""

from __future__ import annotations

import sys
from array import array
from typing import AbstractSet, NamedTuple, Optional, Sequence

import numpy as np
import numpy.typing as npt

Words = Sequence[int]
Positions = npt.NDArray[np.uint64]

FLAGS = 7
PREV_INUSE = 1
WINDOW = 1 << 16
CONFIRMING_CHUNKS = 32
MOST_CHUNKS = 1 << 62


class ChunkRules(NamedTuple):
    """What makes a size valid.

    :param word: bytes in a word.
    :param minimum: smallest chunk, bytes.
    :param granule: every size is a multiple of it, bytes (``MALLOC_ALIGNMENT``).
    """

    word: int
    minimum: int
    granule: int


def words_of(buffer: object, word: int, byteorder: str) -> Words:
    """Return a buffer as a sequence of native integers; copied only for a foreign byte order.

    :param buffer: any object with the buffer protocol; its length is a multiple of ``word``.
    """
    if byteorder != sys.byteorder:
        order = "<" if byteorder == "little" else ">"
        native = np.frombuffer(buffer, dtype=f"{order}u{word}").astype(f"=u{word}")  # type: ignore[call-overload]
        return memoryview(native)
    return memoryview(buffer).cast("B").cast("Q" if word == 8 else "I")  # type: ignore[arg-type]


def walk_chunks(
    words: Words, start: int, stop: int, rules: ChunkRules, limit: int = MOST_CHUNKS
) -> tuple[Positions, int]:
    """Follow chunk sizes from ``start``.

    :param stop: position at which a sound walk arrives exactly.
    :param limit: chunks after which to return, so that the caller can be interrupted.
    :return: the positions of the chunks, and where the walk ended: ``stop``, or the first chunk
        whose size is invalid or reaches beyond ``stop`` (that chunk is not among the positions), or,
        with ``limit`` positions, the next chunk.
    """
    shift, clear = rules.word.bit_length() - 1, ~FLAGS
    # A size below the minimum has a head below it too, flags and all: the minimum is a multiple of 8.
    least, misaligned = rules.minimum, (rules.granule - 1) & clear
    heads, last = words[1:], stop - 2
    found = array("Q")
    append, at = found.append, start
    for _ in range(limit):
        if at > last:
            break
        head = heads[at]
        if head < least or head & misaligned:
            break
        append(at)
        at += (head & clear) >> shift
    if at > stop:
        at = found.pop()
    return np.frombuffer(found, dtype=np.uint64) if found else np.empty(0, np.uint64), at


def find_chunk(
    words: Words,
    start: int,
    stop: int,
    goals: AbstractSet[int],
    rules: ChunkRules,
    confirming: Optional[int] = CONFIRMING_CHUNKS,
) -> Optional[int]:
    """Return the first position from ``start`` on where a chunk can begin, or None.

    A position is believed when the walk from it reaches ``stop`` or one of ``goals`` (positions known
    to be chunks), or when it passes ``confirming`` chunks (None: only the goals count).
    Each position is stepped on once, so the work is linear.
    """
    refuted = bytearray((stop - start) // 2 + 1)
    step = rules.granule // rules.word
    for low in range(start, stop, WINDOW * step):
        for at in _plausible(words, low, min(low + WINDOW * step, stop), stop, rules):
            if at in goals or _leads_on(words, at, start, stop, goals, rules, confirming, refuted):
                return at
    return None


def _plausible(words: Words, low: int, high: int, stop: int, rules: ChunkRules) -> list[int]:
    """Return the positions whose size word is valid and says that the chunk before is in use."""
    step = rules.granule // rules.word
    heads = np.asarray(words[low + 1 : high + 1])[::step].astype(np.uint64)
    at = np.arange(low, low + len(heads) * step, step, dtype=np.uint64)
    sizes = heads & np.uint64(0xFFFFFFFFFFFFFFF8)
    fits = sizes <= (np.uint64(stop) - at) * np.uint64(rules.word)
    sound = (sizes >= rules.minimum) & (sizes % np.uint64(rules.granule) == 0) & fits
    chosen: list[int] = at[sound & (heads & np.uint64(PREV_INUSE) != 0)].tolist()
    return chosen


def _leads_on(
    words: Words,
    at: int,
    start: int,
    stop: int,
    goals: AbstractSet[int],
    rules: ChunkRules,
    confirming: Optional[int],
    refuted: bytearray,
) -> bool:
    passed: list[int] = []
    while at != stop and at not in goals:
        if confirming is not None and len(passed) >= confirming:
            return True
        if at + 2 > stop or refuted[(at - start) // 2]:
            break
        size = words[at + 1] & ~FLAGS
        if size < rules.minimum or size % rules.granule or at + size // rules.word > stop:
            break
        passed.append(at)
        at += size // rules.word
    else:
        return bool(passed)
    for position in passed:
        refuted[(position - start) // 2] = 1
    return False
