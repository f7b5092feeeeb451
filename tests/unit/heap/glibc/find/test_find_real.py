"""Finding the heap in real cores, without gdb and without symbols.

Oracle: ``malloc_info`` of the program itself, and the addresses in libc's detached ``.symtab`` (libc6-dbg).
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from gdbext.coretarget import read_core_target
from gdbext.heap.glibc.find.globals import find_arenas
from gdbext.heap.glibc.find.invariants import Probe
from gdbext.heap.glibc.find.tcaches import find_thread_arenas
from gdbext.heap.glibc.find.tls import thread_pointers, vote_offset
from gdbext.heap.glibc.read.build import read_heap
from gdbext.progress import SILENT

THREADS = 3
SOURCE = r"""
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
static pthread_barrier_t barrier;
static void *kept[1000];
static void work(long id) {
  void *p[40];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 40; i++) p[i] = malloc(24 + (i % 8) * 40 + round * 700);
    for (int i = 0; i < 40; i += 2) free(p[i]);
    for (int i = 1; i < 40; i += 2) kept[id * 200 + round * 40 + i] = p[i];
  }
}
static void *run(void *id) {
  work((long) id);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return 0;
}
int main(void) {
  pthread_t thread;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 128 << 10);
  pthread_barrier_init(&barrier, 0, THREADS + 1);
  work(0);
  kept[999] = malloc(300000);
  for (long id = 1; id <= THREADS; id++) pthread_create(&thread, &small, run, (void *) id);
  pthread_barrier_wait(&barrier);
  malloc_info(0, stderr);
  abort();
}
"""
FORMS = {"dynamic": [], "static": ["-static"], "i386": ["-m32"]}


def dump(folder, form):
    """Run the program, and return its core and what malloc_info said; skip where that can't be done."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    pattern = Path("/proc/sys/kernel/core_pattern")
    if not pattern.exists() or pattern.read_text().strip() != "core":
        pytest.skip("this machine's kernel does not write cores named core")
    (folder / "heap.c").write_text("#include <stdio.h>\n" + SOURCE)
    command = ["gcc", "-O0", "-pthread", f"-DTHREADS={THREADS}", *FORMS[form], "heap.c", "-o", "heap"]
    if subprocess.run(command, cwd=folder, capture_output=True).returncode:
        pytest.skip(f"gcc cannot link {form} programs here")
    done = subprocess.run(["./heap"], cwd=folder, capture_output=True, preexec_fn=no_core_limit, text=True)
    cores = list(folder.glob("core*"))
    if not cores:
        pytest.skip("no core was written")
    return cores[0], ElementTree.fromstring(done.stderr)


def no_core_limit():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)


def debug_symbols(module):
    """Return name to value of the .symtab in the module's detached debug file; skip without one."""
    build_id = module.build_id
    path = Path("/usr/lib/debug/.build-id") / build_id[:2] / f"{build_id[2:]}.debug"
    if not path.exists() or not shutil.which("readelf"):
        pytest.skip("no libc6-dbg for this libc, or no readelf")
    text = subprocess.run(["readelf", "-sW", str(path)], capture_output=True, text=True).stdout
    rows = re.findall(r"^\s*\d+: ([0-9a-f]+)\s+\d+ (?:OBJECT|TLS) .* (\S+)$", text, re.MULTILINE)
    return {name: int(value, 16) for value, name in rows}


@pytest.mark.parametrize("form", FORMS)
def test_arenas_and_caches_of_a_real_core(tmp_path, form):
    core, info = dump(tmp_path, form)
    target = read_core_target(str(core))
    location = find_arenas(target, SILENT)
    heaps = info.findall("heap")
    assert len(location.arenas) == len(heaps) == THREADS + 1
    sizes = [int(heap.find("system[@type='current']").get("size")) for heap in heaps]
    systems = [location.malloc_state.read(target.reader, at, "system_mem") for at in location.arenas]
    assert sorted(systems) == sorted(sizes)
    mapped = info.find("total[@type='mmap']")
    par = location.malloc_par_layout
    assert par.read(target.reader, location.malloc_par, "n_mmaps") == int(mapped.get("count"))
    assert par.read(target.reader, location.malloc_par, "mmapped_mem") == int(mapped.get("size"))
    assert not location.problems and not location.trusted_debug
    owned = find_thread_arenas(target, location)
    assert sorted(owned.values()) == sorted(location.arenas)


def test_addresses_are_those_of_the_symbol_table(tmp_path):
    core, _ = dump(tmp_path, "dynamic")
    target = read_core_target(str(core))
    location = find_arenas(target, SILENT)
    libc = target.find_module(location.main_arena)
    symbols = debug_symbols(libc)
    assert location.main_arena == libc.base + symbols["main_arena"]
    assert location.malloc_par == libc.base + symbols["mp_"]
    # TLS symbols hold offsets in libc's block; how far apart two are does not depend on where it is
    probe = Probe(target)
    caches = [cache.at for cache in read_heap(target, SILENT).caches]
    assert sorted(cache.thread.number for cache in caches) == [1, 2, 3, 4]
    pointers = thread_pointers(probe)
    cache = vote_offset(probe, pointers, np.array([each.address for each in caches], np.uint64))
    arena = vote_offset(probe, pointers, np.array(location.arenas, np.uint64))
    assert cache.threads == arena.threads == THREADS + 1
    assert arena.offset - cache.offset == symbols["thread_arena"] - symbols["tcache"]
