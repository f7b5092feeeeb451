"""A ptmalloc read: segments, chunks, free lists."""
