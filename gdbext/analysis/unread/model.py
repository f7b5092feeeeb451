"""What a heap or runtime that is not read is recognised by, and what that gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Iterable, Iterator, Optional, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.memory import view
from gdbext.memory.elf.elfdynamic import find_exported
from gdbext.memory.elf.elffile import find_image
from gdbext.memory.intervals import Coverage, Intervals
from gdbext.process import Module
from gdbext.target import Target


@dataclass(frozen=True)
class Ground:
    """What no heap claims.

    :param pieces: anonymous memory, that of thread stacks not included.
    :param stacks: memory that stack pointers lie in: a runtime may have stacks in its heap.
    """

    target: Target
    pieces: Coverage
    stacks: Coverage

    @cached_property
    def stretches(self) -> Sequence[Tuple[int, int]]:
        """The pieces as pairs of start and end."""
        return list(zip(self.pieces.starts.tolist(), self.pieces.ends.tolist()))

    def words(self, address: int, count: int) -> Sequence[int]:
        """Return words, or none where they cannot be read."""
        try:
            return self.target.reader.words(address, count)
        except FaultError:
            return ()

    def is_mapped(self, address: int) -> bool:
        """Whether an address is memory that can be read."""
        region = self.target.index.find(address)
        return region is not None and region.readable


@dataclass(frozen=True)
class Claim:
    """Memory of one owner.

    :param owner: as the ledger names it.
    :param memory: starts and ends; what others own of these is not meant.
    :param evidence: one line.
    :param blocks: whether the program's own blocks are in it, so that they count as not examined; what only mirrors
        other memory, or is a runtime's own, hides none.
    """

    owner: str
    memory: Intervals
    evidence: str
    blocks: bool = True


@dataclass(frozen=True)
class Owner:
    """A heap or runtime that is named.

    :param name: with which its ledger lines begin.
    :param find: where its memory is.
    :param further: what goes on from there.
    """

    name: str
    find: Callable[[Ground], Iterable[Claim]]
    further: str


def for_each_exporting(target: Target, symbol: str) -> Iterator[Tuple[Module, int]]:
    """Iterate over the modules that export a symbol, with its address."""
    for module in target.modules:
        address = find_export(target, module, symbol)
        if address is not None:
            yield module, address


def find_export(target: Target, module: Module, symbol: str) -> Optional[int]:
    """Return the address of what a module exports; None where it does not, or its table is not in the target."""
    try:
        image = find_image(lambda at, size: view(target.memory, at, size), module.base, target.abi.page_size)
        return None if image is None else find_exported(target.memory, target.abi, image, symbol)
    except FaultError:
        return None
