"""What the jemalloc commands show."""
