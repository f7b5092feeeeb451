"""The address space drawn to scale: which pages are used, cached, free, returned, never touched."""
