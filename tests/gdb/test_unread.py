"""Heaps of real programs that are named and not read: as many bytes as their own counters say, little without an owner.

Each program writes what it knows of its heap, then waits.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import gdbrun
from tests.support.glibcs import Unavailable
from tests.support.runtimes import installed, unpacked_runtime

ROOT = Path(__file__).resolve().parents[2]
FEW = 0.05  # of what is resident: how much may be without an owner

PHP = """<?php $a = []; for ($i = 0; $i < 60000; $i++) $a[] = ["id" => $i, "name" => "name$i"];
$huge = str_repeat("x", 5000000); echo memory_get_usage(true), "\\n"; sleep(1000);"""
RUBY = """$a = (0...60000).map { |i| {id: i, name: "name#{i}"} }
puts GC.stat(:heap_allocated_pages) * 16384; $stdout.flush; sleep"""
NODE = """globalThis.all = []; for (let i = 0; i < 60000; i++) all.push({id: i, name: "name" + i});
const spaces = require("v8").getHeapSpaceStatistics().map(one => one.space_size);
require("fs").writeSync(1, spaces.reduce((sum, one) => sum + one, 0) + "\\n");
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);"""
GO = """package main
import ("fmt"; "runtime"; "runtime/debug"; "time")
var all [][]int
func main() {
	debug.SetGCPercent(-1) // a collection's work buffers are in the heap's arenas, and in neither figure
	for i := 0; i < 50000; i++ { all = append(all, []int{i, i + 1, 3, 4, 5}) }
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println(m.HeapSys + m.StackSys)
	time.Sleep(1e18)
}
"""
ASAN = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 20000; i++) memset(malloc(500), 1, 500);
    for (int i = 0; i < 4; i++) memset(malloc(4 << 20), 1, 4 << 20);
    puts("0");
    fflush(stdout);
    pause();
}
"""


def php(folder):
    runtime = unpacked_runtime("php8.2")
    (folder / "load.php").write_text(PHP)
    return [str(runtime.program), "-n", "-d", "memory_limit=1G", "load.php"], runtime.environment


def ruby(folder):
    runtime = unpacked_runtime("ruby3.1")
    (folder / "load.rb").write_text(RUBY)
    return [str(runtime.program), "--disable-gems", "load.rb"], runtime.environment


def node(folder):
    (folder / "load.js").write_text(NODE)
    return [str(installed("node").program), "load.js"], {}


def go_stripped(folder):
    (folder / "load.go").write_text(GO)
    go = str(installed("go").program)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GOCACHE": str(gocache()), "GOTOOLCHAIN": "local"}
    command = [go, "build", "-ldflags=-s -w", "-o", "load-go", "load.go"]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=300)
    return [str(folder / "load-go")], {}


def gocache():
    from tests.support.cache import cache_dir

    return cache_dir("go-build")


def asan(folder):
    (folder / "load.c").write_text(ASAN)
    command = ["gcc", "-fsanitize=address", "load.c", "-o", "load-asan"]
    if not shutil.which("gcc") or subprocess.run(command, cwd=folder, capture_output=True).returncode:
        raise Unavailable("no gcc with AddressSanitizer on this machine")
    return [str(folder / "load-asan")], {}


def rss_of(make, folder):
    """Return what a program wrote of itself, and the ledger of it."""
    try:
        command, environment = make(folder)
    except Unavailable as reason:
        pytest.skip(str(reason))
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", **environment},
        start_new_session=True,
        preexec_fn=gdbrun.die_with_parent,
    )
    try:
        own = process.stdout.readline()
        assert own.strip().isdigit(), own
        command = [str(ROOT / "bin/gdbext"), "rss", "--pid", str(process.pid), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return int(own), json.loads(done.stdout)
    finally:
        gdbrun.kill_group(process)


@pytest.mark.parametrize(
    "make, lines, off",
    [
        (php, ["PHP heap"], 0),
        (ruby, ["Ruby heap pages"], 0),
        (node, ["V8 heap"], 1 << 17),
        (go_stripped, ["Go heap"], 0),
        (asan, ["AddressSanitizer heap", "AddressSanitizer shadow"], None),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_as_many_bytes_as_the_program_s_own_counters(make, lines, off, tmp_path):
    own, envelope = rss_of(make, tmp_path)
    ledger = envelope["data"]
    entries = {one["owner"]: one for one in ledger["entries"]}
    assert ledger["residual"] == 0
    assert set(lines) <= set(entries)
    if off is not None:
        assert abs(entries[lines[0]]["bytes"] - own) <= off
    rest = entries.get("anonymous rest", {"resident": 0})["resident"]
    assert rest <= FEW * ledger["resident"], entries
    assert set(lines) <= {one["subject"] for one in envelope["evidence"]}


MAPS = """#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *mapped(size_t size, size_t align) {
    uintptr_t at = (uintptr_t)mmap(0, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memset((void *)((at + align - 1) & ~(align - 1)), 1, size);
}
int main(void) {
    for (int i = 0; i < 20; i++) {
        void **page = mapped(1 << 18, 1 << 18), **chunk = mapped(1 << 21, 1 << 21);
        page[0] = page, page[1] = chunk, chunk[0] = page, chunk[1] = chunk, chunk[2] = chunk;
    }
    puts("0");
    fflush(stdout);
    pause();
}
"""


def maps(folder):
    (folder / "maps.c").write_text(MAPS)
    subprocess.run(["gcc", "maps.c", "-o", "maps"], cwd=folder, check=True)
    return [str(folder / "maps")], {}


def test_a_program_that_maps_such_sizes_itself_has_no_such_name(tmp_path):
    _, envelope = rss_of(maps, tmp_path)
    entries = {one["owner"]: one for one in envelope["data"]["entries"]}
    assert entries["anonymous rest"]["resident"] >= 20 * ((1 << 18) + (1 << 21))
    assert not any(word in owner for owner in entries for word in ("V8", "PHP", "Ruby", "Go ", "InnoDB", "Sanitizer"))
