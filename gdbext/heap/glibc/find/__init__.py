"""Where a ptmalloc is, and by which layouts."""
