"""Machine facts that layouts and walkers depend on."""

from __future__ import annotations

from typing import Literal, NamedTuple

ByteOrder = Literal["little", "big"]


class Abi(NamedTuple):
    """Word size, byte order and page size of a target.

    :param machine: ``x86-64``, ``i386``, ``aarch64``, or ELF's ``EM_`` number as text.
    """

    pointer_size: int
    byteorder: ByteOrder
    machine: str = "x86-64"
    page_size: int = 4096

    @property
    def word_mask(self) -> int:
        """All bits of a word set."""
        return (1 << (8 * self.pointer_size)) - 1

    @property
    def word_format(self) -> str:
        """Struct format of one unsigned word, with its byte order."""
        return self.order_mark + ("Q" if self.pointer_size == 8 else "I")

    @property
    def word_dtype(self) -> str:
        """Numpy dtype of one unsigned word."""
        return f"{self.order_mark}u{self.pointer_size}"

    @property
    def order_mark(self) -> str:
        """The byte order as struct and numpy write it."""
        return "<" if self.byteorder == "little" else ">"

    def align_up(self, value: int, alignment: int) -> int:
        """Round ``value`` up to a multiple of ``alignment`` (a power of two)."""
        return (value + alignment - 1) & ~(alignment - 1)


X86_64 = Abi(8, "little", "x86-64")
I386 = Abi(4, "little", "i386")
AARCH64 = Abi(8, "little", "aarch64")
