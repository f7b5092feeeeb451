"""The layout tables against the offsets that gdb read from each libc's debug info."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gdbext.abi import AARCH64, I386, X86_64, Abi
from gdbext.errors import LayoutError
from gdbext.heap.glibc import layouts
from gdbext.heap.glibc.layouts import CANONICAL
from gdbext.heap.glibc.sizes import sizes_for

DATA = Path(__file__).parent / "data"
ABIS = {
    "x86_64": (X86_64, 16),
    "i386": (I386, 16),
    "arm64": (AARCH64, 16),
    "s390x": (Abi(8, "big", "s390x"), 16),
    "armhf": (Abi(4, "little", "arm"), 8),
}

# Which variant each release must have: (malloc_state, heap_info, malloc_par, tcache).
RELEASES = {
    "2.23": ("2.23", "2.23", "2.23", None),
    "2.27": ("2.27", "2.23", "2.26", "2.26"),
    "2.31": ("2.27", "2.23", "2.26", "2.30"),
    "2.35": ("2.27", "2.35", "2.35", "2.30"),
    "2.36": ("2.27", "2.35", "2.35", "2.30"),
    "2.39": ("2.27", "2.35", "2.35", "2.30"),
    "2.41": ("2.27", "2.35", "2.35", "2.30"),
    "2.42": ("2.27", "2.35", "2.35", "2.42"),
    "2.43": ("2.43", "2.35", "2.43", "2.42"),
    "2.44": ("2.43", "2.35", "2.44", "2.42"),
}

FACTS = sorted(path.stem for path in DATA.glob("2.*.json"))


def facts(name):
    return json.loads((DATA / f"{name}.json").read_text())["structs"]


def abi_of(name):
    return ABIS[name.rsplit("-", 1)[1]]


def pick(candidates, since):
    (found,) = [layout for layout in candidates if layout.origin.split()[1] == since]
    return found


def check(layout, recorded):
    assert layout.size == recorded["size"]
    seen = {
        CANONICAL.get(name, name): (offset, extent)
        for name, (offset, extent, _count) in recorded["members"].items()
        if name != "pad"
    }
    ours = {name: (m.offset, m.extent) for name, m in layout.members.items() if name != "pad"}
    assert ours == seen


@pytest.mark.parametrize("name", FACTS)
def test_malloc_state_matches_debug_info(name):
    abi, alignment = abi_of(name)
    since = RELEASES[name[:4]][0]
    check(pick(layouts.malloc_states(abi, alignment), since), facts(name)["malloc_state"])


@pytest.mark.parametrize("name", FACTS)
def test_heap_info_matches_debug_info(name):
    abi, alignment = abi_of(name)
    since = RELEASES[name[:4]][1]
    check(pick(layouts.heap_infos(abi, alignment), since), facts(name)["_heap_info"])


@pytest.mark.parametrize("name", FACTS)
def test_malloc_par_matches_debug_info(name):
    abi, _ = abi_of(name)
    since = RELEASES[name[:4]][2]
    check(pick(layouts.malloc_pars(abi), since), facts(name)["malloc_par"])


@pytest.mark.parametrize("name", FACTS)
def test_tcache_matches_debug_info(name):
    since = RELEASES[name[:4]][3]
    recorded = facts(name).get("tcache_perthread_struct")
    assert (recorded is None) == (since is None)
    if recorded is not None:
        abi, _ = abi_of(name)
        keyed = "key" in facts(name)["tcache_entry"]["members"]
        (found,) = [
            cache
            for cache in layouts.tcache_layouts(abi)
            if cache.struct.origin.split()[1] == since and ("key" in cache.entry) == keyed
        ]
        check(found.struct, recorded)
        check(found.entry, facts(name)["tcache_entry"])
        assert found.counts_down == ("num_slots" in recorded["members"])


def test_every_release_of_the_matrix_has_facts():
    assert {name[:4] for name in FACTS} == set(RELEASES)
    assert {name.rsplit("-", 1)[1] for name in FACTS} == set(ABIS)


def test_fastbins_follow_the_alignment():
    # i386 before 2.26 aligned to 8; facts from the macro fastbin_index worked out by hand.
    assert layouts.fastbin_count(sizes_for(I386, 8)) == 10
    assert layouts.fastbin_count(sizes_for(I386, 16)) == 11
    assert layouts.fastbin_count(sizes_for(X86_64, 16)) == 10


def test_chunk_sizes_include_an_absorbed_remainder():
    assert layouts.chunk_sizes(sizes_for(X86_64, 16), 640) == (0x290, 0x2A0)
    assert layouts.chunk_sizes(sizes_for(I386, 16), 384) == (0x190,)
    assert layouts.chunk_sizes(sizes_for(I386, 8), 384) == (0x188, 0x190)


def test_heap_max_default():
    assert layouts.heap_max_default(X86_64) == 64 << 20
    assert layouts.heap_max_default(I386) == 1 << 20


def test_debug_layouts_get_canonical_names():
    newest = layouts.tcache_layouts(X86_64)[0]
    named = newest.struct.renamed({"counts": "num_slots"})
    cache = layouts.tcache_from_debug(named, newest.entry)
    assert cache.counts_down and cache.bins == 76
    assert cache.struct.offset("counts") == 0
    with pytest.raises(LayoutError, match="no member num_slots"):
        cache.struct.offset("num_slots")
