"""ptmalloc, glibc's allocator: finding it, walking it, checking it."""
