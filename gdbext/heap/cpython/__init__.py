"""CPython: its small-object allocator, and what its objects look like."""
