"""The target's mappings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from gdbext.bridge.stops import session
from gdbext.memory import Region


@dataclass(frozen=True)
class Page:
    """A mapping, or the part of one whose bytes have a single source.

    :param vaddr: first address.
    :param memsz: bytes.
    :param offset: of ``vaddr`` in the file.
    :param objfile: the file, ``[heap]``, ``[stack]``, or "" for anonymous memory.
    :param permstr: ``rwx`` with ``-`` for what is absent.
    """

    vaddr: int
    memsz: int
    offset: int
    objfile: str
    permstr: str

    @property
    def start(self) -> int:
        """First address."""
        return self.vaddr

    @property
    def end(self) -> int:
        """First address after it."""
        return self.vaddr + self.memsz

    @property
    def read(self) -> bool:
        """Whether the target may read it."""
        return "r" in self.permstr

    @property
    def write(self) -> bool:
        """Whether the target may write it."""
        return "w" in self.permstr

    @property
    def execute(self) -> bool:
        """Whether the target may execute it."""
        return "x" in self.permstr

    @property
    def rw(self) -> bool:
        """Whether the target may read and write it."""
        return self.read and self.write

    @property
    def is_stack(self) -> bool:
        """Whether it is the main thread's stack."""
        return self.objfile == "[stack]"

    def __contains__(self, address: int) -> bool:
        return self.start <= int(address) < self.end


def pages() -> Sequence[Page]:
    """Return every mapping, by address."""
    return tuple(_page(region) for region in session.current().target.memory.regions())


get = pages


def find(address: Optional[int]) -> Optional[Page]:
    """Return the mapping that holds an address, or None."""
    if address is None:
        return None
    region = session.current().target.index.find(int(address))
    return None if region is None else _page(region)


def _page(region: Region) -> Page:
    return Page(region.start, region.size, region.offset, region.name, region.permissions)
