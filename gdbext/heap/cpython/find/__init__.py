"""Where an interpreter and the state of its allocator are."""
