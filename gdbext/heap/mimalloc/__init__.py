"""mimalloc 1.8.4 to 2.4: segments of pages of blocks of one size; 3.x has no segments and is not read."""
