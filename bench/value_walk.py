"""The baseline: main_arena walked with gdb.Value, chunk by chunk, as scripts in gdb usually do.

Sourced into gdb; needs libc's debug info. Prints the number of chunks and the bytes in use.
"""

import gdb


def walk():
    chunk_type = gdb.lookup_type("struct malloc_chunk").pointer()
    arena = gdb.parse_and_eval("(struct malloc_state *) &main_arena")
    top = int(arena["top"])
    address = int(gdb.parse_and_eval("(long) mp_.sbrk_base"))
    count = used = 0
    while address < top:
        chunk = gdb.Value(address).cast(chunk_type)
        size = int(chunk["mchunk_size"]) & ~7
        following = gdb.Value(address + size).cast(chunk_type)
        if int(following["mchunk_size"]) & 1:
            used += size
        count += 1
        address += size
    print(f"chunks {count} in-use-bytes {used}")


walk()
