"""What is at the address of a fault, in a few words: nothing, a null pointer, a stack's guard, a read-only page."""

from __future__ import annotations

from bisect import bisect_left
from typing import Optional, Sequence

from gdbext.analysis.addresses import Addresses, find_mapping_name, find_short_name
from gdbext.heap.model import Heap
from gdbext.memory import Region
from gdbext.memory.elf.corenotes import SIGBUS, SIGSEGV, SignalInfo
from gdbext.process import Thread
from gdbext.target import Target

_NULL = 1 << 16  # vm.mmap_min_addr: nothing is ever mapped below
_NEAR = 1 << 20  # bytes: a guard is hardly larger, nor a frame that jumps over one
_BELOW = 1 << 12  # bytes that a call, a push or a probe of the stack reaches below the stack pointer
_TEXT = 4  # characters that make an address look like text
_NOT_PERMITTED = 2  # SEGV_ACCERR
_COUNTERS = ("rip", "eip", "pc")


def describe_fault(target: Target, heaps: Sequence[Heap], thread: Optional[Thread], fault: SignalInfo) -> Optional[str]:
    """Return what is at the address of a fault, or None when it has no address.

    :param heaps: name blocks; none where they are not known.
    :param thread: that met it, or None.
    """
    address = fault.address
    if address is None:
        return None
    jumped = ", jumped to" if fault.number == SIGSEGV and _counter(thread) == address else ""
    if address < _NULL or address > target.abi.word_mask - _NULL:
        return _null_text(address, target) + jumped
    addresses = Addresses(target, heaps)
    at = addresses.at(address)
    region = at.region
    if thread is not None and _overflows(target, thread, address, region):
        return f"below the stack of thread {thread.number}: stack overflow"
    if region is None:
        return _unmapped_text(addresses, address) + jumped
    name = _guard_name(addresses, region) or find_short_name(at) or "anonymous memory"
    if fault.number == SIGBUS and not region.anonymous:
        return f"past the end of the file: {name}"
    return f"{name}{jumped}{_permission(region, jumped != '') if fault.code == _NOT_PERMITTED else ''}"


def _null_text(address: int, target: Target) -> str:
    if address > _NULL:
        return f"null pointer - {target.abi.word_mask + 1 - address:#x}"
    return f"null pointer + {address:#x}" if address else "null pointer"


def _overflows(target: Target, thread: Thread, address: int, region: Optional[Region]) -> bool:
    """Return whether a thread's stack pointer has left its stack at the lower end, and the fault is there.

    Where guards are mappings nothing may be read there; those of MADV_GUARD_INSTALL lie in the stack's own mapping.
    """
    pointer = thread.stack_pointer or 0
    if not pointer - _BELOW <= address < pointer + _NEAR:
        return False
    if region is not None and "r" in region.permissions:
        return region.writable and region.anonymous
    stack, own = _next_writable(target, address), target.index.find(pointer)
    if stack is None or stack.start - address >= _NEAR or pointer >= stack.start + _BELOW:
        return False
    return own is None or own == stack or not own.writable  # else it is on a stack of its own, somewhere else


def _guard_name(addresses: Addresses, region: Region) -> Optional[str]:
    """Return "guard of the stack of thread 3" for a mapping without access that ends where a thread's stack begins."""
    stack = None if "r" in region.permissions else addresses.at(region.end).stack
    return None if stack is None else f"guard of the stack of thread {stack.thread.number}"


def _next_writable(target: Target, address: int) -> Optional[Region]:
    regions = target.index.regions
    at = bisect_left([region.start for region in regions], address)
    return next((region for region in regions[at : at + 2] if region.writable), None)


def _unmapped_text(addresses: Addresses, address: int) -> str:
    target = addresses.target
    below = [region for region in target.index.regions if region.end <= address]
    text = "nothing is mapped there"
    if below and address - below[-1].end < _NEAR:
        end = below[-1].end
        name = find_mapping_name(addresses.at(end - 1)) or "anonymous memory"
        text += f", {address - end:#x} bytes behind the end of {name.partition(' + ')[0]}"
    spelt = address.to_bytes(target.abi.pointer_size, target.abi.byteorder).strip(b"\0")
    if len(spelt) >= _TEXT and spelt.isascii() and spelt.decode("ascii").isprintable():
        text += f'; its bytes read "{spelt.decode("ascii")}"'
    return text


def _counter(thread: Optional[Thread]) -> Optional[int]:
    registers = {} if thread is None else thread.registers
    return next((registers[name] for name in _COUNTERS if name in registers), None)


def _permission(region: Region, jumped: bool) -> str:
    """Return what the mapping forbids."""
    if jumped:
        return ", but not executable"
    if "r" not in region.permissions:
        return ", which may not be accessed"
    return "" if region.writable else ", which is read-only"
