"""Memory of heaps and runtimes that gdbext names and does not read: recognised by structure, by mapping, or by both."""
