"""Places for pages, and copying to them; of our own memory, whose contents Python knows."""

from __future__ import annotations

import ctypes
import mmap
import os
import random

import numpy as np
import pytest

from gdbext.errors import TooLargeError
from gdbext.memory.intervals import Coverage, columns, shared
from gdbext.memory.live import copying
from gdbext.memory.live.copying import CopyFile, Places, copy_pages, plan_places, run_parallel
from gdbext.memory.live.mappings import Mapping

PAGE = 4096
BASE = 0x7F0000000000
PROTECT = ctypes.CDLL(None).mprotect


def runs(*pairs):
    return columns(pairs)


def span_of(places):
    return int((places.covered.ends - places.covered.starts).sum())


def test_what_lies_close_together_has_one_place():
    mapping = Mapping(BASE, BASE + (1 << 40), "")
    places = plan_places(
        runs((BASE, BASE + PAGE), (BASE + (8 << 20), BASE + (9 << 20)), (BASE + (1 << 39), BASE + (1 << 39) + PAGE)),
        [mapping],
    )
    assert len(places.offsets) == 2 and span_of(places) < 64 << 20
    assert places.locate(np.array([BASE + (8 << 20) + 5], np.uint64)).tolist() == [copying.FIRST + (8 << 20) + 5]


def test_a_small_mapping_has_one_place_with_all_of_it():
    places = plan_places(runs((BASE + PAGE, BASE + 2 * PAGE)), [Mapping(BASE, BASE + (1 << 20), "")])
    assert (places.covered.starts.tolist(), places.covered.ends.tolist()) == ([BASE], [BASE + (1 << 20)])


@pytest.mark.parametrize("step,count", ((32 << 20, 40_000), (1 << 30, 20_000), (3 * PAGE, 100_000)))
def test_neither_places_nor_the_file_grow_without_bounds(step, count):
    starts = np.uint64(BASE) + np.arange(count, dtype=np.uint64) * np.uint64(step)
    places = plan_places((starts, starts + np.uint64(PAGE)), [Mapping(BASE, BASE + step * count, "")])
    assert Coverage(places.covered.starts, places.covered.ends).holds(starts).all()
    assert span_of(places) <= 1 << 42


@pytest.mark.parametrize("seed", range(20))
def test_places_do_not_overlap(seed):
    chance = random.Random(seed)
    edges = sorted(chance.sample(range(1, 1 << 20), 2 * chance.randrange(1, 60)))
    wanted = runs(*((BASE + PAGE * low, BASE + PAGE * high) for low, high in zip(edges[::2], edges[1::2])))
    places = plan_places(wanted, [Mapping(BASE, BASE + PAGE * (1 << 20), "")])
    assert Coverage(places.covered.starts, places.covered.ends).holds_whole(*wanted).all()
    rows = sorted(zip(places.offsets.tolist(), (places.covered.ends - places.covered.starts).tolist()))
    assert rows[0][0] == copying.FIRST and all(at + size <= behind for (at, size), (behind, _) in zip(rows, rows[1:]))


def test_what_is_new_gets_a_place_behind():
    file = CopyFile(Places(Coverage(*runs((BASE, BASE + PAGE))), np.array([PAGE], np.uint64), 2 * PAGE))
    new = file.add_places(runs((BASE - PAGE, BASE + 3 * PAGE)))
    assert [column.tolist() for column in new] == [[BASE - PAGE, BASE + PAGE], [BASE, BASE + 3 * PAGE]]
    assert file.places.locate(np.array([BASE - PAGE, BASE, BASE + PAGE], np.uint64)).tolist() == [
        2 * PAGE,
        PAGE,
        3 * PAGE,
    ]
    assert [len(column) for column in file.add_places(runs((BASE, BASE + (1 << 40))))] == [
        0,
        0,
    ]  # there is no such room
    file.close()


@pytest.fixture
def area():
    """Pages of random bytes, and where they are."""
    size = 9 << 20
    made = mmap.mmap(-1, size)
    made[:] = os.urandom(size)
    return made, np.frombuffer(made, np.uint8).ctypes.data


def copied(start, wanted, **how):
    mapping = Mapping(start, start + (9 << 20), "")
    file = CopyFile(plan_places(wanted, [mapping]))
    file.populate(wanted)
    placed = shared(Coverage(*wanted), file.places.covered)[:2]
    return file, copy_pages(os.getpid(), file, [placed], **how)


def test_pages_are_copied_to_their_places(area):
    made, start = area
    pairs = [(start + at * PAGE, start + at * PAGE + PAGE) for at in range(0, 2200, 2)]  # more than one call takes
    file, done = copied(start, runs(*pairs))
    assert not done.late and not done.refused
    assert all(file.at(low, high) == made[low - start : high - start] for low, high in pairs)
    assert bytes(file.at(start + PAGE, start + 2 * PAGE)) == bytes(PAGE)


def test_pages_without_access_are_copied_too(area):
    made, start = area
    whole = made[:]
    assert not PROTECT(ctypes.c_void_p(start + 5 * PAGE), ctypes.c_size_t(3 * PAGE), 0)
    file, done = copied(start, runs((start, start + (9 << 20))))
    assert not PROTECT(ctypes.c_void_p(start + 5 * PAGE), ctypes.c_size_t(3 * PAGE), 3)
    assert not done.refused and file.at(start, start + (9 << 20)) == whole


def test_what_is_not_mapped_is_refused_page_by_page(area):
    made, start = area
    hole = mmap.mmap(-1, 1 << 20)
    gone = np.frombuffer(hole, np.uint8).ctypes.data
    pages = runs((gone, gone + 2 * PAGE))
    file = CopyFile(plan_places(pages, [Mapping(gone, gone + (1 << 20), "")]))
    assert not ctypes.CDLL(None).munmap(ctypes.c_void_p(gone), ctypes.c_size_t(2 * PAGE))
    done = copy_pages(os.getpid(), file, [pages])
    ctypes.CDLL(None).mmap(ctypes.c_void_p(gone), ctypes.c_size_t(2 * PAGE), 0, 0x32, -1, 0)  # hole unmaps it later
    assert sorted(done.refused) == [(gone, gone + PAGE), (gone + PAGE, gone + 2 * PAGE)]


def test_what_is_late_is_not_copied(area):
    _, start = area
    file, done = copied(start, runs((start, start + (9 << 20))), until=0.0)
    assert sum(high - low for low, high in done.late) == 9 << 20
    assert not np.frombuffer(file.bytes, np.uint8)[: 9 << 20].any()


def test_a_fault_of_any_thread_is_raised():
    def work(piece):
        if piece == 50:
            raise TooLargeError("fifty")

    with pytest.raises(TooLargeError, match="fifty"):
        run_parallel(4, list(range(100)), work)


def test_an_old_kernel_without_populate(monkeypatch, area):
    def refuse(*_):
        ctypes.set_errno(22)
        return -1

    monkeypatch.setattr(copying, "_madvise", refuse)
    made, start = area
    file, _ = copied(start, runs((start, start + (9 << 20))))
    assert file.at(start, start + (9 << 20)) == made[:]
    assert os.fstat(file.descriptor).st_blocks * 512 >= 9 << 20


def test_no_memory_is_an_error(monkeypatch, area):
    def refuse(*_):
        ctypes.set_errno(12)
        return -1

    monkeypatch.setattr(copying, "_madvise", refuse)
    _, start = area
    with pytest.raises(TooLargeError, match="no memory for a copy"):
        copied(start, runs((start, start + (9 << 20))))
