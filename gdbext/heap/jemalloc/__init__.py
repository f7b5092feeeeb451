"""jemalloc: where it is in a target, its arenas, extents, bins, caches and decay."""
