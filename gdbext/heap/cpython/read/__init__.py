"""From the state of an allocator to arenas, pools and blocks."""
