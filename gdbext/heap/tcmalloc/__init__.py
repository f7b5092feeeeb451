"""gperftools' tcmalloc, 2.7 to 2.18: spans by the page map, objects by size class, caches by their lists.

Google's allocator of the same name shares no structure with it and is not read.
"""
