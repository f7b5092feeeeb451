"""Who owns each root word: a variable, a module's data, a thread's stack, registers or own storage, a mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np

from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import ANONYMOUS, FILE, GLOBAL, REGISTER, STACK, TLS, RootRange
from gdbext.debuginfo import RootNames
from gdbext.heap.model import U32, U64
from gdbext.memory.elf.elfsymbols import Variables


@dataclass(frozen=True)
class Owner:
    """What root words belong to.

    :param kind: one of :data:`gdbext.analysis.reach.model.ROOT_KINDS`.
    :param name: makes its name, which is looked up only when it is shown.
    :param address: of a variable, or where a mapping starts; None of a thread's.
    """

    kind: str
    name: Callable[[], str]
    address: Optional[int] = None
    thread: Optional[int] = None


@dataclass(frozen=True)
class Owned:
    """Root words by owner.

    :param words: how many words of each point at blocks.
    :param row: a block that a word points at.
    :param owner: whose word that is, a position in ``owners``; no pair of row and owner twice.
    """

    owners: "List[Owner]"
    words: "List[int]"
    row: U32
    owner: U32


def find_owners(reach: Reach, names: RootNames) -> Owned:
    """Return who owns the words of all roots that point at blocks."""
    sorter = _Sorter(reach, names)
    hits = reach.marked.hits
    order = np.argsort(hits.memory.place, kind="stable")
    place, row = hits.memory.place[order], hits.memory.row[order]
    for one in reach.marked.roots.ranges:
        low, high = np.searchsorted(place, np.array([one.start, one.end], np.uint64)).tolist()
        if low < high:
            sorter.take(one, place[low:high], row[low:high])
    for at, to, _ in hits.words:
        word = reach.marked.roots.words[at]
        kind = word.kind if word.kind in (REGISTER, STACK) else TLS
        sorter.add(sorter.of_thread(kind, word.thread), np.array([to], np.uint32))
    return sorter.owned()


class _Sorter:
    """Gives each word to its owner; owners are numbered as they come."""

    def __init__(self, reach: Reach, names: RootNames) -> None:
        self._reach = reach
        self._names = names
        self._numbers: "Dict[Tuple[object, ...], int]" = {}
        self._owners: "List[Owner]" = []
        self._words: "List[int]" = []
        self._rows: "List[U32]" = []
        self._of: "List[U32]" = []

    def owned(self) -> Owned:
        """Return all, each pair once."""
        none = np.empty(0, np.uint32)
        row, owner = np.concatenate([none, *self._rows]), np.concatenate([none, *self._of])
        pairs = np.unique((owner.astype(np.uint64) << np.uint64(32)) | row)
        return Owned(
            self._owners, self._words, pairs.astype(np.uint32), (pairs >> np.uint64(32)).astype(np.uint32)
        )

    def add(self, owner: int, rows: U32) -> None:
        """Note that an owner's words point at rows."""
        self._words[owner] += len(rows)
        self._rows.append(rows)
        self._of.append(np.full(len(rows), owner, np.uint32))

    def take(self, one: RootRange, place: U64, row: U32) -> None:
        """Give the words of one range to their owners."""
        if one.kind == GLOBAL:
            self._take_data(one, place, row)
        elif one.kind == STACK:
            self._take_stack(one, place, row)
        elif one.kind == TLS:
            self.add(self.of_thread(TLS, one.thread), row)
        elif one.kind == FILE:
            self.add(self._number((FILE, one.name), Owner(FILE, lambda: one.name, one.start)), row)
        else:
            name = f"anonymous memory {one.name}"
            self.add(self._number((ANONYMOUS, one.start), Owner(ANONYMOUS, lambda: name, one.start)), row)

    def of_thread(self, kind: str, thread: Optional[int]) -> int:
        """Return the number of what a thread has of one kind."""
        what = {REGISTER: "registers", STACK: "stack", TLS: "thread-local storage"}[kind]
        name = f"{what} of thread {thread}" if thread is not None else what
        return self._number((kind, thread), Owner(kind, lambda: name, None, thread))

    def _number(self, key: "Tuple[object, ...]", owner: Owner) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._owners)
            self._owners.append(owner)
            self._words.append(0)
        return self._numbers[key]

    def _take_stack(self, one: RootRange, place: U64, row: U32) -> None:
        """Split a thread's stack from its descriptor and storage above it."""
        thread = self._reach.target.find_thread(one.thread) if one.thread is not None else None
        above = np.zeros(len(place), np.bool_)
        if thread is not None and thread.tls is not None and one.start <= thread.tls < one.end:
            above = place >= np.uint64(self._first_local(thread.number, thread.tls))
        for kind, mask in ((STACK, ~above), (TLS, above)):
            if mask.any():
                self.add(self.of_thread(kind, one.thread), row[mask])

    def _first_local(self, thread: int, pointer: int) -> int:
        """Return the lowest address of a thread's storage that variables are known of."""
        known = [self._names.thread_locals_of(module, thread) for module in self._reach.target.modules]
        lowest = [int(one.address[0]) for one in known if one is not None and len(one)]
        return min([pointer, *(address for address in lowest if pointer - (1 << 16) < address)])

    def _take_data(self, one: RootRange, place: U64, row: U32) -> None:
        module = self._reach.target.find_module(one.start)
        if module is not None and one.end > module.end:
            # The kernel has made one mapping of a module's end and what follows it.
            split = int(np.searchsorted(place, np.uint64(module.end)))
            if split < len(place):
                name = f"anonymous memory behind {one.name}"
                self.add(self._number((ANONYMOUS, module.end), Owner(ANONYMOUS, lambda: name, module.end)), row[split:])
            place, row = place[:split], row[:split]
        variables = self._names.variables_of(module) if module is not None else None
        base = one.start if module is None else module.base
        at = np.full(len(place), -1, np.int64) if variables is None else variables.find(place)
        order = np.argsort(at, kind="stable")
        which, firsts = np.unique(at[order], return_index=True)
        for variable, rows in zip(which.tolist(), np.split(row[order], firsts[1:])):
            if variable < 0 or variables is None:
                owner = Owner(GLOBAL, lambda: f"data of {one.name}", base)
                self.add(self._number((GLOBAL, base), owner), rows)
            else:
                self.add(self._variable(one, variables, variable), rows)

    def _variable(self, one: RootRange, variables: Variables, at: int) -> int:
        def name() -> str:
            word = "static" if variables.local[at] else "global"
            return f"{word} {self._names.readable(variables.name(at))} of {one.name}"

        address = int(variables.address[at])
        return self._number((GLOBAL, address, "variable"), Owner(GLOBAL, name, address))
