"""The baseline: jemalloc's radix tree walked with gdb.Value, every slab counted into its bin, as a script in gdb would.

Sourced into gdb; needs jemalloc's debug info, of 5.3.0. Prints the number of slabs, regions in use and free bits.
"""

import gdb

gdb.execute("set max-value-size unlimited")

TREE = gdb.parse_and_eval("je_arena_emap_global.rtree")
LEVELS = gdb.parse_and_eval("rtree_levels")
NODE = gdb.lookup_type("rtree_node_elm_t").pointer()
LEAF = gdb.lookup_type("rtree_leaf_elm_t").pointer()
EXTENT = gdb.lookup_type("edata_t").pointer()
HEIGHT = LEVELS.type.range()[1] + 1
COMPACT = any(field.name == "le_bits" for field in LEAF.target().fields())


def leaves(node, level):
    for number in range(1 << int(LEVELS[level]["bits"])):
        child = node[number]["child"]["repr"]
        if int(child) == 0:
            continue
        if level + 2 == HEIGHT:
            yield child.cast(LEAF)
        else:
            yield from leaves(child.cast(NODE), level + 1)


def extent_of(element):
    if not COMPACT:
        return int(element["le_edata"]["repr"])
    return int(element["le_bits"]["repr"]) & ((1 << 48) - 1) & ~0x7F


def count():
    infos = gdb.parse_and_eval("je_bin_infos")
    nregs = [int(infos[number]["nregs"]) for number in range(infos.type.range()[1] + 1)]
    slabs, used, free = ([0] * len(nregs) for _ in range(3))
    seen = 0
    for leaf in leaves(TREE["root"][0].address, 0):
        for number in range(1 << int(LEVELS[HEIGHT - 1]["bits"])):
            at = extent_of(leaf[number])
            if at == 0 or at == seen:
                continue
            seen = at
            extent = gdb.Value(at).cast(EXTENT)
            bits = int(extent["e_bits"])
            if not bits >> 12 & 1 or bits >> 17 & 7:
                continue
            size = bits >> 20 & 0xFF
            slabs[size] += 1
            used[size] += nregs[size] - (bits >> 28 & 0x3FF)
            bitmap = extent["e_slab_data"]["bitmap"]
            for group in range((nregs[size] + 63) // 64):
                free[size] += bin(int(bitmap[group])).count("1")
    for number in range(len(nregs)):
        print(f"bin {number} slabs {slabs[number]} used {used[number]} free {free[number]}")
    print(f"slabs {sum(slabs)} used {sum(used)} free {sum(free)}")


count()
