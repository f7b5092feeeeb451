"""Heaps: the neutral model, and one folder for each allocator."""
