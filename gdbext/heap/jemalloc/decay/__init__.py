"""How a jemalloc gives unused pages back."""
