"""Objects of CPython in the blocks of whatever heap: what they are, and what they own."""
