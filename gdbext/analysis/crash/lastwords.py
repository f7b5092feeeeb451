"""What run-time libraries leave in memory of why they abort: glibc, libstdc++, the address sanitizer.

All of it is text from the target: bounded, and printable when it is returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext import wording
from gdbext.analysis.types.languages.names import find_plain_name
from gdbext.debuginfo import Frame
from gdbext.errors import FaultError
from gdbext.memory import view
from gdbext.process import Thread
from gdbext.target import Target

LONGEST = 256  # bytes of a message
_LARGEST = 1 << 24  # bytes that glibc maps for a message: the text of an assertion may be long, but not that long
_STACK = 1 << 16  # bytes of the aborting thread's stack that are searched
_PAGES = 1 << 16  # pages whose first bytes are compared with a sanitizer's report: 256 MiB
_STEP = 1 << 10  # pages at a time: where memory cannot be mapped they are copied
_RULE = b"=" * 65 + b"\n"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_REPORT = re.compile(r"==\d+==\s*ERROR: (\w*Sanitizer: [^\n]*)(?:\n((?:READ|WRITE|The signal) [^\n]*))?")
_MANGLED = re.compile(r"\*?[A-Za-z0-9_.$]+$")
_DYING = ("std::terminate", "__cxxabiv1::__terminate", "__gnu_cxx::__verbose_terminate_handler")


@dataclass(frozen=True)
class LastWords:
    """A message.

    :param source: who left it: "glibc", "GLib", "libstdc++", "AddressSanitizer".
    """

    text: str
    source: str


def bounded(text: str) -> str:
    """Return a name from the target as :func:`printable` would."""
    return printable(text.encode("utf-8", "backslashreplace"))


def printable(data: bytes) -> str:
    """Return the text before the first NUL on one line, what is not printable escaped; at most ``LONGEST`` bytes."""
    text = data[: LONGEST + 1].split(b"\0", 1)[0]
    cut = len(text) > LONGEST
    shown = _ANSI.sub("", text[:LONGEST].decode("utf-8", "backslashreplace")).strip()
    return wording.printable(shown) + ("…" if cut else "")


def find_last_words(target: Target, thread: Optional[Thread], frames: Sequence[Frame]) -> Optional[LastWords]:
    """Return why a process has aborted, in the words of whoever made it, or None where nobody left any.

    :param thread: that aborted.
    :param frames: its newest ones; without them no C++ exception is looked for.
    """
    report = find_sanitizer_report(target)
    if report is not None:
        return LastWords(report, "AddressSanitizer")
    for find, source in ((find_abort_message, "glibc"), (find_assertion_of_glib, "GLib")):
        message = find(target)
        if message is not None:
            return LastWords(message, source)
    uncaught = any((frame.function or "").startswith(_DYING) for frame in frames)
    exception = find_uncaught(target, thread) if thread is not None and uncaught else None
    return None if exception is None else LastWords(exception, "libstdc++")


def find_abort_message(target: Target) -> Optional[str]:
    """Return what ``__abort_msg`` points to, or None: nothing, not glibc, or its symbol is not known.

    glibc leaves there what assert, malloc and the checks of _FORTIFY_SOURCE print: ``struct abort_msg_s { unsigned int
    size; char msg[]; }`` in a mapping of its own, whose size it is. The symbol is dynamic (GLIBC_PRIVATE), so a
    stripped libc has it. Upstream: ``include/stdlib.h``, ``sysdeps/posix/libc_fatal.c``, ``assert/assert.c``.
    """
    messages = (_read_message(target, address) for address in _variables(target, "__abort_msg"))
    return next((message for message in messages if message), None)


def find_assertion_of_glib(target: Target) -> Optional[str]:
    """Return the text of a failed g_assert, which GLib keeps in ``__glib_assert_msg`` (``gtestutils.c``), or None."""
    texts = (_word(target, address) for address in _variables(target, "__glib_assert_msg"))
    messages = (printable(_read_most(target, text, LONGEST + 1)) for text in texts if text)
    return next((message for message in messages if message), None)


def _variables(target: Target, name: str) -> Iterator[int]:
    """Iterate over the addresses of a variable, where the file that names it is the one that is mapped there."""
    for symbol in target.symbols.find_symbols(name):
        module = target.find_module(symbol.address)
        if module is not None and module.build_id == symbol.build_id:
            yield symbol.address


def _read_message(target: Target, variable: int) -> Optional[str]:
    try:
        start = target.reader.word(variable, "__abort_msg")
        size = target.reader.uint(start, 4, "abort message") if start else 0
    except FaultError:
        return None
    if not 0 < size <= _LARGEST or size % target.abi.page_size:
        return None
    return printable(_read_most(target, start + 4, min(size - 4, LONGEST + 1)))


def _read_most(target: Target, address: int, size: int) -> bytes:
    """Return as much as can be read, at most ``size`` bytes."""
    region = target.index.find(address)
    if region is None:
        return b""
    try:
        return bytes(target.reader.bytes(address, min(size, region.end - address)))
    except FaultError:
        return b""


def find_sanitizer_report(target: Target) -> Optional[str]:
    """Return the first lines of the address sanitizer's report, or None: no sanitizer, or it found nothing.

    It keeps the whole report in a mapping of its own until the process ends (``error_message_buffer`` in compiler-rt's
    ``asan_report.cpp``), so at the beginning of a page. The other sanitizers keep none.
    """
    known = any("asan" in module.path.rpartition("/")[2] for module in target.modules)
    if not known and not target.symbols.find_symbols("__asan_init"):
        return None
    for address in _pages_like(target, _RULE):
        match = _REPORT.search(_ANSI.sub("", _read_most(target, address, 1024).decode("utf-8", "replace")))
        if match is not None:
            return bounded("; ".join(part for part in match.groups() if part))
    return None


def _pages_like(target: Target, beginning: bytes) -> Iterator[int]:
    """Iterate over the pages of anonymous memory that begin with some bytes; small mappings first, within a bound."""
    page, left = target.abi.page_size, _PAGES
    regions = [one for one in target.index.regions if one.anonymous and one.writable and one.source == "memory"]
    for region in sorted(regions, key=lambda one: one.size):
        last = region.start + min(region.size // page, left) * page
        left -= (last - region.start) // page
        for start in range(region.start, last, _STEP * page):
            count = min(_STEP, (last - start) // page)
            try:
                data = np.frombuffer(view(target.memory, start, count * page), np.uint8)
            except FaultError:
                break
            heads = data.reshape(count, page)[:, : len(beginning)]
            for row in np.flatnonzero((heads == np.frombuffer(beginning, np.uint8)).all(axis=1)).tolist():
                yield start + row * page


@dataclass(frozen=True)
class _Layout:
    """Offsets in libstdc++'s ``__cxa_refcounted_exception``, from its ``unwindHeader`` (``unwind-cxx.h``, GCC 5 to 15).

    :param references: ``referenceCount``, an int.
    :param kind: ``exceptionType``, a pointer.
    :param following: ``nextException``, a pointer.
    :param handlers: ``handlerCount``, an int.
    :param thrown: the object itself.
    """

    references: int
    kind: int
    following: int
    handlers: int
    thrown: int


_LAYOUTS = {
    "x86-64": _Layout(-96, -80, -48, -40, 32),
    "aarch64": _Layout(-96, -80, -48, -40, 32),
    "i386": _Layout(-64, -48, -32, -28, 32),
}
_CLASS = 0x474E5543432B2B00  # "GNUCC++\0": thrown by libstdc++, no copy that std::rethrow_exception made
_MOST_BASES = 16
_WITH_TEXT = ("St13runtime_error", "St11logic_error")  # both hold a pointer to their text behind the virtual table


def find_uncaught(target: Target, thread: Thread) -> Optional[str]:
    """Return "terminate called after throwing an instance of 'X': what", or None where that is not certain.

    What std::terminate prints is kept nowhere, but the exception is, and its address is on the stack of the thread
    that threw it. It counts when it says so itself (its class), is being handled, and is the only one, or the newest.

    :param thread: that is known to be in std::terminate.
    """
    layout = _LAYOUTS.get(target.abi.machine)
    if layout is None:
        return None
    found = {at for at in _stack_words(target, thread) if _is_exception(target, layout, at)}
    newest = found - {_word(target, at + layout.following) - layout.kind for at in found}
    if len(newest) != 1:
        return None
    header = newest.pop()
    info = _word(target, header + layout.kind)
    names = list(_type_names(target, info))
    if not names:
        return None
    text = f"terminate called after throwing an instance of '{_readable(target, info, names[0])}'"
    what = _what(target, names, header + layout.thrown)
    return f"{text}: {what}" if what else text


def _stack_words(target: Target, thread: Thread) -> Sequence[int]:
    """Return the different words of a thread's registers and stack that are aligned as an exception is."""
    start = thread.stack_pointer or 0
    data = _read_most(target, start, _STACK)
    words = np.frombuffer(data[: len(data) & -target.abi.pointer_size], target.abi.word_dtype)
    values = {*thread.registers.values(), *words.tolist()}
    return [value for value in sorted(values) if value % 16 == 0 and target.index.find(value) is not None]


def _is_exception(target: Target, layout: _Layout, header: int) -> bool:
    """Return whether an exception that is being handled has its ``unwindHeader`` there."""
    try:
        marked = target.reader.uint(header, 8) == _CLASS
        return (
            marked
            and target.reader.sint(header + layout.references, 4) > 0
            and target.reader.sint(header + layout.handlers, 4) > 0
        )
    except (FaultError, OverflowError):
        return False


def _word(target: Target, address: int) -> int:
    try:
        return target.reader.word(address)
    except (FaultError, OverflowError):
        return 0


def _type_names(target: Target, info: int) -> Iterator[str]:
    """Iterate over the mangled names of a type and of its only bases (``__si_class_type_info``), innermost last.

    Itanium C++ ABI, 2.9.4: a virtual table, the name, and where there is one base, its own type information.
    """
    word = target.abi.pointer_size
    for _ in range(_MOST_BASES):
        data = _read_most(target, _word(target, info + word), LONGEST).split(b"\0", 1)[0]
        name = data.decode("ascii", "replace")
        if not info or not _MANGLED.match(name):
            return
        yield name.lstrip("*")
        if not _is_single(target, info):
            return
        info = _word(target, info + 2 * word)


def _is_single(target: Target, info: int) -> bool:
    """Return whether type information is that of a class with one base, by the name of its own type."""
    word = target.abi.pointer_size
    own = _word(target, _word(target, info) - word)
    return _read_most(target, _word(target, own + word), 64).startswith(b"N10__cxxabiv120__si_class_type_infoE\0")


def _readable(target: Target, info: int, mangled: str) -> str:
    """Return a type's name; a symbol's version ("@GLIBCXX_3.4") is none of it."""
    symbol = target.symbols.find_name(info) or ""
    named = symbol[len("typeinfo for ") :] if symbol.startswith("typeinfo for ") else ""
    return bounded(named.partition("@")[0] or find_plain_name(mangled) or mangled)


def _what(target: Target, names: Sequence[str], thrown: int) -> Optional[str]:
    if not any(name in _WITH_TEXT for name in names):
        return None
    text = _word(target, thrown + target.abi.pointer_size)
    return printable(_read_most(target, text, LONGEST + 1)) or None
