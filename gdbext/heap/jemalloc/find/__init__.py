"""Where a jemalloc is, and by which layouts."""
