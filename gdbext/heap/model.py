"""The allocator-neutral heap: blocks as columns, arenas, and who owns which bytes.

A block is what ``malloc`` hands out or could hand out: ``address`` is the pointer that the program
holds, ``size`` the bytes it may use there. Allocators convert their own units to these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Callable, Iterable, Optional, Sequence, Tuple, overload

import numpy as np
import numpy.typing as npt

from gdbext.memory.intervals import bytes_of
from gdbext.report import Evidence, Finding, Problem, ThreadRef

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


NO_ARENA = 0xFFFFFFFF


class State(IntEnum):
    """What a block is. The names are those that reports print (lower case)."""

    IN_USE = 0
    MMAPPED = 1  # in use, in a mapping of its own
    TCACHE = 2
    FASTBIN = 3
    UNSORTED = 4
    SMALL = 5
    LARGE = 6
    TOP = 7
    FREE = 8  # free, in no list that was found
    FENCEPOST = 9  # the allocator's own marker, neither used nor free
    DIRTY = 10  # unused pages that the allocator keeps, perhaps in RAM
    MUZZY = 11  # unused pages that the kernel may take back when it wants

    @property
    def label(self) -> str:
        """The state as reports print it."""
        return self.name.lower().replace("_", " ")


USED_STATES = (State.IN_USE, State.MMAPPED)
CACHED_STATES = (State.TCACHE,)
FREE_STATES = (
    State.FASTBIN,
    State.UNSORTED,
    State.SMALL,
    State.LARGE,
    State.TOP,
    State.FREE,
    State.DIRTY,
    State.MUZZY,
)


@dataclass(frozen=True)
class Blocks:
    """Blocks in address order: 21 bytes each at most.

    :param address: user pointer.
    :param size: usable bytes.
    :param state: a :class:`State`.
    :param owner: index into :attr:`Heap.arenas`, or beyond its end: of no arena. Of 1, 2 or 4 bytes.
    """

    address: U64
    size: U64
    state: U8
    owner: U32

    def __len__(self) -> int:
        return len(self.address)

    @property
    def columns(self) -> Tuple[U64, U64, U8, U32]:
        """Address, size, state and owner."""
        return self.address, self.size, self.state, self.owner

    def select(self, mask: Any) -> "Blocks":
        """Return the blocks that a mask or an index array picks."""
        return Blocks(self.address[mask], self.size[mask], self.state[mask], self.owner[mask])

    def having(self, states: Iterable[State]) -> Mask:
        """Return the mask of the blocks in any of ``states``."""
        wanted = np.zeros(256, dtype=np.bool_)
        wanted[[int(state) for state in states]] = True
        mask: Mask = wanted[self.state]
        return mask

    def find(self, address: int) -> Optional[int]:
        """Return the index of the block whose usable bytes hold ``address``, or None."""
        at = int(np.searchsorted(self.address, np.uint64(address), side="right")) - 1
        if at < 0 or address - int(self.address[at]) >= int(self.size[at]):
            return None
        return at

    @staticmethod
    def empty() -> "Blocks":
        """Return no blocks."""
        return Blocks(
            np.empty(0, np.uint64),
            np.empty(0, np.uint64),
            np.empty(0, np.uint8),
            np.empty(0, np.uint32),
        )

    @staticmethod
    def join(parts: Sequence["Blocks"]) -> "Blocks":
        """Return all parts in address order."""
        if not parts:
            return Blocks.empty()
        whole = Blocks(
            np.concatenate([part.address for part in parts]),
            np.concatenate([part.size for part in parts]),
            np.concatenate([part.state for part in parts]),
            np.concatenate([part.owner for part in parts]),
        )
        if np.all(whole.address[1:] >= whole.address[:-1]):
            return whole
        return whole.select(np.argsort(whole.address, kind="stable"))


@dataclass(frozen=True)
class Charge:
    """Bytes that the ledger attributes to one owner, as intervals.

    The charges of a heap are disjoint and together tile its :class:`Span` list.

    :param owner: ledger line ("glibc in use", "glibc chunk overhead", …).
    :param starts: first addresses, one for each interval.
    :param ends: first addresses after them.
    """

    owner: str
    starts: U64
    ends: U64

    @property
    def bytes(self) -> int:
        """All bytes of the intervals."""
        return bytes_of(self.starts, self.ends)


class LazyCharges(Sequence[Charge]):
    """Charges that are made when they are asked for: kept, they would outweigh the blocks.

    :param makers: owners, and what gives their intervals as starts and ends, disjoint, empty ones perhaps among them.
    """

    def __init__(self, makers: Sequence[Tuple[str, Callable[[], Tuple[U64, U64]]]]) -> None:
        self._makers = makers

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, at: int) -> Charge: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Charge]: ...

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        owner, make = self._makers[at]
        starts, ends = make()
        keep = ends > starts
        return Charge(owner, starts, ends) if keep.all() else Charge(owner, starts[keep], ends[keep])


@dataclass(frozen=True)
class Span:
    """A stretch of memory that an allocator took from the system.

    :param kind: ``brk``, ``mmap`` or ``heap`` (a 64 MiB-aligned glibc heap), ``mmapped`` (one block).
    """

    start: int
    end: int
    kind: str
    arena: int


@dataclass(frozen=True)
class Arena:
    """An arena, as every allocator has them.

    :param kind: the allocator's word ("main", "thread").
    :param system_bytes: what it says it took from the system; None when not known.
    :param threads: attached threads; None when that could not be found out.
    """

    index: int
    address: int
    kind: str
    system_bytes: Optional[int]
    threads: Optional[tuple[ThreadRef, ...]] = None
    in_flux: bool = False


@dataclass(frozen=True)
class Heap:
    """One allocator's heap in one target.

    :param allocator: "glibc", "jemalloc", … with a prefix where there are several.
    :param charges: who owns which bytes of ``spans``.
    :param detail: the allocator's own view (``GlibcHeap``), for its own commands.
    :param remedies: the allocator's advice by finding kind, for neutral analyses; "trim": what gives back whole pages
        of free memory, where there is such a call.
    :param findings: what the allocator itself recognised.
    :param largest_block: usable bytes of the largest block that is cut from a shared span; larger
        ones get a mapping of their own. None when unknown.
    :param size_classes: whether blocks are of classes that are up to a quarter apart; else sizes are rounded up to two
        words, and to three at least.
    :param caches_known: whether thread caches could be looked for; else what they hold counts as in use.
    :param shrinks_from_top: whether free memory goes back only from the top of a span, so that live blocks above it
        pin it; the neutral analysis of fragmentation is about that.
    :param brief: the problems for a page that is about more than this heap, those in one that belong together; None
        where that is all of them.
    :param explain: says what an address in ``spans`` is in the allocator's own terms (slab, region, extent), as
        one line; None for an address that it has nothing to say about.
    :param links: what the word at an address in an unused block may be as a link of a free list, from that block's
        position, the address and the word: pointers to blocks, 0 for the list's end, each with how it is stored. None
        where links are kept elsewhere.
    :param metadata: start and end of what the allocator keeps for itself outside of ``spans``, or in blocks, and which
        may point at blocks without keeping them alive.
    :param foreign: start and end of the parts of ``spans`` that somebody else took from the system.
    :param reserves: start and end of address space beside ``spans`` that they may grow into, without memory of its own;
        a core of gdb's holds it as zeros that may be written.
    :param trimmable: counts the free bytes that the allocator would give back when asked, and names the command that
        says more; None where it cannot be asked.
    """

    allocator: str
    blocks: Blocks
    arenas: Sequence[Arena]
    spans: Sequence[Span] = ()
    charges: Sequence[Charge] = ()
    evidence: Sequence[Evidence] = ()
    problems: Sequence[Problem] = ()
    findings: Sequence[Finding] = ()
    remedies: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    detail: Any = None
    largest_block: Optional[int] = None
    size_classes: bool = True
    caches_known: bool = True
    shrinks_from_top: bool = True
    explain: Optional[Callable[[int], Optional[str]]] = None
    brief: Optional[Sequence[Problem]] = None
    links: Optional[Callable[[int, int, int], Iterable[Tuple[int, str]]]] = None
    metadata: Sequence[Tuple[int, int]] = ()
    foreign: Sequence[Tuple[int, int]] = ()
    reserves: Sequence[Tuple[int, int]] = ()
    trimmable: Optional[Callable[[], Tuple[int, str]]] = None

    @property
    def in_brief(self) -> Sequence[Problem]:
        """The problems for a page that is about more than this heap."""
        return self.problems if self.brief is None else self.brief

    @property
    def interrupted(self) -> bool:
        """Whether the walk was stopped, so that another one may tell more."""
        return any(problem.kind == "interrupted" for problem in self.problems)

    @property
    def family(self) -> str:
        """The allocator without what tells several of it apart: "glibc", "jemalloc"."""
        return self.allocator.split(" ", 1)[0]
