"""Which threads were stopped inside an allocator's code: what they were changing need not agree."""

from __future__ import annotations

from typing import Iterable, Sequence

from gdbext.errors import FaultError
from gdbext.memory.bulk import words_at
from gdbext.process import Module, Thread
from gdbext.report import ThreadRef
from gdbext.target import Target

_WORDS = 16  # of a thread's stack that may hold the return address of a system call that the allocator made
_AT_ENTRY = 9
_PROGRAM_COUNTERS = ("rip", "pc")


def say_inside(target: Target, module: Module, allocator: str) -> str:
    """Say which threads have their program counter, or a word on top of the stack, in a module's code; "" for none."""
    refs = [thread.ref for thread in target.threads if _is_in(target, thread, module)]
    if not refs:
        return ""
    if module == target.find_module(target.auxv.get(_AT_ENTRY, 0)):
        return f"{allocator} is part of the program, a thread may be inside it"
    return f"{_names(refs)} inside {allocator}"


def _names(refs: Sequence[ThreadRef]) -> str:
    first = refs[0].name or refs[0].lwp or refs[0].number
    return f"thread {first} is" if len(refs) == 1 else f"{len(refs)} threads, {first} among them, are"


def _is_in(target: Target, thread: Thread, module: Module) -> bool:
    counters = [thread.registers[name] for name in _PROGRAM_COUNTERS if name in thread.registers]
    return any(_is_code(target, address, module) for address in (*counters, *_returns(target, thread)))


def _is_code(target: Target, address: int, module: Module) -> bool:
    if not module.base <= address < module.end:
        return False
    region = target.index.find(address)
    return region is not None and ("x" in region.permissions or "?" in region.permissions)


def _returns(target: Target, thread: Thread) -> Iterable[int]:
    if thread.stack_pointer is None:
        return ()
    start = thread.stack_pointer & ~7
    region = target.index.find(start)
    if region is None:
        return ()
    try:
        count = min(_WORDS, (region.end - start) // 8)
        return [int(word) for word in words_at(target.memory, target.abi, start, count)]
    except FaultError:
        return ()
