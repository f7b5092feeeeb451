"""Threads and locks laid out by hand, for the lock census."""

import struct

from gdbext.abi import X86_64
from gdbext.memory.fake import FakeMemory
from gdbext.process import Thread
from gdbext.structures.locks.census import take_census
from gdbext.target import Target

LOCK, TLS, STACK, CODE = 0x10000, 0x200000, 0x300000, 0x400000
RESTART = -512 & (1 << 64) - 1
PRIVATE, BITSET_RT = 0x80, 0x189


class World:
    """A target with some threads, each with a stack and a struct pthread that holds its id."""

    def __init__(self, abi=X86_64, foreign=0):
        self.abi = abi
        self.lock = bytearray(0x1000)
        self.threads = []
        self.segments = []
        self.modules = []
        self.foreign = foreign
        self.code = bytearray(0x1000)
        self.tid_at = {8: 0x2D0, 4: 0x68}[abi.pointer_size]

    def thread(self, registers, stack=b""):
        number = len(self.threads) + 1
        tls, sp = TLS + number * 0x1000, STACK + number * 0x1000
        if self.abi.machine == "aarch64":
            block = bytearray(0x1800)  # struct pthread lies below the thread pointer
            struct.pack_into("<i", block, 0x800 + 0xD0, 1000 + number + self.foreign)
            tls = TLS + number * 0x2000 + 0x1000
            self.segments.append((tls - 0x1000, bytes(block)))
        else:
            block = bytearray(0x1000)
            struct.pack_into(f"{self.abi.order_mark}i", block, self.tid_at, 1000 + number + self.foreign)
            self.segments.append((tls, bytes(block)))
        self.segments.append((sp, stack.ljust(0x800, b"\0")))
        self.threads.append(Thread(number, 1000 + number, None, sp, tls, registers))
        return number

    def words(self, offset, *values):
        struct.pack_into(f"{self.abi.order_mark}{len(values)}I", self.lock, offset, *values)

    def census(self, stacks=None):
        memory = FakeMemory([(LOCK, bytes(self.lock)), (CODE, bytes(self.code)), *self.segments])
        target = Target(memory, self.abi, modules=self.modules, threads=self.threads)
        return take_census(target, stacks) if stacks else take_census(target)

    def wait(self, number=1, stacks=None):
        return self.census(stacks).waits[number - 1]


def futex(address, operation, value, timeout=0, result=RESTART, call=202):
    arguments = {"rdi": address, "rsi": operation, "rdx": value, "r10": timeout, "r8": 0, "r9": 0}
    if operation & 0x7F == 9:
        arguments["r9"] = 0xFFFFFFFF  # FUTEX_BITSET_MATCH_ANY
    return {"orig_rax": call, "rax": result, "rip": CODE, **arguments}


def two_threads(world, registers):
    """The waiter is thread 1; thread 2, whose id is 1002, holds the lock."""
    world.thread(registers)
    world.thread({"orig_rax": (1 << 64) - 1, "rax": 1, "rip": CODE + 0x800})
    return world
