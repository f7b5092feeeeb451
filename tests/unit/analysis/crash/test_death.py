"""Why a process died, from cores and memory laid out by hand."""

from __future__ import annotations

import dataclasses
import json
import struct

import pytest

from gdbext import render
from gdbext.abi import I386, X86_64
from gdbext.analysis.crash.death import Death, find_death
from gdbext.analysis.crash.faultplace import describe_fault
from gdbext.analysis.crash.lastwords import (
    find_abort_message,
    find_last_words,
    find_sanitizer_report,
    find_uncaught,
    printable,
)
from gdbext.analysis.page import make_page
from gdbext.coretarget import read_core_target
from gdbext.debuginfo import HANDLER, Frame, Symbol
from gdbext.heap.model import State
from gdbext.memory import Region
from gdbext.memory.elf.corenotes import SI_KERNEL, SIGBUS, SIGFPE, SIGSEGV, SignalInfo
from gdbext.memory.fake import FakeMemory
from gdbext.process import Identity, Module, Thread
from gdbext.target import Target
from tests.support.elfwriter import CoreWriter
from tests.unit.analysis.heaps import heap_of

STACK, DATA, LIBC = 0x7000_0000, 0x5000_0000, 0x6000_0000
PC = {"x86-64": "rip", "i386": "eip"}
SP = {"x86-64": "rsp", "i386": "esp"}


class Stacks:
    def __init__(self, *frames):
        self._frames = frames

    def frames(self, thread, limit):
        return self._frames[:limit]


def frame(function=None, line=None, module="prog", pc=0x400123, sp=STACK):
    return Frame(0, pc, sp, function, module, line)


def core_of(tmp_path, signal, code, rest, machine="x86-64", order="little", notes_first="prstatus", registers=None):
    """A core of one thread, id 7, of process 7; the notes in the kernel's order or in gdb's."""
    writer = CoreWriter(machine, machine != "i386", order)
    registers = registers or {PC[machine]: 0x400123, SP[machine]: STACK + 0x100}

    def status():
        writer.prstatus(7, registers, signal)

    def info():
        writer.prpsinfo(7, "prog", "prog")

    for add in (status, info) if notes_first == "prstatus" else (info, status):
        add()
    if code is not None:
        writer.siginfo(signal, code, rest(writer))
    writer.load(STACK, bytes(0x1000))
    path = tmp_path / "core"
    path.write_bytes(writer.build())
    return read_core_target(str(path))


@pytest.mark.parametrize("machine", ["x86-64", "i386"])
def test_a_fault_has_its_address(tmp_path, machine):
    target = core_of(tmp_path, SIGSEGV, 1, lambda writer: writer.words(0x18), machine)
    death = find_death(target)
    assert (death.signal, death.thread, death.address, death.stopped) == ("SIGSEGV", 1, 0x18, False)
    assert death.summary == "SIGSEGV in thread 1: address not mapped, 0x18 (null pointer + 0x18)"
    assert death.frames == ("0x400123",)  # nothing unwinds, and no module is there


@pytest.mark.parametrize("machine", ["x86-64", "i386"])
def test_who_sent_it(tmp_path, machine):
    others = core_of(tmp_path, 3, 0, lambda writer: writer.pack("iI", 4242, 1000), machine)
    assert find_death(others).summary == "SIGQUIT in thread 1: sent by process 4242, user 1000"
    outside = core_of(tmp_path, 3, 0, lambda writer: writer.pack("iI", 0, 0), machine)
    assert find_death(outside).cause == "sent by a process outside of its PID namespace, user 0"
    own = core_of(tmp_path, 3, -6, lambda writer: writer.pack("iI", 7, 0), machine)
    assert find_death(own).cause == "raised by the process itself"


def test_codes_without_an_address(tmp_path):
    kernels = core_of(tmp_path, SIGSEGV, SI_KERNEL, lambda writer: writer.words(0x1234))
    assert (find_death(kernels).address, find_death(kernels).place) == (None, None)
    assert "not canonical" in find_death(kernels).cause
    assert find_death(core_of(tmp_path, SIGSEGV, 77, lambda writer: writer.words(0x18))).cause is None
    nothing = find_death(core_of(tmp_path, SIGSEGV, None, None))
    assert (nothing.signal, nothing.address, nothing.summary) == ("SIGSEGV", None, "SIGSEGV in thread 1")


@pytest.mark.parametrize(
    ("signal", "order", "dies"),
    [
        (0, "prpsinfo", False),  # gcore of a healthy process
        (2, "prpsinfo", False),
        (5, "prpsinfo", False),  # at a breakpoint
        (3, "prpsinfo", False),  # a JVM prints its threads at SIGQUIT, and lives
        (19, "prstatus", False),
        (0, "prstatus", False),
        (5, "prstatus", True),  # a trap that nobody caught
        (6, "prstatus", True),
        (64, "prstatus", False),
        (-3, "prstatus", False),
        (11, "prpsinfo", True),
    ],
)
def test_what_counts_as_a_death(tmp_path, signal, order, dies):
    target = core_of(tmp_path, signal, 0, lambda writer: b"", notes_first=order)
    death = find_death(target)
    assert (death is not None) is dies
    if dies:
        assert death.stopped is (order == "prpsinfo")
        assert ("a debugger stopped it" in death.summary) is death.stopped


def test_gcore_after_attaching_is_no_death(tmp_path):
    """Its NT_SIGINFO speaks of the SIGSTOP, or of what the thread met long ago, and its NT_PRSTATUS of no signal."""
    for signal in (19, 11):
        writer = CoreWriter().prpsinfo(7, "prog", "prog").prstatus(7, {"rsp": STACK}, 0).siginfo(signal, 1)
        path = tmp_path / "core"
        path.write_bytes(writer.load(STACK, bytes(16)).build(notes_last=True))
        target = read_core_target(str(path))
        assert target.signal.number == 0 and find_death(target) is None


def test_a_short_siginfo_is_damage_and_no_more(tmp_path):
    writer = CoreWriter().prstatus(7, {"rsp": STACK}, 11).add("CORE", 0x53494749, b"\x0b\0\0\0")
    path = tmp_path / "core"
    path.write_bytes(writer.load(STACK, bytes(16)).build())
    target = read_core_target(str(path))
    assert find_death(target).summary == "SIGSEGV in thread 1"
    assert find_death(dataclasses.replace(target, signal=None)) is None  # a live process


# --- what is at the address ---------------------------------------------------------------------


class Mapped(FakeMemory):
    """Mappings with names and permissions, all zeros."""

    def __init__(self, *regions):
        super().__init__([])
        self._regions = regions

    def regions(self):
        return self._regions


REGIONS = (
    Region(0x10000, 0x20000, "r-x", "/bin/prog"),
    Region(0x20000, 0x30000, "r--", "/bin/prog", 0x10000),
    Region(0x40000, 0x60000, "rw-", "[heap]"),
    Region(0x80000, 0x81000, "---"),
    Region(0x81000, 0x90000, "rw-"),
    Region(0xA0000, 0xA1000, "rw-", "/srv/data"),
)


@pytest.mark.parametrize(
    ("address", "code", "pc", "sp", "words"),
    [
        (0, 1, 0x10010, 0x81800, "null pointer"),
        (0, 1, 0, 0x81800, "null pointer, jumped to"),
        (0x18, 1, 0x10010, 0x81800, "null pointer + 0x18"),
        ((1 << 64) - 8, 1, 0x10010, 0x81800, "null pointer - 0x8"),
        (0x20010, 2, 0x10010, 0x81800, "prog + 0x10010, which is read-only"),
        (0x40010, 2, 0x40010, 0x81800, "[heap] + 0x10, jumped to, but not executable"),
        (0x60008, 1, 0x10010, 0x81800, "nothing is mapped there, 0x8 bytes behind the end of [heap]"),
        (0x64636261_0000, 1, 0x10010, 0x81800, 'nothing is mapped there; its bytes read "abcd"'),
        (0x80FF8, 2, 0x10010, 0x81000, "below the stack of thread 1: stack overflow"),  # a push or a call
        (0x80100, 2, 0x10010, 0x800F0, "below the stack of thread 1: stack overflow"),
        (0x7FFF0, 1, 0x10010, 0x7F000, "below the stack of thread 1: stack overflow"),  # a frame larger than the guard
        (0x80100, 2, 0x10010, 0x88000, "guard of the stack of thread 1, which may not be accessed"),
        (0x80100, 2, 0x10010, 0x50000, "anonymous memory, which may not be accessed"),
        (0x81010, 1, 0x10010, 0x81008, "below the stack of thread 1: stack overflow"),  # MADV_GUARD_INSTALL
        (0x82010, 2, 0x10010, 0x8F000, "anonymous memory"),
    ],
)
def test_what_is_at_a_faults_address(address, code, pc, sp, words):
    thread = Thread(1, 7, None, sp, None, {"rip": pc})
    target = Target(Mapped(*REGIONS), X86_64, threads=[thread])
    assert describe_fault(target, (), thread, SignalInfo(SIGSEGV, code, address)) == words


def test_other_faults():
    target = Target(Mapped(*REGIONS), X86_64)
    assert describe_fault(target, (), None, SignalInfo(SIGSEGV, SI_KERNEL)) is None
    bus = describe_fault(target, (), None, SignalInfo(SIGBUS, 2, 0xA0010))
    assert bus == "past the end of the file: data + 0x10"
    thread = Thread(1, 7, None, 0x81800, None, {"rip": 0x10010})
    assert describe_fault(target, (), thread, SignalInfo(SIGFPE, 1, 0x10010)) == "prog + 0x10"


def test_a_block_is_named():
    heap = heap_of([(0x40010, 32, State.FREE, 0)])
    target = Target(Mapped(*REGIONS), X86_64)
    assert describe_fault(target, [heap], None, SignalInfo(SIGSEGV, 4, 0x40018)) == "freed block of 32 bytes + 0x8"


# --- messages -----------------------------------------------------------------------------------


class Names:
    """Symbols by name, all of libc's build-id."""

    def __init__(self, build_id="aa", **addresses):
        self._addresses = addresses
        self._build_id = build_id

    def find_symbols(self, name):
        return [Symbol(name, self._addresses[name], self._build_id)] if name in self._addresses else []

    def find_name(self, address):
        return None


def with_message(message, size=0x1000, abi=X86_64, pointer=DATA, cut=None, **names):
    variable = pointer.to_bytes(abi.pointer_size, "little").ljust(16, b"\0")
    page = (struct.pack("<I", size) + message)[: cut or 4096].ljust(cut or 4096, b"\0")
    memory = FakeMemory([(DATA, page), (LIBC + 0x100, variable)])
    modules = [Module("/lib/libc.so.6", LIBC, LIBC + 0x1000, "aa")]
    return Target(memory, abi, modules=modules, symbols=Names(__abort_msg=LIBC + 0x100, **names))


@pytest.mark.parametrize("abi", [X86_64, I386])
def test_what_glibc_said(abi):
    target = with_message(b"free(): double free detected in tcache 2\n\0rest", abi=abi)
    assert find_abort_message(target) == "free(): double free detected in tcache 2"
    words = find_last_words(target, None, ())
    assert (words.text, words.source) == ("free(): double free detected in tcache 2", "glibc")


def test_messages_are_bounded_and_printable():
    target = with_message(b"a\x1b[2Jb\nc\xff\xe2\x80\xae" + b"d" * 4000)
    message = find_abort_message(target)
    assert message.startswith("a\\x1b[2Jb\\nc")
    assert message.isprintable() and "\\u202e" in message and "\\xff" in message
    assert message.endswith("…") and len(message) < 300


@pytest.mark.parametrize(
    "more",
    [
        {"size": 0},
        {"size": 3},
        {"size": 0xFFFFFFFF},
        {"size": 0xFFFFF000},
        {"pointer": 0},
        {"pointer": 0xDEAD0000},
        {"pointer": (1 << 64) - 8},
        {"cut": 3},
        {"build_id": "bb"},
    ],
)
def test_hostile_or_missing_messages_are_none(more):
    assert find_abort_message(with_message(b"text\0", **more)) is None


def test_a_message_at_the_end_of_a_truncated_core():
    assert find_abort_message(with_message(b"free(): inv", cut=15)) == "free(): inv"


def test_what_glib_said():
    target = with_message(b"")
    text = (DATA + 8).to_bytes(8, "little").ljust(16, b"\0")
    memory = FakeMemory([(DATA, b"\0" * 8 + b"ERROR:a.c:2:main: full\0"), (LIBC + 0x100, text)])
    for name, said in (("__glib_assert_msg", "ERROR:a.c:2:main: full"), ("another", None)):
        words = find_last_words(
            dataclasses.replace(target, memory=memory, symbols=Names(**{name: LIBC + 0x100})), None, ()
        )
        assert (words.text if words else None) == said
        assert words is None or words.source == "GLib"


def test_printable():
    assert printable(b"  plain \n\0x") == "plain"
    assert printable(b"x" * 256) == "x" * 256
    assert printable(b"x" * 257) == "x" * 256 + "…"


REPORT = (
    b"=================================================================\n"
    b"\x1b[1m\x1b[31m==77==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010 at pc 0x1\x1b[0m\n"
    b"\x1b[1m\x1b[34mREAD of size 1 at 0x602000000010 thread T0\x1b[1m\x1b[0m\n    #0 0x1 in f\n"
)


def test_what_the_address_sanitizer_said():
    def target(page, path="/usr/lib/libasan.so.8"):
        modules = [Module(path, LIBC, LIBC + 0x1000, "aa")]
        return Target(FakeMemory([(DATA, bytes(0x3000) + page.ljust(0x1000, b"\0"))]), X86_64, modules=modules)

    assert find_sanitizer_report(target(REPORT)) == (
        "AddressSanitizer: heap-use-after-free on address 0x602000000010 at pc 0x1; "
        "READ of size 1 at 0x602000000010 thread T0"
    )
    assert find_sanitizer_report(target(REPORT, "/lib/libc.so.6")) is None  # nothing but text that somebody keeps
    assert find_sanitizer_report(target(b"x" + REPORT)) is None
    assert find_sanitizer_report(target(REPORT[:66])) is None


# --- C++ ----------------------------------------------------------------------------------------

CLASS = 0x474E5543432B2B00
TERMINATING = (frame("abort", module="libc.so.6"), frame("std::terminate()", module="libstdc++.so.6"), frame("main"))


class Thrown:
    """An exception of libstdc++ on x86-64, its class's type information and the thread that threw it."""

    def __init__(self):
        self.bytes = bytearray(0x2000)
        self.stack = [0] * 64
        self.names = 0x1000

    def word(self, at, value):
        struct.pack_into("<Q", self.bytes, at, value)

    def text(self, text):
        at, self.names = self.names, self.names + 64
        self.bytes[at : at + len(text)] = text
        return DATA + at

    def type(self, at, name, base=0):
        """Type information: of a class with one base where there is one."""
        kind = b"N10__cxxabiv1" + (b"20__si_class" if base else b"17__class") + b"_type_infoE"
        self.word(at + 0x80, DATA + at + 0xA0)  # before the virtual table: its own type's information
        self.word(at + 0xA8, self.text(kind))
        for offset, value in enumerate((DATA + at + 0x88, self.text(name), base and DATA + base)):
            self.word(at + 8 * offset, value)

    def throw(self, at, kind, handlers=1, references=1, following=0, what=b""):
        """Put an exception whose header is ``at``, and its address on the stack."""
        struct.pack_into("<i", self.bytes, at - 96, references)
        self.word(at - 80, DATA + kind)
        self.word(at - 48, DATA + following - 80 if following else 0)
        struct.pack_into("<i", self.bytes, at - 40, handlers)
        self.word(at, CLASS)
        self.word(at + 40, self.text(what) if what else 0)
        self.stack[at // 256] = DATA + at
        return self

    def target(self):
        stack = struct.pack("<64Q", *self.stack)
        thread = Thread(1, 7, None, STACK, None, {"rbx": 17})
        memory = FakeMemory([(DATA, bytes(self.bytes)), (STACK, stack)])
        return Target(memory, X86_64, threads=[thread], symbols=Names())

    def said(self):
        target = self.target()
        return find_uncaught(target, target.threads[0])


def thrown():
    made = Thrown()
    made.type(0x800, b"9DiskError", 0x900)
    made.type(0x900, b"St13runtime_error")
    return made


def test_an_uncaught_exception_with_its_text():
    made = thrown().throw(0x200, 0x800, what=b"disk is\tfull")
    text = "terminate called after throwing an instance of 'DiskError': disk is\\tfull"
    assert made.said() == text
    target = made.target()
    assert find_last_words(target, target.threads[0], TERMINATING).source == "libstdc++"
    assert find_last_words(target, target.threads[0], TERMINATING[::2]) is None  # abort() in a handler of exceptions
    assert find_last_words(target, target.threads[0], ()) is None


def test_a_type_that_has_no_text():
    made = Thrown()
    made.type(0x800, b"N4shop5ErrorE")
    made.throw(0x200, 0x800, what=b"no text")
    assert made.said() == "terminate called after throwing an instance of 'shop::Error'"


@pytest.mark.parametrize("version", ["", "@GLIBCXX_3.4", "@@GLIBCXX_3.4"])
def test_the_version_of_a_symbol_is_no_part_of_a_type(version, monkeypatch):
    monkeypatch.setattr(Names, "find_name", lambda self, address: f"typeinfo for std::runtime_error{version}")
    made = thrown().throw(0x200, 0x900)
    assert made.said().endswith("instance of 'std::runtime_error'")


def test_exceptions_that_are_over_or_not_certain_are_not_named():
    assert thrown().throw(0x200, 0x800, handlers=0).said() is None
    assert thrown().throw(0x200, 0x800, references=0).said() is None
    assert thrown().throw(0x200, 0x800).throw(0x400, 0x900).said() is None  # two, and nothing says which
    made = thrown().throw(0x200, 0x800).throw(0x400, 0x900, following=0x200)  # thrown while the other was handled
    assert made.said().endswith("'std::runtime_error'")
    assert thrown().said() is None
    made = thrown()
    made.word(0x808, 0xDEAD)  # the type's name is not there
    assert made.throw(0x200, 0x800).said() is None


# --- frames -------------------------------------------------------------------------------------


def aborted(*frames):
    thread = Thread(3, 7, None, STACK, None, {"rip": 0x400123})
    target = Target(FakeMemory([]), X86_64, Identity(pid=7), threads=[thread], signal=SignalInfo(6, -6, None, 7, 0, 7))
    return find_death(target, (), Stacks(*frames))


def test_frames_of_an_abort_begin_in_the_program():
    death = aborted(
        frame("__pthread_kill_implementation", "pthread_kill.c:44", "libc.so.6"),
        frame("raise", None, "libc.so.6"),
        frame("abort", None, "libc.so.6"),
        frame("malloc_printerr", None, "libc.so.6"),
        frame("free", None, "libc.so.6"),
        frame("flush_batch", "main.c:212"),
        frame("worker", "main.c:340"),
        frame("start_thread", None, "libc.so.6"),
        frame("clone", None, "libc.so.6"),
    )
    assert death.frames == ("main.c:212 flush_batch", "main.c:340 worker", "start_thread")
    assert death.trail == "main.c:212 flush_batch ← main.c:340 worker ← start_thread"
    assert death.thread == 3


def test_runtimes_are_passed_over_and_programs_are_not():
    rust = ("abort", "std::process::abort", "rust_panic", "std::panicking::rust_panic", "core::panicking::panic_fmt")
    assert aborted(*map(frame, rust), frame("app::fail", "app.rs:7"), frame("app::main", "app.rs:9")).frames == (
        "app.rs:7 app::fail",
        "app.rs:9 app::main",
    )
    go = ("runtime.raise", "runtime.dieFromSignal", "runtime.crash", "runtime.gopanic")
    assert aborted(*map(frame, go), frame("main.fail", "app.go:2")).frames == ("app.go:2 main.fail",)
    own = aborted(frame("abort", module="libc.so.6"), frame("core::Queue::check", "queue.cc:5"), frame("main"))
    assert own.frames == ("queue.cc:5 core::Queue::check", "main")
    glib = aborted(frame("g_assertion_message", None, "libglib-2.0.so.0"), frame("main", "a.c:1"))
    assert glib.frames == ("a.c:1 main",)


def test_frames_without_names_and_of_a_lost_stack():
    assert aborted(frame(None, None, None, 0x17)).frames == ("0x17",)
    assert aborted(frame("raise"), frame("abort"), frame("main", "a.c:1"), frame(None, None, None, 0x7878)).frames == (
        "a.c:1 main",
    )
    assert aborted(frame("abort", module="libc.so.6")).frames == ("abort",)  # nothing else to show


def test_a_handler_that_aborts_is_looked_through():
    saved = struct.pack("<4Q", 6, 14, 0, 0x18)
    thread = Thread(1, 7, None, STACK, None, {})
    memory = FakeMemory([(STACK, bytes(192) + saved + bytes(64))])
    target = Target(memory, X86_64, Identity(pid=7), threads=[thread], signal=SignalInfo(6, -6, None, 7, 0, 7))
    frames = [frame("abort"), frame("on_signal", "main.c:9"), frame(HANDLER), frame("f", "main.c:4")]
    death = find_death(target, (), Stacks(*frames))
    assert death.frames == ("main.c:4 f",) and death.address == 0x18
    assert death.summary == (
        "SIGABRT in thread 1: raised by the process's own handler of SIGSEGV: address not mapped, 0x18 "
        "(null pointer + 0x18)"
    )
    frames[3] = frame("raise", module="libc.so.6")  # what it handles was no fault: saved registers are old
    death = find_death(target, (), Stacks(*frames))
    assert (death.address, death.cause) == (None, "raised by the process itself")
    frames[3], signal = frame("runtime.raise"), target.signal._replace(number=11)  # of Go
    assert find_death(dataclasses.replace(target, signal=signal), (), Stacks(*frames)).address is None
    unreadable = dataclasses.replace(target, memory=FakeMemory([]))
    assert find_death(unreadable, (), Stacks(*frames[:3], frame("f", "main.c:4"))).frames == ("main.c:4 f",)


def test_a_stack_overflow_that_a_handler_met_on_another_stack():
    saved = struct.pack("<4Q", 6, 14, 0, 0x80FF8)
    thread = Thread(1, 7, None, 0xA0800, None, {})

    class Both(Mapped):
        def read(self, address, size):
            return (bytes(192) + saved).ljust(0x800, b"\0")[address - 0xA0800 :][:size]

    target = Target(Both(*REGIONS), X86_64, Identity(pid=7), threads=[thread], signal=SignalInfo(11, -6, None, 7, 0, 7))
    frames = [frame("on_signal", sp=0xA0800), frame(HANDLER, sp=0xA0800), frame("f", "main.c:4", sp=0x81000)]
    death = find_death(target, (), Stacks(*frames))
    assert death.place == "below the stack of thread 1: stack overflow"
    assert death.frames == ("main.c:4 f",)


# --- on the page --------------------------------------------------------------------------------


def test_the_page_has_it_in_text_and_json():
    target = Target(FakeMemory([]), X86_64)
    death = Death("SIGSEGV", 2, "address not mapped", 0x18, "null pointer + 0x18", None, None, ("a.c:1 main",))
    report = make_page(target, [], {}, died=death)
    text = "".join(render.text(report, exact=False, limit=None))
    assert "died  SIGSEGV in thread 2: address not mapped, 0x18 (null pointer + 0x18)\n      a.c:1 main\n" in text
    document = json.loads("".join(render.json_pieces(report, schema="gdbext/triage/1", target=None, limit=None)))
    assert document["data"]["died"] == {
        "signal": "SIGSEGV", "thread": 2, "cause": "address not mapped", "address": "0x18",
        "place": "null pointer + 0x18", "message": None, "source": None, "frames": ["a.c:1 main"], "stopped": False,
    }  # fmt: skip
    alive = make_page(target, [], {})
    assert alive.data.died is None
    lines = "".join(render.text(alive, exact=False, limit=None)).splitlines()
    assert not [line for line in lines if line.startswith(("died", "in:"))]
