"""A jemalloc read: extents, slabs, arenas, threads."""
