"""A copy for which the time did not suffice: what is needed most is in it, and no answer takes the rest for known."""

from __future__ import annotations

import os

import numpy as np
import pytest

import gdbext
from gdbext.memory.live.copying import Copied
from gdbext.memory.live.mappings import PAGE
from gdbext.snapshot import taking
from gdbext.snapshot.taking import Wishes, take_snapshot
from tests.gdb.test_no_harm import compile_c, folder, started
from tests.support.gdbrun import load_pack, read_envelope, run_gdb
from tests.support.glibcs import Unavailable
from tests.support.jemallocs import DEBIAN, jemalloc
from tests.support.rest import wait_for_rest

assert folder  # a fixture

# Nothing is wrong with it: a list in 10 MB of a heap, and a thread with an arena of its own that waits.
SOUND = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct node { struct node *next; long values[30]; };
struct node *known_list;
long stated = 0x1234567;
pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t known_condition = PTHREAD_COND_INITIALIZER;
static void *waits(void *none) {
    void *volatile own = malloc(64);
    pthread_mutex_lock(&known_lock);
    puts("ready"); fflush(stdout);
    pthread_cond_wait(&known_condition, &known_lock);
    free(own);
    return none;
}
int main(void) {
    pthread_t made;
    for (int i = 0; i < 40000; i++) {
        struct node *one = calloc(1, sizeof *one);
        one->next = known_list;
        known_list = one;
    }
    pthread_create(&made, 0, waits, 0);
    pause();
}
"""
ARENAS = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
long stated[512] = {0x1234567};
long zeros_at_first[1 << 16];
static pthread_barrier_t filled;
void *volatile kept;
static void *fills(void *none) {
    for (int i = 0; i < 1600; i++)
        memset(kept = malloc(6000), 'x', 6000);
    pthread_barrier_wait(&filled);
    pause();
    return none;
}
int main(void) {
    pthread_t made;
    pthread_barrier_init(&filled, 0, 4);
    for (int i = 0; i < 3; i++)
        pthread_create(&made, 0, fills, 0);
    for (int i = 0; i < 1600; i++)
        memset(kept = malloc(6000), 'x', 6000);
    pthread_barrier_wait(&filled);
    puts("ready"); fflush(stdout);
    pause();
}
"""
COMMANDS = (
    "triage", "blocks leaks", "lockwait", "blocks summary", "rss", "walklist known_list --next next",
    "walklist known_list --next next --check",
)  # fmt: skip
CUTS = {
    "nothing": lambda count: range(0),
    "half": lambda count: range(count // 2),
    "all-but-one": lambda count: [*range(count // 3), *range(count // 3 + 1, count)],
    "all": range,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_c(tmp_path_factory.mktemp("cut"), "sound", SOUND, "-pthread", "-g")


@pytest.fixture(scope="module")
def sound(program):
    with started([str(program)]) as pid:
        wait_for_rest(pid)
        yield pid


@pytest.fixture
def cut(monkeypatch):
    """Have the time suffice for some pages alone: which, by their number in the order of copying."""
    copy = taking.copy_pages

    def shorten(choose):
        def copy_some(pid, file, groups, until=None):
            pages = np.concatenate([np.arange(low, high, PAGE) for group in groups for low, high in zip(*group)])
            chosen = np.zeros(len(pages), np.bool_)
            chosen[list(choose(len(pages)))] = True
            copied = pages[chosen].astype(np.uint64)
            done = copy(pid, file, [(copied, copied + np.uint64(PAGE))])
            return Copied([(low, low + PAGE) for low in pages[~chosen].tolist()], done.refused)

        monkeypatch.setattr(taking, "copy_pages", copy_some)

    return shorten


@pytest.mark.parametrize("share", CUTS)
def test_no_answer_of_a_part_is_clean(program, sound, cut, tmp_path, share):
    cut(CUTS[share])
    core = tmp_path / "core"
    snapshot = take_snapshot(sound, Wishes(max_pause=60))
    with open(core, "wb") as out:
        out.truncate(snapshot.size)
        for at, size in snapshot.extents:
            os.pwrite(out.fileno(), os.pread(snapshot.descriptor, size, at), at)
    snapshot.close()
    files = [tmp_path / f"{number}.json" for number in range(len(COMMANDS))]
    asked = [f"gx safe {command} --json={file}" for command, file in zip(COMMANDS, files)]
    words = [word for one in asked for word in ("-ex", one)]
    output = run_gdb([*load_pack(), str(program), str(core), *words])
    found = {command: read_envelope(file, output) for command, file in zip(COMMANDS, files)}
    wanted = {0} if share == "all" else {2, 3}
    assert {command: one["status"] for command, one in found.items() if one["status"] not in wanted} == {}
    for one in found.values():
        assert one["complete"] == (share == "all")
        assert one["data"] is None or share == "all" or "not-copied" in [each["kind"] for each in one["problems"]]


@pytest.mark.parametrize("preloaded,part", (("", 10), ("jemalloc", 4)))
def test_roots_and_what_an_allocator_knows_come_first(cut, folder, preloaded, part):
    """So small a part of the pages has all heaps, threads and variables, though each mapping is large."""
    if preloaded:
        try:
            preloaded = str(jemalloc(DEBIAN).library)
        except Unavailable as reason:
            pytest.skip(str(reason))
    cut(lambda count: range(count // part))
    with started([str(compile_c(folder, "arenas", ARENAS, "-pthread"))], env={"LD_PRELOAD": preloaded}) as pid:
        wait_for_rest(pid)
        with gdbext.open_snapshot(pid, max_pause=60) as session:
            arenas = session.run("jemalloc arenas" if preloaded else "glibc arenas")
            threads, memory = session.target.threads, session.target.memory
            for one in threads:
                assert len(memory.read(one.stack_pointer, 256)) == 256 and len(memory.read(one.tls, 8)) == 8
            variables = [one for one in memory.regions() if one.name.endswith("/arenas") and one.writable]
            assert any(b"\x67\x45\x23\x01" in bytes(memory.read(one.start, one.size)) for one in variables)
    assert not arenas.complete and "not-copied" in [one.kind for one in arenas.problems]
    assert len(threads) == 4 and len(arenas.data.arenas) >= 4
