"""What a mutator draws from: one core, its places, and hostile values."""

from __future__ import annotations

import random
from typing import Sequence, TypeVar

from tests.fuzz.image import Image, Mutation
from tests.fuzz.places import Places

_T = TypeVar("_T")
_BITS = (0, 1, 2, 3, 4, 5, 7, 12, 16, 21, 30, 31, 32, 40, 46, 47, 48, 56, 62, 63)
_WILD = (0x10, 0x123456789000, 0xDEADBEEFCAFEF00D, 0x7FFFFFFFF000, 0xFFFF800000000000, 0xFFFFFFFFFFFFF000, 2**64 - 8)


class NotHere(Exception):
    """The core has nothing that this mutator damages."""


class Draw:
    """One mutation in the making: everything in it follows from the seed."""

    def __init__(self, image: Image, places: Places, seed: str) -> None:
        self.image, self.places = image, places
        self.random = random.Random(seed)
        self.mutation = Mutation()
        self._what: list[str] = []

    def pick(self, choices: Sequence[_T]) -> _T:
        """Return one of them.

        :raises NotHere: there is none.
        """
        if not choices:
            raise NotHere
        return self.random.choice(choices)

    def patch(self, offset: int, data: bytes, what: str) -> None:
        """Write some bytes of the file."""
        self.mutation.patches.append((offset, data))
        self._what.append(f"{what} := {data[:16].hex()}")
        self.mutation.what = "; ".join(self._what[:8])

    def put(self, offset: int, value: int, size: int, what: str) -> None:
        """Write a number of the file."""
        self.patch(offset, (value % (1 << 8 * size)).to_bytes(size, "little"), f"{what} at file offset {offset:#x}")

    def poke(self, address: int, value: int, what: str, size: int = 0) -> None:
        """Write a number of memory, a word by default.

        :raises NotHere: it is not in the core.
        """
        size = size or self.image.word
        offset = self.image.find_offset(address, size)
        if offset is None:
            raise NotHere
        self.put(offset, value, size, f"{what} at {address:#x}")

    def number(self, address: int, size: int = 0) -> int:
        """Return what is there.

        :raises NotHere: it is not in the core.
        """
        found = self.image.number(address, size)
        if found is None:
            raise NotHere
        return found

    def spoil(self, address: int, what: str, others: Sequence[int] = (), size: int = 0) -> None:
        """Write a hostile number to memory."""
        self.poke(address, self.hostile(self.number(address, size), address, others), what, size)

    def hostile(self, old: int, address: int = 0, others: Sequence[int] = ()) -> int:
        """Return a number to take the place of ``old``.

        :param address: its own place, for what points to itself.
        :param others: places of the same kind, for cycles and for things that are used twice.
        """
        kinds = [self._bit, self._near, self._far, self._edge, self._mapped]
        if address:
            kinds.append(lambda old: address + self.random.choice((0, -8, -16, 8)))
        if others:
            kinds += [lambda old: self.random.choice(others)] * 2
        return self.random.choice(kinds)(old)

    def mapped(self) -> int:
        """Return an address in the core, mostly of a word."""
        load = self.pick(self.image.loads)
        return load.address + self.random.randrange(0, load.filesz, self.random.choice((1, 8, 16, 4096)))

    def _bit(self, old: int) -> int:
        return old ^ 1 << self.random.choice(_BITS)

    def _near(self, old: int) -> int:
        return old + self.random.choice((-4096, -64, -16, -8, -1, 1, 2, 8, 16, 64, 4096, old, -2 * old))

    def _far(self, old: int) -> int:
        return self.random.choice((self.random.getrandbits(64), self.random.getrandbits(20), *_WILD))

    def _edge(self, old: int) -> int:
        bit = self.random.choice(_BITS)
        return self.random.choice((0, 1, -1, 1 << bit, (1 << bit) - 1, -(1 << bit)))

    def _mapped(self, old: int) -> int:
        return self.mapped()
