"""CPython's objects in memory: type objects, strings, dicts."""
