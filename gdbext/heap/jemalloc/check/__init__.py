"""Whether what a jemalloc says of itself agrees."""
