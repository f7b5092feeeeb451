"""Damage to jemalloc's own structures, done by gdb through jemalloc's debug info before it writes a core.

Each is one assignment, named by what it spoils, to things of one slab or one arena. What was there before and the
address are noted, so that a test need not find them by itself. gdb is told the names of a version's members here;
nothing is taken from gdbext.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

ARENA = 1  # of the first worker of jemalloc_zoo where there are several
BIN = 5  # a small class with more than one slab there


@dataclass(frozen=True)
class Damage:
    """One assignment.

    :param place: gdb's expression; names of :data:`PLACES` in braces.
    :param value: Python's expression of ``old``, the number that was there.
    """

    place: str
    value: str


_OLD = {
    "bits": "{slab}->e_bits",
    "slab": "{bin}.slabcur",
    "nactive": "{arena}->nactive.repr",
    "dirty": "{arena}->extents_dirty",
    "dirty_npages": "{arena}->extents_dirty.npages.repr",
    "dirty_first": "{arena}->extents_dirty.lru.qlh_first",
    "dirty_bitmap": "{arena}->extents_dirty.bitmap[0]",
    "link": "ql_link.qre_next",
    "sibling": "ph_link.phn_next",
    "root": "{bin}.slabs_nonfull.ph_root",
    "large": "{arena}->stats.lstats[0].nmalloc.repr",
    "cache": "je_tsd_tls.{tsd}tcache.bins_small[{index}]",
    "cached": "{cache}.ncached",
    "object": "*({cache}.avail - {cache}.ncached)",
    "address": "e_addr",
    "bitmap": "{slab}->e_slab_data.bitmap[0]",
}
_NEW = {
    **_OLD,
    "nactive": "{arena}->pa_shard.nactive.repr",
    "dirty_npages": "{arena}->pa_shard.pac.ecache_dirty.eset.npages.repr",
    "dirty_first": "{arena}->pa_shard.pac.ecache_dirty.eset.lru.head.qlh_first",
    "dirty_bitmap": "{arena}->pa_shard.pac.ecache_dirty.eset.bitmap[0]",
    "link": "ql_link_inactive.qre_next",
    "sibling": "heap_link.link.next",
    "root": "{bin}.slabs_nonfull.ph.root",
    "large": "{arena}->stats.lstats[0].nmalloc.val.repr",
    "cache": "je_tsd_tls.{tsd}tcache.bins[{index}]",
    "cached": "{cache}.low_bits_empty",
    "object": "*{cache}.stack_head",
}
_MANGLED = "cant_access_tsd_items_directly_use_a_getter_or_setter_"  # since 5.2
PLACES: Mapping[str, Mapping[str, str]] = {
    "5.1.0": {**_OLD, "bin": "{arena}->bins[{index}]", "tsd": "use_a_getter_or_setter_instead_"},
    "5.2.1": {**_OLD, "bin": "{arena}->bins[{index}].bin_shards[0]", "tsd": _MANGLED},
    "5.3.0": {**_NEW, "bin": "{arena}->bins[{index}]", "tsd": _MANGLED},
    "5.3.1": {**_NEW, "bin": "{arena}->all_bins[{index}]", "tsd": _MANGLED},
}
_NFREE = {"5.1.0": 26, "5.2.1": 26, "5.3.0": 28, "5.3.1": 28}  # lowest bit of e_bits' nfree
_STATE = {"5.1.0": 16, "5.2.1": 16, "5.3.0": 17, "5.3.1": 17}
_SZIND = {"5.1.0": 18, "5.2.1": 18, "5.3.0": 20, "5.3.1": 20}

DAMAGES: Mapping[str, Damage] = {
    "nfree": Damage("{bits}", "old + (1 << {nfree})"),  # one free region too many in the current slab
    "state": Damage("{bits}", "old ^ (2 << {state})"),  # the current slab is muzzy
    "szind": Damage("{bits}", "old | (0xff << {szind})"),  # no such size class
    "owner": Damage("{bits}", "old | 0xfff"),  # no such arena
    "moved": Damage("{slab}->{address}", "old + 0x100000000000"),  # the slab says that it is elsewhere
    "bitmap": Damage("{bitmap}", "old ^ 1"),  # the first region changes between free and used
    "slabcur": Damage("{slab}", "0x123456789000"),  # the bin's current slab is nowhere
    "nactive": Damage("{nactive}", "old + 7"),
    "npages": Damage("{dirty_npages}", "old + 3"),
    "curregs": Damage("{bin}.stats.curregs", "old + 2"),
    "curslabs": Damage("{bin}.stats.curslabs", "old + 1"),
    "link": Damage("{dirty_first}->{link}", "0x123456789000"),  # the list of dirty extents leads nowhere
    "base": Damage("{arena}->base", "0"),  # as in an arena that is still being made
    "arena": Damage("je_arenas[{ARENA}].repr", "0x123456789000"),  # the table of arenas leads nowhere
}

# Damage to what only a check looks at; the caches are those of the thread that gdb selects, the first.
CHECKED: Mapping[str, Damage] = {
    "sibling": Damage("{dirty_first}->{sibling}", "0x123456789000"),  # a heap of dirty extents leads nowhere
    "root": Damage("{root}", "0x123456789000"),  # the heap of the bin's slabs leads nowhere
    "large": Damage("{large}", "old + 3"),
    "object": Damage("{object}", "old + 8"),  # no region begins there
    "cached": Damage("{cached}", "old ^ 0x4000"),  # more objects than there can be
    "heaps": Damage("{dirty_bitmap}", "old ^ (1 << 60)"),  # a heap is in use or not, and the bitmap has the contrary
    "held": Damage("{bin}.lock.lock.__data.__lock", "1"),  # as in a thread that is changing the bin
}

# MALLOC_CONF for programs that are to be damaged: nothing purges the dirty extents that some damage is done to.
UNPURGED = "dirty_decay_ms:-1,muzzy_decay_ms:-1"

_DO = """
import json
told = []
for place, value in {pairs!r}:
    target = gdb.parse_and_eval(place)
    old = int(target) & (1 << 64) - 1
    new = eval(value, {{'old': old}}) & (1 << 64) - 1
    told.append({{'address': int(target.address), 'size': target.type.sizeof, 'before': old, 'after': new}})
    gdb.execute('set var %s = %d' % (place, new))
open({answer!r}, 'w').write(json.dumps(told))
"""


def commands(version: str, names: Sequence[str], answer: Path) -> tuple[str, ...]:
    """Return gdb's commands that do the damages of these names, in order, and write to ``answer`` what they did.

    The file holds a list of {"address", "size", "before", "after"}.
    """
    pairs = [_expressions(version, {**DAMAGES, **CHECKED}[name]) for name in names]
    script = answer.with_name("damage.py")
    script.write_text("import gdb\n" + _DO.format(pairs=pairs, answer=str(answer)))
    return (f"source {script}",)


def _expressions(version: str, damage: Damage) -> tuple[str, str]:
    shifts = {"nfree": _NFREE[version], "state": _STATE[version], "szind": _SZIND[version]}
    return _filled(damage.place, version), damage.value.format(**shifts)


def _filled(place: str, version: str) -> str:
    """Put the names of this version in, as often as they hold others."""
    names = {
        **PLACES[version],
        "arena": "((arena_t *) je_arenas[{ARENA}].repr)",
        "index": str(BIN),
        "ARENA": str(ARENA),
    }
    while "{" in place:
        place = place.format(**names)
    return place
