"""A gdb that the library borrows for names and types."""
