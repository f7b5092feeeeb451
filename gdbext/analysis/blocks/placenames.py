"""What an address is in, in a few words, for things that have no symbol: a stack, a block, a module, a mapping."""

from __future__ import annotations

from typing import Optional, Sequence

from gdbext.heap.model import USED_STATES, Heap, State
from gdbext.target import Target
from gdbext.wording import count_text


def find_stack_name(target: Target, address: int) -> Optional[str]:
    """Return "stack of thread 3", or None when it is on no thread's stack as far as the stack pointers tell."""
    region = target.index.find(address)
    for thread in target.threads if region else ():
        if thread.stack_pointer and region and region.start <= thread.stack_pointer <= address < region.end:
            return f"stack of thread {thread.number}"
    return None


def find_block_name(heaps: Sequence[Heap], address: int) -> Optional[str]:
    """Return "block of 320 bytes + 0x28" ("freed block …"), or None when it is in no block of these heaps."""
    for heap in heaps:
        block = heap.blocks.find(address)
        if block is not None:
            size, offset = int(heap.blocks.size[block]), address - int(heap.blocks.address[block])
            state = State(int(heap.blocks.state[block]))
            lead = "" if state in USED_STATES else "freed "
            return f"{lead}block of {count_text(size, 'byte')}" + (f" + {offset:#x}" if offset else "")
    return None


def find_mapping_name(target: Target, address: int) -> Optional[str]:
    """Return "libc.so.6 + 0x1d3c60", of other mappings that have a name the same; None where there is no name."""
    module = target.find_module(address)
    if module is not None:
        return f"{_base(module.path)} + {address - module.base:#x}"
    region = target.index.find(address)
    if region is None or not region.name:
        return None
    offset = address - region.start + (0 if region.anonymous else region.offset)
    return f"{_base(region.name)} + {offset:#x}"


def _base(path: str) -> str:
    return path.rpartition("/")[2]
