"""Heaps of aligned pages that begin alike: V8, PHP, Ruby, InnoDB. Each page's header is checked against the others."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from gdbext.analysis.unread.model import Claim, Ground
from gdbext.memory.intervals import columns

_MISSES = 64  # aligned places without a page after which the rest of a piece is not searched
_MOST = 1 << 20  # links of one list

_V8_PAGE, _V8_WORDS, _V8_LARGEST = 1 << 18, 16, 1 << 32
_PHP_CHUNK, _PHP_HEAP, _PHP_WORDS = 1 << 21, 0x40, 64
_RUBY_PAGE, _RUBY_SMALL, _RUBY_WORDS = 1 << 16, 1 << 14, 16  # since 3.2, before
_RUBY_BLOCK, _RUBY_TRANSIENT = 1 << 15, 1 << 25  # of the transient heap, 2.6 to 3.2
_FEW = 4  # pages that could begin alike by chance
_INNODB_PAGE, _INNODB_LSN = 1 << 14, 8
_INNODB_SAMPLE = 1 << 10  # places of a piece that may be a pool
_INNODB_INDEXES = (17853, 17854, 17855)  # fil0fil.h
_INNODB_TYPES = frozenset((*range(2, 14), *_INNODB_INDEXES))


def _for_each(ground: Ground, align: int, size_of: Callable[[int], int]) -> Iterator[Tuple[int, int]]:
    """Iterate over start and end of aligned pages in each piece; ``size_of`` gives 0 where there is none."""
    for start, end in ground.stretches:
        at, misses = start + -start % align, 0
        while at < end and misses < _MISSES:
            size = size_of(at)
            if size:
                yield at, at + size
            misses = 0 if size else misses + 1
            at += size + -size % align or align


# ---- V8 ----


def find_v8(ground: Ground) -> Iterator[Claim]:
    """Find V8's pages (``MemoryChunk``): the header, or what it points at, says where the page's objects lie."""
    heads: Dict[int, Sequence[int]] = {}

    def size_of(at: int) -> int:
        head = _find_v8_header(ground, at)
        if head is None:
            return 0
        heads[at] = head[1]
        return head[0]

    pages = list(_for_each(ground, _V8_PAGE, size_of))
    if len(pages) >= _FEW and _shared(ground, list(heads.values())):
        evidence = f"{len(pages)} pages on borders of 256 KiB whose headers hold their own bounds and one heap"
        yield Claim("V8 heap", columns(pages), evidence)


def _find_v8_header(ground: Ground, at: int) -> Optional[Tuple[int, Sequence[int]]]:
    """Return a page's size, and the words that say so: in the page, or since V8 13 in a ``MemoryChunkMetadata``."""
    words = ground.words(at, _V8_WORDS)
    size = _v8_size(at, words)
    if size:
        return size, words
    for place in words[:2]:
        if place % 8 == 0 and ground.is_mapped(place) and not at <= place < at + _V8_PAGE:
            beyond = ground.words(place, _V8_WORDS)
            size = _v8_size(at, beyond)
            if size:
                return size, beyond
    return None


def _v8_size(at: int, words: Sequence[int]) -> int:
    """Return the size that a page and its area of objects agree on, or 0."""
    pairs = list(zip(words, words[1:]))
    size = next((size for base, size in pairs if base == at and 4096 <= size <= _V8_LARGEST and not size % 4096), 0)
    area = any(at < low < at + _V8_PAGE and low < high <= at + size for low, high in pairs)
    return size if area else 0


def _shared(ground: Ground, heads: Sequence[Sequence[int]]) -> bool:
    """Whether all headers have one pointer in common: the heap."""
    return any(len(set(column)) == 1 and ground.is_mapped(column[0]) for column in zip(*heads))


# ---- PHP ----


def find_php(ground: Ground) -> Iterator[Claim]:
    """Find the chunks of PHP's memory manager (``zend_mm_chunk``), a ring, and its huge blocks."""
    chunks = list(_for_each(ground, _PHP_CHUNK, lambda at: _PHP_CHUNK if _is_php_chunk(ground, at) else 0))
    heaps = {ground.words(at, 1)[0] for at, _ in chunks}
    more = [one for heap in sorted(heaps) for one in _php_lists(ground, heap)]
    if chunks:
        evidence = f"{len(chunks)} chunks of 2 MiB in a ring, each with the address of its zend_mm_heap"
        yield Claim("PHP heap", columns(sorted({*chunks, *more})), evidence)


def _is_php_chunk(ground: Ground, at: int) -> bool:
    heap, following, before = ground.words(at, 3) or (0, 0, 0)
    first = heap - _PHP_HEAP
    if heap % _PHP_CHUNK != _PHP_HEAP or following % _PHP_CHUNK or before % _PHP_CHUNK:
        return False
    return ground.words(first, 1) == (heap,) and ground.words(following + 16, 1) == (at,)


def _php_lists(ground: Ground, heap: int) -> Iterator[Tuple[int, int]]:
    """Iterate over huge blocks and cached chunks: their lists stand before and after the heap's ``main_chunk``."""
    words = ground.words(heap, _PHP_WORDS)
    main = next((at for at, word in enumerate(words[:-1]) if at and word == heap - _PHP_HEAP), None)
    if main is None:
        return
    for at in _linked(ground, words[main - 1], 16):
        start, size = ground.words(at, 2)
        if start % _PHP_CHUNK == 0:
            yield start, start + size
    for at in _linked(ground, words[main + 1], 8):
        yield at, at + _PHP_CHUNK


def _linked(ground: Ground, first: int, link: int) -> Iterator[int]:
    """Iterate over a list that ends with 0, or with the first thing that cannot be."""
    at, seen = first, 0
    while at and seen < _MOST and ground.words(at, link // 8 + 1):
        yield at
        at, seen = ground.words(at, link // 8 + 1)[-1], seen + 1


# ---- Ruby ----


def find_ruby(ground: Ground) -> Iterator[Claim]:
    """Find Ruby's heap pages: each begins with a ``heap_page`` that points back at its first slot."""
    slots: Dict[int, int] = {}

    def size_of(at: int) -> int:
        slots[at] = _find_ruby_slot(ground, at)
        return _RUBY_SMALL if slots[at] else 0

    starts = [start for start, _ in _for_each(ground, _RUBY_SMALL, size_of)]
    size = _RUBY_PAGE if all(start % _RUBY_PAGE == 0 for start in starts) else _RUBY_SMALL
    bases = set(starts)
    objects = sum(_is_ruby_object(ground, slots[at], bases, size) for at in starts)
    if len(starts) < _FEW or 4 * objects < len(starts):
        return
    evidence = f"{len(starts)} pages of {size >> 10} KiB, each with a heap_page that points back at its slots"
    yield Claim("Ruby heap pages", columns((at, at + size) for at in starts), evidence)
    transient = list(_for_each(ground, _RUBY_BLOCK, lambda at: _ruby_transient(ground, at)))
    if transient:
        yield Claim("Ruby transient heap", columns(transient), "32 MiB of blocks of 32 KiB that link each other")


def _ruby_transient(ground: Ground, at: int) -> int:
    """Return the size of the transient heap that begins here, or 0: each block of a sample links another or none."""
    end = at + _RUBY_TRANSIENT
    if ground.pieces.within(*columns([(at, end)])) != _RUBY_TRANSIENT:
        return 0
    blocks = [ground.words(block, 2) for block in range(at, end, _RUBY_TRANSIENT // _MISSES)]
    links = [block[1] for block in blocks if block and block[0]]
    good = [link for link in links if not link or (at <= link < end and link % _RUBY_BLOCK == 0)]
    return _RUBY_TRANSIENT if len(good) == len(blocks) and 2 * sum(map(bool, good)) > len(good) else 0


def _find_ruby_slot(ground: Ground, at: int) -> int:
    """Return the address of a page's first slot, or 0."""
    (page,) = ground.words(at, 1) or (0,)
    if page % 8 or at <= page < at + _RUBY_SMALL or not ground.is_mapped(page):
        return 0
    return next((word for word in ground.words(page, _RUBY_WORDS) if at < word <= at + 1024 and word % 8 == 0), 0)


def _is_ruby_object(ground: Ground, at: int, pages: "set[int]", size: int) -> bool:
    """Whether a slot has a type, and a class that is in a page, too."""
    flags, kind = ground.words(at, 2) or (0, 0)
    return bool(flags & 0x1F) and kind - kind % size in pages


# ---- InnoDB ----


def find_innodb(ground: Ground) -> Iterator[Claim]:
    """Find InnoDB's buffer pool: pages of 16 KiB of a table space; those never used are empty, and can be most."""
    pieces: List[Tuple[int, int]] = []
    kinds: "Counter[int]" = Counter()
    for start, end in ground.stretches:
        found = _innodb_sample(ground, start, end, _MISSES)
        if any(found):
            found = _innodb_sample(ground, start, end, _INNODB_SAMPLE)
        pages = [kind for kind in found if kind]
        if len(pages) >= _FEW and 2 * len(pages) > len(found):
            pieces.append((start, end))
            kinds.update(pages)
    if pieces:
        evidence = f"{sum(kinds.values())} pages of a sample have their LSN twice, or an infimum record"
        yield Claim("InnoDB buffer pool", columns(pieces), evidence)


def _innodb_sample(ground: Ground, start: int, end: int, most: int) -> Sequence[int]:
    """Return the types of a piece's pages at up to ``most`` and one places in which something is written."""
    first, step = start + -start % _INNODB_PAGE, max((end - start) // most // _INNODB_PAGE, 1) * _INNODB_PAGE
    found = (_innodb_type(ground, at) for at in range(first, end - _INNODB_PAGE + 1, step))
    return [kind for kind in found if kind is not None]


def _innodb_type(ground: Ground, at: int) -> Optional[int]:
    """Return the type of a page of a table space, 0 where it is none; None where nothing is written.

    The LSN's low half stands at both ends once a page has been written (fil0fil.h: 8 bytes before the end, 4 with
    MariaDB's full_crc32). A page of an index has the record "infimum" from the beginning, at 99 or 101 (page0page.h).
    """
    head, end = ground.words(at, 16), ground.words(at + _INNODB_PAGE - _INNODB_LSN, 1)
    if not any(head):
        return None
    data, tail = (b"".join(word.to_bytes(8, ground.target.abi.byteorder) for word in part) for part in (head, end))
    kind, lsn = int.from_bytes(data[24:26], "big"), data[20:24]
    if kind in _INNODB_INDEXES and b"infimum" in data[99:109]:
        return kind
    return kind if kind in _INNODB_TYPES and any(lsn) and lsn in (tail[:4], tail[4:]) else 0
