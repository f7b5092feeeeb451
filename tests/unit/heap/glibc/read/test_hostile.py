"""Damaged heaps: whatever the words say, reading ends in time, with problems or one clear error.

Each case lays out a sound heap, overwrites words of it, reads it, and makes every report of it in both renderings.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gdbext
from gdbext import render
from gdbext._mount import mount
from gdbext.abi import AARCH64, I386, X86_64, Abi
from gdbext.analysis.missing import with_target
from gdbext.errors import FaultError, GdbextError
from gdbext.memory.fake import FakeMemory
from gdbext.report import Problem
from gdbext.session import Session
from tests.support.examples import examples
from tests.support.ptmalloc import PAGE, HeapBuilder

mount(os.path.dirname(gdbext.__file__))

from gdbext.commands import blocks, glibc, leaks, refs, retained, rss, summary, triage, types  # noqa: E402

BIG_ENDIAN = Abi(8, "big", "s390x")
MATRIX = [
    (X86_64, "2.23"),
    (X86_64, "2.31"),
    (X86_64, "2.28-rhel8"),
    (X86_64, "2.36"),
    (X86_64, "2.42"),
    (X86_64, "2.44"),
    (I386, "2.36"),
    (I386, "2.43"),
    (AARCH64, "2.36"),
    (BIG_ENDIAN, "2.31"),
]
SECONDS = 2.0  # of this process's CPU for one heap and all its reports
RANDOM_CASES, USUAL_CASES = 15, 3  # of ten heaps each, one for each machine and release
HOLED_CASES, USUAL_HOLED = 10, 3


class Arguments:
    """A command line that was parsed."""

    def __init__(self, expression="", **values):
        self.expression, self._values = expression, values

    def value(self, name):
        return self._values.get(name)

    def flag(self, name):
        return bool(self._values.get(name))


def commands_of(builder):
    """Every command, as a function of a context."""
    plain = (
        triage.examine,
        rss.account,
        glibc.arenas,
        glibc.heaps,
        glibc.chunks,
        glibc.bins,
        glibc.tcache,
        glibc.mmapped,
        glibc.check,
        glibc.trim,
        summary.summarise,
        blocks.list_blocks,
        leaks.find,
        types.examine,
        retained.find,
    )
    places = (builder.main.segments[0].first + 0x48, builder.main.address, builder.mp, 0x10)
    those = (blocks.describe, refs.find_pointers, refs.find_path)
    at = [(command, Arguments(hex(place), depth=2)) for place in places for command in those]
    return [(command, Arguments(top=5)) for command in plain] + at


def answer_all(image, target=None):
    """Read the heap and make every report; return the reports of the commands that gave one."""
    begun = time.process_time()
    target = target or image.target()
    session = Session(lambda: target)
    reports = {}
    for command, arguments in commands_of(image.builder):
        try:
            report = command(session, arguments)
            "".join(render.text(report, exact=False, limit=None))
            "".join(render.json_pieces(report, schema="gdbext/x/2", target=target, limit=None))
        except GdbextError as error:
            assert "\n" not in str(error)
        else:
            reports[command.__name__] = report
    taken = time.process_time() - begun
    assert taken < SECONDS, f"{taken:.1f} s"
    return reports


def laid_out(abi=X86_64, release="2.36"):
    """A heap with some of everything."""
    builder = HeapBuilder(abi, release)
    sizes = builder.sizes
    first = builder.add_thread()
    second = builder.add_thread(builder.add_arena())
    builder.add_arena().chunk(sizes.minimum)
    for arena in (builder.main, second.arena):
        for number in range(12):
            arena.chunk(0x500 + 0x10 * sizes.alignment * (number % 3), ("bin", "unsorted")[number % 2])
            arena.chunk(sizes.minimum + sizes.alignment * (number % 5))
    second.arena.new_heap()
    for _ in range(3):
        second.arena.chunk(0x90, "bin")
        second.arena.chunk(0x40)
    if "fastbinsY" in builder.malloc_state:
        for _ in range(3):
            builder.main.chunk(sizes.minimum, "fastbin")
    for thread in (first, second):
        for _ in range(4 if thread.cached else 0):
            thread.cache(sizes.minimum + sizes.alignment)
        thread.arena.chunk(sizes.minimum)
    builder.add_mmapped(0x21000)
    builder.add_mmapped(0x41000)
    return builder


class Words:
    """The places that damage can hit, and the values that it can leave there."""

    def __init__(self, image):
        builder = image.builder
        self.word, self.mask = builder.abi.pointer_size, builder.abi.word_mask
        self.places = list(self._places(builder))
        truth = builder.truth()
        chunks = [chunk[0] for chunk in truth["chunks"]]
        self.values = [
            *chunks[::7],
            *truth["arenas"],
            *truth["top"].values(),
            *(start for heaps in truth["heaps"].values() for start in heaps),
            *(start for start, _ in truth["mmapped"]),
            *truth["tcaches"].values(),
            builder.mp, builder.libc, builder.data, *builder.tps.values(),
        ]  # fmt: skip

    def _places(self, builder):
        # By kind, so that a few words of heap_info are hit as often as many of chunks.
        word, arenas = self.word, builder.arenas
        yield [at for arena in arenas for at in self._of(arena.address, builder.malloc_state)]
        yield [at for a in arenas for s in a.segments if not a.main for at in self._of(s.start, builder.heap_info)]
        yield [chunk.address + offset * word for a in arenas for chunk in a.chunks for offset in range(4)]
        yield [arena.top + offset * word for arena in arenas for offset in range(2)]
        yield self._of(builder.mp, builder.malloc_par)
        caches = [thread for thread in builder.threads if thread.cached]
        if caches:
            yield [at for thread in caches for at in self._of(thread.tcache, builder.tcache.struct)]
            nodes = [node for thread in caches for nodes in thread.lists.values() for node in nodes]
            yield [node + offset * word for node in nodes for offset in range(2)]
        yield [start + offset * word for start, _ in builder.mmapped for offset in range(2)]

    def _of(self, address, layout):
        return list(range(address, address + layout.size - self.word + 1, self.word))

    def value(self, rnd, image, place):
        """Something that a stray write may leave, often an address of the heap itself."""
        old = image.peek(place)
        choices = (
            lambda: rnd.choice(self.values) + rnd.choice((0, 0, -self.word, self.word, 8, 16, 1)),
            lambda: rnd.choice((0, 1, 7, 8, 0x10, 0x11, 0x20, 0x21, 0x1000, self.mask, self.mask & ~0xF)),
            lambda: old ^ 1 << rnd.randrange(8 * self.word),
            lambda: rnd.getrandbits(8 * self.word),
            lambda: old + rnd.choice((-1, 1)) * rnd.choice((1, 8, 16, 32, 0x1000, 1 << 20, 1 << 30)),
            lambda: place + rnd.choice((0, -self.word, -2 * self.word, 2 * self.word)),
        )
        return rnd.choice(choices)() & self.mask

    def damage(self, rnd, image, count):
        """Overwrite that many words; return what was written, to be told."""
        written = []
        for _ in range(count):
            place = rnd.choice(rnd.choice(self.places))
            value = self.value(rnd, image, place)
            image.poke(place, value)
            written.append(f"{place:#x}={value:#x}")
        return written


def seeds(count, usual):
    """Return the seeds of a test: the usual run takes the first few."""
    return [pytest.param(seed, marks=[pytest.mark.full] if seed >= usual else []) for seed in range(count)]


@pytest.mark.parametrize("case", seeds(RANDOM_CASES, USUAL_CASES))
def test_random_damage(case):
    for number in range(10):
        rnd = random.Random(f"{case}/{number}")
        image = laid_out(*MATRIX[(case + number) % len(MATRIX)]).build()
        written = Words(image).damage(rnd, image, rnd.choice((1, 1, 2, 4, 16, 64)))
        try:
            answer_all(image)
        except Exception as error:
            raise AssertionError(f"case {case}/{number}: {written}") from error


NUMBER = st.integers(0, (1 << 64) - 1)


@given(st.sampled_from(MATRIX), st.lists(st.tuples(NUMBER, NUMBER, NUMBER, st.booleans()), min_size=1, max_size=3))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_damage_that_shrinks(choice, changes):
    image = laid_out(*choice).build()
    words = Words(image)
    for kind, at, value, address in changes:
        places = words.places[kind % len(words.places)]
        written = words.values[value % len(words.values)] if address else value
        image.poke(places[at % len(places)], written & words.mask)
    answer_all(image)


# Damage with a name.


def cyclic_heaps(image, builder, thread):
    newest, oldest = thread.segments[-1].start, thread.segments[0].start
    image.put(builder.heap_info, oldest, prev=newest)


def heap_that_is_its_own_predecessor(image, builder, thread):
    image.put(builder.heap_info, thread.segments[-1].start, prev=thread.segments[-1].start)


def huge_heap(image, builder, thread):
    image.put(builder.heap_info, thread.segments[-1].start, size=builder.abi.word_mask & -PAGE)


def arena_that_is_next_to_itself(image, builder, thread):
    image.put(builder.malloc_state, thread.address, next=thread.address)


def ring_that_leads_into_its_middle(image, builder, thread):
    image.put(builder.malloc_state, builder.arenas[-1].address, next=builder.arenas[-1].address)


def ring_into_libc(image, builder, thread):
    image.put(builder.malloc_state, thread.address, next=builder.data)


def huge_chunk(image, builder, thread):
    image.poke(builder.main.chunks[0].address + builder.sizes.word, builder.abi.word_mask)


def chunk_of_no_size(image, builder, thread):
    image.poke(builder.main.chunks[0].address + builder.sizes.word, 0)


def cache_list_that_never_ends(image, builder, thread):
    for nodes in builder.threads[0].lists.values():
        slot = nodes[-1]
        image.poke(slot, slot >> 12 ^ nodes[0] if builder.safe_linking else nodes[0])


def top_of_zero(image, builder, thread):
    image.put(builder.malloc_state, builder.main.address, top=0)


def top_in_libc(image, builder, thread):
    image.put(builder.malloc_state, builder.main.address, top=builder.data + 0x10)


def top_of_a_thread_arena_elsewhere(image, builder, thread):
    image.put(builder.malloc_state, thread.address, top=builder.main.top)


def huge_top(image, builder, thread):
    image.poke(builder.main.top + builder.sizes.word, builder.abi.word_mask & ~6)


def huge_system_mem(image, builder, thread):
    most = builder.abi.word_mask
    image.put(builder.malloc_state, builder.main.address, system_mem=most, max_system_mem=most)


def huge_mmaps(image, builder, thread):
    image.put(builder.malloc_par, builder.mp, n_mmaps=(1 << 31) - 1, max_n_mmaps=(1 << 31) - 1)


def wild_sbrk_base(image, builder, thread):
    image.put(builder.malloc_par, builder.mp, sbrk_base=builder.abi.word_mask & -PAGE)


def sbrk_base_in_a_stack(image, builder, thread):
    image.put(builder.malloc_par, builder.mp, sbrk_base=builder.tps[2] & -PAGE)


def prev_sizes_in_a_circle(image, builder, thread):
    for segment in builder.main.segments:
        for chunk in segment.chunks:
            image.poke(chunk.address, builder.abi.word_mask & ~0xF)


# Where brk began is not needed when top's mapping is the only candidate.
UNSEEN = (wild_sbrk_base, sbrk_base_in_a_stack)
NAMED = [
    cyclic_heaps,
    heap_that_is_its_own_predecessor,
    huge_heap,
    arena_that_is_next_to_itself,
    ring_that_leads_into_its_middle,
    ring_into_libc,
    huge_chunk,
    chunk_of_no_size,
    cache_list_that_never_ends,
    top_of_zero,
    top_in_libc,
    top_of_a_thread_arena_elsewhere,
    huge_top,
    huge_system_mem,
    huge_mmaps,
    wild_sbrk_base,
    sbrk_base_in_a_stack,
    prev_sizes_in_a_circle,
]


@pytest.mark.parametrize("damage", NAMED, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("abi, release", [(X86_64, "2.36"), (I386, "2.31"), (BIG_ENDIAN, "2.31")], ids=str)
def test_named_damage_is_told(abi, release, damage):
    builder = laid_out(abi, release)
    image = builder.build()
    damage(image, builder, builder.arenas[1])
    reports = answer_all(image)
    assert reports["check"].problems or damage in UNSEEN


# Absence is not damage.


def holes(image, rnd):
    """Take stretches out of a sound heap's memory, at word boundaries or as a cut takes them; return the target."""
    target = image.target()
    regions, segments = [], []
    for region in target.memory.regions():
        for part in _with_hole(region, rnd):
            regions.append(part)
            if part.source == "memory":
                with suppress(FaultError):  # reserved address space has no bytes
                    segments.append((part.start, bytes(target.memory.read(part.start, part.size))))
    problems = [Problem("truncated-core", None, "the core is truncated")]
    return image.target(memory=FakeMemory(segments, regions), problems=problems)


def _with_hole(region, rnd):
    step = rnd.choice((PAGE, PAGE, 8, 1))
    low, high = sorted(rnd.randrange(0, region.size + 1, step) for _ in range(2))
    if rnd.random() < 0.5 or low == high:
        return [region]
    cuts = [(0, low, region.source), (low, high, "absent"), (high, region.size, region.source)]
    return [
        replace(region, start=region.start + start, end=region.start + end, source=source)
        for start, end, source in cuts
        if start < end
    ]


@pytest.mark.parametrize("case", seeds(HOLED_CASES, USUAL_HOLED))
def test_absent_memory_is_never_corruption(case):
    for number in range(10):
        rnd = random.Random(f"hole {case}/{number}")
        image = laid_out(*MATRIX[(case + number) % len(MATRIX)]).build()
        target = holes(image, rnd)
        reports = answer_all(image, target)
        found = [problem for report in reports.values() for problem in report.problems if problem.corruption]
        assert not found, f"case {case}/{number}: {found[:3]}"
        for name in ("arenas", "check", "trim", "examine", "account"):
            assert name not in reports or not with_target(reports[name], target).complete
