"""What threads were doing inside malloc at the stop: registers and stacks against where libc has malloc's code.

Since glibc commit a15d53e2de ("malloc: Add single-threaded path to _int_free") (in 2.27) the only thread of a process
locks no arena; before that a mutex says all. The names are those that other files link to, so a stripped libc has
them; a program that is linked statically has none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.heap.glibc.find.location import Location
from gdbext.memory.elf.corenotes import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV
from gdbext.memory.elf.elffile import Image, find_image
from gdbext.process import Module, Thread
from gdbext.target import Target

PT_DYNAMIC, DT_STRTAB, DT_SYMTAB, DT_STRSZ = 2, 5, 6, 10
STT_FUNC, STT_GNU_IFUNC = 2, 10
_DYNAMIC = 1 << 16  # bytes of a dynamic section
_STRINGS = 1 << 22  # bytes of its names, and of its symbols
_NEAR = 24  # words of the stack: malloc calls sbrk, mprotect or memcpy, and those nothing deep
_DEEP = 256  # words: what dies in malloc dies in what it calls, or in a handler
_PC = {"x86-64": "rip", "i386": "eip"}  # else pc
_LINK = {"aarch64": "x30"}  # holds the return address of a function that calls nothing
_DEADLY = (SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV)

Interval = Tuple[int, int]


@dataclass(frozen=True)
class Underway:
    """Whether malloc was at work.

    :param alone: whether the only thread is inside malloc, where it locks nothing; None where its registers are known,
        and where libc has malloc is not.
    :param aborted: whether malloc, or a thread inside it, has died: what an arena shows then is why.
    """

    alone: Optional[bool] = False
    aborted: bool = False


class _Export(NamedTuple):
    """A symbol of libc's that others link to; ``address`` as it is in the target."""

    address: int
    size: int
    function: bool


def find_underway(target: Target, location: Location) -> Underway:
    """Return what threads were doing in malloc."""
    module = target.find_module(location.main_arena or 0)
    exports = _find_exports(target, module) if module is not None else {}
    code = _find_code(exports)
    return Underway(_find_alone(target, module, code), _has_aborted(target, exports, code))


def _find_alone(target: Target, module: Optional[Module], code: Optional[Interval]) -> Optional[bool]:
    if len(target.threads) != 1 or any(_deaths(target)):
        return False
    thread = target.threads[0]
    pc = thread.registers.get(_pc(target))
    if pc is None:
        return False
    if module is None or code is None:
        return None
    return module.base <= pc < module.end and _is_inside(target, thread, code, _NEAR)


def _deaths(target: Target) -> Iterator[Tuple[int, Optional[Thread]]]:
    """Iterate over the deadly signals that threads have met, with the thread where that is known."""
    if target.signal is not None and target.signal.number in _DEADLY:
        dead = (thread for thread in target.threads if thread.lwp == target.signal.lwp)
        yield target.signal.number, next(dead, None)
    yield from ((thread.signal, thread) for thread in target.threads if thread.signal in _DEADLY)


def _has_aborted(target: Target, exports: Dict[str, _Export], code: Optional[Interval]) -> bool:
    """Whether ``malloc_printerr``, or anybody else, has left a message for abort; or a thread died inside malloc."""
    message = exports.get("__abort_msg")
    if message is not None:
        try:
            if target.reader.word(message.address, "__abort_msg"):
                return True
        except FaultError:
            message = None
    return any(
        message is None
        if number == SIGABRT
        else code is None or thread is None or _is_inside(target, thread, code, _DEEP)
        for number, thread in _deaths(target)
    )


def _pc(target: Target) -> str:
    return _PC.get(target.abi.machine, "pc")


def _is_inside(target: Target, thread: Thread, code: Interval, depth: int) -> bool:
    """Whether a thread's program counter, or a return address among the first words of its stack, lies in ``code``.

    :param depth: words of the stack.
    """
    names = (_pc(target), _LINK.get(target.abi.machine, ""))
    words = [thread.registers.get(name, 0) for name in names]
    words += _stack_words(target, thread, depth)
    return any(code[0] <= word < code[1] for word in words)


def _stack_words(target: Target, thread: Thread, depth: int) -> Sequence[int]:
    word = target.abi.pointer_size
    start = (thread.stack_pointer or 0) // word * word
    region = target.index.find(start)
    if region is None:
        return ()
    try:
        return target.reader.words(start, min(depth, (region.end - start) // word), "stack")
    except FaultError:
        return ()


def _find_code(exports: Dict[str, _Export]) -> Optional[Interval]:
    """Return where the functions of malloc.o are: from behind the last exported one of others to ``malloc_info``.

    Its static functions stand before ``malloc``, and ``__default_morecore`` among them.
    """
    first, last = exports.get("malloc"), exports.get("malloc_info")
    if first is None or last is None or last.address < first.address:
        return None
    before = [
        one.address + one.size
        for name, one in exports.items()
        if one.function and one.address < first.address and name != "__default_morecore"
    ]
    return max(before, default=first.address), last.address + last.size


def _find_exports(target: Target, module: Module) -> Dict[str, _Export]:
    """Return what a module's dynamic symbol table defines, by name; nothing where it is not in memory."""
    image = find_image(target.memory.read, module.base, target.abi.page_size)
    if image is None:
        return {}
    try:
        return _read_exports(target, image)
    except FaultError:
        return {}


def _read_exports(target: Target, image: Image) -> Dict[str, _Export]:
    tags = _read_dynamic(target, image)
    if not {DT_STRTAB, DT_SYMTAB, DT_STRSZ} <= set(tags):
        return {}
    strings, symbols = (_loaded(image, tags[tag]) for tag in (DT_STRTAB, DT_SYMTAB))
    if not 0 <= strings - symbols <= _STRINGS or tags[DT_STRSZ] > _STRINGS:
        return {}  # linkers put the names behind the symbols, whose number stands nowhere
    names = bytes(target.memory.read(strings, tags[DT_STRSZ]))
    found = {}
    for name, value, size, info in _symbols(target, symbols, strings - symbols):
        if value:
            text = names[name : names.find(b"\0", name)].decode("ascii", "replace")
            found[text] = _Export(image.bias + value, size, info & 15 in (STT_FUNC, STT_GNU_IFUNC))
    return found


def _read_dynamic(target: Target, image: Image) -> Dict[int, int]:
    for segment in image.segments:
        if segment.type == PT_DYNAMIC and segment.memsz <= _DYNAMIC:
            count = segment.memsz // target.abi.pointer_size // 2 * 2
            words = target.reader.words(image.bias + segment.address, count, "dynamic section")
            return dict(zip(words[::2], words[1::2]))
    return {}


def _loaded(image: Image, address: int) -> int:
    """Return an address of the dynamic section in memory: ld.so writes it there, but not on every machine."""
    return address if address >= image.base else image.bias + address


def _symbols(target: Target, start: int, size: int) -> List[Tuple[int, int, int, int]]:
    """Return name (offset), value, size and info of each symbol that is defined."""
    mark = target.abi.order_mark
    form = struct.Struct(mark + ("IBBHQQ" if target.abi.pointer_size == 8 else "IIIBBH"))
    rows = form.iter_unpack(bytes(target.memory.read(start, size // form.size * form.size)))
    if target.abi.pointer_size == 8:
        return [(name, value, extent, info) for name, info, _, section, value, extent in rows if section]
    return [(name, value, extent, info) for name, value, extent, info, _, section in rows if section]
